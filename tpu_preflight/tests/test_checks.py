"""The list of checks: complete, and extended as the README says."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import textwrap

import jax
import pytest
from programs import ROOT

from tpu_preflight import checklist
from tpu_preflight.checks import jax_results
from tpu_preflight.context import Context
from tpu_preflight.report import CHECKS, FAIL, OPEN
from tpu_preflight.subjects.load_subject import load_subject
from tpu_preflight.subjects.subject import Target

SOURCE = ROOT / "src" / "tpu_preflight"
README = (ROOT / "README.md").read_text("utf-8")

# Sixteen rows over eight replicas; Google's compiler is not asked.
SUBJECT = """
import contextlib
import tensorflow as tf
from tpu_preflight import compiler, preflight

def compile(program, target, **options):
    return compiler.Compiled(program.name, target, "not available")

compiler.compile, compiler.started = compile, contextlib.nullcontext
data = tf.data.Dataset.from_tensors(tf.ones([16, 4]))
print(preflight(lambda x: x * 2.0, data, "v5e-8"))
"""


def test_the_list_has_each_module_once_and_each_has_a_check():
    modules = [row["module"] for row in checklist.ORDER]
    files = {path.stem for path in (SOURCE / "checks").glob("*.py")} - {"__init__"}
    assert sorted(modules) == sorted(files)
    for row in checklist.ORDER:
        assert row["stage"] in ("data", "step", "compiled")
        assert row.get("for") in (None, "tensorflow", "jax", "tensors", "arrays")
        module = importlib.import_module(f"tpu_preflight.checks.{row['module']}")
        assert callable(module.check)
        # Its docstring begins with the numbers of what it checks.
        numbers = re.match(r"Checks? (\d)(?: and (\d))?", module.__doc__).groups()
        assert {int(number) for number in numbers if number} <= set(CHECKS)


def test_a_check_that_raises_leaves_the_findings_of_the_others(monkeypatch):
    def check(context):
        raise KeyError("of this check")

    monkeypatch.setattr(jax_results, "check", check)
    subject = load_subject(lambda x: x[x > 0], (jax.ShapeDtypeStruct([8], "float32"),), 60, len)
    context = Context(subject=subject, targets=(Target("v5e-1", 1),), say=len)
    context.trace()
    refused, broken, no_strategy = checklist._findings("step", context)
    assert refused.state == FAIL and "a boolean mask" in refused.finding
    assert broken.check == 4 and broken.state == OPEN and broken.decisive
    assert broken.name == "the check jax results" and "KeyError" in broken.finding
    assert no_strategy.check == 5


@pytest.mark.long
def test_a_check_is_added_as_the_readme_says(tmp_path):
    _, _, recipe = README.partition("## Add a check")
    recipe, _, _ = recipe.partition("\n## ")
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", recipe, re.DOTALL)
    module, line, texts = [textwrap.dedent(block) for block in blocks]

    package = tmp_path / "tpu_preflight"
    shutil.copytree(SOURCE, package)
    (package / "checks" / "few_rows.py").write_text(module, "utf-8")
    findings = package / "findings.toml"
    text = findings.read_text("utf-8").replace("checks = [\n", f"checks = [\n{line}", 1)
    findings.write_text(f"{text}\n{texts}", "utf-8")

    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", SUBJECT]
    output = subprocess.check_output(command, env=environment, text=True, cwd=tmp_path)
    assert "! 7 rows on v5e-8: 2 rows on each replica, where a tile of memory has 8" in output
    assert "fix: Take a larger batch." in output
