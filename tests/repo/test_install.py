"""`make` builds .venv from the lock, or says in one sentence why it can't."""

import os
import pathlib
import shutil
import signal
import sys
import time

import pytest
from conventions import ROOT
from machine import Machine, make_project
from terminal import call

pytestmark = pytest.mark.slow

PIP_OFFLINE = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
NOBODY_HAS = f"a-package-nobody-has==1.0 --hash=sha256:{'0' * 64}\n"


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "course/helpers").mkdir(parents=True)
    shutil.copy(ROOT / "helpers/install.sh", tmp_path / "course/helpers")
    (tmp_path / "course/requirements.txt").write_text("# nothing is needed\n")
    make_project(tmp_path / "course")
    return Machine(tmp_path / "course", **PIP_OFFLINE)


def test_installs_with_pip_where_there_is_no_uv_and_with_the_chosen_python(machine):
    machine.tool("python3", "exit 1")
    machine.python("python3.99")
    code, said = machine.install(PYTHON="python3.99")
    assert code == 0, said
    assert machine.installed()
    made = call(machine.folder / ".venv/bin/python", "-c", "import sys; print(sys.version_info)")
    assert made.stdout.strip() == str(sys.version_info)
    assert machine.command() == f"tpu-course of {machine.folder}"
    kernels = machine.folder / ".venv/etc/ipython/ipython_kernel_config.py"
    assert "register_magic_function" in kernels.read_text()


@pytest.mark.parametrize(
    ("tool", "script", "words"),
    [
        ("python3", "exit 1", "No Python 3.11, 3.12 or 3.13 was found"),
        ("python3.9", "exit 1", "python3.9 is no Python 3.11, 3.12 or 3.13"),
        ("python3", 'case "$2" in *ensurepip*) exit 1 ;; esac', "can't make virtual environments"),
        ("df", "echo header; echo disk 0 0 2097152 0% /", "need 6 GB and this disk has 2 GB free"),
        ("uname", "echo Linux", "The package index can't be reached"),
    ],
    ids=["no Python in range", "chosen out of range", "no venv", "little disk", "no network"],
)
def test_what_prevents_an_installation_is_one_sentence(machine, tool, script, words):
    machine.python()
    (machine.folder / "requirements.txt").write_text(NOBODY_HAS)
    machine.tool(tool, script)
    code, said = machine.install(**({"PYTHON": tool} if tool == "python3.9" else {}))
    assert (code, words in said.splitlines()[-1]) == (1, True), said
    assert not machine.installed()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("error: error sending request for url (x)\n  dns error", "index can't be reached"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE FILE", "not the one in"),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("error: something new", "The installation failed"),
    ],
)
def test_what_the_installer_says_becomes_one_sentence(machine, said, words):
    machine.python()
    machine.tool("uv", f"cat <<'END' >&2\n{said}\nEND\nexit 2")
    code, shown = machine.install()
    assert (code, words in shown.splitlines()[-1], machine.installed()) == (1, True, False), shown
    assert said.splitlines()[0] in shown


def test_an_interrupted_installation_is_told_and_begins_afresh(machine):
    machine.python()
    machine.tool("uv", "/bin/mkdir -p .venv; touch .venv/half-a-package; sleep 60")
    process = machine.start()
    while not (machine.folder / ".venv/half-a-package").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Run the same command again" in said
    assert not machine.installed()

    (machine.bin / "uv").unlink()
    assert machine.install()[0] == 0
    assert machine.installed()
    assert not (machine.folder / ".venv/half-a-package").exists()


def make(*arguments: str, folder: pathlib.Path) -> str:
    return call("make", *arguments, cwd=folder, check=True).stdout


def test_make_installs_when_venv_is_missing_or_older_than_the_lock(tmp_path):
    for name in ("Makefile", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "tpu_preflight").mkdir()
    shutil.copy(ROOT / "tpu_preflight/pyproject.toml", tmp_path / "tpu_preflight")
    assert "install.sh" in make("-n", "run", folder=tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.installed").touch()
    assert "install.sh" not in make("-n", "run", folder=tmp_path)
    os.utime(tmp_path / ".venv/.installed", (1, 1))
    assert "install.sh" in make("-n", "run", folder=tmp_path)
    # JupyterLab's terminals know the course's own command.
    assert f'PATH="{tmp_path}/.venv/bin:$PATH"' in make("-n", "lab", folder=tmp_path)
    assert "make run" in make(folder=tmp_path)  # alone it lists the targets
