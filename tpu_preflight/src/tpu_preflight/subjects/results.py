"""The results of two runs of the same step: do they agree, up to rounding? Knows NumPy alone."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tpu_preflight.program import messages

# How far rounding takes a result when additions come in another order, relative to it, by the
# lowest precision in the step: some units in the last place.
TOLERANCES = {"float32": 1e-3, "float16": 5e-3, "bfloat16": 3e-2}

# By their names; or what the step raised.
Results = dict[str, np.ndarray] | Exception


# Errors of TensorFlow and Python, and the status in an error of XLA, that say that this machine has
# too little of something: they say nothing of the step.
_MACHINE_ERRORS = (
    "MemoryError",
    "ResourceExhaustedError",
    "UnavailableError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
)
_MACHINE_STATUS = "RESOURCE_EXHAUSTED"


@dataclasses.dataclass(frozen=True)
class Difference:
    """What is wrong with the results of one batch."""

    key: str  # of the finding under check 4 in ``findings.toml``
    words: Mapping[str, Any]  # what is filled in there


def difference(eager: Results, compiled: Results, tolerance: float) -> Difference | None:
    """Say what is wrong with the results of one batch; None if nothing.

    Args:
        eager: Of the step as TensorFlow or JAX runs it, operation by operation.
        compiled: Of the same step compiled by XLA.
        tolerance: How far rounding takes a result, relative to it.
    """
    for result in (compiled, eager):
        if isinstance(result, Exception) and _is_of_machine(result):
            error = _error_words(result)["error"]
            return Difference("no_room", {"said": f"{type(result).__name__}: {error}"})
    if isinstance(compiled, Exception):  # XLA refuses what it took when it compiled
        return Difference("refuses", _error_words(compiled))
    if isinstance(eager, Exception):
        first_two = list(compiled.items())[:2]
        gives = ", ".join(f"{name} {_text(value)}" for name, value in first_two)
        return Difference("silent", {**_error_words(eager), "gives": gives})
    # Both came to an end: compare what they gave.
    names = differing_names(eager, compiled, tolerance)
    if names:
        pairs = []
        for name in names[:2]:
            text = _text_of_both(eager[name], compiled.get(name, np.array("missing")))
            pairs.append(f"{name}: {text}")
        return Difference("differs", {"said": "; ".join(pairs)})
    # Equal may also mean that both are wrong.
    not_finite = []
    infinite = []
    for name, value in compiled.items():
        if not _is_numeric(value) or np.isfinite(value).all():
            continue
        # An infinite number is a fault as a loss; in an array it may be a mask.
        if np.isnan(value).any() or value.size == 1:
            not_finite.append(name)
        else:
            infinite.append(name)
    if not_finite:
        return Difference("not_finite", {"bad": ", ".join(not_finite)})
    if infinite:
        return Difference("infinite", {"bad": ", ".join(infinite)})
    return None


def _is_of_machine(error: Exception) -> bool:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return not kinds.isdisjoint(_MACHINE_ERRORS) or _MACHINE_STATUS in str(error)


def _error_words(error: Exception) -> dict[str, Any]:
    line = messages.shorten(messages.line_of(error))
    return {"error": line, "where": messages.source_of(error)}


def differing_names(left: Results, right: Results, tolerance: float) -> list[str]:
    """Name the results that differ by more than rounding; none where one side raised.

    In half precision, of a step that gives a loss only that: a score that counts rows changes with
    each row that is near a tie.
    """
    if isinstance(left, Exception) or isinstance(right, Exception):
        return []
    # By the tolerance: of float32 every result is compared.
    names = list(left)
    if tolerance > TOLERANCES["float32"] and "loss" in left:
        names = ["loss"]
    return [name for name in names if not _agree(left[name], right.get(name), tolerance)]


def non_finite_kinds(values: Iterable[Any]) -> set[str]:
    """Say which kinds are among these numbers and arrays: ``inf``, ``nan``."""
    kinds = set()
    for value in values:
        # Python's numbers have no dtype.
        dtype = str(getattr(value, "dtype", type(value).__name__))
        if not dtype.startswith(("float", "bfloat", "complex")) or dtype == "float0":
            continue
        numbers = np.asarray(value, np.complex128)
        if np.isnan(numbers).any():
            kinds.add("nan")
        if np.isinf(numbers).any():
            kinds.add("inf")
    return kinds


def _is_numeric(value: np.ndarray) -> bool:
    return value.dtype.kind not in "OSUb"  # NumPy doesn't count bfloat16 among its numbers


def _agree(a: np.ndarray, b: np.ndarray | None, tolerance: float) -> bool:
    if b is None or a.shape != b.shape:
        return False
    if not _is_numeric(a):
        return np.array_equal(a, b)
    return np.allclose(
        np.asarray(a, np.complex128),
        np.asarray(b, np.complex128),
        rtol=tolerance,
        atol=tolerance / 100,
        equal_nan=True,
    )


def _text(value: np.ndarray) -> str:
    if value.size != 1:
        return str(list(value.shape))
    if _is_numeric(value):
        return f"{value.reshape(())[()]:.4g}"
    return str(value)


def _text_of_both(a: np.ndarray, b: np.ndarray) -> str:
    """Write two results that differ; of arrays the values that are furthest apart."""
    if a.shape == b.shape and a.size > 1 and _is_numeric(a) and _is_numeric(b):
        distances = np.abs(np.asarray(a, np.complex128) - np.asarray(b, np.complex128))
        furthest = np.argmax(np.nan_to_num(distances, nan=np.inf))
        a = a.flat[furthest : furthest + 1]
        b = b.flat[furthest : furthest + 1]
    return f"eager {_text(a)}, compiled {_text(b)}"
