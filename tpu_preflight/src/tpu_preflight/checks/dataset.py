"""Checks 2 and 3: how many shapes the dataset has, and whether a TPU can take what it gives."""

import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.util import nest

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
    batches: int,
    slices: Sequence[tuple[str, int]],
    node: bool,
    say: Callable[[str], None],
    promised: bool = True,
) -> tuple[list[Item], pipeline.Sample | None]:
    """Look at the data: at shapes and types alone where there is no dataset, so no sample.

    Args:
        data: What was handed in.
        structure: The nest of ``TensorSpec`` that describes one element of it.
        batches: How many of a dataset are looked at.
        slices: Each target and its devices.
        node: Whether the TPU is another machine, which can't call back and can't see this disk.
        say: Called with a line before something takes time.
        promised: Whether what reads them goes by the dataset's structure, not by each batch.
    """
    if not isinstance(data, tf.data.Dataset):
        return [finding(2, "no_dataset"), finding(3, "no_dataset"), *_types(structure)], None
    say("reading a sample of the dataset")
    sample = pipeline.sample(data, batches)
    items = _shapes(sample, structure, promised) if sample.shapes else []
    if sample.error:
        items.append(finding(3, "raises", seen=sample.seen, error=steady(sample.error)[:200]))
    items += _types(structure)
    if sample.shapes:
        items += _division(sample, structure, slices)
    key = "python_on_a_node" if node else "python"
    python = [finding(3, key, what=what, where=at) for what, at in pipeline.python_in(data)]
    return [*items, *(python or [finding(3, "no_python")]), _files(data, node)], sample


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


def _types(structure: Any) -> list[Item]:
    items, dtypes = [], set()
    for path, spec in nest.flatten_with_joined_string_paths(structure):
        # A pair's place says less than the name in it: ``0/input_ids``.
        about = {"name": re.sub(r"^(\d+/)+", "", path) or "the element"}
        if not isinstance(spec, tf.TensorSpec):
            about["kind"] = type(spec).__name__.removesuffix("Spec")
            items.append(finding(3, "not_dense", **about))
            continue
        about["dtype"] = name = spec.dtype.name
        dtypes.add(name)
        known = "" if TPU_TYPE.fullmatch(name) else "other_type"
        if key := {"string": "text", "float64": "float64"}.get(name, known):
            items.append(finding(3, key, **about))
    return items or [finding(3, "types", dtypes=", ".join(sorted(dtypes)))]


def _division(
    sample: pipeline.Sample, structure: Any, slices: Sequence[tuple[str, int]]
) -> Iterator[Item]:
    rows = rows_of(sample.largest)
    for replicas in sorted({replicas for _, replicas in slices} - {1}):
        target = ", ".join(name for name, number in slices if number == replicas)
        about = {"replicas": replicas, "target": target}
        if rows is None:  # each tensor is divided by itself
            yield finding(3, "no_rows", **about)
        if uneven := [n for n, *_ in filter(None, sample.largest) if n % replicas or not n]:
            yield finding(
                3,
                "indivisible",
                **about,
                rows=uneven[0],
                more=max(1, -(-uneven[0] // replicas)) * replicas,
            )
        elif rows is not None:
            yield finding(3, "divisible", **about, rows=rows, share=rows // replicas)
    if rows is None:
        return
    if partial := {rows_of(shapes) for shapes in sample.shapes} - {rows, None}:
        yield finding(3, "partial", least=min(partial), rows=rows)
        return
    specs = [spec for spec in tf.nest.flatten(structure) if isinstance(spec, tf.TensorSpec)]
    is_open = any(spec.shape.rank and spec.shape[0] is None for spec in specs)
    may_end = is_open and not sample.ended and not sample.endless
    yield finding(3, "maybe_partial" if may_end else "whole", rows=rows)


def _files(data: tf.data.Dataset, node: bool) -> Item:
    files = pipeline.files_of(data)
    if files is None:
        return finding(3, "no_files")
    if local := [name for name in files if "://" not in name]:
        key, file = "local_on_a_node" if node else "local", pathlib.Path(local[0]).name
        return finding(3, key, count=len(local), file=file)
    remote = [name for name in files if name.startswith("gs://")]
    return finding(3, "remote" if remote else "unknown_files", count=len(remote))
