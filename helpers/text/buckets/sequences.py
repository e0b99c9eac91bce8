"""What a sequence to batch may be: its length, its features, their padding."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from helpers.base.errors import CourseError

if TYPE_CHECKING:
    import tensorflow as tf

# Labels on padding must not count: this is the value that Hugging Face's losses leave out.
IGNORED_LABEL = -100


class TooLong(CourseError):
    """A sequence does not fit into the longest bucket or the row."""


def check_positive(**numbers: float | None) -> None:
    """Refuse a number that is zero, negative or NaN, and name it."""
    for name, number in numbers.items():
        if number is not None and not number > 0:
            raise CourseError(
                f"{name} is {number}.",
                "It counts or measures something, so it must be more than zero.",
                f"Give {name} a positive number.",
            )


def as_lengths(lengths: npt.ArrayLike) -> np.ndarray:
    """Check sequence lengths and make them an int64 array."""
    array = np.asarray(lengths)
    if array.size == 0:
        raise CourseError(
            "There are no sequences.",
            "The list of lengths, or the dataset, is empty.",
            "Look at what you read: a wrong path or a filter that keeps nothing are common.",
        )
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise CourseError(
            f"Lengths are {array.dtype} of shape {array.shape}.",
            "A length is a whole number of tokens, one per sequence.",
            "Pass [len(ids) for ids in sequences].",
        )
    if array.min() < 1:
        where = int(np.argmax(array < 1))
        raise CourseError(
            f"Sequence {where} has length {array[where]}.",
            "A sequence without tokens teaches nothing, and its attention mask would be empty.",
            "Leave empty sequences out before you count lengths.",
        )
    return array.astype(np.int64)


def check_fits(lengths: np.ndarray, limit: int, fix: str) -> None:
    """Refuse sequences that are longer than ``limit`` tokens."""
    over = int(np.count_nonzero(lengths > limit))
    if over:
        raise TooLong(
            f"{over:,} of {len(lengths):,} sequences are longer than {limit} tokens; "
            f"the longest has {lengths.max():,}.",
            "A sequence must fit whole: nothing is cut off unless you say so.",
            fix,
        )


def features_of(element: object) -> dict:
    """Give a sequence's features by name; token ids that have none are ``input_ids``."""
    return element if isinstance(element, dict) else {"input_ids": element}


def check_features(dataset: "tf.data.Dataset") -> dict[str, int]:
    """Check a dataset's elements; give the rank of each feature: 1 per token, 0 per sequence."""
    import tensorflow as tf

    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise CourseError(
            "The dataset repeats for ever.",
            "Its sequences are counted once, to size the batches and to refuse what can't fit.",
            "Call .repeat() on the batches instead.",
        )
    specs = features_of(dataset.element_spec)
    for name, feature in specs.items():
        # Rows of a RaggedTensor are ordinary tensors, but a dataset of them doesn't say so.
        row = isinstance(feature, tf.RaggedTensorSpec) and feature.ragged_rank == 0
        tensor = isinstance(feature, tf.TensorSpec) or row
        if not tensor or feature.shape.rank not in (0, 1) or feature.dtype == tf.string:
            raise CourseError(
                f"A sequence's {name!r} is {feature}.",
                "A feature must be numbers: 1-D with one per token, or one for the sequence.",
                "Map the dataset to a dict of such tensors, or to token ids, before batching.",
            )
    ranks = {name: feature.shape.rank for name, feature in specs.items()}
    if not any(ranks.values()):
        raise CourseError(
            f"A sequence has the features {', '.join(map(repr, specs))}, none with one per token.",
            "Its length decides the bucket or the row.",
            "Keep the token ids in the dataset.",
        )
    return ranks


def padding_values(names: Collection[str], pad_values: Mapping[str, int] | None) -> dict[str, int]:
    """Give the padding of each feature; refuse padding for a feature that isn't there."""
    unknown = sorted(set(pad_values or {}) - set(names))
    if unknown:
        raise CourseError(
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
        raise CourseError(
            f"Sequence {row} has {lengths[row, 0]} of {names[0]!r} but {lengths[row, column]} of "
            f"{names[column]!r}.",
            "Both say something of each token, so they must be equally long.",
            "Make them from one tokenizer call, and cut both or none.",
        )
    return as_lengths(lengths[:, 0])


def count_tokens(dataset: "tf.data.Dataset", names: Sequence[str]) -> np.ndarray:
    """Give the length of each sequence, int64 [sequences]."""
    import tensorflow as tf

    sizes = dataset.map(lambda x: tf.stack([tf.size(features_of(x)[name]) for name in names]))
    batches = [np.empty((0, len(names)), np.int32), *sizes.batch(8192).as_numpy_iterator()]
    return _one_length(names, np.concatenate(batches))


def collect(
    dataset: "tf.data.Dataset", names: Sequence[str]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Read each feature of all sequences, one after another, and the lengths."""
    import tensorflow as tf

    values = {name: [] for name in names}
    lengths = {name: [np.empty(0, np.int64)] for name in names}
    for batch in dataset.ragged_batch(8192):
        for name, rows in features_of(batch).items():
            # Sequences that are known to be equally long come as an ordinary tensor.
            ordinary = isinstance(rows, tf.Tensor)
            ragged = tf.RaggedTensor.from_tensor(rows) if ordinary else rows
            values[name].append(ragged.values.numpy())
            lengths[name].append(ragged.row_lengths().numpy())
    joined = np.stack([np.concatenate(parts) for parts in lengths.values()], axis=1)
    one_length = _one_length(names, joined)
    return {name: np.concatenate(parts) for name, parts in values.items()}, one_length
