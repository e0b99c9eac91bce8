"""Make on_a_tpu.tsv again: what notebook 13's programs should take on each kind of TPU.

    python notebooks/data/make_on_a_tpu.py    # some minutes

Nothing is run: the programs, in JAX, are compiled with full effort, each for one device.
"""

import functools
import importlib.metadata
import pathlib

import jax

from helpers.base import files
from helpers.confirm import programs
from tpu_preflight import compiler
from tpu_preflight.estimate.measured import step_seconds
from tpu_preflight.program import jax_export

TABLE = pathlib.Path(__file__).with_name("on_a_tpu.tsv")
# The smallest slice of each kind for which the compiler answers.
TARGETS = ("v2-8", "v3-8", "v4-8", "v5e-1", "v5p-8", "v6e-1", "tpu7x-8")
COLUMNS = ("program", "target", "ms", "least_ms", "argument_bytes", "peak_bytes")


def compiled_program(program: programs.Program, target: str) -> compiler.Compiled:
    """Compile a program for one device; each state takes the place of the one before."""
    arguments = []
    for array in (*program.state, *program.constants):
        arguments.append(jax.ShapeDtypeStruct(array.shape, array.dtype))
    function = functools.partial(program.function, programs.jax_operations())
    function.__name__ = program.name
    donated = range(len(program.state))
    step = jax.jit(function, donate_argnums=tuple(donated))
    exported = jax_export.export(step, tuple(arguments))
    return compiler.compile(exported.program, target, effort="full")


def row(program: programs.Program, target: str) -> tuple[str, ...]:
    """Predict a step: the longer of the estimate and the least time, and its memory."""
    compiled = compiled_program(program, target)
    least_ms = compiler.roofline(compiled).seconds * 1e3
    estimate_ms = step_seconds(compiler.profile(compiled)) * 1e3
    return (
        program.name,
        target,
        f"{max(estimate_ms, least_ms):.4g}",
        f"{least_ms:.4g}",
        str(compiled.argument_bytes),
        str(compiled.peak_bytes),
    )


if __name__ == "__main__":
    versions = []
    for package in ("jax", "libtpu"):
        versions.append(f"{package} {importlib.metadata.version(package)}")
    lines = [f"# {', '.join(versions)} (python notebooks/data/make_on_a_tpu.py)"]
    lines.append("\t".join(COLUMNS))
    with compiler.started():
        for target in TARGETS:
            for program in programs.PROGRAMS:
                lines.append("\t".join(row(program, target)))
                print(lines[-1], flush=True)
    files.write(TABLE, "\n".join(lines) + "\n")
