"""The GitHub Action's steps, carried out by a shell; the command itself is played."""

import os
import subprocess
import sys

import pytest
import yaml
from programs import ROOT

from tpu_preflight.report import Item, Report

ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
READY = Report("step", ("v5e-8",), (Item(1, "step", "pass", "compiles"),), versions=("JAX 0.12",))


@pytest.fixture
def check(tmp_path):
    """Run the step that checks, with a command that writes a report and ends with a status."""

    def run(report: str, status: int, **inputs: str) -> subprocess.CompletedProcess:
        tool = tmp_path / "tpu-preflight"
        tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >asked\ncat written\nexit {status}\n')
        tool.chmod(0o755)
        (tmp_path / "python").unlink(missing_ok=True)
        (tmp_path / "python").symlink_to(sys.executable)
        (tmp_path / "written").write_text(report, "utf-8")
        step = ACTION["runs"]["steps"][-1]
        variables = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        }
        values = {name: given.get("default", "") for name, given in ACTION["inputs"].items()}
        values |= inputs
        for name, expression in step["env"].items():
            variables[name] = values[expression.removeprefix("${{ inputs.").removesuffix(" }}")]
        # As GitHub runs ``shell: bash``.
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True)

    return run


@pytest.mark.parametrize("status", [0, 3])
def test_a_report_is_shown_kept_and_decides(status, check, tmp_path):
    name = "my_model:build; touch harm"
    process = check(READY.json(), status, name=name, target="v5e-8 v6e-8", baseline="main.json")
    assert process.returncode == status, process.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    targets = ["--target", "v5e-8", "--target", "v6e-8"]
    assert asked == [name, "--json", *targets, "--baseline", "main.json"]
    assert not (tmp_path / "harm").exists()
    assert process.stdout == READY.text() + "\n"
    assert READY.text() in (tmp_path / "summary").read_text("utf-8")
    assert (tmp_path / "output").read_text() == f"report={tmp_path}/preflight.json\n"


def test_a_check_that_could_not_be_made_has_no_report(check, tmp_path):
    process = check("", 2, name="no_model:build")
    assert process.returncode == 2
    assert process.stdout == ""
    assert not (tmp_path / "summary").exists()
    assert (tmp_path / "asked").read_text().split() == [
        "no_model:build",
        "--json",
        "--target",
        "v5e-8",
    ]
