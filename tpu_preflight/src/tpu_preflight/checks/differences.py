"""Two runs of the same step: do they agree, up to rounding? Knows NumPy alone."""

import numpy as np

from tpu_preflight.program import messages
from tpu_preflight.report import Item, finding

RELATIVE, ABSOLUTE = 1e-3, 1e-5  # rounding that another order of additions brings

Results = dict[str, np.ndarray]


def difference(step: str, eager: Results | Exception, compiled: Results | Exception) -> Item | None:
    """Say what is wrong with the answers to one batch; None if nothing."""
    if isinstance(compiled, Exception):  # XLA refuses what it took when it compiled
        where = messages.source_of(compiled)
        return finding(4, "refuses", step=step, error=_line(compiled), where=where)
    if isinstance(eager, Exception):
        gives = ", ".join(f"{k} {_say(v)}" for k, v in list(compiled.items())[:2])
        where = messages.source_of(eager)
        return finding(4, "silent", step=step, error=_line(eager), gives=gives, where=where)
    if different := differ(eager, compiled):
        said = "; ".join(
            f"{name}: eager {_say(eager[name])}, compiled "
            f"{_say(compiled[name]) if name in compiled else 'missing'}"
            for name in different[:2]
        )
        return finding(4, "differs", step=step, said=said)
    bad = [name for name, value in compiled.items() if _count_bad(value)]
    return finding(4, "not_finite", step=step, bad=", ".join(bad)) if bad else None


def _line(error: Exception) -> str:
    return messages.shortened(messages.line_of(error))


def differ(left: Results | Exception, right: Results | Exception) -> list[str]:
    """Name the results that differ by more than rounding; none where one side raised."""
    if isinstance(left, Exception) or isinstance(right, Exception):
        return []
    return [name for name, a in left.items() if not _same(a, right.get(name))]


def _same(a: np.ndarray, b: np.ndarray | None) -> bool:
    if b is None or a.shape != b.shape:
        return False
    if not np.issubdtype(a.dtype, np.number):
        return np.array_equal(a, b)
    a, b = np.asarray(a, np.complex128), np.asarray(b, np.complex128)
    return np.allclose(a, b, RELATIVE, ABSOLUTE, equal_nan=True)


def _say(value: np.ndarray) -> str:
    if value.size == 1:
        return f"{value.reshape(())[()]:.3g}" if value.dtype != object else str(value)
    bad = _count_bad(value)
    return f"{list(value.shape)}" + (f" with {bad} nan or inf" if bad else "")


def _count_bad(value: np.ndarray) -> int:
    """Count what is nan or infinite."""
    inexact = np.issubdtype(value.dtype, np.inexact)
    return np.count_nonzero(~np.isfinite(value)) if inexact else 0
