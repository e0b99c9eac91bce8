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
PLACES = [
    ("v5e-1", "replicated"),
    ("v5e-8", "replicated"),
    ("v5e-8", "FSDP"),
    ("v5e-8", "tensor"),
    ("v6e-1", "replicated"),
    ("v6e-8", "replicated"),
    ("v6e-8", "FSDP"),
    ("v6e-8", "tensor"),
]
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
    program = []
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code" and "setup" not in cell.metadata.get("tags", []):
            program += ast.parse(cell.source).body
    definitions = ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef
    names: dict[str, object] = {"runtime": runtime}
    for statement in program:
        if isinstance(statement, definitions) or _sets_constants(statement):
            exec(compile(ast.Module([statement], []), str(path), "exec"), names)
    return names


def _sets_constants(statement: ast.stmt) -> bool:
    """Whether a statement assigns to names in capitals, and to no others."""
    names = []
    for target in getattr(statement, "targets", []):
        names += [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
    return bool(names) and all(map(str.isupper, names))


def write(name: str, columns: str, rows: list[tuple]) -> None:
    """Write a table, whole or not at all."""
    lines = ["\t".join(map(str, row)) + "\n" for row in (columns.split(), *rows)]
    files.write(HERE / name, ABOUT + "".join(lines))


def fits(names: dict) -> None:
    """Ask for each model, way, target and place, with activations computed again and kept."""
    columns = "model way activations target place verdict gib"
    rows = []
    cases = itertools.product(names["MODELS"], names["WAYS"], PLACES)
    for name, way, (target, place) in cases:
        for activations in ("computed again", "kept"):
            again = activations == "computed again"
            c = names["MODELS"][name]
            compiled = names["compile_step"](c, way, target, place, again)
            gib = f"{compiled.peak_bytes / 2**30:.3f}"
            rows.append((name, way, activations, target, place, compiled.verdict, gib))
            print(*rows[-1], flush=True)
            write("fits.tsv", columns, rows)


def steps(names: dict) -> None:
    """Compile with full effort, and add up the kernels' seconds by what they wait for."""
    columns = "model way target place seconds compute HBM vector flops bytes"
    rows = []
    for name, way, target, place in STEPS:
        c = names["MODELS"][name]
        compiled = names["compile_step"](c, way, target, place, True, effort="full")
        profile = compiler.profile(compiled)
        bounds = collections.Counter()
        for kernel in profile.kernels:
            bounds[kernel.bound] += kernel.seconds
        numbers = [profile.seconds, bounds["compute"], bounds["HBM"], bounds["vector"]]
        numbers += [compiled.flops, compiled.bytes_accessed]
        rows.append((name, way, target, place, *map("{:.4g}".format, numbers)))
        print(*rows[-1], flush=True)
        write("steps.tsv", columns, rows)


if __name__ == "__main__":
    make = steps if "--steps" in sys.argv else fits
    make(notebook())
