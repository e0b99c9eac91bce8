"""Time bucket search, packing and bucketed batches against plain Python and the usual ways."""

import dataclasses
import itertools
import statistics
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from rich.table import Table

from benchmarks.measure import Clock, Size, alternating, ratio
from helpers.text import buckets
from helpers.text.buckets.batches import SHUFFLED_SEQUENCES

LONGEST = 512
BUCKETS = 8
BATCH = 32
OURS = "helpers.text.buckets"


@dataclasses.dataclass(frozen=True)
class Task:
    """One thing to do, in two or more ways.

    Attributes:
        name: What is done.
        calls: How, by name; the one called ``OURS`` is compared with each other.
        work: How much a call does, in ``unit``.
        unit: Of the work.
        results: What each way reaches, by name, in words.
    """

    name: str
    calls: dict[str, Callable[[], object]]
    work: int
    unit: str
    results: dict[str, str]


def draw_lengths(count: int) -> np.ndarray:
    """Draw lengths such as paragraphs have: log-normal, cut to ``LONGEST``."""
    lengths = np.random.default_rng(0).lognormal(3.2, 0.7, count)
    return np.clip(lengths.round(), 1, LONGEST).astype(np.int64)


def reference_edges(lengths: list[int], count: int) -> list[int]:
    """Find the best edges by the full table of the dynamic program, in plain Python."""
    tally = [0] * (LONGEST + 1)
    for length in lengths:
        tally[length] += 1
    edges = [length for length in range(1, LONGEST + 1) if tally[length]]
    below = [0, *itertools.accumulate(tally[edge] for edge in edges)]
    n = len(edges)
    best, backs = [0] + [float("inf")] * n, []
    for _ in range(count):
        now, back = [0] + [float("inf")] * n, [0] * (n + 1)
        for j in range(1, n + 1):
            edge, until = edges[j - 1], below[j]
            for i in range(j):
                places = best[i] + edge * (until - below[i])
                if places < now[j]:
                    now[j], back[j] = places, i
        best = now
        backs.append(back)
    chosen, j = [], n
    for back in reversed(backs):
        if j:
            chosen.append(edges[j - 1])
            j = back[j]
    return chosen[::-1]


def reference_pack(lengths: list[int], row_length: int) -> list[list[int]]:
    """Pack by best fit, longest first, in plain Python."""
    open_rows = [[] for _ in range(row_length + 1)]  # by the room left
    rows = []
    for at in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        length = lengths[at]
        room = next((r for r in range(length, row_length) if open_rows[r]), None)
        if room is None:
            row, room = [], row_length
            rows.append(row)
        else:
            row = open_rows[room].pop()
        row.append(at)
        open_rows[room - length].append(row)
    return rows


def group_texts(sequences: list[list[int]], row_length: int) -> list[list[int]]:
    """Cut all text into rows, as `group_texts` in Hugging Face's run_mlm.py does."""
    joined = list(itertools.chain(*sequences))
    total = len(joined) // row_length * row_length
    return [joined[i : i + row_length] for i in range(0, total, row_length)]


def packed_rows(sequences: list[list[int]], row_length: int) -> tuple[np.ndarray, ...]:
    """Make the same from packing: rows, numbers of sequences, positions."""
    packing = buckets.pack([len(ids) for ids in sequences], row_length)
    flat = np.fromiter(itertools.chain.from_iterable(sequences), np.int32)
    return packing.lay_out(flat), packing.segment_ids(), packing.position_ids()


def length_grouped(lengths: list[int], batch: int) -> list[int]:
    """Order sequences as transformers' `get_length_grouped_indices` does (it needs PyTorch)."""
    order = np.random.default_rng(0).permutation(len(lengths)).tolist()
    size = min(len(lengths) // (batch * 4), 50) * batch or batch
    parts = [order[i : i + size] for i in range(0, len(order), size)]
    parts = [sorted(part, key=lambda i: lengths[i], reverse=True) for part in parts]
    longest = max(range(len(parts)), key=lambda i: lengths[parts[i][0]])
    parts[0][0], parts[longest][0] = parts[longest][0], parts[0][0]
    return [i for part in parts for i in part]


def grouped_efficiency(lengths: np.ndarray) -> float:
    """Give the share of real tokens when each group of 32 is padded to a multiple of 32."""
    ordered = lengths[length_grouped(lengths.tolist(), BATCH)]
    longest = np.maximum.reduceat(ordered, np.arange(0, len(ordered), BATCH))
    rows = np.diff([*range(0, len(ordered), BATCH), len(ordered)])
    return float(lengths.sum() / (-(-longest // 32) * 32 * rows).sum())


def epoch_of_batches(dataset: tf.data.Dataset) -> int:
    """Read an epoch and count its batches, without Python between them."""
    return int(dataset.reduce(np.int64(0), lambda count, _: count + 1))


def usual_buckets(dataset: tf.data.Dataset, edges: list[int]) -> tf.data.Dataset:
    """Bucket with `tf.data.Dataset.bucket_by_sequence_length` itself."""
    dataset = dataset.map(lambda x: x | {"attention_mask": tf.ones_like(x["input_ids"])})
    dataset = dataset.shuffle(SHUFFLED_SEQUENCES, seed=0)
    return dataset.bucket_by_sequence_length(
        lambda x: tf.size(x["input_ids"]),
        [edge + 1 for edge in edges],
        [LONGEST * BATCH // edge for edge in edges] + [1],
        pad_to_bucket_boundary=True,
    ).prefetch(tf.data.AUTOTUNE)


def tasks(count: int) -> list[Task]:
    """Make what is measured; the ways of one task get the same input."""
    lengths = draw_lengths(count)
    few = lengths[: max(200, count // 10)]
    plain = few.tolist()
    ids = np.random.default_rng(1).integers(5, 3000, few.sum(), dtype=np.int32)
    sequences = [part.tolist() for part in np.split(ids, np.cumsum(few)[:-1])]
    ragged = tf.RaggedTensor.from_row_lengths(ids, few)
    dataset = tf.data.Dataset.from_tensor_slices({"input_ids": ragged})
    best = buckets.optimal_edges(few, BUCKETS, 1)
    uniform = buckets.measure_edges(few, [LONGEST // BUCKETS * k for k in range(1, BUCKETS + 1)])
    own = buckets.bucketed(dataset, best, batch_tokens=LONGEST * BATCH, remainder="keep").dataset
    direct = usual_buckets(dataset, list(uniform.edges))
    packing, rows = buckets.pack(few, LONGEST), reference_pack(plain, LONGEST)
    same = reference_edges(plain, BUCKETS)
    assert buckets.measure_edges(few, same).padded_tokens == best.padded_tokens
    joined = group_texts(sequences, LONGEST)
    mixed = f"all full, sequences cut, {1 - len(joined) * LONGEST / few.sum():.2%} dropped"
    fill = f"{packing.efficiency:.2%} real"
    return [
        Task(
            f"{BUCKETS} best edges of lengths up to {LONGEST}",
            {
                OURS: lambda: buckets.optimal_edges(few, BUCKETS, 1),
                "plain Python": lambda: reference_edges(plain, BUCKETS),
            },
            len(few),
            "sequences",
            dict.fromkeys((OURS, "plain Python"), f"{best.efficiency:.1%} real"),
        ),
        Task(
            f"pack into rows of {LONGEST}",
            {
                OURS: lambda: buckets.pack(few, LONGEST),
                "plain Python, best fit": lambda: reference_pack(plain, LONGEST),
            },
            int(few.sum()),
            "tokens",
            {
                OURS: fill,
                "plain Python, best fit": f"{few.sum() / (len(rows) * LONGEST):.2%} real",
            },
        ),
        Task(
            f"token lists to rows of {LONGEST}",
            {
                OURS: lambda: packed_rows(sequences, LONGEST),
                "group_texts": lambda: group_texts(sequences, LONGEST),
            },
            int(few.sum()),
            "tokens",
            {OURS: fill, "group_texts": mixed},
        ),
        Task(
            "an epoch of bucketed batches",
            {
                OURS: lambda: epoch_of_batches(own),
                "bucket_by_sequence_length, uniform": lambda: epoch_of_batches(direct),
            },
            int(few.sum()),
            "tokens",
            {
                OURS: f"{best.efficiency:.1%} real",
                "bucket_by_sequence_length, uniform": f"{uniform.efficiency:.1%} real",
            },
        ),
        Task(
            "say which sequences are batched together",
            {
                OURS: lambda: buckets.optimal_edges(lengths, BUCKETS),
                "group_by_length": lambda: length_grouped(lengths.tolist(), BATCH),
            },
            len(lengths),
            "sequences",
            {
                OURS: f"{buckets.optimal_edges(lengths, BUCKETS).efficiency:.1%} real",
                "group_by_length": f"{grouped_efficiency(lengths):.1%} real, multiple of 32",
            },
        ),
    ]


def run(size: Size, done: Callable[[str, int], None]) -> Table:
    """Measure and make the table.

    Args:
        size: How much.
        done: Called with what was done, and how many runs there are in all.

    Returns:
        One row per task and way.
    """
    every = tasks(size.lengths)
    total = size.rounds * sum(len(task.calls) for task in every)
    table = Table(
        title=f"algorithms: {size.lengths:,} lengths or a tenth of them, median of {size.rounds}",
        caption="×: how many times faster helpers.text.buckets is, median (min–max of the rounds). "
        "group_by_length is written anew after transformers, which needs PyTorch for it.",
    )
    table.add_column("task")
    table.add_column("way", no_wrap=True)
    table.add_column("reached")
    for column in ("per second", "×", "× cpu"):
        table.add_column(column, justify="right")
    for task in every:
        times = alternating(task.calls, size.rounds, lambda name=task.name: done(name, total))
        for way, clocks in times.items():
            rate = task.work / statistics.median(clock.wall for clock in clocks)
            cells = [task.results[way], f"{rate:,.0f} {task.unit}"]
            cells += ["", ""] if way == OURS else ratios(clocks, times[OURS])
            table.add_row(task.name if way == OURS else "", way, *cells)
    return table


def ratios(usual: list[Clock], ours: list[Clock]) -> list[str]:
    """Write the ratio by the wall clock and in processor time."""
    return [
        ratio(*([getattr(clock, kind) for clock in clocks] for clocks in (usual, ours)))
        for kind in ("wall", "cpu")
    ]
