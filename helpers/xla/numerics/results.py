"""What came of a program that ran with float32 products and with a TPU's."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from helpers.base import html
from helpers.base.language import translated
from helpers.base.messages import aligned
from helpers.display.figures import Figure, figure, subplots

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


@dataclasses.dataclass(frozen=True)
class Numbers:
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

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [(v.name, v.shape, *_where_most(v), percent(v.share)) for v in self.results]
        if self.updates:
            name = f"change of {len(self.updates)} variables"
            rows.append((name, "", "", "", percent(together(self.updates))))
        return rows

    def __repr__(self) -> str:
        return "\n".join([self.summary, *aligned([_TITLES, *self._rows()]), HONEST])

    def _repr_html_(self) -> str:
        words = {"summary": self.summary, "titles": _TITLES, "rows": self._rows()}
        return html.render("numbers.html", note=HONEST, **words)


_TITLES = ("", "shape", "float32 products", "a TPU's products", "apart")


@dataclasses.dataclass(frozen=True)
class Training:
    """The losses of short trainings from the same start on the same batches, step by step."""

    name: str  # the step's name
    exact: tuple[float, ...]  # with float32 products
    rounded: tuple[float, ...]  # with a TPU's
    other: tuple[float, ...]  # with float32 products and another seed
    seed: str  # what the other seed changes: ``the weights`` or ``the order of the batches``
    products: int  # matrix products that are rounded

    @property
    def apart(self) -> float:
        """How far the rounded curve is from the exact one: mean of the later half, smoothed."""
        return self._distance(self.rounded)

    @property
    def between_seeds(self) -> float:
        """The same between the two seeds."""
        return self._distance(self.other)

    def _distance(self, curve: Sequence[float]) -> float:
        ours, theirs = (self.smooth(c) for c in (self.exact, curve))
        return float(np.abs(ours - theirs)[len(ours) // 2 :].mean())

    @property
    def window(self) -> int:
        """Steps over which a curve is smoothed: a tenth of them."""
        return max(1, len(self.exact) // 10)

    def smooth(self, curve: Sequence[float]) -> np.ndarray:
        """Average a curve over a tenth of its steps."""
        return np.convolve(curve, np.full(self.window, 1 / self.window), mode="valid")

    @property
    def finite(self) -> bool:
        """Whether no loss of the rounded training is nan or infinite."""
        return bool(np.isfinite(self.rounded).all())

    @property
    def summary(self) -> str:
        """One or two sentences: where both end, how far apart they are, and how far two seeds."""
        ends = [f"{self.smooth(c)[-1]:.4g}" for c in (self.exact, self.rounded)]
        begin = self.smooth(self.exact)[0]
        return (
            f"{len(self.exact)} steps from a loss of {begin:.4g}: {ends[0]} with float32 products, "
            f"{ends[1]} with a TPU's. Over the later half the curves are {self.apart:.2g} apart; "
            f"two seeds ({self.seed}) {self.between_seeds:.2g}."
        )

    def __repr__(self) -> str:
        return f"{self.name}: {translated(self.summary)} {translated(HONEST)}"

    def figure(self) -> Figure:
        """Draw the three curves; the summary is the text alternative."""
        axes_of, axes = subplots()
        curves = (
            (self.exact, "float32 products", "-"),
            (self.rounded, "a TPU's products", "--"),
            (self.other, f"float32, another seed ({self.seed})", ":"),
        )
        for curve, label, line in curves:
            at = np.arange(self.window, len(curve) + 1)
            axes.plot(at, self.smooth(curve), line, label=label, marker="")
        axes.set(xlabel="step", ylabel="loss")
        axes.legend()
        return figure(axes_of, alt=f"{self.summary} {HONEST}")


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
