"""The README's first screen where nothing but the preflight is installed: run by .ci/run."""

import json
import os
import re
import subprocess

import pytest
from programs import ROOT

README = (ROOT / "README.md").read_text("utf-8")
OF_JAX, OF_KERAS = re.findall(r"```python\n(.*?)```\n.*?```text\n(.*?)```", README, re.DOTALL)
SCREENS = {"jax": OF_JAX, "tensorflow": OF_KERAS}
MENDED = re.search(r"Mended \(`(.*?)`, and\s+`(.*?)`\)", README).groups()
PACKAGES = dict(re.findall(r"`\[(\w+)\]`(?: took)? (\d+) packages", README))
UNWANTED = {"jax": {"tensorflow", "keras"}, "tensorflow": set()}


def environment(name):
    folder = ROOT.parent / "build/fresh" / name
    assert folder.exists(), ".ci/run makes it"
    return folder


def run(name, folder, *words):
    command = environment(name) / "bin/tpu-preflight"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "JAX_", "PYTHON"))}
    return subprocess.run(
        [command, *words],
        cwd=folder,
        env=clean | {"XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name", SCREENS)
def test_the_first_screen_is_what_the_readme_shows(name, tmp_path):
    program, shown = SCREENS[name]
    (tmp_path / "my_model.py").write_text(program)
    done = run(name, tmp_path, "my_model:build", "--target", "v5e-8")
    assert done.returncode == 1, done.stderr
    said = done.stdout.splitlines()
    assert [line for line in shown.splitlines() if line not in said] == []


def test_mended_it_is_ready_with_its_memory(tmp_path):
    program, _ = SCREENS["jax"]
    first, second = MENDED
    program = program.replace("kept = scores[labels >= 0]", first)
    program = program.replace("jnp.mean(jnp.square(kept))", second)
    (tmp_path / "my_model.py").write_text(program)
    done = run("jax", tmp_path, "my_model:build", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["status"], report["schema"]) == (0, "ready", 3), done.stderr
    # Weights and rows in, weights out in the same memory, scores in between.
    weights, rows = 4 * 512 * 1024, 4 * 8192 * 512
    assert weights + rows <= report["estimates"][0]["peak_bytes"] <= 3 * (weights + rows)


@pytest.mark.parametrize("name", SCREENS)
def test_nothing_comes_with_it_that_it_does_not_need(name):
    script = (
        "import importlib.metadata as m, json; "
        "print(json.dumps([d.name.lower() for d in m.distributions()]))"
    )
    python = environment(name) / "bin/python"
    done = subprocess.run([python, "-c", script], capture_output=True, check=True)
    installed = set(json.loads(done.stdout))
    assert not {x for x in installed if x.startswith(("jupyter", "ipy", "tensorflow-on"))}
    assert not installed & UNWANTED[name]
    assert len(installed) <= int(PACKAGES[name]) + 3  # a release may need one more
