"""Check 3: are the data's tensors of types that a TPU takes?"""

import re

import tensorflow as tf
from tensorflow.python.util import nest

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding

# kTpuAllTypes in tensorflow/core/tpu/tpu_defs.h: the types that kernels for TPU are made for.
TPU_TYPE = re.compile(
    r"bool|u?int(4|8|16|32|64)|q(u?int8|int32)|b?float16|float(32|64|8_e4m3fn|8_e5m2)|complex64"
)


def check(context: Context) -> list[Item]:
    """Name each tensor that a TPU can't take, or takes only with more work."""
    items = []
    types = set()
    for path, spec in nest.flatten_with_joined_string_paths(context.subject.structure):
        # A pair's place says less than the name in it: ``0/input_ids``.
        name = re.sub(r"^(\d+/)+", "", path) or "the element"
        # A ragged or sparse tensor has no fixed shape, whatever its type.
        if not isinstance(spec, tf.TensorSpec):
            kind = type(spec).__name__.removesuffix("Spec")
            items.append(finding(3, "not_dense", name=name, kind=kind))
            continue
        types.add(spec.dtype.name)
        key = _fault_of(spec.dtype.name)
        if key:
            items.append(finding(3, key, name=name, dtype=spec.dtype.name))
    if not items:
        items.append(finding(3, "types", dtypes=", ".join(sorted(types))))
    return items


def _fault_of(dtype: str) -> str:
    """Give the key of what is to be said of a type; empty where nothing is."""
    if dtype == "string":
        return "text"
    if dtype == "float64":
        return "float64"
    if TPU_TYPE.fullmatch(dtype):
        return ""
    return "other_type"
