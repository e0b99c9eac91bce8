"""`make bundle` packs the course and its packages; the archive installs without a network."""

import ensurepip
import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable

import pytest
from conventions import ROOT
from machine import PROJECT, Machine, make_project
from terminal import call, commit, git

pytestmark = pytest.mark.slow

SYSTEM = f"{platform.system()} {platform.machine()}"
PYTHON = "{}.{}".format(*sys.version_info)
NAME = "tensorflow-on-tpu-9.9"
ARCHIVE = f"{NAME}-offline-py{PYTHON}-{SYSTEM.lower().replace(' ', '-')}.tar"
OFFLINE = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_RETRIES": "0"}


def wheel(folder: pathlib.Path, name: str) -> str:
    """Make a package of one module that says its name; give its line for a lock."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": f"NAME = {name!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{name}==1.0 \\\n    --hash=sha256:{digest}\n    # via\n    #   tensorflow-on-tpu\n"


class Course:
    """A clone with a lock of two packages, which lie in a folder and nowhere else."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.index = folder / "clone", folder / "index"
        self.index.mkdir()
        (self.folder / "helpers/course").mkdir(parents=True)
        for name in ("course/bundle.sh", "install.sh"):
            shutil.copy(ROOT / "helpers" / name, self.folder / "helpers" / name)
        shutil.copy(ROOT / "Makefile", self.folder)
        make_project(self.folder)
        (self.folder / ".gitignore").write_text("build/\n")
        lock = "".join(wheel(self.index, name) for name in ("libtpu", "small"))
        (self.folder / "requirements.txt").write_text(lock)
        self.archive = self.folder / "build" / ARCHIVE
        git(self.folder, "init", "-q", "-b", "main")
        commit(self.folder)

    def bundle(self, **variables: str) -> subprocess.CompletedProcess:
        (pip,) = pathlib.Path(ensurepip.__path__[0], "_bundled").glob("pip-*.whl")
        given = {"PYTHON": sys.executable, "PIP": str(pip), "PIP_FIND_LINKS": str(self.index)}
        environment = os.environ | OFFLINE | given | variables
        return call("sh", "helpers/course/bundle.sh", cwd=self.folder, env=environment)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return Course(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def bundled(course):
    done = course.bundle()
    assert done.returncode == 0, done.stderr
    return course, done.stdout


@pytest.fixture
def unpacked(bundled, tmp_path):
    """Another computer with the bundle, as its installer sees it."""
    with tarfile.open(bundled[0].archive) as archive:
        archive.extractall(tmp_path, filter="data")
    machine = Machine(tmp_path / NAME)
    machine.python()
    return machine


def test_the_archive_holds_course_and_packages_but_not_libtpu(bundled):
    course, said = bundled
    with tarfile.open(course.archive) as archive:
        files = {name for name in archive.getnames() if not archive.getmember(name).isdir()}
    wheels = {"FITS", "requirements.txt", "small-1.0-py3-none-any.whl"}
    own = {"Makefile", ".gitignore", "requirements.txt", *(p.name for p in PROJECT.iterdir())}
    own |= {"helpers/course/bundle.sh", "helpers/install.sh"}
    assert files == {f"{NAME}/{x}" for x in own | {f"wheels/{w}" for w in wheels}}
    assert "libtpu, Google's TPU compiler, is not inside" in said
    assert f"for Python {PYTHON} {SYSTEM}" in said
    digest = hashlib.sha256(course.archive.read_bytes()).hexdigest()
    assert course.archive.with_name(f"{ARCHIVE}.sha256").read_text() == f"{digest}  {ARCHIVE}\n"


def test_it_installs_where_there_is_no_network(unpacked):
    """In a network namespace without interfaces, where the system lets us make one."""
    alone = ["unshare", "-rn"]
    code, said = unpacked.install(*(alone if call(*alone, "true").returncode == 0 else []))
    assert code == 0, said
    python = unpacked.folder / ".venv/bin/python"
    assert call(python, "-c", "import small; print(small.NAME)").stdout == "small\n"
    assert call(python, "-c", "import libtpu").returncode == 1
    assert unpacked.command() == f"tpu-course of {unpacked.folder}"
    assert unpacked.installed()


def damage(wheels: pathlib.Path) -> None:
    (package,) = wheels.glob("*.whl")
    package.write_bytes(package.read_bytes().replace(b"NAME", b"GAME"))


def lose(wheels: pathlib.Path) -> None:
    next(wheels.glob("*.whl")).unlink()


def fit(text: str) -> Callable[[pathlib.Path], int]:
    return lambda wheels: (wheels / "FITS").write_text(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (damage, "copy the bundle here again"),
        (lose, "does not fit this computer or is not whole"),
        (fit(f"{PYTHON} Plan9 mips\n"), f"packages for Plan9 mips, and this is {SYSTEM}"),
        (fit(f"3.99 {SYSTEM}\n"), "No Python 3.99 was found"),
    ],
    ids=["damaged", "missing", "another system", "another Python"],
)
def test_what_does_not_fit_is_told_and_nothing_of_it_is_used(unpacked, change, words):
    change(unpacked.folder / "wheels")
    code, said = unpacked.install()
    assert (code, words in said) == (1, True), said
    assert not unpacked.installed()


def test_libtpu_is_packed_when_asked_the_terms_are_named_and_uncommitted_changes_told(course):
    (course.folder / "note.md").write_text("Mine.")
    done = course.bundle(LIBTPU="1")
    (course.folder / "note.md").unlink()
    assert done.returncode == 0, done.stderr
    with tarfile.open(course.archive) as archive:
        assert f"{NAME}/wheels/libtpu-1.0-py3-none-any.whl" in archive.getnames()
    for words in (
        *("Google Cloud Platform Terms of Service", "your own room"),
        "not committed are not in the bundle",
    ):
        assert words in done.stdout


def test_packages_that_can_not_be_had_leave_the_last_archive(bundled):
    course, _ = bundled
    before = course.archive.read_bytes()
    lock = course.folder / "requirements.txt"
    text = lock.read_text()
    lock.write_text(f"{text}nobody-has-this==1.0 --hash=sha256:{'0' * 64}\n")
    done = course.bundle()
    lock.write_text(text)
    assert (done.returncode, "can't be collected" in done.stderr) == (1, True)
    assert course.archive.read_bytes() == before


def test_a_folder_that_is_no_clone_is_told(course, tmp_path):
    shutil.copytree(course.folder / "helpers", tmp_path / "helpers")
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = call("sh", "helpers/course/bundle.sh", cwd=tmp_path, env=environment)
    assert (done.returncode, "no clone" in done.stderr) == (1, True)
