"""Make fits.tsv and steps.tsv again: what notebook 12's programs need, and how long they take.

    python notebooks/data/make_fits.py          # does it fit: an hour
    python notebooks/data/make_fits.py --steps  # how long it takes, with full effort: half an hour

Nothing is run. The programs are the notebook's own: its classes, functions and constants.
"""

import ast
import collections
import itertools
import pathlib
import sys

import nbformat

from helpers import runtime
from helpers.base import files
from tpu_preflight import compiler

HERE = pathlib.Path(__file__).parent
ABOUT = "# one row of 512 tokens for each chip; jax 0.10.2, libtpu 0.0.51, 2026-11 (make_fits.py)\n"
PLACES = {"v5e-1": ["replicated"], "v5e-8": ["replicated", "FSDP", "tensor"]}
PLACES |= {target.replace("v5e", "v6e"): places for target, places in PLACES.items()}
STEPS = [
    ("Gemma 2B", "all weights", "v5e-8", "FSDP"),
    ("Gemma 2B", "LoRA", "v5e-1", "replicated"),
    ("Gemma 2B", "int8, LoRA", "v5e-1", "replicated"),
    ("Llama 3 8B", "LoRA", "v5e-8", "FSDP"),
    ("Llama 3 8B", "int8, LoRA", "v5e-1", "replicated"),
]


def notebook() -> dict[str, object]:
    """Define what notebook 12 defines, without running the rest of its cells."""
    (path,) = HERE.parent.glob("12_*.ipynb")
    cells = (c for c in nbformat.read(path, 4).cells if "setup" not in c.metadata.get("tags", []))
    trees = [ast.parse(cell.source) for cell in cells if cell.cell_type == "code"]
    defined, kinds = (
        {"runtime": runtime},
        (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef),
    )
    for statement in itertools.chain.from_iterable(tree.body for tree in trees):
        targets = [
            n.id for t in getattr(statement, "targets", []) for n in ast.walk(t) if hasattr(n, "id")
        ]
        if isinstance(statement, kinds) or (targets and all(map(str.isupper, targets))):
            exec(compile(ast.Module([statement], []), str(path), "exec"), defined)
    return defined


def write(name: str, columns: str, rows: list[tuple]) -> None:
    """Write a table, whole or not at all."""
    lines = ["\t".join(map(str, row)) + "\n" for row in (columns.split(), *rows)]
    files.write(HERE / name, ABOUT + "".join(lines))


def fits(defined: dict) -> None:
    """Ask for each model, way, target and place, with activations computed again and kept."""
    rows = []
    models = {"Gemma 2B": defined["GEMMA_2B"], "Llama 3 8B": defined["LLAMA_3_8B"]}
    for (name, c), way in itertools.product(models.items(), defined["WAYS"]):
        for target, place in ((t, p) for t, places in PLACES.items() for p in places):
            for again in (True, False):
                found = defined["ask"](c, way, target, place, again)
                told = found.verdict, f"{found.peak_bytes / 2**30:.3f}"
                rows.append((name, way, ("kept", "computed again")[again], target, place, *told))
                print(*rows[-1], flush=True)
                write("fits.tsv", "model way activations target place verdict gib", rows)


def steps(defined: dict) -> None:
    """Compile with full effort, and add up the kernels' seconds by what they wait for."""
    rows = []
    models = {"Gemma 2B": defined["GEMMA_2B"], "Llama 3 8B": defined["LLAMA_3_8B"]}
    for name, way, target, place in STEPS:
        found = defined["ask"](models[name], way, target, place, True, effort="full")
        told, bounds = compiler.profile(found), collections.Counter()
        for kernel in told.kernels:
            bounds[kernel.bound] += kernel.seconds
        shares = [f"{bounds[bound]:.4g}" for bound in ("compute", "HBM", "vector")]
        numbers = (
            f"{told.seconds:.4g}",
            *shares,
            f"{found.flops:.4g}",
            f"{found.bytes_accessed:.4g}",
        )
        rows.append((name, way, target, place, *numbers))
        print(*rows[-1], flush=True)
        write("steps.tsv", "model way target place seconds compute HBM vector flops bytes", rows)


if __name__ == "__main__":
    (steps if "--steps" in sys.argv else fits)(notebook())
