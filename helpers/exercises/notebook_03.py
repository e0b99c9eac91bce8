"""The exercises of notebook 03, padding and packing."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, filled, read, returned
from helpers.text.buckets import measure_edges, pack

_LENGTHS = (9, 2, 30, 62, 17, 8)


def _bills() -> dict[str, tuple[int, int]]:
    """Work the answer out: positions and compilations of each way."""
    pairs = np.reshape(_LENGTHS, (-1, 2))
    widths = {
        "all to 64": np.full(len(pairs), 64),
        "longest in batch": pairs.max(1),
        "multiple of 32": -(-pairs.max(1) // 32) * 32,
    }
    bills = {way: (int(2 * width.sum()), len(set(width))) for way, width in widths.items()}
    return bills | {"packed in rows of 64": (64 * len(pack(_LENGTHS, 64).rows), 1)}


def _check_bills(answer: object) -> str:
    truth = _bills()
    given = filled(answer, truth)
    for way, (positions, compilations) in truth.items():
        if not isinstance(given[way], tuple) or len(given[way]) != 2:
            raise Wrong(f"Give two numbers for {way!r}: (positions, compilations).")
        if given[way][0] != positions:
            how = "Fewer rows of 64 will do." if "packed" in way else "Rows times width, per batch."
            raise Wrong(f"{way}: the positions are not {given[way][0]}. {how}")
        if given[way][1] != compilations:
            raise Wrong(f"{way}: the compilations are not {given[way][1]}. One per *new* shape.")
    return "All four: 384 positions shrink to 128, and only packing keeps a single shape with them."


def _check_token_mean(answer: object) -> str:
    alone = (
        [[2.0, 2, 2, 2], [6, 6, 99, 99], [4, 99, 99, 99]],
        [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]],
    )
    together = [[2.0, 2, 2, 2], [6, 6, 4, 99]], [[1, 1, 1, 1], [1, 1, 2, 0]]
    for name, (loss, segments) in (("one text per row", alone), ("packed", together)):
        given = float(returned(answer(tf.constant(loss), tf.constant(segments))))
        if not np.isclose(given, 24 / 7, atol=1e-5):
            raise Wrong(
                f"Losses 2, 2, 2, 2, 6, 6 and 4, {name}: their mean is {24 / 7:.4f}, "
                f"not {given:.4f}."
            )
    given = float(returned(answer(tf.fill([1, 3], 99.0), tf.zeros([1, 3], tf.int32))))
    if given != 0.0:
        raise Wrong(f"A batch of padding alone must give 0, not {given:.4g}: look at 0/0.")
    spec = tf.TensorSpec([2, 4]), tf.TensorSpec([2, 4], tf.int32)
    check_compiles(answer, *spec)
    return "The same mean one text per row and packed, and 0 for a batch without a token."


def _check_may_attend(answer: object) -> str:
    segments = np.array([[1, 1, 2, 2, 2, 0], [1, 2, 3, 0, 0, 0]], np.int32)
    given = np.asarray(returned(answer(tf.constant(segments))))
    if given.shape != (2, 6, 6) or given.dtype != bool:
        raise Wrong(
            f"For segments [2, 6] it must be bool [2, 6, 6], not {given.dtype} {[*given.shape]}."
        )
    for row in range(2):
        for at, to in np.ndindex(6, 6):
            one, other = segments[row, at], segments[row, to]
            if one and given[row, at, to] != (one == other):
                raise Wrong(
                    f"In the row {segments[row].tolist()} position {at} "
                    f"{'must not' if one != other else 'must'} attend to position {to}."
                )
    if not given.any(-1).all():
        raise Wrong("A position of padding attends to nothing: with -inf its softmax would be 0/0.")
    check_compiles(answer, tf.TensorSpec([2, 6], tf.int32))
    return "Each text sees itself and nothing else, and no softmax is empty."


def _check_break_even(answer: object) -> str:
    draw = np.random.default_rng(3)
    for few, many in (([64], [16, 64]), ([32, 64], [8, 16, 24, 40, 64])):
        lengths = np.minimum(draw.geometric(1 / 12, 200), 64)
        saved = (
            measure_edges(lengths, few).padded_tokens - measure_edges(lengths, many).padded_tokens
        )
        expected = (len(many) - len(few)) * 3.0 / (saved * 1e-4)
        given = float(returned(answer(lengths, few, many, 3.0, 1e-4)))
        if np.isclose(given, expected * len(many) / (len(many) - len(few)), rtol=1e-6):
            raise Wrong(
                f"{len(few)} of its {len(many)} compilations you pay in any case: only the other "
                f"{len(many) - len(few)} count."
            )
        if not np.isclose(given, expected, rtol=1e-6):
            raise Wrong(
                f"{len(many)} edges instead of {len(few)} save {saved:,} positions per epoch here, "
                f"at 0.0001 s each, and take {len(many) - len(few)} more times 3 s to compile: "
                f"not {given:.4g} epochs."
            )
    return "What the further compilations cost, divided by what an epoch saves."


EXERCISES = read("03", _check_bills, _check_token_mean, _check_may_attend, _check_break_even)
