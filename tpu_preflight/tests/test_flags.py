"""Flags of the compiler that a user sets on the TPU count here as well, with Google's compiler."""

import jax
import jax.numpy as jnp
import programs
import pytest

from tpu_preflight import command
from tpu_preflight.checklist import preflight
from tpu_preflight.estimate.calibration import published

pytestmark = [*programs.COMPILER, pytest.mark.long]


def product_ms():
    """Estimate a product of 8192 x 8192 on v6e, which Google published (`published.tsv`)."""
    square = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16)
    report = preflight(jax.jit(jnp.matmul), (square, square), "v6e-1", profile=True)
    (timing,) = report.timings
    return timing.ms


def test_more_scoped_vmem_makes_a_product_faster(monkeypatch):
    assert product_ms() == pytest.approx(1.41, rel=0.02)
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_scoped_vmem_limit_kib=65536")
    with_more_ms = product_ms()
    assert with_more_ms == pytest.approx(1.2, rel=0.02)
    (run,) = [run for run in published() if run.run == "Product of 8192 x 8192"]
    assert with_more_ms == pytest.approx(run.estimate_ms, rel=0.02)
    assert with_more_ms == pytest.approx(run.published_ms, rel=0.12)


def test_a_flag_that_libtpu_does_not_know_is_no_verdict(monkeypatch):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_no_such_flag=1")
    square = jax.ShapeDtypeStruct((8, 8), jnp.bfloat16)
    report = preflight(jax.jit(jnp.matmul), (square, square), "v6e-1")
    assert report.exit_status == 2
    (unanswered,) = [item for item in report.items if item.decisive and item.check == 1]
    assert "xla_tpu_no_such_flag" in unanswered.finding
    assert "LIBTPU_INIT_ARGS" in unanswered.fix


def test_the_help_and_the_readme_say_how(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    example = "LIBTPU_INIT_ARGS=--xla_tpu_scoped_vmem_limit_kib=65536 tpu-preflight"
    assert example in capsys.readouterr().out
    assert example in (programs.ROOT / "README.md").read_text("utf-8")
