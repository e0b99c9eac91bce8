"""Commands as a hurried user types them: one message, the right exit status, nothing left behind.

Each row of a file in `misuses` is run in a process of its own, in a folder of its own. A row has

- ``name``, ``command`` (the words after ``tpu-course``), ``status`` (of its exit), and ``says``:
  what must stand in its output, spaces and frames aside;
- where needed ``setup`` (text by the name of a file to make; a name that ends in ``/`` makes a
  folder), ``environment``, ``stdin``, ``left`` (what may be there afterwards), ``why``;
- ``light = true`` where TensorFlow must not be imported: its import ends the process;
- ``interrupt``, the name of a module: Ctrl-C comes when it is imported.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tomllib

import psutil
import pytest
from conventions import ROOT
from forks import SECONDS, Forks
from terminal import call, without

pytestmark = pytest.mark.slow  # there are two hundred

MISUSES = pathlib.Path(__file__).with_name("misuses")
LONGEST = 8  # lines of a message: what, why and fix, or typer's usage and its frame
# Without TensorFlow.
IMPORTED = ["helpers.course.commands.app", "helpers.course.running", "helpers.text.prepare"]
IMPORTED += ["helpers.course.storing", "helpers.course.editions.slides", "helpers.bert.command"]
IMPORTED += ["pydantic", "rich.markdown"]
COMMAND = "assert 'tensorflow' not in sys.modules\nfrom helpers.__main__ import command\ncommand()"

# Read by Python as it starts: ends a process that imports TensorFlow, or interrupts it.
SPY = """\
import os, signal, sys

class Spy:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ.get("MISUSE_FORBIDDEN"):
            os.write(2, f"{name} is imported\\n".encode())
            os._exit(97)
        if name == os.environ.get("MISUSE_INTERRUPT"):
            del os.environ["MISUSE_INTERRUPT"]
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Spy())
"""

KEYS = {"name", "command", "status", "says", "setup", "environment", "stdin", "left", "light"}
KEYS |= {"interrupt", "why"}


def rows() -> list:
    found = []
    for path in sorted(MISUSES.glob("*.toml")):
        for row in tomllib.loads(path.read_text("utf-8"))["misuse"]:
            found.append(pytest.param(row, id=f"{path.stem}: {row['name']}"))
    return found


def files(folder: pathlib.Path) -> set[str]:
    """Everything in a folder, but for Python's own caches."""
    entries = (p.relative_to(folder) for p in folder.rglob("*"))
    return {p.as_posix() for p in entries if "__pycache__" not in p.parts}


def prepared(folder: pathlib.Path, setup: dict[str, str]) -> pathlib.Path:
    folder.mkdir()
    for name, text in setup.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def user(tmp_path_factory) -> dict[str, str]:
    """The environment of a user's shell: what the settings of these tests say isn't in it."""
    folder = tmp_path_factory.mktemp("spy")
    (folder / "sitecustomize.py").write_text(SPY)
    own = without("TF_CPP_MIN_LOG_LEVEL", "PYTEST_CURRENT_TEST", "NO_COLOR", "FORCE_COLOR")
    return own | {
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": "80",
    }


@pytest.fixture(scope="module")
def forks(user):
    with Forks(IMPORTED, user) as made:
        yield made


@pytest.fixture
def carried_out(tmp_path, user, forks):
    """Carry a row out; gives the folder and how the process ended."""

    def run(row: dict) -> tuple[pathlib.Path, subprocess.CompletedProcess]:
        folder = prepared(tmp_path / "here", row.get("setup", {}))
        environment = user | {
            "MISUSE_FORBIDDEN": "tensorflow" if row.get("light") else "",
            "MISUSE_INTERRUPT": row.get("interrupt", ""),
        }
        options = {"cwd": folder, "env": environment | row.get("environment", {})}
        options["input"] = row.get("stdin", "")
        if row.get("light") and "interrupt" not in row:
            fork = forks.start(COMMAND, *row["command"], kept=tmp_path, **options)
            return folder, fork.wait()
        # Ctrl-C comes as something is imported; or TensorFlow is.
        words = sys.executable, "-m", "helpers", *row["command"]
        ready = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
        return folder, call(*words, encoding="utf-8", timeout=SECONDS, **options, **ready)

    return run


def plain(text: str) -> str:
    """What is said, without frames and line ends."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


def left_behind(folder: pathlib.Path, row: dict) -> set[str]:
    """What is in the folder now, beside what the row made there or allows."""
    known = {pathlib.PurePosixPath(name) for name in (*row.get("setup", {}), *row.get("left", []))}
    allowed = known | {parent for path in known for parent in path.parents}
    inside = {pathlib.PurePosixPath(name) for name in row.get("left", [])}
    now = map(pathlib.PurePosixPath, files(folder))
    return {str(p) for p in now if p not in allowed and not inside & {*p.parents}}


@pytest.mark.parametrize("row", rows())
def test_a_misuse_ends_with_one_message_and_leaves_nothing(row, carried_out):
    assert row.keys() <= KEYS, row.keys() - KEYS
    folder, done = carried_out(row)
    said = plain(done.stdout + done.stderr)
    assert "Traceback" not in said, done.stderr
    assert done.returncode == row["status"], done.stdout + done.stderr
    missing = [words for words in row["says"] if plain(words) not in said]
    assert not missing, f"{missing} is not said in: {said}"
    if row["status"]:
        assert len(done.stderr.strip().splitlines()) <= LONGEST, done.stderr
    # TensorFlow's own log begins its lines with a letter and a time, or a date.
    assert not re.search(r"^([IWEF]\d{4} |WARNING: All log|20\d\d-\d\d-\d\d )", done.stderr, re.M)
    assert left_behind(folder, row) == set()
    kept = {
        n: (folder / n).read_text("utf-8") for n in row.get("setup", {}) if (folder / n).is_file()
    }
    assert kept == {n: text for n, text in row.get("setup", {}).items() if not n.endswith("/")}


def test_ctrl_c_of_a_command_at_work_ends_it_with_one_line(tmp_path):
    """As a terminal does it: to everything that the command has in the foreground."""
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers", "ops"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while "compiled" not in (line := process.stderr.readline()):
        assert line, process.wait()
    started = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said and said.splitlines()[-1:] == ["Stopped."]
    assert not psutil.wait_procs(started, timeout=10)[1], "something goes on"


def test_a_folder_that_was_deleted_is_told(tmp_path):
    script = (
        f"cd {tmp_path}; mkdir gone; cd gone; rmdir ../gone; exec {sys.executable} -m helpers run"
    )
    done = call("sh", "-c", script, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 2 and done.stderr.startswith("The current folder was deleted.")
    assert len(done.stderr.splitlines()) == 3


def test_the_spy_ends_a_process_that_imports_tensorflow(carried_out):
    """Otherwise ``light`` would say nothing."""
    row = {"command": ["explain"], "environment": {"MISUSE_FORBIDDEN": "tomllib"}}
    _, done = carried_out(row)
    assert (done.returncode, "tomllib is imported" in done.stderr) == (97, True), done.stderr
