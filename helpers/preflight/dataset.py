"""Checks 2 and 3: how many shapes the dataset has, and whether a TPU can take what it gives."""

import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from helpers.base.messages import steady
from helpers.preflight import pipeline
from helpers.preflight.report import FAIL, OPEN, PASS, WARN, Item
from helpers.preflight.subject import rows_of

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
) -> list[Item]:
    """Look at the data: at shapes and types alone where there is no dataset, so no sample.

    Args:
        data: The dataset.
        structure: The nest of ``TensorSpec`` that describes one element.
        sample: The dataset's first batches, or None.
        slices: Targets, each with its number of replicas.
        node: Whether the TPU is another machine, a TPU Node.
    """
    if sample is None:
        reason = "only shapes were given, no dataset"
        names = {2: "compilations in an epoch", 3: "the dataset"}
        return [*(Item(*name, OPEN, reason) for name in names.items()), *_types(structure)]
    items = _shapes(sample, structure) if sample.shapes else []
    if sample.error:
        said = f"after {sample.seen} batches: {steady(sample.error)[:200]}"
        fix = "Mend the pipeline first: for batch in dataset: pass"
        items.append(Item(3, "reading it", FAIL, said, fix))
    items += _types(structure)
    if sample.shapes:
        items += _division(sample, structure, slices)
    parts = pipeline.parts(data)
    return [*items, *_python(parts, node), _files(parts, node)]


def _shapes(sample: pipeline.Sample, structure: Any) -> list[Item]:
    count = len(sample.shapes)
    name = "compilations in an epoch"
    every = "all" if sample.ended else "the first"
    said = f"{count} {'set' if count == 1 else 'sets'} of shapes in {every} {sample.seen} batches: "
    if count > 1:
        said += f"{'' if sample.ended else 'at least '}{count} compilations, each a wait for the "
        said += "whole TPU"
        fix = "Pad to a few widths, or pack (notebook 03); batch(..., drop_remainder=True)."
        return [Item(2, name, FAIL if count > FEW_SHAPES else WARN, said, fix)]
    said += f"1 compilation{'' if sample.ended else ' so far'}"
    items = [Item(2, name, PASS, said)]
    leaves = tf.nest.flatten(structure)
    shapes = [tf.TensorShape(getattr(spec, "shape", None)) for spec in leaves]
    if unknown := sum(not shape.is_fully_defined() for shape in shapes):
        said = f"{unknown} of {len(leaves)} tensors leave a size open, though all batches agree"
        fix = "batch(..., drop_remainder=True); tf.ensure_shape after a py_function."
        items.append(Item(2, "shapes that the dataset promises", WARN, said, fix))
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
    items = [
        Item(3, f"tensor {name}", *fault)
        for name, spec in zip(_names(structure), leaves, strict=True)
        if (fault := _fault(spec)) is not None
    ]
    dtypes = sorted({spec.dtype.name for spec in leaves if isinstance(spec, tf.TensorSpec)})
    return items or [Item(3, "types", PASS, f"all of {', '.join(dtypes)}")]


def _fault(spec: tf.TypeSpec) -> tuple[str, str, str] | None:
    """Say why a TPU can't take such a tensor, and what to do; None where it can."""
    if not isinstance(spec, tf.TensorSpec):
        kind = type(spec).__name__.removesuffix("Spec")
        fix = "Pad it to a fixed width in the pipeline: to_tensor(shape=[None, width])."
        return FAIL, f"it is a {kind}; a TPU takes dense tensors only", fix
    if spec.dtype == tf.string:
        fix = "Tokenise in the pipeline and drop the column before the model."
        return FAIL, "it holds text; a TPU has no strings", fix
    if not TPU_TYPE.fullmatch(spec.dtype.name):
        fix = "Cast it in the pipeline: int32, float32, bfloat16 or complex64."
        return FAIL, f"it is {spec.dtype.name}, which no kernel for TPU takes", fix
    if spec.dtype == tf.float64:
        said = "it is float64, which a TPU imitates with several 32-bit operations"
        return WARN, said, "Cast it to float32 in the pipeline."
    return None


def _division(
    sample: pipeline.Sample, structure: Any, slices: Sequence[tuple[str, int]]
) -> Iterator[Item]:
    rows = rows_of(sample.largest)
    for replicas in sorted({replicas for _, replicas in slices} - {1}):
        target = ", ".join(name for name, number in slices if number == replicas)
        name = f"batch over {replicas} replicas"
        if rows is None:
            said = "the tensors of a batch have no common first size, so it can't be divided"
            fix = "Batch the dataset: every tensor's first dimension is the global batch."
            yield Item(3, name, WARN, said, fix)
        elif rows % replicas:
            said = f"a global batch of {rows} can't be divided by {replicas} ({target})"
            more = -(-rows // replicas) * replicas
            yield Item(3, name, FAIL, said, f"Take a multiple of {replicas}, such as {more}.")
        else:
            yield Item(3, name, PASS, f"{rows} rows are {rows // replicas} for each ({target})")
    if rows is not None:
        yield _remainder(sample, structure, rows)


def _remainder(sample: pipeline.Sample, structure: Any, rows: int) -> Item:
    name = "remainder of an epoch"
    fix = "batch(..., drop_remainder=True), and repeat() if no row may be lost."
    if partial := [n for shapes in sample.shapes if (n := rows_of(shapes)) not in (rows, None)]:
        said = f"the last batch has {min(partial)} rows instead of {rows}: one more compilation, "
        return Item(3, name, WARN, said + "and a step that may not divide", fix)
    specs = [spec for spec in tf.nest.flatten(structure) if isinstance(spec, tf.TensorSpec)]
    is_open = any(spec.shape.rank and spec.shape[0] is None for spec in specs)
    if is_open and not sample.ended and sample.length != -1:
        said = "the dataset may end with a smaller batch; the sample did not reach its end"
        return Item(3, name, WARN, said, fix)
    return Item(3, name, PASS, f"every batch has {rows} rows")


def _python(parts: pipeline.Parts, node: bool) -> list[Item]:
    name = "Python in the pipeline"
    fix = "Write TFRecords once (notebook 06) and read those, or use TensorFlow operations."
    why = "it runs on a TPU VM's own host, one thread at a time; on a TPU Node it fails"
    if node:
        why = "a TPU Node can't call back into this process"
    if not parts.python:
        return [Item(3, name, PASS, "none: TensorFlow operations alone")]
    state = FAIL if node else WARN
    return [
        Item(3, name, state, f"{call.what} feeds the pipeline: {why}", fix, call.where)
        for call in parts.python
    ]


def _files(parts: pipeline.Parts, node: bool) -> Item:
    local, remote = parts.local, parts.remote
    if not parts.reads_files:
        said = "none are read: the data is in memory or comes from Python"
        return Item(3, "files", PASS, said)
    if local:
        said = f"{len(local)} on this machine's disk, such as {pathlib.Path(local[0]).name}: "
        if node:
            fix = "Copy them to gs:// in the TPU's region."
            return Item(3, "files", FAIL, f"{said}a TPU Node can't see that disk", fix)
        return Item(3, "files", PASS, f"{said}copy them to each TPU VM's disk, or to gs://")
    if remote:
        return Item(3, "files", PASS, f"{len(remote)} at gs://: every kind of TPU can read them")
    said = "the pipeline opens files whose names are not written in it"
    return Item(3, "files", OPEN, said, "See that they are at gs://, or on each TPU VM's own disk.")
