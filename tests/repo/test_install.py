"""`make` builds .venv from the lock, or says in one sentence why it can't."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib

import pytest
from conventions import ROOT
from terminal import call, wait_for

pytestmark = pytest.mark.slow


class Machine:
    """A folder with the installer, and tools that do what a test says."""

    def __init__(self, folder) -> None:
        self.folder = folder / "course"
        self.bin = folder / "bin"
        (self.folder / "course").mkdir(parents=True)
        shutil.copy(ROOT / "course/install.sh", self.folder / "course")
        self.bin.mkdir()
        self.tool("df", "echo header; echo disk 0 0 99000000 0% /")
        self.tool("python3", "exit 0")
        self.tool("uv", "mkdir -p .venv; echo $* >>asked")

    def tool(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(self, **variables: str) -> subprocess.Popen:
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", **variables}
        return subprocess.Popen(
            ["sh", "course/install.sh"],
            cwd=self.folder,
            env=environment,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def installed(self) -> bool:
        return (self.folder / ".venv/.installed").exists()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_it_installs_the_lock_with_its_hashes_then_its_own_commands(machine):
    output, _ = machine.start().communicate(timeout=60)
    assert machine.installed(), output
    _, lock, own = (machine.folder / "asked").read_text().splitlines()
    assert "--require-hashes" in lock
    assert lock.endswith("-r requirements.txt")
    assert "editable_mode=compat" in own  # no program runs at each start of Python
    assert own.endswith("--editable ./tpu_preflight --editable .")


@pytest.mark.parametrize(
    ("tool", "script", "words"),
    [
        ("python3.9", "exit 1", "python3.9 is no Python 3.11, 3.12 or 3.13"),
        ("df", "echo header; echo disk 0 0 2097152 0% /", "need 6 GB and this disk has 2 GB free"),
        ("uv", "echo 'request for url (x): dns error'; exit 2", "index can't be reached"),
        ("uv", "echo '[Errno 28] No space left on device'; exit 2", "The disk is full"),
        ("uv", "echo error: something new; exit 2", "The installation failed"),
    ],
)
def test_what_prevents_an_installation_is_one_sentence(machine, tool, script, words):
    machine.tool(tool, script)
    variables = {"PYTHON": tool} if tool == "python3.9" else {}
    process = machine.start(**variables)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert words in output.splitlines()[-1], output
    assert not machine.installed()


def test_an_interrupted_installation_is_told_and_begins_afresh(machine):
    half = machine.folder / ".venv/half-a-package"
    machine.tool("uv", "mkdir -p .venv; touch .venv/half-a-package; sleep 60")
    process = machine.start()
    assert wait_for(half.exists)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Run the same command again" in output
    assert not machine.installed()
    machine.tool("uv", "mkdir -p .venv")
    machine.start().communicate(timeout=60)
    assert machine.installed()
    assert not half.exists()


def test_make_installs_when_venv_is_missing_or_older_than_the_lock(tmp_path):
    def make(*words: str) -> str:
        return call("make", *words, cwd=tmp_path, check=True).stdout

    for name in ("Makefile", "requirements.txt", "tpu_preflight/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    assert "install.sh" in make("-n", "run")
    assert "make run" in make()  # alone it lists the targets
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.installed").touch()
    assert "install.sh" not in make("-n", "run")
    os.utime(tmp_path / ".venv/.installed", (1, 1))
    assert "install.sh" in make("-n", "run")


def test_make_lab_takes_the_port_of_its_command_line_alone():
    environment = os.environ | {"PORT": "1"}  # as a hosting service sets it for its own server
    environment.pop("MAKEFLAGS", None)

    def lab(*words: str) -> str:
        words = ("make", "-n", "-o", ".venv/.installed", "lab", *words)
        return call(*words, cwd=ROOT, env=environment, check=True).stdout

    assert "course lab --language ko --port 8890" in lab("LANGUAGE=ko", "PORT=8890")
    assert "--port" not in lab()


def test_a_file_that_hides_a_module_of_python_does_not_end_make(tmp_path):
    for name in ("Makefile", "requirements.txt", "tpu_preflight/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/.installed").touch()
    python = tmp_path / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -c "import re; print(re.__file__)"\n')
    python.chmod(0o755)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "types.py").write_text("")
    environment = os.environ | {"PYTHONPATH": str(mine)}
    process = call("make", "run", cwd=tmp_path, env=environment)
    assert process.returncode == 0, process.stderr
    assert str(mine) not in process.stdout


@pytest.mark.parametrize("tool", ["site", "browser", "spelling", "publish"])
def test_tools_are_installed_by_hash(tool):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    rule = re.search(rf"^build/{tool}/.installed: (\S+) .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert "--require-hashes -r $<" in rule[2]
    lock = (ROOT / rule[1]).read_text("utf-8")
    for line in (ROOT / rule[1]).with_suffix(".in").read_text("utf-8").splitlines():
        assert line.startswith("#") or f"{line} \\\n" in lock, f"{line}: make lock"


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/workflows").iterdir()), ids=lambda path: path.name
)
def test_actions_are_pinned_by_commit(path):
    actions = re.findall(r"uses: (\S+)", path.read_text("utf-8"))
    assert actions
    for action in actions:
        assert re.fullmatch(r"(actions|pypa)/[\w-]+@[0-9a-f]{40}", action)


def test_what_may_publish_runs_no_package():
    workflow = (ROOT / ".github/workflows/pages.yml").read_text("utf-8")
    build, deploy = workflow.split("  deploy:\n")
    assert "write" not in re.sub("may not write", "", build)
    assert "run:" not in deploy


def test_an_accepted_vulnerability_has_a_reason_and_an_end():
    accepted = tomllib.loads((ROOT / ".ci/audit.toml").read_text("utf-8"))["exceptions"]
    for exception in accepted:
        assert len(exception["reason"]) > 40
        assert exception["since"] < exception["until"]
