"""Bucket edges with the least padding, and how many of them make a run shortest."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from helpers.base.errors import CourseError
from helpers.text.buckets.sequences import as_lengths, check_fits, check_positive


class TooManyBuckets(CourseError):
    """More buckets are asked for than the lengths can fill."""


def html_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Draw rows as a table, without an index."""
    import pandas as pd

    return pd.DataFrame(rows).to_html(index=False)


@dataclasses.dataclass(frozen=True)
class Edges:
    """Bucket edges and what they cost on the lengths they were measured with."""

    # Padded length of each bucket, rising. A sequence goes to the first that holds it.
    edges: tuple[int, ...]
    sequences: tuple[int, ...]  # how many sequences go to each bucket
    tokens: tuple[int, ...]  # how many real tokens they have

    @property
    def padded_tokens(self) -> int:
        """Positions that all sequences take, padding included."""
        return sum(e * n for e, n in zip(self.edges, self.sequences, strict=True))

    @property
    def efficiency(self) -> float:
        """Share of positions that hold a real token, 0 to 1."""
        return sum(self.tokens) / self.padded_tokens

    def __repr__(self) -> str:
        return (
            f"{_buckets(len(self.edges))} {', '.join(map(str, self.edges))}: "
            f"{sum(self.tokens):,} tokens in {self.padded_tokens:,} positions, "
            f"{self.efficiency:.1%} real"
        )

    def _repr_html_(self) -> str:
        names = ("edge", "sequences", "tokens", "positions", "real")
        rows = [
            dict(zip(names, (e, n, t, e * n, f"{t / (e * n):.1%}"), strict=True))
            for e, n, t in zip(self.edges, self.sequences, self.tokens, strict=True)
            if n
        ]
        return f"<p>{self!r}</p>" + html_table(rows)


def _buckets(number: int) -> str:
    return f"{number} bucket" if number == 1 else f"{number} buckets"


def check_edges(edges: Sequence[int]) -> tuple[int, ...]:
    """Refuse edges that are not positive whole numbers in rising order."""
    array = np.asarray(edges)
    whole = array.ndim == 1 and array.size > 0 and array.dtype.kind in "iu"
    if not whole or array[0] < 1 or np.any(np.diff(array.astype(np.int64)) <= 0):
        raise CourseError(
            f"Edges {list(edges)} are not in rising order, or not positive whole numbers.",
            "Each bucket holds the lengths above the edge before it, up to its own.",
            "Write them smallest first, each once, such as [16, 32, 64, 128].",
        )
    return tuple(array.tolist())


def measure_edges(lengths: npt.ArrayLike, edges: Sequence[int]) -> Edges:
    """Measure edges of your own (padded lengths, rising), to compare them with `optimal_edges`.

    ``lengths`` are tokens per sequence, whole numbers, 1-D. An edge that no sequence needs stays,
    with a count of 0.

    Raises:
        TooLong: A sequence is longer than the last edge.
        CourseError: ``lengths`` or ``edges`` are not positive whole numbers, or edges don't rise.
    """
    array, checked = as_lengths(lengths), check_edges(edges)
    check_fits(array, checked[-1], f"Make the last edge at least {array.max()}.")
    bucket = np.searchsorted(checked, array)
    sequences = np.bincount(bucket, minlength=len(checked))
    tokens = np.bincount(bucket, weights=array, minlength=len(checked)).astype(np.int64)
    return Edges(checked, tuple(sequences.tolist()), tuple(tokens.tolist()))


def _candidates(lengths: np.ndarray, multiple: int) -> tuple[list[int], list[int]]:
    """Give the edges worth considering and how many sequences are at or below each, after a 0.

    An optimal edge is a length rounded up: a smaller one would lose it, a larger one only pads.
    """
    edges, counts = np.unique(-(-lengths // multiple) * multiple, return_counts=True)
    return edges.tolist(), [0, *np.cumsum(counts).tolist()]


def _layers(edges: list[int], below: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Solve the bucket problem for 1, 2, 3, ... buckets.

    With k buckets for the first j candidates, the last bucket takes candidates i+1 to j, so
    ``best_k[j] = min over i of best_(k-1)[i] + edges[j] * (below[j] - below[i])``. For each i the
    right side is a line in ``edges[j]``, of falling slope, asked at rising values: the lowest line
    is found on a convex hull, in constant time per candidate on average.

    Yields:
        The fewest positions for all sequences, and for each candidate the one that its bucket
        starts after.
    """
    n = len(edges)
    best = [0, *(edge * count for edge, count in zip(edges, below[1:], strict=True))]
    yield best[n], [0] * (n + 1)
    for k in range(2, n + 1):
        hull, head, now, back = [], 0, [0] * (n + 1), [0] * (n + 1)
        for j in range(k, n + 1):
            c = j - 1
            while len(hull) - head > 1:
                a, b = hull[-2], hull[-1]
                left = (best[c] - best[a]) * (below[b] - below[a])
                if left > (best[b] - best[a]) * (below[c] - below[a]):
                    break
                hull.pop()
            hull.append(c)
            edge = edges[j - 1]
            low = best[hull[head]] - below[hull[head]] * edge
            while head + 1 < len(hull):
                following = best[hull[head + 1]] - below[hull[head + 1]] * edge
                if following > low:
                    break
                head, low = head + 1, following
            now[j], back[j] = low + edge * below[j], hull[head]
        best = now
        yield best[n], back


def _trace(edges: list[int], backs: Sequence[list[int]]) -> list[int]:
    """Follow the layers back from the last candidate."""
    chosen, j = [], len(edges)
    for back in reversed(backs):
        chosen.append(edges[j - 1])
        j = back[j]
    return chosen[::-1]


def optimal_edges(lengths: npt.ArrayLike, max_buckets: int, multiple: int = 8) -> Edges:
    """Find the edges with the least padding: exact, by dynamic programming.

    Takes O(n log n + max_buckets * m) for n sequences with m distinct rounded lengths. The last
    edge holds the longest sequence.

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        max_buckets: Number of edges; fewer never pad less.
        multiple: Every edge is a multiple of it. 8 suits the TPU's registers of 8 x 128.

    Raises:
        TooManyBuckets: There are fewer distinct rounded lengths than ``max_buckets``.
        CourseError: A number or a length is not positive, or there are no lengths.
    """
    check_positive(max_buckets=max_buckets, multiple=multiple)
    array = as_lengths(lengths)
    edges, below = _candidates(array, multiple)
    if max_buckets > len(edges):
        raise TooManyBuckets(
            f"{max_buckets} buckets, but lengths rounded up to a multiple of {multiple} have "
            f"{len(edges)} distinct values.",
            "Each further bucket would stay empty.",
            f"Ask for at most {len(edges)}, or choose a smaller multiple.",
        )
    backs = [back for _, back in itertools.islice(_layers(edges, below), max_buckets)]
    return measure_edges(array, _trace(edges, backs))


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a whole run costs with the best edges of one number of buckets."""

    buckets: int  # and so shapes to compile
    padded_tokens: int  # positions per epoch
    compile_seconds: float  # for all shapes together
    step_seconds: float  # for all positions of all epochs

    @property
    def seconds(self) -> float:
        """The whole run."""
        return self.compile_seconds + self.step_seconds

    def __repr__(self) -> str:
        return (
            f"{_buckets(self.buckets)}: {self.compile_seconds:,.1f} s "
            f"compiling + {self.step_seconds:,.1f} s of steps = {self.seconds:,.1f} s"
        )


@dataclasses.dataclass(frozen=True)
class Choice:
    """The number of buckets that makes a run shortest, and the numbers beside it."""

    edges: Edges  # the best
    costs: tuple[Cost, ...]  # of 1, 2, 3, ... buckets, up to more than the best

    @property
    def best(self) -> Cost:
        """The run with ``edges``."""
        return self.costs[len(self.edges.edges) - 1]

    def __repr__(self) -> str:
        k = self.best.buckets
        beside = [cost for cost in self.costs if cost.buckets in {1, k - 1, k + 1} - {k}]
        return "\n".join([f"Best: {self.best!r}", *(f"      {cost!r}" for cost in beside)])

    def _repr_html_(self) -> str:
        rows = [
            {
                "buckets": cost.buckets,
                "positions": cost.padded_tokens,
                "compiling, s": f"{cost.compile_seconds:,.1f}",
                "steps, s": f"{cost.step_seconds:,.1f}",
                "run, s": f"{cost.seconds:,.1f}" + " (best)" * (cost is self.best),
            }
            for cost in self.costs
        ]
        return html_table(rows)


def choose_edges(
    lengths: npt.ArrayLike,
    compile_seconds: float,
    seconds_per_token: float,
    epochs: float = 1.0,
    multiple: int = 8,
) -> Choice:
    """Choose the number of buckets that makes the whole run shortest.

    Every bucket costs one compilation and saves padding, each further one less than the one before
    (the problem is concave Monge: Aggarwal, Schieber, Tokuyama, "Finding a minimum-weight k-link
    path in graphs with the concave Monge property", 1994). So the first bucket that does not earn
    its compilation ends the search, exactly; the costs of up to twice as many are given, too.

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        compile_seconds: Measured time to trace and compile one more shape.
        seconds_per_token: Measured step time divided by the positions of the batch.
        epochs: How often the run sees ``lengths``. If they are a sample, or the run is counted
            in steps: the sequences that the whole run sees, divided by ``len(lengths)``.
        multiple: Every edge is a multiple of it.

    Raises:
        CourseError: A number or a length is not positive, or there are no lengths.
    """
    check_positive(
        compile_seconds=compile_seconds,
        seconds_per_token=seconds_per_token,
        epochs=epochs,
        multiple=multiple,
    )
    array = as_lengths(lengths)
    edges, below = _candidates(array, multiple)
    costs, backs, best = [], [], None
    for positions, back in _layers(edges, below):
        k = len(costs) + 1
        cost = Cost(k, positions, k * compile_seconds, positions * seconds_per_token * epochs)
        if best is None and costs and cost.seconds >= costs[-1].seconds:
            best = k - 1
        costs.append(cost)
        backs.append(back)
        if best is not None and k >= 2 * best:
            break
    chosen = _trace(edges, backs[: best or len(edges)])
    return Choice(measure_edges(array, chosen), tuple(costs))
