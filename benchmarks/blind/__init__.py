"""Steps that others ran, written again: known ones, and eight on v6e that were predicted blind.

    python -m benchmarks blind K1       # compiles one step for its TPU, here: minutes
    python -m benchmarks blind          # the table of predictions, as it was committed

K1 to K6 and the product P1 are known, and the estimator learned from them; from Q1 and Q2, on
TPU7x, it learned that a SparseCore sends as well. R1 to R8 were described without what they took;
``notebooks/data/preregistered.tsv`` was committed before anybody here knew it, and is never
changed. Nothing is run on a TPU.
"""

import csv
import dataclasses
import importlib
from collections.abc import Iterator, Sequence

from helpers.text.corpus import DATA
from tpu_preflight import compiler
from tpu_preflight.estimate import calibration
from tpu_preflight.estimate.calibration import Run
from tpu_preflight.estimate.measured import step_seconds
from tpu_preflight.program import jax_export

TABLE = DATA / "preregistered.tsv"
TIMEOUT = 7200.0
VMEM = "xla_tpu_scoped_vmem_limit_kib"


@dataclasses.dataclass(frozen=True)
class Step:
    """A step: where its program is, and what it is compiled for."""

    module: str  # of this package
    target: str = "v6e-1"
    flags: tuple[tuple[str, str], ...] = ()  # that its authors gave the compiler


STEPS = {
    **{f"K{number}": Step("small_gpt") for number in range(1, 7)},
    "P1": Step("product", "v6e-1", ((VMEM, "65536"),)),
    "Q1": Step("qwen3", "tpu7x-8"),
    "Q2": Step("qwen3", "tpu7x-8"),
    **{f"R{number}": Step("float32_gpt") for number in range(1, 5)},
    "R5": Step("language_models", "v6e-256", ((VMEM, "98304"),)),
    "R6": Step("language_models", "v6e-8"),
    "R7": Step("language_models", "v6e-8"),
    "R8": Step("language_models", "v6e-256", ((VMEM, "122880"),)),
}


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What the compiler and the estimator make of a step; memory of one chip in GiB."""

    id: str
    target: str
    kernels_ms: float  # one after the other
    waiting_ms: float  # for other chips and for the host
    ms: float  # as published runs make it of the two
    low_ms: float
    high_ms: float
    arguments_gib: float
    results_gib: float  # those that no donated argument holds
    temporaries_gib: float
    peak_gib: float
    host_gib: float  # in the host's memory


def compiled_step(name: str) -> compiler.Compiled:
    """Compile a step with full effort, for all chips of its target.

    Raises:
        RuntimeError: It doesn't compile.
    """
    step = STEPS[name]
    module = importlib.import_module(f"{__name__}.{step.module}")
    function, arguments = module.step_and_arguments(name)
    compiled = compiler.compile(
        jax_export.export(function, arguments).program,
        step.target,
        effort="full",
        timeout=TIMEOUT,
        flags=dict(step.flags),
    )
    if not compiled.ok:
        raise RuntimeError(f"{name}: {compiled.verdict}. {compiled.message}")
    return compiled


def with_estimate(run: Run, compiled: compiler.Compiled) -> Run:
    """Fill in a row's estimate and bound from its compiled program, with three digits."""
    estimate_ms = 1e3 * step_seconds(compiler.profile(compiled))
    roofline_ms = 1e3 * compiler.roofline(compiled).seconds
    return dataclasses.replace(
        run,
        estimate_ms=float(f"{estimate_ms:.3g}"),
        roofline_ms=float(f"{roofline_ms:.3g}"),
    )


def estimated(run: Run) -> Run:
    """Compile the step of a row of ``published.tsv``, and fill in estimate and bound."""
    return with_estimate(run, compiled_step(run.model.removeprefix("blind ")))


def prediction(name: str, compiled: compiler.Compiled) -> Prediction:
    """Read a step's prediction from its compiled program."""
    profile = compiler.profile(compiled)
    estimate = 1e3 * step_seconds(profile)
    factor = calibration.factor(compiled.target.partition("-")[0])
    gib = 2**30
    return Prediction(
        id=name,
        target=compiled.target,
        kernels_ms=1e3 * profile.seconds,
        waiting_ms=1e3 * profile.waiting_seconds,
        ms=estimate * factor.middle,
        low_ms=estimate * factor.low,
        high_ms=estimate * factor.high,
        arguments_gib=compiled.argument_bytes / gib,
        results_gib=(compiled.output_bytes - compiled.shared_bytes) / gib,
        temporaries_gib=compiled.temporary_bytes / gib,
        peak_gib=compiled.peak_bytes / gib,
        host_gib=compiled.host_bytes / gib,
    )


def preregistered() -> list[dict[str, str]]:
    """Read the table of predictions."""
    with TABLE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def run(small: bool, steps: Sequence[str] = ()) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Compile the steps that are named and show what is predicted; without names, the table.

    Raises:
        ValueError: There is no such step.
    """
    unknown = [name for name in steps if name not in STEPS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(STEPS)}")
    if small or not steps:
        yield "what was predicted before it was known", preregistered()
        return
    for name in steps:
        found = dataclasses.asdict(prediction(name, compiled_step(name)))
        rows = [{"of a step": field, "predicted": value} for field, value in found.items()]
        yield name, rows
