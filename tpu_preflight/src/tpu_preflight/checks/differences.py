"""Two runs of the same step: do they agree, up to rounding? Knows NumPy alone."""

import numpy as np

from tpu_preflight.program import messages
from tpu_preflight.report import Item, finding

# How far rounding takes a result when additions come in another order, relative to it, by the
# lowest precision in the step: some units in the last place.
RELATIVE = {"float32": 1e-3, "float16": 5e-3, "bfloat16": 3e-2}

# By their names; or what the step raised.
Results = dict[str, np.ndarray] | Exception


def difference(step: str, eager: Results, compiled: Results, relative: float) -> Item | None:
    """Say what is wrong with the answers to one batch; None if nothing."""
    if isinstance(compiled, Exception):  # XLA refuses what it took when it compiled
        error, where = messages.shortened(messages.line_of(compiled)), messages.source_of(compiled)
        return finding(4, "refuses", step=step, error=error, where=where)
    if isinstance(eager, Exception):
        gives = ", ".join(f"{k} {_say(v)}" for k, v in list(compiled.items())[:2])
        error, where = messages.shortened(messages.line_of(eager)), messages.source_of(eager)
        return finding(4, "silent", step=step, error=error, gives=gives, where=where)
    if different := differ(eager, compiled, relative):
        said = "; ".join(
            f"{name}: {_say_both(eager[name], compiled.get(name, np.array('missing')))}"
            for name in different[:2]
        )
        return finding(4, "differs", step=step, said=said)
    bad = [name for name, x in compiled.items() if _numeric(x) and not np.isfinite(x).all()]
    return finding(4, "not_finite", step=step, bad=", ".join(bad)) if bad else None


def differ(left: Results, right: Results, relative: float) -> list[str]:
    """Name the results that differ by more than rounding; none where one side raised.

    In half precision, of a step that gives a loss only that: a score that counts rows changes with
    each row that is near a tie.
    """
    if isinstance(left, Exception) or isinstance(right, Exception):
        return []
    names = ["loss"] if relative > RELATIVE["float32"] and "loss" in left else left
    return [name for name in names if not _same(left[name], right.get(name), relative)]


def _numeric(value: np.ndarray) -> bool:
    return value.dtype.kind not in "OSUb"  # NumPy doesn't count bfloat16 among its numbers


def _same(a: np.ndarray, b: np.ndarray | None, relative: float) -> bool:
    if b is None or a.shape != b.shape:
        return False
    if not _numeric(a):
        return np.array_equal(a, b)
    a, b = np.asarray(a, np.complex128), np.asarray(b, np.complex128)
    return np.allclose(a, b, relative, relative / 100, equal_nan=True)


def _say(value: np.ndarray) -> str:
    if value.size == 1:
        return f"{value.reshape(())[()]:.4g}" if _numeric(value) else str(value)
    return str(list(value.shape))


def _say_both(a: np.ndarray, b: np.ndarray) -> str:
    """Write two results that differ; of arrays the values that are furthest apart."""
    if a.shape == b.shape and a.size > 1 and _numeric(a) and _numeric(b):
        apart = np.abs(np.asarray(a, np.complex128) - np.asarray(b, np.complex128))
        at = np.argmax(np.nan_to_num(apart, nan=np.inf))
        a, b = a.flat[at : at + 1], b.flat[at : at + 1]
    return f"eager {_say(a)}, compiled {_say(b)}"
