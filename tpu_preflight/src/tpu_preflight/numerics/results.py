"""What came of a program that ran with float32 products and with a TPU's."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tpu_preflight.shown import Shown, Table

HONEST = "One pass, the default precision, imitated on this CPU; not confirmed on a TPU."


@dataclasses.dataclass(frozen=True)
class Value:
    """One result, or the change of one variable, computed both ways."""

    name: str  # ``result 0``, or the variable's name
    shape: str  # type and shape as XLA writes them: ``f32[8,128]``
    norm: float  # Euclidean norm with float32 products
    apart: float  # norm of the difference
    finite: bool  # whether all values are finite with float32 products
    rounded_finite: bool  # the same with a TPU's
    # Norm of the difference, with float32 products, from the first batch's value.
    between: float = 0.0
    # The values with float32 products; None where there are very many.
    exact: np.ndarray | None = dataclasses.field(default=None, repr=False, compare=False)
    # The same with a TPU's.
    rounded: np.ndarray | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def share(self) -> float:
        """The difference as a share of the value: 0.01 is one percent."""
        return together([self])


@dataclasses.dataclass(frozen=True, repr=False)
class Numbers(Shown):
    """The numbers of one run, with float32 products and with a TPU's."""

    name: str  # the function's name
    products: int  # matrix products that are rounded; one in a loop counts once
    precise: int  # products that ask for more passes, left alone
    results: tuple[Value, ...]  # what the function returned, flat
    updates: tuple[Value, ...] = ()  # how it changed each variable of floating-point numbers

    @property
    def summary(self) -> str:
        """One line: how much was rounded."""
        more = f"; {self.precise} that ask for more precision are not" if self.precise else ""
        return f"{self.name}: the operands of {products(self.products)} are rounded{more}"

    def blocks(self) -> Iterator[Any]:
        """Give its parts in order; see `Shown`."""
        titles = ("", "shape", "float32 products", "a TPU's products", "apart")
        rows = [(v.name, v.shape, *_where_most(v), percent(v.share)) for v in self.results]
        if self.updates:
            name = f"change of {len(self.updates)} variables"
            rows.append((name, "", "", "", percent(together(self.updates))))
        yield self.summary
        yield Table(dict(zip(titles, row, strict=True)) for row in rows)
        yield HONEST


def products(count: int) -> str:
    """Write a number of products: ``1 product``, ``34 products``."""
    return f"{count} product" if count == 1 else f"{count} products"


def percent(share: float) -> str:
    """Write a share with two digits: ``0.021%``; ``0`` where there is no difference."""
    if not math.isfinite(share):
        return "not finite"
    return f"{share * 100:.2g}%" if share else "0"


def together(values: Iterable[Value], distance: str = "apart") -> float:
    """How far values are apart, taken together as one vector, as a share of its length.

    The distance is ``apart``, or ``between`` for what two batches differ by.
    """
    pairs = [(getattr(v, distance), v.norm) for v in values]
    if distance == "between":  # the first batch's has nothing to differ from
        pairs = [(far, norm) for far, norm in pairs if far]
    apart, norm = (math.hypot(*column) for column in zip(*pairs, strict=True)) if pairs else (0, 0)
    if not apart:
        return 0.0
    return apart / norm if norm else math.inf


def _where_most(value: Value) -> tuple[str, str]:
    """Write both numbers where they differ most."""
    if value.exact is None or not value.exact.size:
        return "–", "–"
    distance = np.abs(value.exact.astype(np.complex128) - value.rounded)
    at = np.unravel_index(np.nan_to_num(distance).argmax(), distance.shape)
    where = f"[{', '.join(map(str, at))}] " if at else ""
    exact, rounded = (f"{where}{x[at]:.5g}" for x in (value.exact, value.rounded))
    return exact, rounded
