"""The course in a place made like Colab or Kaggle: `make colab`, `make kaggle`.

It takes minutes and some GB, so it is apart from `make test`. The packages are the place's own
(``colab.txt``, ``kaggle.txt``), so are the folder and what marks its kernel (``hosts.toml``), and
git is told that the public address is a copy of this repository in which the release has its tag.
The notebooks run as they are.
"""

import json
import os
import pathlib
import tomllib

import nbformat
import pytest
from conventions import ROOT, release, repository, tagged
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from terminal import call

NAME = os.environ.get("PLACE", "colab")
PYTHON = ROOT / "build" / NAME / "bin/python"
NOTEBOOKS = os.environ.get("NOTEBOOKS", "00 06").split()
OF_THE_PLACE = ("ipykernel", "ipython", "ipywidgets", "nbclient", "pandas", "matplotlib", "psutil")
HOST = tomllib.loads((ROOT / "tests/repo/hosts.toml").read_text("utf-8"))[NAME]


def versions() -> dict[str, str]:
    """Version by name of what is installed in the place."""
    output = call(PYTHON, "-m", "pip", "list", "--format=json", check=True).stdout
    version_by_name = {}
    for package in json.loads(output):
        name = package["name"].lower().replace("_", "-")
        version_by_name[name] = package["version"]
    return version_by_name


class Kernels(KernelSpecManager):
    """Knows one kernel, the place's."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        launch = [str(PYTHON), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=launch, display_name=kernel_name, language="python")


class Place:
    """An empty folder, and a kernel that believes it is the host's."""

    def __init__(self, home: pathlib.Path) -> None:
        self.content = home / HOST["folder"]
        self.content.mkdir(parents=True)
        if NAME == "colab":
            package = next((PYTHON.parent.parent / "lib").glob("python3*/site-packages"))
            (package / "google/colab").mkdir(exist_ok=True)
            (package / "google/colab/__init__.py").write_text("")
            startup = home / "ipython/profile_default/startup"
            startup.mkdir(parents=True)
            (startup / "00_colab.py").write_text("import google.colab\n")
        published = home / "published.git"
        call("git", "clone", "--quiet", "--bare", ROOT, published, check=True)
        call("git", "tag", "--force", release(), cwd=published, check=True)
        (home / ".gitconfig").write_text(
            f'[url "{published.as_uri()}"]\n  insteadOf = {repository()}\n'
        )
        self.environment = {}
        for name, value in os.environ.items():
            if name.startswith(("PIP_", "LANG", "LC_", "SSL")):
                self.environment[name] = value
        self.environment |= HOST["marks"] | {
            "HOME": str(home),
            "IPYTHONDIR": str(home / "ipython"),
            "PATH": f"{PYTHON.parent}:/usr/bin:/bin",
            "PIP_CACHE_DIR": str(ROOT / "build" / NAME / "cache"),
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        }

    def run(self, node: nbformat.NotebookNode) -> nbformat.NotebookNode:
        """Execute a notebook in a new kernel of the place."""
        options = {"timeout": 1200, "resources": {"metadata": {"path": str(self.content)}}}
        client = NotebookClient(node, km=KernelManager(kernel_spec_manager=Kernels()), **options)
        # Without cleaning up, the collected sockets of one kernel take those of the next along.
        return client.execute(env=self.environment, cleanup_kc=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp(NAME))


def load(number: str) -> nbformat.NotebookNode:
    return nbformat.read(next((ROOT / "notebooks").glob(f"{number}_*.ipynb")), 4)


def beginnings(installed: dict[str, str], expected: dict[str, str]) -> dict[str, str]:
    """The versions as far as an expected one says; "" for a package that isn't installed."""
    versions = {}
    for name, beginning in expected.items():
        versions[name] = installed.get(name, "")[: len(beginning) or None]
    return versions


def test_the_first_cell_installs_leaves_the_place_s_own_and_asks_for_a_restart(place):
    original = versions()
    assert beginnings(original, HOST["before"]) == HOST["before"]
    node = load("00")
    node.cells = node.cells[: tagged(node, "setup")[0] + 1]
    with pytest.raises(CellExecutionError) as error:
        place.run(node)
    for words in ("The course's packages are installed now.", HOST["restart"]):
        assert words in str(error.value)
    assert (place.content / "tensorflow-on-tpu/helpers/runtime.py").is_file()
    installed = versions()
    assert beginnings(installed, HOST["after"]) == HOST["after"]
    for name in OF_THE_PLACE:
        assert installed[name] == original[name]


@pytest.mark.parametrize("number", NOTEBOOKS)
def test_after_the_restart_the_whole_notebook_runs(place, number):
    node = place.run(load(number))
    setup = node.cells[tagged(node, "setup")[0]]
    assert "Ready: TensorFlow 2.20." in "".join(o.get("text", "") for o in setup.outputs)
