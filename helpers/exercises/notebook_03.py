"""The exercises of notebook 03, padding and packing."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Exercise, Wrong, returned
from helpers.text.buckets import measure_edges, pack
from helpers.xla.compare import compare

_LENGTHS = (9, 2, 30, 62, 17, 8)


def _bills() -> dict[str, tuple[int, int]]:
    """Work the answer out: places and compilations of each way."""
    pairs = np.reshape(_LENGTHS, (-1, 2))
    widths = {
        "all to 64": np.full(len(pairs), 64),
        "longest in batch": pairs.max(1),
        "multiple of 32": -(-pairs.max(1) // 32) * 32,
    }
    bills = {way: (int(2 * width.sum()), len(set(width))) for way, width in widths.items()}
    return bills | {"packed in rows of 64": (64 * len(pack(_LENGTHS, 64).rows), 1)}


def _check_bills(answer: object) -> str:
    given, truth = answer(), _bills()
    if not isinstance(given, dict) or set(given) != set(truth):
        raise Wrong("Return the dictionary with its four keys unchanged.")
    for way, (places, compilations) in truth.items():
        if not isinstance(given[way], tuple) or len(given[way]) != 2:
            raise Wrong(f"Give two numbers for {way!r}: (places, compilations).")
        if given[way][0] != places:
            how = "Fewer rows of 64 will do." if "packed" in way else "Rows times width, per batch."
            raise Wrong(f"{way}: the places are not {given[way][0]}. {how}")
        if given[way][1] != compilations:
            raise Wrong(f"{way}: the compilations are not {given[way][1]}. One per *new* shape.")
    return "All four: 384 places shrink to 128, and only packing keeps a single shape with them."


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
    refused = compare(answer, *spec)["XLA:CPU"]
    if refused.refused_by:
        raise Wrong(f"It is refused by {refused.refused_by}: {refused.message}")
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
                    f"In the row {segments[row].tolist()} place {at} "
                    f"{'must not' if one != other else 'must'} attend to place {to}."
                )
    if not given.any(-1).all():
        raise Wrong("A place of padding attends to nothing: its softmax would divide 0 by 0.")
    refused = compare(answer, tf.TensorSpec([2, 6], tf.int32))["XLA:CPU"]
    if refused.refused_by:
        raise Wrong(f"It is refused by {refused.refused_by}: {refused.message}")
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
                f"{len(many)} edges instead of {len(few)} save {saved:,} places per epoch here, "
                f"at 0.0001 s each, and take {len(many) - len(few)} more times 3 s to compile: "
                f"not {given:.4g} epochs."
            )
    return "What the further compilations cost, divided by what an epoch saves."


EXERCISES = {
    "03-1": Exercise(
        stub="""\
def bills():
    raise NotImplementedError("03-1")
    # Texts of 9, 2, 30, 62, 17, 8 tokens, in batches of two, in this order.
    # For each way: (places of all batches, compilations)
    return {
        "all to 64": (),
        "longest in batch": (),
        "multiple of 32": (),
        "packed in rows of 64": (),
    }
""",
        answer="bills",
        check=_check_bills,
        hints=(
            "A batch of two has 2 x its width places. Write the three widths down first.",
            "A compilation is a new (rows, width); a width seen before costs nothing.",
            "Packed: which texts sum to 64? The longest needs the shortest beside it.",
        ),
        solution="""\
def bills():
    return {
        "all to 64": (384, 1),
        "longest in batch": (176, 3),
        "multiple of 32": (256, 2),
        "packed in rows of 64": (128, 1),
    }
""",
        wrong={
            "One per *new* shape": """\
def bills():
    return {
        "all to 64": (384, 1),
        "longest in batch": (176, 3),
        "multiple of 32": (256, 3),
        "packed in rows of 64": (128, 1),
    }
""",
            "longest in batch: the places are not 128": """\
def bills():
    return {
        "all to 64": (384, 1),
        "longest in batch": (128, 3),
        "multiple of 32": (256, 2),
        "packed in rows of 64": (128, 1),
    }
""",
            "Fewer rows of 64 will do": """\
def bills():
    return {
        "all to 64": (384, 1),
        "longest in batch": (176, 3),
        "multiple of 32": (256, 2),
        "packed in rows of 64": (192, 1),
    }
""",
            "four keys": "def bills():\n    return {}\n",
        },
    ),
    "03-2": Exercise(
        stub="""\
def token_mean(loss, segments):
    # loss: [rows, places]; segments: numbers of the texts, 0 on padding, [rows, places].
    # Here every row weighs the same, and padding counts. Make every real token weigh the same:
    #     return tf.reduce_mean(tf.reduce_mean(loss, axis=1))
    raise NotImplementedError("03-2")
""",
        answer="token_mean",
        check=_check_token_mean,
        hints=(
            "One sum over all places and rows, one number of tokens, a single division.",
            "tf.cast(segments > 0, loss.dtype) is 1 at a token and 0 at padding.",
            "tf.math.divide_no_nan(a, b) gives 0 where b is 0.",
        ),
        solution="""\
def token_mean(loss, segments):
    real = tf.cast(segments > 0, loss.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(loss * real), tf.reduce_sum(real))
""",
        wrong={
            "not 4.0000": """\
def token_mean(loss, segments):
    real = tf.cast(segments > 0, loss.dtype)
    return tf.reduce_mean(tf.reduce_sum(loss * real, 1) / tf.reduce_sum(real, 1))
""",
            "not 2.0000": """\
def token_mean(loss, segments):
    return tf.reduce_mean(loss * tf.cast(segments > 0, loss.dtype))
""",
            "look at 0/0": """\
def token_mean(loss, segments):
    real = tf.cast(segments > 0, loss.dtype)
    return tf.reduce_sum(loss * real) / tf.reduce_sum(real)
""",
        },
    ),
    "03-3": Exercise(
        stub="""\
def may_attend(segments):
    # segments: [rows, places], 1, 2, ... on the texts of a row, 0 on padding.
    # Give bool [rows, places, places]: may the first place attend to the second?
    raise NotImplementedError("03-3")
""",
        answer="may_attend",
        check=_check_may_attend,
        hints=(
            "Two places may see each other when they belong to the same text.",
            "Compare every place with every place: one copy as a column, one as a row.",
            "segments[:, :, None] has shape [rows, places, 1]; what does == do with it?",
        ),
        solution="""\
def may_attend(segments):
    return segments[:, :, None] == segments[:, None, :]
""",
        wrong={
            "place 0 must not attend to place 2": """\
def may_attend(segments):
    real = segments > 0
    return real[:, :, None] & real[:, None, :]
""",
            "attends to nothing": """\
def may_attend(segments):
    same = segments[:, :, None] == segments[:, None, :]
    return same & (segments[:, :, None] > 0)
""",
            "place 0 must not attend to place 5": """\
def may_attend(segments):
    return segments[:, :, None] >= segments[:, None, :]
""",
            "bool [2, 6, 6]": "def may_attend(segments):\n    return segments > 0\n",
        },
    ),
    "03-4": Exercise(
        stub="""\
def break_even(lengths, few, many, compile_seconds, seconds_per_place):
    # few and many are two lists of edges. After how many epochs have the further compilations
    # of `many` paid for themselves? All lengths fit into the last edge of both.
    raise NotImplementedError("03-4")
""",
        answer="break_even",
        check=_check_break_even,
        hints=(
            "The cost is paid once, the gain comes with each epoch: divide one by the other.",
            "np.searchsorted(edges, lengths) tells which edge holds each length.",
            "np.take(edges, np.searchsorted(edges, lengths)).sum() are the places of an epoch.",
        ),
        solution="""\
def break_even(lengths, few, many, compile_seconds, seconds_per_place):
    places = [np.take(edges, np.searchsorted(edges, lengths)).sum() for edges in (few, many)]
    cost = (len(many) - len(few)) * compile_seconds
    return cost / ((places[0] - places[1]) * seconds_per_place)
""",
        wrong={
            "you pay in any case": """\
def break_even(lengths, few, many, compile_seconds, seconds_per_place):
    places = [np.take(edges, np.searchsorted(edges, lengths)).sum() for edges in (few, many)]
    return len(many) * compile_seconds / ((places[0] - places[1]) * seconds_per_place)
""",
            "places per epoch here": """\
def break_even(lengths, few, many, compile_seconds, seconds_per_place):
    return (len(many) - len(few)) * compile_seconds / (sum(lengths) * seconds_per_place)
""",
        },
    ),
}
