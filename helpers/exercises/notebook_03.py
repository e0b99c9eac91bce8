"""The exercises of notebook 03, padding and packing."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, check_compiles, check_table, returned
from helpers.text.buckets import measure_edges, pack

_LENGTHS = (9, 2, 30, 62, 17, 8)


def _check_bills(answer: object) -> str:
    pairs = np.reshape(_LENGTHS, (-1, 2))
    widths = {
        "all to 64": np.full(len(pairs), 64),
        "longest in batch": pairs.max(1),
        "multiple of 32": -(-pairs.max(1) // 32) * 32,
    }
    why = "Positions are rows times width, per batch; only a *new* shape is a compilation."
    truth = {way: ((int(2 * width.sum()), len({*width})), why) for way, width in widths.items()}
    packed = 64 * len(pack(_LENGTHS, 64).rows)
    why = "Put as few rows of 64 side by side as will do."
    check_table(answer, truth | {"packed in rows of 64": ((packed, 1), why)})
    return "All four: 384 positions shrink to 128, and only packing keeps a single shape with them."


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
