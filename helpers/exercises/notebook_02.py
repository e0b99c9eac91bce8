"""The exercises of notebook 02, the rules of XLA."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Exercise, Wrong, returned
from helpers.xla.compare import compare, hlo

_QUESTIONS = (
    (lambda x: tf.where(x > 0, x, 0.0), "tf.where(x > 0, x, 0)"),
    (lambda x: tf.where(x > 0), "tf.where(x > 0)"),
    (lambda x: tf.zeros([tf.cast(x[0], tf.int32)]), "tf.zeros([n])"),
    (lambda x: tf.reduce_sum(x[x > 0]), "tf.reduce_sum(x[x > 0])"),
    (lambda x: tf.math.top_k(x, 2).values, "tf.math.top_k(x, 2).values"),
)


def _truth() -> dict[str, str]:
    """Ask XLA itself; nothing here is written down."""
    truth = {}
    for fn, text in _QUESTIONS:
        row = compare(fn, tf.TensorSpec([8]))["XLA:CPU"]
        bounded = any("<=" in shape for shape in row.shapes)
        truth[text] = "refused" if row.refused_by else "bounded" if bounded else "static"
    return truth


def _check_shapes(answer: object) -> str:
    given = answer()
    truth = _truth()
    if not isinstance(given, dict) or set(given) != set(truth):
        raise Wrong("Return the dictionary with its five keys unchanged, and a word for each.")
    wrong = [text for text in truth if given[text] != truth[text]]
    if wrong:
        raise Wrong(
            f"{len(truth) - len(wrong)} of {len(truth)} are right. Look again at {wrong[0]}: "
            "does the size of its *result* depend on a value?"
        )
    return "All five: only the size of the result counts, not what happens on the way to it."


def _accepted(fn: object, *args: object) -> str:
    """Give XLA's program for an answer, or say which layer refuses it."""
    row = compare(fn, *args)["XLA:CPU"]
    if row.refused_by:
        raise Wrong(f"It is refused by {row.refused_by}: {row.message}")
    return hlo(fn, *args).text


def _check_clip(answer: object) -> str:
    plain = tf.autograph.experimental.do_not_convert(answer)
    spec = tf.TensorSpec([2])
    for vector, expected in (([3.0, 4.0], [0.6, 0.8]), ([0.3, 0.4], [0.3, 0.4])):
        given = returned(answer(tf.constant(vector)))
        if not np.allclose(given, expected, atol=1e-5):
            raise Wrong(f"For {vector} it should give {expected}, not {np.round(given, 4)}.")
    if not np.allclose(answer(tf.zeros([2])), [0.0, 0.0]):
        raise Wrong("A zero vector must stay zero: 0/0 gives nan, and both sides are computed.")
    text = _accepted(plain, spec)
    if "conditional(" in text:
        raise Wrong("XLA's program still holds a conditional: choose between numbers, not code.")
    return "Same numbers, no conditional in XLA's program, and no AutoGraph needed."


_LOGITS = tf.constant([[2.0, 1, 0], [0, 3, 1], [1, 0, 5], [4, 0, 0]])


def _check_accuracy(answer: object) -> str:
    cases = (([0, 1, 0, 0], 0.75), ([0, 2, -100, -100], 0.5), ([-100, 1, 2, 1], 2 / 3))
    for labels, expected in cases:
        given = float(returned(answer(_LOGITS, tf.constant(labels))))
        if not np.isclose(given, expected, atol=1e-5):
            raise Wrong(f"For the labels {labels} it should be {expected:.3g}, not {given:.3g}.")
    given = float(returned(answer(_LOGITS, tf.fill([4], -100))))
    if given != 0.0:
        raise Wrong(f"Without any label it should be 0, not {given:.3g}.")
    text = _accepted(answer, tf.TensorSpec([4, 3]), tf.TensorSpec([4], tf.int32))
    if "<=" in text:
        raise Wrong("The number is right, but XLA's program holds a bounded shape (<=).")
    return "Right with all, some and no labels, and every shape in XLA's program is static."


def _check_pad(answer: object) -> str:
    for sequences, multiple, width in (
        ([[5, 6, 7], [8]], 4, 4),
        ([[1] * 9, [2] * 3], 4, 12),
        ([[1] * 8], 8, 8),
    ):
        ids, mask = map(np.asarray, returned(answer(sequences, multiple)))
        if ids.shape != (len(sequences), width) or mask.shape != ids.shape:
            raise Wrong(
                f"Lengths {[len(s) for s in sequences]} with multiple={multiple} make "
                f"{len(sequences)} rows of {width}; yours are {ids.shape} and {mask.shape}."
            )
        for row, (ids_row, mask_row) in zip(sequences, zip(ids, mask, strict=True), strict=True):
            if mask_row.tolist() != [1] * len(row) + [0] * (width - len(row)):
                raise Wrong("The mask must be 1 at every token and 0 at every padding place.")
            if ids_row[: len(row)].tolist() != row or ids_row[len(row) :].any():
                raise Wrong("The ids must come first in each row, unchanged, then zeros.")
    return "Ids, mask and width are right, also where the longest already fits."


EXERCISES = {
    "02-1": Exercise(
        stub="""\
def shapes():
    raise NotImplementedError("02-1")
    # x holds 8 numbers, n is a tensor. For each: "static", "bounded" or "refused".
    return {
        "tf.where(x > 0, x, 0)": "",
        "tf.where(x > 0)": "",
        "tf.zeros([n])": "",
        "tf.reduce_sum(x[x > 0])": "",
        "tf.math.top_k(x, 2).values": "",
    }
""",
        answer="shapes",
        check=_check_shapes,
        hints=(
            "Ask one question of each: could I write down the size of the result today?",
            "If not: does the input's size give an upper bound (bounded), or nothing (refused)?",
            "Run compare(fn, tf.TensorSpec([8])) on the one you are unsure about.",
        ),
        solution="""\
def shapes():
    return {
        "tf.where(x > 0, x, 0)": "static",
        "tf.where(x > 0)": "bounded",
        "tf.zeros([n])": "refused",
        "tf.reduce_sum(x[x > 0])": "static",
        "tf.math.top_k(x, 2).values": "static",
    }
""",
        wrong={
            "4 of 5": """\
def shapes():
    return {
        "tf.where(x > 0, x, 0)": "static",
        "tf.where(x > 0)": "bounded",
        "tf.zeros([n])": "bounded",
        "tf.reduce_sum(x[x > 0])": "static",
        "tf.math.top_k(x, 2).values": "static",
    }
""",
            "five keys": "def shapes():\n    return {}\n",
        },
    ),
    "02-2": Exercise(
        stub="""\
def clip(g):
    # Rewrite without `if`, so that it needs no AutoGraph and keeps a zero vector zero:
    #     if tf.norm(g) > 1:
    #         g = g / tf.norm(g)
    raise NotImplementedError("02-2")
""",
        answer="clip",
        check=_check_clip,
        hints=(
            "Dividing by 1 changes nothing. By which number must each vector be divided?",
            "By its norm where that is above 1, by 1 elsewhere: that is a maximum.",
        ),
        solution="""\
def clip(g):
    return g / tf.maximum(tf.norm(g), 1.0)
""",
        wrong={
            "refused by tracing": """\
def clip(g):
    if tf.norm(g) > 1:
        g = g / tf.norm(g)
    return g
""",
            "conditional": """\
def clip(g):
    norm = tf.norm(g)
    return tf.cond(norm > 1, lambda: g / norm, lambda: g)
""",
            "zero vector": """\
def clip(g):
    large = tf.cast(tf.norm(g) > 1, tf.float32)
    return large * g / tf.norm(g) + (1 - large) * g
""",
            "[0.3, 0.4]": "def clip(g):\n    return g / tf.norm(g)\n",
        },
    ),
    "02-3": Exercise(
        stub="""\
def masked_accuracy(logits, labels):
    # Share of the labels >= 0 that the largest logit hits; 0 where there is no such label.
    # No shape may depend on a value. logits: [n, classes], labels: [n]
    raise NotImplementedError("02-3")
""",
        answer="masked_accuracy",
        check=_check_accuracy,
        hints=(
            "Find out for each position whether it is a hit; keep all positions. tf.argmax gives "
            "int64 unless you pass output_type.",
            "Turn `labels >= 0` into 0 and 1, and use it in the sum above and below the line.",
            "tf.math.divide_no_nan(a, b) gives 0 where b is 0.",
        ),
        solution="""\
def masked_accuracy(logits, labels):
    keep = tf.cast(labels >= 0, tf.float32)
    hit = tf.cast(tf.argmax(logits, -1, tf.int32) == labels, tf.float32)
    return tf.math.divide_no_nan(tf.reduce_sum(hit * keep), tf.reduce_sum(keep))
""",
        wrong={
            "should be 0.5": """\
def masked_accuracy(logits, labels):
    hit = tf.cast(tf.argmax(logits, -1, tf.int32) == labels, tf.float32)
    return tf.reduce_mean(hit)
""",
            "Without any label": """\
def masked_accuracy(logits, labels):
    keep = tf.cast(labels >= 0, tf.float32)
    hit = tf.cast(tf.argmax(logits, -1, tf.int32) == labels, tf.float32)
    return tf.reduce_sum(hit * keep) / tf.reduce_sum(keep)
""",
            "bounded shape": """\
def masked_accuracy(logits, labels):
    mask = labels >= 0
    hits = tf.argmax(tf.boolean_mask(logits, mask), -1, tf.int32) == tf.boolean_mask(labels, mask)
    hits = tf.cast(hits, tf.float32)
    return tf.math.divide_no_nan(tf.reduce_sum(hits), tf.cast(tf.size(hits), tf.float32))
""",
        },
    ),
    "02-4": Exercise(
        stub="""\
def pad_batch(sequences, multiple):
    # sequences: lists of token ids (0 is padding). Give two integer arrays, ids and mask, as
    # wide as the longest sequence, rounded up to a multiple.
    raise NotImplementedError("02-4")
""",
        answer="pad_batch",
        check=_check_pad,
        hints=(
            "Find the width first: the longest length, then up to the next multiple.",
            "-(-length // multiple) * multiple rounds up, and leaves what fits as it is.",
            "np.zeros for both arrays, then fill the first len(sequence) places of each row.",
        ),
        solution="""\
def pad_batch(sequences, multiple):
    longest = max(len(sequence) for sequence in sequences)
    width = -(-longest // multiple) * multiple
    ids, mask = np.zeros((2, len(sequences), width), int)
    for i, sequence in enumerate(sequences):
        ids[i, : len(sequence)] = sequence
        mask[i, : len(sequence)] = 1
    return ids, mask
""",
        wrong={
            "1 rows of 8": """\
def pad_batch(sequences, multiple):
    width = (max(map(len, sequences)) // multiple + 1) * multiple
    ids = np.array([s + [0] * (width - len(s)) for s in sequences])
    return ids, (ids > 0).astype(int)
""",
            "0 at every padding place": """\
def pad_batch(sequences, multiple):
    width = -(-max(map(len, sequences)) // multiple) * multiple
    ids = np.array([s + [0] * (width - len(s)) for s in sequences])
    return ids, np.ones_like(ids)
""",
            "come first in each row": """\
def pad_batch(sequences, multiple):
    width = -(-max(map(len, sequences)) // multiple) * multiple
    ids = np.array([[0] * (width - len(s)) + s for s in sequences])
    return ids, np.array([[1] * len(s) + [0] * (width - len(s)) for s in sequences])
""",
        },
    ),
}
