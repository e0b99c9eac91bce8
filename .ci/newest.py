"""`make newest`: the tests on the newest versions that pyproject.toml allows, told as a table.

The last commit is tested in a copy with a lock of its own (build/newest); the course's stays as it
is. PYTEST_ADDOPTS chooses tests, such as ``-k 02_xla``.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

from rich.console import Console
from rich.table import Table

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/newest"


def pins(lock: str) -> dict[str, set[str]]:
    """Versions by name of a lock; more than one where they depend on Python or platform."""
    found = collections.defaultdict(set)
    for name, version in re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", lock, re.MULTILINE):
        found[name].add(version)
    return dict(found)


def moved(locked: dict[str, set[str]], newest: dict[str, set[str]]) -> list[tuple[str, str, str]]:
    """Packages with a version that the lock has not: name, locked, newest; a dash for none."""
    return [
        (name, ", ".join(sorted(locked.get(name, "-"))), ", ".join(sorted(newest[name])))
        for name in sorted(newest)
        if newest[name] - locked.get(name, set())
    ]


def broken(junit: str) -> list[tuple[str, str, str]]:
    """What failed in a report of pytest (JUnit's XML): file or class, test, first line."""
    rows = []
    for case in ET.fromstring(junit).iter("testcase"):
        for kind in ("failure", "error"):
            if (found := case.find(kind)) is not None:
                message = (found.get("message") or found.text or "").strip().splitlines()
                rows.append((case.get("classname"), case.get("name"), (message or [kind])[0][:120]))
    return rows


def table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    """Lay rows out."""
    made = Table(*columns, title=title, title_justify="left")
    for row in rows:
        made.add_row(*row)
    return made


def main() -> int:
    """Copy, lock, install, test, tell.

    Returns:
        Exit status of the tests.
    """
    console = Console(markup=False)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=FOLDER, check=True, input=archive.stdout)
    lock = FOLDER / "requirements.txt"
    locked = pins(lock.read_text("utf-8"))
    lock.unlink()
    compiling = "-m uv pip compile -q pyproject.toml --all-extras --generate-hashes"
    compiling += " --no-emit-index-url --custom-compile-command newest -o requirements.txt"
    subprocess.run([sys.executable, *compiling.split()], cwd=FOLDER, check=True)
    rows = moved(locked, pins(lock.read_text("utf-8")))
    console.print(table("Newer than the lock", ("package", "locked", "newest"), rows))
    report = FOLDER / "build/junit.xml"
    # The installer finds uv, which is quicker than pip, beside this Python.
    environment = os.environ | {
        "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_ADDOPTS": f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={report}",
        "PYTHON": sys.executable,
    }
    status = subprocess.run(["make", "-C", FOLDER, "test"], env=environment).returncode
    failed = broken(report.read_text("utf-8"))
    console.print(table("What broke", ("where", "test", "first line"), failed))
    for where, count in collections.Counter(row[0] for row in failed).items():
        console.print(f"{where}: {count}")
    return status


if __name__ == "__main__":
    sys.exit(main())
