"""`make` builds .venv from the lock, or says in one sentence why it can't."""

import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest
from conventions import ROOT

TOOLS = ("awk", "cat", "cut", "df", "dirname", "grep", "mktemp", "rm", "sh", "sleep", "tail", "tee")
PIP_OFFLINE = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_FIND_LINKS": "",
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_RETRIES": "0",
}


class Place:
    """A folder with the installer and a lock, and a PATH that holds the system's tools only."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.bin = folder / "course", folder / "bin"
        (self.folder / "helpers").mkdir(parents=True)
        self.bin.mkdir()
        shutil.copy(ROOT / "helpers/install.sh", self.folder / "helpers")
        (self.folder / "requirements.txt").write_text("# nothing is needed\n")
        for tool in (*TOOLS, "touch"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.environment = {"PATH": str(self.bin), "HOME": str(folder), **PIP_OFFLINE}

    def tool(self, name: str, script: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def python(self, name: str = "python3") -> None:
        self.tool(name, f'exec "{sys.executable}" "$@"')

    def start(self, **variables: str) -> subprocess.Popen:
        return subprocess.Popen(
            ["sh", "helpers/install.sh"],
            cwd=self.folder,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def install(self, **variables: str) -> tuple[int, str]:
        process = self.start(**variables)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said

    def installed(self) -> bool:
        return (self.folder / ".venv/.installed").exists()


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    place.tool("df", "echo header; echo disk 0 0 99000000 0% /")  # room enough, wherever tests run
    return place


def refused(place: Place, words: str, **variables: str) -> None:
    code, said = place.install(**variables)
    assert code == 1, said
    assert words in said.splitlines()[-1]
    assert not place.installed()


def test_installs_with_pip_where_there_is_no_uv(place):
    place.python()
    code, said = place.install()
    assert code == 0, said
    assert place.installed()
    version = [place.folder / ".venv/bin/python", "-c", "import sys; print(sys.version_info[:2])"]
    made = subprocess.run(version, capture_output=True, text=True, check=True).stdout
    assert made.strip() == str(sys.version_info[:2])


def test_uses_uv_where_present_with_hashes_and_bytecode(place):
    place.python()
    place.tool("uv", 'echo "$@" >> calls; [ "$1" = pip ] || /bin/mkdir .venv')
    assert place.install()[0] == 0
    made, filled = (place.folder / "calls").read_text().splitlines()
    assert made.startswith("venv ")
    assert "--require-hashes" in filled
    assert "--compile-bytecode" in filled
    assert "-r requirements.txt" in filled


def test_no_python_in_range(place):
    place.tool("python3", "exit 1")
    refused(place, "No Python 3.11, 3.12 or 3.13 was found")


def test_a_chosen_python_out_of_range(place):
    place.python()
    place.tool("python3.9", "exit 1")
    refused(place, "python3.9 is no Python 3.11, 3.12 or 3.13", PYTHON="python3.9")


def test_a_chosen_python_is_taken(place):
    place.tool("python3", "exit 1")
    place.python("python3.99")
    assert place.install(PYTHON="python3.99")[0] == 0


def test_a_python_without_venv(place):
    place.tool("python3", 'case "$2" in *ensurepip*) exit 1 ;; esac')
    refused(place, "can't make virtual environments")


def test_too_little_disk(place):
    place.python()
    place.tool("df", "echo header; echo disk 0 0 2097152 0% /")
    refused(place, "need 6 GB and this disk has 2 GB free")


def test_no_network_with_pip_itself(place):
    place.python()
    lock = f"a-package-nobody-has==1.0 --hash=sha256:{'0' * 64}\n"
    (place.folder / "requirements.txt").write_text(lock)
    refused(place, "The package index can't be reached")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("error: error sending request for url (x)\n  dns error", "index can't be reached"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE FILE", "not the one in"),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("error: something new", "The installation failed"),
    ],
)
def test_what_the_installer_says_becomes_one_sentence(place, said, words):
    place.python()
    place.tool("uv", f"cat <<'END' >&2\n{said}\nEND\nexit 2")
    refused(place, words)
    assert said.splitlines()[0] in place.install()[1]


def test_an_interrupted_installation_is_told_and_begins_afresh(place):
    place.python()
    place.tool("uv", "/bin/mkdir -p .venv; touch .venv/half-a-package; sleep 60")
    process = place.start()
    while not (place.folder / ".venv/half-a-package").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Run the same command again" in said
    assert not place.installed()

    (place.bin / "uv").unlink()
    assert place.install()[0] == 0
    assert place.installed()
    assert not (place.folder / ".venv/half-a-package").exists()


def make(*arguments: str, folder: pathlib.Path) -> str:
    command = ["make", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_make_installs_when_venv_is_missing_or_older_than_the_lock(tmp_path):
    for name in ("Makefile", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    assert "install.sh" in make("-n", "run", folder=tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.installed").touch()
    assert "install.sh" not in make("-n", "run", folder=tmp_path)
    os.utime(tmp_path / ".venv/.installed", (1, 1))
    assert "install.sh" in make("-n", "run", folder=tmp_path)


def test_make_alone_lists_the_targets(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    listed = [line.split()[1] for line in make(folder=tmp_path).splitlines()]
    assert {"run", "test", "lab", "lint", "bench", "lock", "clean"} <= set(listed)
