"""A real browser and the course's own JupyterLab, on a copy: the repository stays as it is."""

import os
import pathlib
import re
import secrets
import shutil
import subprocess
import time

import pytest
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv/bin/python"

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Where JupyterLab and its kernels write.
FOLDERS = (
    "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "IPYTHONDIR",
    "XDG_DATA_HOME",
)
# Milliseconds that a page may take to open: on a busy machine the browser's own 30 s are few for
# JupyterLab.
SLOW_PAGE = 120_000
# No window of its own, and whichever port is free.
SERVER = '{"ServerApp": {"open_browser": false, "port": 0}}'


def environment() -> dict[str, str]:
    """The environment of a person's terminal: nothing of the tests' own venv is in it."""
    tests_own = ("PYTEST_", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "JUPYTER", "IPYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(tests_own)}


def copied(folder: pathlib.Path) -> pathlib.Path:
    """Copy the course as far as its commands need it."""
    hidden = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("course", "helpers", "notebooks", "tpu_preflight"):
        shutil.copytree(ROOT / name, folder / name, ignore=hidden)
    for path in (ROOT / "pyproject.toml", ROOT / "requirements.txt", *ROOT.glob("*.md")):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """The address of what `make lab` opens, with a slash at its end, and its token."""
    token = secrets.token_hex()
    home = tmp_path_factory.mktemp("lab")
    folder = copied(tmp_path_factory.mktemp("course"))
    (home / "JUPYTER_CONFIG_DIR").mkdir()
    (home / "JUPYTER_CONFIG_DIR/jupyter_server_config.json").write_text(SERVER)
    variables = environment() | {"JUPYTER_TOKEN": token}
    for name in FOLDERS:
        variables[name] = str(home / name)
    log = home / "log"
    with log.open("w") as stream:
        command = [PYTHON, "-m", "course", "lab"]
        server = subprocess.Popen(command, cwd=folder, env=variables, stderr=stream)
    try:
        yield address_of(server, log), token
    finally:
        server.terminate()  # the server ends its kernels
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()  # a kernel whose server is gone ends by itself
            raise


def address_of(server: subprocess.Popen, log: pathlib.Path) -> str:
    """Wait until a server says in its log where it listens."""
    end = time.monotonic() + 60
    while True:
        match = re.search(r"(http://127\.0\.0\.1:\d+/)lab", log.read_text())
        if match:
            return match[1]
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)


@pytest.fixture(scope="session")
def browser():
    """This machine's own, without a window; never downloaded."""
    executables = [path for path in map(shutil.which, BROWSERS) if path]
    if not executables:
        pytest.exit(f"None of {', '.join(BROWSERS)} is here: apt-get install chromium", 3)
    # Its sandbox refuses root, which is who containers and runners are.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executables[0], args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_navigation_timeout(SLOW_PAGE)
    yield page
    page.close()
