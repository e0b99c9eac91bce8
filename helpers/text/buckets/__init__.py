"""Text of every length in few shapes: bucket edges, bucketed batches, packed rows.

XLA compiles once per shape, and a place that holds padding costs as much as one that holds a token.
Edges chosen by arithmetic balance the two; packing leaves one shape and almost no padding. Lengths
are tokens, edges and rows are places.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from helpers.base.errors import CourseError

if TYPE_CHECKING:
    import pandas as pd
    import tensorflow as tf

# Sequences that `pack` looks at together. Larger windows gain less than 0.02 % of fill; windows of
# 4,096 leave 0.4 % of rows of 512 empty.
WINDOW = 65_536

# `bucketed` streams, so it shuffles within these many sequences, then within these many batches.
SHUFFLED_SEQUENCES = 16_384
SHUFFLED_BATCHES = 256

# Labels on padding must not count: this is the value that Hugging Face's losses leave out.
IGNORED_LABEL = -100

Remainder = Literal["drop", "pad", "keep"]


class NotPositive(CourseError):
    """A number that counts or measures something is zero or negative."""


class BadLength(CourseError):
    """A sequence without tokens, or a length that is no whole positive number."""


class NoSequences(CourseError):
    """There is no sequence at all."""


class TooLong(CourseError):
    """A sequence does not fit into the longest bucket or the row."""


class TooManyBuckets(CourseError):
    """More buckets are asked for than the lengths can fill."""


class BadEdges(CourseError):
    """Edges that are not whole numbers in rising order."""


class NoBatchSize(CourseError):
    """None or both of the two ways to give a batch size."""


class BatchTooSmall(CourseError):
    """A batch has less than one row per replica."""


class BatchNotDivisible(CourseError):
    """A batch that the replicas can't share equally."""


class UnknownRemainder(CourseError):
    """An unknown wish for the last, partial batches."""


class NothingLeft(CourseError):
    """Every batch would be a partial one and dropped."""


class WrongElement(CourseError):
    """A dataset's elements are no variable-length numbers."""


class UnknownFeature(CourseError):
    """A padding value for a feature that is not there."""


class AlreadyPadded(CourseError):
    """Sequences to pack hold padding."""


class UnequalFeatures(CourseError):
    """The features of one sequence differ in length."""


class Endless(CourseError):
    """A dataset that repeats for ever can't be counted."""


class OtherSequences(CourseError):
    """The values to lay out are not those whose lengths were packed."""


def _positive(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not number > 0:
            raise NotPositive(
                f"{name} is {number}.",
                "It counts or measures something, so it must be more than zero.",
                f"Give {name} a positive number.",
            )


def _as_lengths(lengths: npt.ArrayLike) -> np.ndarray:
    """Check sequence lengths and make them an int64 array."""
    array = np.asarray(lengths)
    if array.size == 0:
        raise NoSequences(
            "There are no sequences.",
            "The list of lengths, or the dataset, is empty.",
            "Look at what you read: a wrong path or a filter that keeps nothing are common.",
        )
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise BadLength(
            f"Lengths are {array.dtype} of shape {array.shape}.",
            "A length is a whole number of tokens, one per sequence.",
            "Pass [len(ids) for ids in sequences].",
        )
    if array.min() < 1:
        where = int(np.argmax(array < 1))
        raise BadLength(
            f"Sequence {where} has length {array[where]}.",
            "A sequence without tokens teaches nothing, and its attention mask would be empty.",
            "Leave empty sequences out before you count lengths.",
        )
    return array.astype(np.int64)


def _refuse_too_long(lengths: np.ndarray, limit: int, fix: str) -> None:
    over = int(np.count_nonzero(lengths > limit))
    if over:
        raise TooLong(
            f"{over:,} of {len(lengths):,} sequences are longer than {limit} tokens; "
            f"the longest has {lengths.max():,}.",
            "A sequence must fit whole: nothing is cut off unless you say so.",
            fix,
        )


def _table(rows: Sequence[Mapping[str, object]]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(rows)


# -- Edges ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Edges:
    """Bucket edges and what they cost on the lengths they were measured with.

    Attributes:
        edges: Padded length of each bucket, rising. A sequence goes to the first that holds it.
        sequences: How many sequences go to each bucket.
        tokens: How many real tokens they have.
    """

    edges: tuple[int, ...]
    sequences: tuple[int, ...]
    tokens: tuple[int, ...]

    @property
    def padded_tokens(self) -> int:
        """Places that all sequences take, padding included."""
        return sum(e * n for e, n in zip(self.edges, self.sequences, strict=True))

    @property
    def efficiency(self) -> float:
        """Share of places that hold a real token, 0 to 1."""
        return sum(self.tokens) / self.padded_tokens

    def __repr__(self) -> str:
        word = "bucket" if len(self.edges) == 1 else "buckets"
        return (
            f"{len(self.edges)} {word} {', '.join(map(str, self.edges))}: "
            f"{sum(self.tokens):,} tokens in {self.padded_tokens:,} places, "
            f"{self.efficiency:.1%} real"
        )

    def _repr_html_(self) -> str:
        rows = [
            {"edge": e, "sequences": n, "tokens": t, "places": e * n, "real": f"{t / (e * n):.1%}"}
            for e, n, t in zip(self.edges, self.sequences, self.tokens, strict=True)
            if n
        ]
        return f"<p>{self!r}</p>" + _table(rows).to_html(index=False)


def _check_edges(edges: Sequence[int]) -> tuple[int, ...]:
    array = np.asarray(edges)
    whole = array.ndim == 1 and array.size > 0 and array.dtype.kind in "iu"
    if not whole or array[0] < 1 or np.any(np.diff(array.astype(np.int64)) <= 0):
        raise BadEdges(
            f"Edges {list(edges)} are not in rising order, or not positive whole numbers.",
            "Each bucket holds the lengths above the edge before it, up to its own.",
            "Write them smallest first, each once, such as [16, 32, 64, 128].",
        )
    return tuple(array.tolist())


def measure_edges(lengths: npt.ArrayLike, edges: Sequence[int]) -> Edges:
    """Measure edges of your own, to compare them with `optimal_edges`.

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        edges: Padded lengths, rising.

    Returns:
        The same edges with their counts; an edge that no sequence needs stays, with 0.

    Raises:
        NoSequences: ``lengths`` is empty.
        BadLength: A length is not a positive whole number.
        BadEdges: Edges are not positive whole numbers in rising order.
        TooLong: A sequence is longer than the last edge.
    """
    array, checked = _as_lengths(lengths), _check_edges(edges)
    _refuse_too_long(array, checked[-1], f"Make the last edge at least {array.max()}.")
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
    right side is a line in ``edges[j]``, of falling slope, asked at rising places: the lowest line
    is found on a convex hull, in constant time per candidate on average.

    Yields:
        The least places for all sequences, and for each candidate the one its bucket starts after.
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

    Takes O(n log n + max_buckets * m) for n sequences with m distinct rounded lengths.

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        max_buckets: Number of edges; fewer never pad less.
        multiple: Every edge is a multiple of it. 8 suits the TPU's registers of 8 x 128.

    Returns:
        The edges; the last holds the longest sequence.

    Raises:
        NotPositive: ``max_buckets`` or ``multiple`` is not positive.
        NoSequences: ``lengths`` is empty.
        BadLength: A length is not a positive whole number.
        TooManyBuckets: Fewer distinct rounded lengths than ``max_buckets``.
    """
    _positive(max_buckets=max_buckets, multiple=multiple)
    array = _as_lengths(lengths)
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
    """What a whole run costs with the best edges of one number of buckets.

    Attributes:
        buckets: Number of edges, so of shapes to compile.
        padded_tokens: Places per epoch.
        compile_seconds: For all shapes together.
        step_seconds: For all places of all epochs.
    """

    buckets: int
    padded_tokens: int
    compile_seconds: float
    step_seconds: float

    @property
    def seconds(self) -> float:
        """The whole run."""
        return self.compile_seconds + self.step_seconds

    def __repr__(self) -> str:
        return (
            f"{self.buckets} bucket{'s' * (self.buckets > 1)}: {self.compile_seconds:,.1f} s "
            f"compiling + {self.step_seconds:,.1f} s of steps = {self.seconds:,.1f} s"
        )


@dataclasses.dataclass(frozen=True)
class Choice:
    """The number of buckets that makes a run shortest, and the numbers beside it.

    Attributes:
        edges: The best edges.
        costs: For 1, 2, 3, ... buckets, beyond the best.
    """

    edges: Edges
    costs: tuple[Cost, ...]

    @property
    def best(self) -> Cost:
        """The run with ``edges``."""
        return self.costs[len(self.edges.edges) - 1]

    def __repr__(self) -> str:
        k = self.best.buckets
        beside = sorted({1, k - 1, k + 1} & {cost.buckets for cost in self.costs} - {k})
        return "\n".join(
            [f"Best: {self.best!r}", *(f"      {self.costs[i - 1]!r}" for i in beside)]
        )

    def _repr_html_(self) -> str:
        rows = [
            {
                "buckets": cost.buckets,
                "places": cost.padded_tokens,
                "compiling, s": f"{cost.compile_seconds:,.1f}",
                "steps, s": f"{cost.step_seconds:,.1f}",
                "run, s": f"{cost.seconds:,.1f}" + " (best)" * (cost is self.best),
            }
            for cost in self.costs
        ]
        return _table(rows).to_html(index=False)


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
    its compilation ends the search, exactly.

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        compile_seconds: Measured time to trace and compile one more shape.
        seconds_per_token: Measured step time divided by the places of the batch.
        epochs: How often the run sees ``lengths``. When they are a sample, or the run is counted
            in steps: sequences that the whole run sees, divided by ``len(lengths)``.
        multiple: Every edge is a multiple of it.

    Returns:
        The edges and the costs of up to twice as many buckets.

    Raises:
        NotPositive: A cost, ``epochs`` or ``multiple`` is not positive.
        NoSequences: ``lengths`` is empty.
        BadLength: A length is not a positive whole number.
    """
    _positive(
        compile_seconds=compile_seconds,
        seconds_per_token=seconds_per_token,
        epochs=epochs,
        multiple=multiple,
    )
    array = _as_lengths(lengths)
    edges, below = _candidates(array, multiple)
    costs, backs, best = [], [], None
    for places, back in _layers(edges, below):
        k = len(costs) + 1
        cost = Cost(k, places, k * compile_seconds, places * seconds_per_token * epochs)
        if best is None and costs and cost.seconds >= costs[-1].seconds:
            best = k - 1
        costs.append(cost)
        backs.append(back)
        if best is not None and k >= 2 * best:
            break
    chosen = _trace(edges, backs[: best or len(edges)])
    return Choice(measure_edges(array, chosen), tuple(costs))


# -- Batches -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bucket:
    """What one epoch takes from one bucket.

    Attributes:
        edge: Places per row.
        batch_size: Rows per full batch, over all replicas.
        rows: Rows that the data fill: sequences, or packed rows.
        tokens: Real tokens in these rows.
        remainder: What became of the last rows that fill no batch: ``drop``, ``pad``, ``keep``.
    """

    edge: int
    batch_size: int
    rows: int
    tokens: int
    remainder: Remainder

    @property
    def batches(self) -> int:
        """Batches per epoch."""
        full, rest = divmod(self.rows, self.batch_size)
        return full + (rest > 0 and self.remainder != "drop")

    @property
    def dropped(self) -> int:
        """Rows per epoch that no batch holds."""
        return self.rows % self.batch_size if self.remainder == "drop" else 0

    @property
    def empty(self) -> int:
        """Rows per epoch that are padding alone."""
        return -self.rows % self.batch_size if self.remainder == "pad" else 0

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Different shapes (rows, places) among its batches."""
        full, rest = divmod(self.rows, self.batch_size)
        sizes = [self.batch_size] * (full > 0 or self.empty > 0)
        sizes += [rest] * (rest > 0 and self.remainder == "keep")
        return tuple((size, self.edge) for size in sizes)


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """Batches of few shapes, and the account of what is in them.

    Attributes:
        dataset: The batches; its length is the number of batches in an epoch.
        buckets: The account, one entry per edge.
        truncated: Sequences cut to fit, 0 unless asked for.
    """

    dataset: "tf.data.Dataset"
    buckets: tuple[Bucket, ...]
    truncated: int

    @property
    def batches(self) -> int:
        """Batches per epoch."""
        return sum(bucket.batches for bucket in self.buckets)

    @property
    def dropped(self) -> int:
        """Rows per epoch that no batch holds; with a seed they are others in each epoch."""
        return sum(bucket.dropped for bucket in self.buckets)

    @property
    def empty(self) -> int:
        """Rows per epoch that are padding alone."""
        return sum(bucket.empty for bucket in self.buckets)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Every shape (rows, places) that the compiler will see."""
        return tuple(shape for bucket in self.buckets for shape in bucket.shapes)

    @property
    def efficiency(self) -> float:
        """Share of places that hold a real token, 0 to 1, before anything is dropped."""
        places = sum((bucket.rows + bucket.empty) * bucket.edge for bucket in self.buckets)
        return sum(bucket.tokens for bucket in self.buckets) / places

    def __repr__(self) -> str:
        rows = sum(bucket.rows for bucket in self.buckets)
        notes = [
            f"{number:,} {what}"
            for number, what in (
                (self.dropped, "rows dropped in each epoch"),
                (self.empty, "empty rows added"),
                (self.truncated, "sequences truncated"),
            )
            if number
        ]
        return (
            f"{rows:,} rows in {self.batches:,} batches of {len(self.shapes)} "
            f"shape{'s' * (len(self.shapes) != 1)}, {self.efficiency:.1%} real tokens"
            + "".join(f"; {note}" for note in notes)
        )

    def _repr_html_(self) -> str:
        rows = [
            {
                "places per row": bucket.edge,
                "rows per batch": bucket.batch_size,
                "rows": bucket.rows,
                "batches": bucket.batches,
                "rows dropped": bucket.dropped,
                "empty rows": bucket.empty,
                "real": f"{bucket.tokens / max(bucket.rows * bucket.edge, 1):.1%}",
            }
            for bucket in self.buckets
        ]
        return f"<p>{self!r}</p>" + _table(rows).to_html(index=False)


def _check_batch(size: int, replicas: int) -> None:
    if size < replicas:
        raise BatchTooSmall(
            f"A global batch of {size} rows, but {replicas} replicas.",
            "Each replica takes an equal share of every batch, at least one row.",
            f"Make global_batch_size a multiple of {replicas}.",
        )
    if size % replicas:
        raise BatchNotDivisible(
            f"A global batch of {size} rows can't be shared equally by {replicas} replicas.",
            "Every replica runs the same compiled program, so on the same shape.",
            f"Make it {size // replicas * replicas} or {-(-size // replicas) * replicas}.",
        )


def _batch_sizes(
    edges: Sequence[int], batch_tokens: int | None, global_batch_size: int | None, replicas: int
) -> list[int]:
    _positive(batch_tokens=batch_tokens, global_batch_size=global_batch_size, replicas=replicas)
    if (batch_tokens is None) == (global_batch_size is None):
        raise NoBatchSize(
            "The size of a batch is not clear.",
            "It is either the same number of rows or about the same number of tokens everywhere.",
            "Give global_batch_size or batch_tokens, one of the two.",
        )
    if global_batch_size is not None:
        _check_batch(global_batch_size, replicas)
        return [global_batch_size] * len(edges)
    sizes = [batch_tokens // edge // replicas * replicas for edge in edges]
    if not sizes[-1]:
        raise BatchTooSmall(
            f"A batch of {batch_tokens:,} tokens has less than one row of {edges[-1]} "
            f"for each of {replicas} replicas.",
            "Each replica takes an equal share of every batch, at least one row.",
            f"Make batch_tokens at least {edges[-1] * replicas:,}.",
        )
    return sizes


def _check_remainder(remainder: str) -> None:
    if remainder not in ("drop", "pad", "keep"):
        raise UnknownRemainder(
            f"remainder is {remainder!r}.",
            "The last rows that fill no batch can be dropped, completed with padding, or kept.",
            'Write "drop", "pad" or "keep".',
        )


def _check_something_left(buckets: Sequence[Bucket]) -> None:
    if not any(bucket.batches for bucket in buckets):
        raise NothingLeft(
            f"{sum(bucket.rows for bucket in buckets)} rows fill not a single batch.",
            "Every batch would be a partial one, and partial ones are dropped.",
            'Make the batches smaller, or complete them with remainder="pad".',
        )


def _features(element: object) -> dict:
    return element if isinstance(element, dict) else {"input_ids": element}


def _ranks(dataset: "tf.data.Dataset") -> dict[str, int]:
    """Check a dataset's elements; give the rank of each feature: 1 per token, 0 per sequence."""
    import tensorflow as tf

    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise Endless(
            "The dataset repeats for ever.",
            "Its sequences are counted once, to size the batches and to refuse what can't fit.",
            "Call .repeat() on the batches instead.",
        )
    specs = _features(dataset.element_spec)
    for name, feature in specs.items():
        # Rows of a RaggedTensor are ordinary tensors, but a dataset of them doesn't say so.
        row = isinstance(feature, tf.RaggedTensorSpec) and feature.ragged_rank == 0
        tensor = isinstance(feature, tf.TensorSpec) or row
        if not tensor or feature.shape.rank not in (0, 1) or feature.dtype == tf.string:
            raise WrongElement(
                f"A sequence's {name!r} is {feature}.",
                "A feature must be numbers: 1-D with one per token, or one for the sequence.",
                "Map the dataset to a dict of such tensors, or to token ids, before batching.",
            )
    ranks = {name: feature.shape.rank for name, feature in specs.items()}
    if not any(ranks.values()):
        raise WrongElement(
            f"A sequence has the features {', '.join(map(repr, specs))}, none with one per token.",
            "Its length decides the bucket or the row.",
            "Keep the token ids in the dataset.",
        )
    return ranks


def _padding(names: Collection[str], pad_values: Mapping[str, int] | None) -> dict[str, int]:
    unknown = sorted(set(pad_values or {}) - set(names))
    if unknown:
        raise UnknownFeature(
            f"pad_values names {', '.join(map(repr, unknown))}, which the dataset does not have.",
            f"Its features are {', '.join(map(repr, sorted(names)))}.",
            "Correct the name.",
        )
    return dict.fromkeys(names, 0) | {"labels": IGNORED_LABEL} | dict(pad_values or {})


def _one_length(names: Sequence[str], lengths: np.ndarray) -> np.ndarray:
    """Check that the features of each sequence, [sequences, features], have one length."""
    different = np.argwhere(lengths != lengths[:, :1])
    if different.size:
        row, column = different[0]
        raise UnequalFeatures(
            f"Sequence {row} has {lengths[row, 0]} of {names[0]!r} but {lengths[row, column]} of "
            f"{names[column]!r}.",
            "Both say something of each token, so they must be equally long.",
            "Make them from one tokenizer call, and cut both or none.",
        )
    return _as_lengths(lengths[:, 0])


def _count(dataset: "tf.data.Dataset", names: Sequence[str]) -> np.ndarray:
    import tensorflow as tf

    sizes = dataset.map(lambda x: tf.stack([tf.size(_features(x)[name]) for name in names]))
    batches = [np.empty((0, len(names)), np.int32), *sizes.batch(8192).as_numpy_iterator()]
    return _one_length(names, np.concatenate(batches))


def bucketed(
    dataset: "tf.data.Dataset",
    edges: Edges | Sequence[int],
    *,
    batch_tokens: int | None = None,
    global_batch_size: int | None = None,
    replicas: int = 1,
    remainder: Remainder = "drop",
    truncate: bool = False,
    pad_values: Mapping[str, int] | None = None,
    seed: int | None = 0,
) -> Batches:
    """Batch sequences of like length together and pad each batch to its bucket's edge.

    The work is done by ``tf.data.Dataset.bucket_by_sequence_length``, so without Python. The
    sequences are counted first, in one pass over ``dataset``.

    Args:
        dataset: One sequence per element: its token ids, 1-D, or a dict of 1-D tensors of one
            length; scalars beside them are batched as they are. Must give the same sequences each
            time it is read.
        edges: Padded lengths, rising.
        batch_tokens: Places per batch at most, so short rows make larger batches; or
        global_batch_size: rows per batch, over all replicas.
        replicas: ``strategy.num_replicas_in_sync``; every batch size is a multiple of it.
        remainder: What becomes of each bucket's last rows that fill no batch. ``drop`` leaves them
            out of this epoch; ``pad`` completes the batch with rows of padding alone, so nothing
            is lost and no shape is new; ``keep`` passes the small batch on: one more shape.
        truncate: Cut sequences longer than the last edge instead of refusing them.
        pad_values: Padding by feature name; -100 for ``labels`` and 0 for others if not given.
        seed: Shuffles sequences and then batches, within a buffer each, anew in each epoch and
            the same in each run (with the same ``tf.random.set_seed``). None keeps the order.

    Returns:
        Batches of shape [batch size, edge]: the dataset's features (``input_ids`` if it has no
        names), and ``attention_mask``, int32, 1 on tokens, 0 on padding, if it has none. Each
        batch has one of `Batches.shapes`; ``element_spec`` has None where they differ.

    Raises:
        BadEdges: Edges are not positive whole numbers in rising order.
        NotPositive: A batch size or ``replicas`` is not positive.
        NoBatchSize: Not exactly one batch size is given.
        BatchTooSmall: A batch has less than one row per replica.
        BatchNotDivisible: ``global_batch_size`` is no multiple of ``replicas``.
        UnknownRemainder: ``remainder`` is none of the three.
        WrongElement: Elements are of another form, or ``pad`` would have to invent a scalar.
        Endless: The dataset repeats for ever.
        NoSequences: The dataset is empty.
        BadLength: A sequence is empty.
        UnknownFeature: ``pad_values`` names a feature that is not there.
        UnequalFeatures: The features of a sequence differ in length.
        TooLong: A sequence is longer than the last edge, and ``truncate`` is off.
        NothingLeft: Every batch would be a partial one and dropped.
    """
    import tensorflow as tf

    tops = _check_edges(edges.edges if isinstance(edges, Edges) else edges)
    sizes = _batch_sizes(tops, batch_tokens, global_batch_size, replicas)
    _check_remainder(remainder)
    ranks = _ranks(dataset)
    padding = _padding(ranks.keys() | {"attention_mask"}, pad_values)
    per_token = [name for name, rank in ranks.items() if rank]
    if remainder == "pad" and len(per_token) < len(ranks):
        scalar = min(ranks, key=ranks.get)
        raise WrongElement(
            f"{scalar!r} is one number per sequence, and a row of padding has none.",
            "Any number put there would count as if it were data.",
            'Choose remainder="drop" or remainder="keep".',
        )

    lengths = _count(dataset, per_token)
    truncated = int(np.count_nonzero(lengths > tops[-1]))
    if not truncate:
        fix = f"Make the last edge at least {lengths.max()}, or cut with truncate=True."
        _refuse_too_long(lengths, tops[-1], fix)
    measured = measure_edges(np.minimum(lengths, tops[-1]), tops)
    accounts = zip(tops, sizes, measured.sequences, measured.tokens, strict=True)
    buckets = tuple(Bucket(*account, remainder) for account in accounts)
    _check_something_left(buckets)

    def prepare(element: object) -> dict:
        features = dict(_features(element))
        for name in per_token if truncated else ():
            features[name] = features[name][: tops[-1]]
        features.setdefault("attention_mask", tf.ones_like(features[per_token[0]], tf.int32))
        return features

    def complete(batch: dict) -> dict:
        rows, places = tf.unstack(tf.shape(batch["attention_mask"]))
        missing = tf.gather(sizes, tf.searchsorted(tops, [places])[0]) - rows
        empty = [[0, missing], [0, 0]]
        return {k: tf.pad(v, empty, constant_values=pad[k]) for k, v in batch.items()}

    def with_shape(batch: dict) -> dict:
        rows = sizes[0] if len(set(sizes)) == 1 and remainder != "keep" else None
        shape = [rows, tops[0] if len(tops) == 1 else None]
        return {k: tf.ensure_shape(v, shape[: v.shape.rank]) for k, v in batch.items()}

    dataset = dataset.map(prepare)
    pad = {k: tf.cast(padding[k], spec.dtype) for k, spec in dataset.element_spec.items()}
    if seed is not None:
        dataset = dataset.shuffle(SHUFFLED_SEQUENCES, seed)
    dataset = dataset.bucket_by_sequence_length(
        lambda features: tf.size(features[per_token[0]]),
        bucket_boundaries=[edge + 1 for edge in tops],
        bucket_batch_sizes=[*sizes, 1],  # the last would be for longer sequences: there are none
        pad_to_bucket_boundary=True,
        padding_values=pad,
        drop_remainder=remainder == "drop",
    )
    if remainder == "pad":
        dataset = dataset.map(complete)
    dataset = dataset.map(with_shape)
    if seed is not None:
        dataset = dataset.shuffle(SHUFFLED_BATCHES, seed)
    total = sum(bucket.batches for bucket in buckets)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(total))
    # Several workers share the batches, not the files: the account above is for all files.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = dataset.with_options(options)
    return Batches(dataset.prefetch(tf.data.AUTOTUNE), buckets, truncated)


# -- Packing -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Packing:
    """Which sequences share which row.

    Attributes:
        row_length: Places per row.
        lengths: Tokens of each sequence as given, int64 [sequences].
        order: Sequence indices, row after row, int64 [sequences].
        splits: Row r holds ``order[splits[r]:splits[r + 1]]``, int64 [rows + 1].
    """

    row_length: int
    lengths: np.ndarray
    order: np.ndarray
    splits: np.ndarray

    @property
    def rows(self) -> list[list[int]]:
        """Sequence indices of each row."""
        order, splits = self.order.tolist(), self.splits.tolist()
        return [order[a:b] for a, b in itertools.pairwise(splits)]

    @property
    def tokens(self) -> int:
        """Real tokens in all rows."""
        return int(np.minimum(self.lengths, self.row_length).sum())

    @property
    def truncated(self) -> int:
        """Sequences cut to the row's length, 0 unless asked for."""
        return int(np.count_nonzero(self.lengths > self.row_length))

    @property
    def efficiency(self) -> float:
        """Share of places that hold a real token, 0 to 1."""
        return self.tokens / ((len(self.splits) - 1) * self.row_length)

    def __repr__(self) -> str:
        return (
            f"{len(self.lengths):,} sequences in {len(self.splits) - 1:,} rows of "
            f"{self.row_length}: {self.efficiency:.2%} real tokens, "
            f"up to {np.diff(self.splits).max()} sequences in a row"
            + f"; {self.truncated:,} sequences truncated"
            * (self.truncated > 0)
        )

    def _placed(self) -> tuple[np.ndarray, np.ndarray]:
        """Give which places are filled [rows, row_length], and the placed lengths in order."""
        kept = np.minimum(self.lengths, self.row_length)[self.order]
        fill = np.add.reduceat(kept, self.splits[:-1])
        return np.arange(self.row_length) < fill[:, None], kept

    def lay_out(self, values: npt.ArrayLike, pad_value: int = 0) -> np.ndarray:
        """Write one feature of all sequences into the rows.

        Args:
            values: The sequences one after another in their own order, 1-D [sum of lengths],
                such as ``np.concatenate(token_ids)``.
            pad_value: What fills the free places.

        Returns:
            Values of the same dtype, [rows, row_length].

        Raises:
            OtherSequences: ``values`` are not as many as ``lengths`` say.
        """
        values = np.asarray(values)
        if values.shape != (self.lengths.sum(),):
            raise OtherSequences(
                f"Values of shape {values.shape}, but {self.lengths.sum():,} tokens were packed.",
                "Rows hold the very sequences whose lengths were given to pack().",
                "Pass np.concatenate(sequences), the same ones in the same order.",
            )
        filled, kept = self._placed()
        starts = (np.cumsum(self.lengths) - self.lengths)[self.order]
        rows = np.full(filled.shape, pad_value, values.dtype)
        rows[filled] = values[np.repeat(starts, kept) + _within(kept)]
        return rows

    def segment_ids(self) -> np.ndarray:
        """Number the sequences of each row 1, 2, ...; 0 is padding. int32 [rows, row_length]."""
        filled, kept = self._placed()
        ids = np.zeros(filled.shape, np.int32)
        ids[filled] = np.repeat(_within(np.diff(self.splits)) + 1, kept)
        return ids

    def position_ids(self) -> np.ndarray:
        """Count each sequence's places from 0; 0 on padding. int32 [rows, row_length]."""
        filled, kept = self._placed()
        ids = np.zeros(filled.shape, np.int32)
        ids[filled] = _within(kept)
        return ids


def _within(counts: np.ndarray) -> np.ndarray:
    """Count 0, 1, ... anew for each entry of ``counts``: [2, 3] gives [0, 1, 0, 1, 2]."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _fullest_row(counts: Sequence[int], lengths: list[int], row_length: int) -> dict[int, int]:
    """Find the sequences that, with the longest one left, fill a row best.

    Bit s of an integer says whether some sequences sum to s: another sequence shifts the bits. Sums
    are built from long to short and taken apart from short to long, so the row takes short ones
    only where it must: they fit anywhere and are kept for later rows.

    Args:
        counts: Sequences left, by length.
        lengths: The lengths that are left, falling.
        row_length: Places per row.

    Returns:
        How many sequences of which length the row takes.
    """
    longest = lengths[0]
    room = row_length - longest
    sums, before = 1, []
    for length in lengths:
        left = min(counts[length] - (length == longest), room // length)
        if left < 1:
            continue
        before.append((length, sums))
        some = 1
        while left > 0:  # 1, 2, 4, ... of them, and the rest: every number up to all of them
            some = min(some, left)
            sums |= sums << length * some
            left, some = left - some, some * 2
        sums &= (2 << room) - 1
        if sums >> room:
            break
    total = sums.bit_length() - 1
    row = {longest: 1}
    for length, shorter in reversed(before):
        while not shorter >> total & 1:
            total -= length
            row[length] = row.get(length, 0) + 1
    return row


def _fill_rows(counts: list[int], row_length: int) -> np.ndarray:
    """Fill rows one kind after another, each as often as its sequences last.

    Args:
        counts: Sequences by length, [row_length + 1]; all zero afterwards.
        row_length: Places per row.

    Returns:
        Lines (first row, rows, sequences per row), int64 [lines, 3]: which rows take sequences of
        one length, in falling order of length.
    """
    lines, first = [], 0
    lengths = [length for length in range(row_length, 0, -1) if counts[length]]
    while lengths:
        row = _fullest_row(counts, lengths, row_length)
        rows = min(counts[length] // each for length, each in row.items())
        for length, each in row.items():
            lines.append((-length, first, rows, each))
            counts[length] -= rows * each
        first += rows
        if not all(counts[length] for length in row):
            lengths = [length for length in lengths if counts[length]]
    return np.array(sorted(lines), np.int64)[:, 1:]


def _pack_window(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Pack some sequences: indices row after row, and the number of sequences in each row."""
    lines = _fill_rows(np.bincount(lengths, minlength=row_length + 1).tolist(), row_length)
    first, used, each = lines.T
    falling = np.argsort(row_length - lengths, kind="stable")
    visited = np.repeat(first, used) + _within(used)
    row = np.repeat(visited, np.repeat(each, used))
    # Rows come in the order of their longest sequence's arrival: rows of every kind are mixed.
    longest = np.empty(visited.max() + 1, np.int64)
    longest[row[::-1]] = falling[::-1]
    rank = np.empty_like(longest)
    rank[np.argsort(longest)] = np.arange(len(longest))
    return falling[np.argsort(rank[row], kind="stable")], np.bincount(rank[row])


def pack(lengths: npt.ArrayLike, row_length: int, truncate: bool = False) -> Packing:
    """Put several sequences into each row so that almost no place stays empty.

    Each row starts with the longest sequence left and is completed exactly, if any others can:
    minimum bin slack (Gupta and Ho, "A new heuristic algorithm for the one-dimensional bin-packing
    problem", 1999), by subset sums, on the histogram of lengths (as in Krell and others, "Efficient
    Sequence Packing without Cross-contamination", 2021), so equal rows are found once. On text it
    comes within a row or two of the fewest rows there can be.

    Works on windows of ``WINDOW`` sequences. A window's rows hold no other sequences, so a stream
    can be packed window by window, with the same result and the memory of one.

    Args:
        lengths: Tokens per sequence, whole numbers, 1-D.
        row_length: Places per row.
        truncate: Cut sequences longer than a row instead of refusing them.

    Returns:
        The rows, in the order in which their longest sequences arrived.

    Raises:
        NotPositive: ``row_length`` is not positive.
        NoSequences: ``lengths`` is empty.
        BadLength: A length is not a positive whole number.
        TooLong: A sequence is longer than a row, and ``truncate`` is off.
    """
    _positive(row_length=row_length)
    given = _as_lengths(lengths)
    if not truncate:
        fix = f"Make the rows at least {given.max()} long, or cut with truncate=True."
        _refuse_too_long(given, row_length, fix)
    kept = np.minimum(given, row_length)
    orders, sizes = [], []
    for start in range(0, len(kept), WINDOW):
        order, size = _pack_window(kept[start : start + WINDOW], row_length)
        orders.append(order + start)
        sizes.append(size)
    splits = np.append(0, np.cumsum(np.concatenate(sizes)))
    return Packing(row_length, given, np.concatenate(orders), splits)


def _collect(
    dataset: "tf.data.Dataset", names: Sequence[str]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Read each feature of all sequences, one after another, and the lengths."""
    import tensorflow as tf

    values = {name: [] for name in names}
    lengths = {name: [np.empty(0, np.int64)] for name in names}
    for batch in dataset.ragged_batch(8192):
        for name, rows in _features(batch).items():
            # Sequences that are known to be equally long come as an ordinary tensor.
            ordinary = isinstance(rows, tf.Tensor)
            ragged = tf.RaggedTensor.from_tensor(rows) if ordinary else rows
            values[name].append(ragged.values.numpy())
            lengths[name].append(ragged.row_lengths().numpy())
    joined = np.stack([np.concatenate(parts) for parts in lengths.values()], axis=1)
    one_length = _one_length(names, joined)
    return {name: np.concatenate(parts) for name, parts in values.items()}, one_length


def packed(
    dataset: "tf.data.Dataset",
    row_length: int,
    *,
    global_batch_size: int,
    replicas: int = 1,
    remainder: Remainder = "drop",
    truncate: bool = False,
    pad_values: Mapping[str, int] | None = None,
    seed: int | None = 0,
) -> Batches:
    """Pack sequences into rows and batch the rows: one shape, almost no padding.

    Packing belongs to data preparation: it happens here, once, in NumPy, and the rows are held in
    memory. Epochs then run without Python. For data larger than memory, pack shard by shard with
    `pack` and write the rows of `Packing.lay_out` to files.

    Args:
        dataset: One sequence per element: its token ids, 1-D, or a dict of 1-D tensors of one
            length with ``input_ids`` among them.
        row_length: Places per row.
        global_batch_size: Rows per batch, over all replicas.
        replicas: ``strategy.num_replicas_in_sync``; must divide ``global_batch_size``.
        remainder: What becomes of the last rows that fill no batch: ``drop`` leaves them out of
            this epoch, ``pad`` adds empty rows, ``keep`` passes on a small batch, one more shape.
        truncate: Cut sequences longer than a row instead of refusing them.
        pad_values: Padding by feature name; -100 for ``labels`` and 0 for others if not given.
        seed: Shuffles all rows, anew in each epoch and the same in each run (with the same
            ``tf.random.set_seed``). None keeps the order of `pack`. Neighbours in a row stay.

    Returns:
        Batches of shape [global_batch_size, row_length]: ``input_ids``; ``attention_mask``, int32,
        the number 1, 2, ... of the sequence in its row, 0 on padding; ``position_ids``, int32,
        from 0 in each sequence; ``labels``, the dataset's own or ``input_ids`` with padding left
        out; and the dataset's other features. An ``attention_mask`` or ``position_ids`` of the
        dataset is replaced. The model must let a token attend to its own number only.

    Raises:
        NotPositive: A number is not positive.
        BatchTooSmall: A batch has less than one row per replica.
        BatchNotDivisible: ``global_batch_size`` is no multiple of ``replicas``.
        UnknownRemainder: ``remainder`` is none of the three.
        WrongElement: Elements are of another form.
        Endless: The dataset repeats for ever.
        NoSequences: The dataset is empty.
        BadLength: A sequence is empty.
        UnknownFeature: ``pad_values`` names a feature that is not there.
        AlreadyPadded: The dataset's ``attention_mask`` has zeros.
        UnequalFeatures: The features of a sequence differ in length.
        TooLong: A sequence is longer than a row, and ``truncate`` is off.
        NothingLeft: Every batch would be a partial one and dropped.
    """
    import tensorflow as tf

    _positive(row_length=row_length, global_batch_size=global_batch_size, replicas=replicas)
    _check_batch(global_batch_size, replicas)
    _check_remainder(remainder)
    ranks = _ranks(dataset)
    if "input_ids" not in ranks or not all(ranks.values()):
        raise WrongElement(
            f"A sequence has the features {', '.join(map(repr, ranks))}.",
            "A row holds several sequences, so each feature must have one number per token.",
            "Keep input_ids and 1-D features; bucketed() takes one number per sequence.",
        )
    made = {"attention_mask", "position_ids"}
    padding = _padding((ranks.keys() | {"labels"}) - made, pad_values)
    flat, lengths = _collect(dataset, list(ranks))
    if not np.all(flat.get("attention_mask", 1)):
        raise AlreadyPadded(
            "The dataset's attention_mask has zeros.",
            "Its sequences were padded before, and padding would be packed as if it were text.",
            "Tokenize without padding; rows are filled up here.",
        )
    packing = pack(lengths, row_length, truncate)
    rows = len(packing.splits) - 1
    bucket = Bucket(row_length, global_batch_size, rows, packing.tokens, remainder)
    _check_something_left([bucket])

    flat.setdefault("labels", flat["input_ids"])
    kept = [name for name in flat if name not in made]
    features = {name: packing.lay_out(flat[name], padding[name]) for name in kept}
    features |= {"attention_mask": packing.segment_ids(), "position_ids": packing.position_ids()}
    for name, array in features.items():
        empty = ((0, bucket.empty), (0, 0))
        features[name] = tf.constant(np.pad(array, empty, constant_values=padding.get(name, 0)))

    # Rows are taken by number: numbers are cheap to shuffle, so the shuffle can be a full one.
    dataset = tf.data.Dataset.range(rows + bucket.empty)
    if seed is not None:
        dataset = dataset.shuffle(rows + bucket.empty, seed)
    dataset = dataset.batch(global_batch_size, drop_remainder=remainder != "keep")
    dataset = dataset.map(lambda row: {k: tf.gather(v, row) for k, v in features.items()})
    return Batches(dataset.prefetch(tf.data.AUTOTUNE), (bucket,), packing.truncated)
