"""Checks 2 and 3: how many shapes the dataset has, and whether a TPU can take what it gives."""

import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tpu_preflight.checks import pipeline
from tpu_preflight.checks.subject import rows_of
from tpu_preflight.report import FAIL, WARN, Item, finding
from tpu_preflight.text import steady

FEW_SHAPES = 8  # each is a compilation; more than these make a short run wait for XLA

# kTpuAllTypes in tensorflow/core/tpu/tpu_defs.h: the types that kernels for TPU are made for.
TPU_TYPE = re.compile(
    r"bool|u?int(4|8|16|32|64)|q(u?int8|int32)|b?float16|float(32|64|8_e4m3fn|8_e5m2)|complex64"
)


def check(
    data: Any,
    structure: Any,
    sample: pipeline.Sample | None,
    slices: Sequence[tuple[str, int]],
    node: bool,
    promised: bool = True,
) -> list[Item]:
    """Look at the data: at shapes and types alone where there is no dataset, so no sample.

    Not ``promised`` says that what reads them goes by each batch, not by the dataset's structure.
    """
    if sample is None:
        return [finding(2, "no_dataset"), finding(3, "no_dataset"), *_types(structure)]
    items = _shapes(sample, structure, promised) if sample.shapes else []
    if sample.error:
        error = steady(sample.error)[:200]
        items.append(finding(3, "raises", seen=sample.seen, error=error))
    items += _types(structure)
    if sample.shapes:
        items += _division(sample, structure, slices)
    parts = pipeline.parts(data)
    return [*items, *_python(parts, node), _files(parts, node)]


def _shapes(sample: pipeline.Sample, structure: Any, promised: bool) -> list[Item]:
    count = len(sample.shapes)
    said = {
        "sets": f"{count} {'set' if count == 1 else 'sets'} of shapes",
        "every": "all" if sample.ended else "the first",
        "seen": sample.seen,
    }
    if count > 1:
        state, least = FAIL if count > FEW_SHAPES else WARN, "" if sample.ended else "at least "
        return [finding(2, "several", **said, state=state, count=count, least=least)]
    items = [finding(2, "one", **said, so_far="" if sample.ended else " so far")]
    leaves = tf.nest.flatten(structure)
    shapes = [tf.TensorShape(getattr(spec, "shape", None)) for spec in leaves]
    unknown = sum(not shape.is_fully_defined() for shape in shapes)
    if promised and unknown:
        items.append(finding(2, "open", unknown=unknown, all=len(leaves)))
    return items


def _names(structure: Any, path: str = "") -> Iterator[str]:
    """Name each tensor of an element, in the order of ``tf.nest.flatten``: ``input_ids``, ``1``."""
    if isinstance(structure, dict):
        pairs = [(str(key), structure[key]) for key in sorted(structure)]
    elif isinstance(structure, tuple | list):
        pairs = [(str(i), part) for i, part in enumerate(structure)]
    else:
        yield path or "the element"
        return
    for key, part in pairs:
        yield from _names(part, key if path.isdigit() or not path else f"{path}/{key}")


def _types(structure: Any) -> list[Item]:
    leaves = tf.nest.flatten(structure)
    names = zip(_names(structure), leaves, strict=True)
    items = [fault for name, spec in names if (fault := _fault(name, spec)) is not None]
    dtypes = sorted({spec.dtype.name for spec in leaves if isinstance(spec, tf.TensorSpec)})
    return items or [finding(3, "types", dtypes=", ".join(dtypes))]


def _fault(name: str, spec: tf.TypeSpec) -> Item | None:
    """Say why a TPU can't take such a tensor; None where it can."""
    if not isinstance(spec, tf.TensorSpec):
        return finding(3, "not_dense", name=name, kind=type(spec).__name__.removesuffix("Spec"))
    if spec.dtype == tf.string:
        return finding(3, "text", name=name)
    if not TPU_TYPE.fullmatch(spec.dtype.name):
        return finding(3, "other_type", name=name, dtype=spec.dtype.name)
    return finding(3, "float64", name=name) if spec.dtype == tf.float64 else None


def _division(
    sample: pipeline.Sample, structure: Any, slices: Sequence[tuple[str, int]]
) -> Iterator[Item]:
    rows = rows_of(sample.largest)
    for replicas in sorted({replicas for _, replicas in slices} - {1}):
        target = ", ".join(name for name, number in slices if number == replicas)
        about = {"replicas": replicas, "target": target, "rows": rows}
        if rows is None:
            yield finding(3, "no_rows", **about)
        elif rows % replicas:
            yield finding(3, "indivisible", **about, more=-(-rows // replicas) * replicas)
        else:
            yield finding(3, "divisible", **about, share=rows // replicas)
    if rows is not None:
        yield _remainder(sample, structure, rows)


def _remainder(sample: pipeline.Sample, structure: Any, rows: int) -> Item:
    if partial := [n for shapes in sample.shapes if (n := rows_of(shapes)) not in (rows, None)]:
        return finding(3, "partial", least=min(partial), rows=rows)
    specs = [spec for spec in tf.nest.flatten(structure) if isinstance(spec, tf.TensorSpec)]
    is_open = any(spec.shape.rank and spec.shape[0] is None for spec in specs)
    may_end = is_open and not sample.ended and sample.length != -1
    return finding(3, "maybe_partial" if may_end else "whole", rows=rows)


def _python(parts: pipeline.Parts, node: bool) -> list[Item]:
    key = "python_on_a_node" if node else "python"
    calls = [finding(3, key, what=call.what, where=call.where) for call in parts.python]
    return calls or [finding(3, "no_python")]


def _files(parts: pipeline.Parts, node: bool) -> Item:
    local, remote = parts.local, parts.remote
    if not parts.reads_files:
        return finding(3, "no_files")
    if local:
        key, name = "local_on_a_node" if node else "local", pathlib.Path(local[0]).name
        return finding(3, key, count=len(local), file=name)
    return finding(3, "remote" if remote else "unknown_files", count=len(remote))
