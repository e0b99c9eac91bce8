"""What pretraining left in a model's states: a linear model reads them, with the model frozen."""

import dataclasses

import numpy as np
import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.bert.evaluation.masked import FixedMasks, score
from tpu_preflight.text import aligned

ASKED = 50  # frequent tokens that the probe tells apart
RIDGE = 10.0  # of the probe's regression: the states are scaled to a deviation of 1


@dataclasses.dataclass(frozen=True)
class Probe:
    """What a linear model reads from frozen states at masked positions: which token is missing.

    Each interval is of 95 % confidence, over documents.
    """

    pretrained: float  # share of tokens named correctly from the trained model's states
    pretrained_interval: tuple[float, float]
    random: float  # the same for fresh weights of the same shape
    random_interval: tuple[float, float]
    more: float  # the difference of the two
    more_interval: tuple[float, float]  # both judged on the same draws of documents
    frequent: float  # share of the commonest of these tokens: guessing blindly
    asked: int  # number of tokens to choose from
    tokens: int  # number of judged positions

    def __repr__(self) -> str:
        shares = {
            "pretrained": (self.pretrained, *self.pretrained_interval),
            "random weights": (self.random, *self.random_interval),
            "difference": (self.more, *self.more_interval),
        }
        rows = [(name, *map("{:.0%}".format, found)) for name, found in shares.items()]
        rows = [(name, f"{share:>3}", f"({low} to {high})") for name, share, low, high in rows]
        asked = f"which of {self.asked} tokens is missing, at {self.tokens:,} positions:"
        blind = ("the commonest", f"{self.frequent:>3.0%}", "")
        return "\n".join([asked, *aligned([*rows, blind])])


def probe(
    model: tf.keras.Model, fresh: tf.keras.Model, fitted: FixedMasks, judged: FixedMasks
) -> Probe:
    """Ask whether pretraining left something in the states that random weights lack.

    The encoder is frozen and its head is not used. A linear model (ridge regression) reads the
    state at a masked position and names the missing token, among the ``ASKED`` most frequent ones.
    It is fitted on one text (the training's own will do) and judged on another, which the
    pretraining has not seen, once on the model's states and once on those of fresh weights (which
    pass the words around, too, if less usefully): only the states differ.

    Raises:
        CourseError: None of the frequent tokens is masked in ``judged``.
    """
    labels, weights = fitted.batch["masked_ids"], fitted.batch["masked_weights"]
    counts = np.bincount(labels[weights > 0])
    asked = np.argsort(-counts, kind="stable")[: min(ASKED, np.count_nonzero(counts))]
    used = [
        np.isin(part.batch["masked_ids"], asked) & (part.batch["masked_weights"] > 0)
        for part in (fitted, judged)
    ]
    if not used[1].any():
        raise CourseError(
            "The probe has nothing to judge.",
            f"None of the {len(asked)} most frequent masked tokens is masked in the text.",
            "Give more held-out text.",
        )
    where = used[1].astype(float)
    right = [np.zeros(where.shape), np.zeros(where.shape)]
    for one, named in zip((model, fresh), right, strict=True):
        states = _states(one, fitted)[used[0]], _states(one, judged)[used[1]]
        mean, deviation = states[0].mean(0), states[0].std(0) + 1e-6
        fit_x, test_x = (np.insert((x - mean) / deviation, 0, 1.0, axis=1) for x in states)
        square = fit_x.T @ fit_x + RIDGE * np.eye(fit_x.shape[1])
        matrix = np.linalg.solve(square, fit_x.T @ (labels[used[0]][:, None] == asked))
        guesses = asked[(test_x @ matrix).argmax(1)]
        named[used[1]] = guesses == judged.batch["masked_ids"][used[1]]
    # The difference of the two takes the part of the loss: all are judged on the same draws.
    trained, random = (score(right[0] - right[1], each, where) for each in right)
    return Probe(
        trained.accuracy,
        trained.accuracy_interval,
        random.accuracy,
        random.accuracy_interval,
        trained.loss,
        trained.loss_interval,
        float(np.bincount(judged.batch["masked_ids"][used[1]]).max() / where.sum()),
        len(asked),
        trained.tokens,
    )


def _states(model: tf.keras.Model, part: FixedMasks) -> np.ndarray:
    rows = 64  # at a time
    names = ("input_ids", "attention_mask", "position_ids")
    found = []
    for first in range(0, len(part.batch["input_ids"]), rows):
        batch = {name: tf.constant(part.batch[name][first : first + rows]) for name in names}
        hidden = tf.cast(model.bert(**batch)[0], tf.float32)
        at = part.batch["masked_positions"][first : first + rows]
        found.append(tf.gather(hidden, at, batch_dims=1).numpy())
    return np.concatenate(found)
