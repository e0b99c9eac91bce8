"""`pip install .` gives a command that works from any folder, and finds the course around it."""

import importlib
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from conventions import ROOT
from terminal import call, without

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """What pip would install, unpacked; built from a copy, because setuptools leaves traces."""
    copy = tmp_path_factory.mktemp("copy")
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "helpers", copy / "helpers", ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy)
    (copy / "notebooks").mkdir()
    (copy / "notebooks/00_a.ipynb").write_text("{}")
    build = "import setuptools.build_meta as b, sys; b.build_wheel(sys.argv[1])"
    call(sys.executable, "-c", build, copy / "dist", cwd=copy, check=True)
    unpacked = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(next((copy / "dist").glob("*.whl"))) as archive:
        archive.extractall(unpacked)
    return unpacked


@pytest.fixture
def installed(wheel, tmp_path):
    """Calls the installed command in a folder that is no course; what was installed can change."""
    shutil.copytree(wheel, tmp_path / "site")
    (tmp_path / "here").mkdir()

    def command(*words: str, cwd=tmp_path / "here") -> subprocess.CompletedProcess:
        environment = without("PYTHON") | {"PYTHONPATH": str(tmp_path / "site"), "COLUMNS": "80"}
        words = (sys.executable, "-P", "-m", "helpers", *words)
        return call(*words, cwd=cwd, env=environment)

    return command


def test_all_files_of_the_helpers_are_in_it_and_nothing_else(wheel):
    def files(folder):
        return {str(p.relative_to(folder)) for p in (folder / "helpers").rglob("*") if p.is_file()}

    repository = {name for name in files(ROOT) if "__pycache__" not in name}
    assert files(wheel) == repository
    (info,) = (path for path in wheel.iterdir() if path.name != "helpers")
    assert "tpu-course = helpers.__main__:command" in (info / "entry_points.txt").read_text()
    module, _, function = PROJECT["project"]["scripts"]["tpu-course"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_without_the_course_s_folder_a_command_that_needs_it_says_so(installed):
    assert installed("--version").stdout == f"tpu-course {PROJECT['project']['version']}\n"
    for words in (("run", "2"), ("badges", "a/b")):
        done = installed(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"`{words[0]}` needs the course's folder")
        assert len(done.stderr.splitlines()) == 3
    assert installed("run", "-h").stdout.lstrip().startswith("Usage: tpu-course run")
    assert installed("explain", "--page").stdout.startswith("# ")


def test_files_that_were_copied_by_hand_have_no_version_and_say_so(installed, tmp_path):
    (info,) = (tmp_path / "site").glob("*.dist-info")
    shutil.rmtree(info)
    assert installed("--version").stdout.startswith("tpu-course without a version")
    done = installed("doctor")
    assert done.returncode == 2 and done.stderr.startswith("It is not known which versions")


def test_it_finds_the_course_around_it(installed, tmp_path):
    course = tmp_path / "my course"
    (course / "notebooks/deep").mkdir(parents=True)
    (course / "helpers/course").mkdir(parents=True)
    (course / "notebooks/02_b.ipynb").write_text("no JSON")
    damaged = "02_b.ipynb can't be run."
    assert installed("run", cwd=course / "notebooks/deep").stderr.startswith(damaged)
    assert "needs the course's folder" in installed("run").stderr
    shutil.rmtree(course)
    assert "needs the course's folder" in installed("run").stderr
