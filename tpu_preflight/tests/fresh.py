"""The README's first screen where the preflight's wheel is installed alone: run by .ci/fresh."""

import importlib.metadata
import json
import os
import re
import subprocess

import pytest
from programs import ROOT

README = (ROOT / "README.md").read_text("utf-8")
OF_JAX, OF_KERAS = re.findall(r"```python\n(.*?)```\n.*?```text\n(.*?)```", README, re.DOTALL)
# By the environments: the lock's versions, the newest JAX alone, the newest TensorFlow with it.
SCREENS = {"lock": OF_KERAS, "jax": OF_JAX, "tensorflow": OF_KERAS}
REPAIR = re.search(r"Fixed \(`(.*?)`, and\s+`(.*?)`\)", README).groups()
PACKAGES = dict(re.findall(r"`\[(\w+)\]`(?: took)? (\d+) packages", README))
UNWANTED = {"lock": set(), "jax": {"tensorflow", "keras"}, "tensorflow": set()}


def environment(name):
    folder = ROOT.parent / "build/fresh" / name
    assert folder.exists(), ".ci/fresh makes it"
    return folder


def installed(name):
    """The versions of an environment's packages."""
    (packages,) = environment(name).glob("lib/python3.*/site-packages")
    versions = {}
    for package in importlib.metadata.distributions(path=[str(packages)]):
        versions[package.name.lower()] = package.version
    return versions


def run(name, folder, *words):
    variables = {"XDG_CACHE_HOME": str(folder / "cache")}
    for variable, value in os.environ.items():
        if not variable.startswith(("TF_", "JAX_", "PYTHON")):
            variables.setdefault(variable, value)
    command = environment(name) / "bin/tpu-preflight"
    return subprocess.run(
        [command, *words], cwd=folder, env=variables, capture_output=True, text=True
    )


@pytest.mark.parametrize("name", SCREENS)
def test_the_first_screen_is_what_the_readme_shows(name, tmp_path):
    program, screen = SCREENS[name]
    (tmp_path / "my_model.py").write_text(program)
    process = run(name, tmp_path, "my_model:build", "--target", "v5e-8")
    assert process.returncode == 1, process.stderr
    lines = process.stdout.splitlines()
    assert [line for line in screen.splitlines() if line not in lines] == []
    # It says which version answered: the one that this environment holds.
    library = "JAX" if name == "jax" else "TensorFlow"
    assert f"{library} {installed(name)[library.lower()]}" in lines[1]


def mended():
    program, _ = SCREENS["jax"]
    counts, loss = REPAIR
    program = program.replace("kept = scores[labels >= 0]", counts)
    return program.replace("jnp.mean(jnp.square(kept))", loss)


def test_mended_it_computes_the_loss_that_it_computed_before(tmp_path):
    (tmp_path / "before.py").write_text(SCREENS["jax"][0])
    (tmp_path / "after.py").write_text(mended())
    compare = """
import after, before, numpy as np
rng = np.random.default_rng(0)
values = rng.normal(size=(8, 4)), rng.normal(size=(5, 8)), np.array([3, -1, 0, -100, 7])
print(float(before.loss(*values)), float(after.loss(*values)))
"""
    python = environment("jax") / "bin/python"
    variables = os.environ | {"JAX_PLATFORMS": "cpu"}
    output = subprocess.check_output(
        [python, "-c", compare], cwd=tmp_path, env=variables, text=True
    )
    first, second = map(float, output.split())
    assert first == pytest.approx(second)


def test_mended_it_is_ready_with_its_memory(tmp_path):
    (tmp_path / "my_model.py").write_text(mended())
    process = run("jax", tmp_path, "my_model:build", "--json")
    report = json.loads(process.stdout)
    assert process.returncode == 0, process.stderr
    assert (report["status"], report["schema"]) == ("ready", 3)
    # Weights and rows in, weights out in the same memory, scores in between.
    weights = 4 * 512 * 1024
    rows = 4 * 8192 * 512
    assert weights + rows <= report["estimates"][0]["peak_bytes"] <= 3 * (weights + rows)


@pytest.mark.parametrize("name", SCREENS)
def test_nothing_comes_with_it_that_it_does_not_need(name):
    packages = set(installed(name))
    notebooks = ("jupyter", "ipy", "tensorflow-on")
    assert not {package for package in packages if package.startswith(notebooks)}
    assert not packages & UNWANTED[name]
    extra = "jax" if name == "jax" else "tensorflow"
    assert len(packages) <= int(PACKAGES[extra]) + 3  # a release may need one more
