"""A real browser and the course's own JupyterLab, on a copy: the repository stays as it is."""

import dataclasses
import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import time

import chromium
import pytest
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv/bin/python"

# What JupyterLab asks at its first start, in a corner of the page, answered.
_NOTIFICATIONS = {"fetchNews": "false", "checkForUpdates": False}


def pytest_sessionstart() -> None:
    try:
        chromium.executable()
    except FileNotFoundError as error:
        pytest.exit(str(error), returncode=3)


def environment() -> dict[str, str]:
    """The environment of a person's terminal: nothing of the tests' own venv is in it."""
    ours = ("PYTEST_", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "JUPYTER", "IPYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def copied(folder: pathlib.Path) -> pathlib.Path:
    """Copy the course as far as its commands need it."""
    for name in ("helpers", "notebooks", "tpu_preflight"):
        hidden = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / name, folder / name, ignore=hidden)
    for path in (ROOT / "pyproject.toml", ROOT / "requirements.txt", *ROOT.glob("*.md")):
        shutil.copy(path, folder)
    return folder


@dataclasses.dataclass(frozen=True)
class Lab:
    """A running JupyterLab: the course that it serves, its address with a slash, its token."""

    folder: pathlib.Path
    address: str
    token: str

    def url(self, notebook: str) -> str:
        """Where a notebook is opened, by its file name without suffix."""
        return f"{self.address}lab/tree/{notebook}.ipynb?reset&token={self.token}"


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    own = tmp_path_factory.mktemp("lab")
    folder = copied(tmp_path_factory.mktemp("course"))
    settings = own / "JUPYTERLAB_SETTINGS_DIR/@jupyterlab/apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(_NOTIFICATIONS))
    names = ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR", "JUPYTER_CONFIG_DIR")
    names += ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "XDG_DATA_HOME")
    places = {name: str(own / name) for name in names}
    token = secrets.token_hex()
    # What `make lab` serves: the learner's copies, without stored outputs.
    prepare = "from helpers.course import working; working.prepare()"
    subprocess.run([PYTHON, "-c", prepare], cwd=folder, env=environment(), check=True)
    command = [PYTHON, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
    command += [f"--notebook-dir={folder / 'work'}", f"--IdentityProvider.token={token}"]
    log = own / "log"
    with log.open("w") as file:
        server = subprocess.Popen(
            command, cwd=folder, env=environment() | places, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        for _ in range(600):
            if told := re.search(r"(http://127\.0\.0\.1:\d+/)lab\?token", log.read_text()):
                break
            assert server.poll() is None, f"JupyterLab ended:\n{log.read_text()}"
            time.sleep(0.1)
        else:
            raise TimeoutError(f"JupyterLab does not start:\n{log.read_text()}")
        yield Lab(folder, told[1], token)
    finally:
        server.terminate()  # the server ends its kernels
        server.wait(60)


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    yield page
    page.close()
