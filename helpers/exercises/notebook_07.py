"""Exercises of notebook 07: one loss over all parts of a batch, and a run that survives its end."""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned

# The losses of six steps of Adam without an interruption.
LOSSES = np.float32([44.67619, 9.51214, 2.046455, 23.21295, 11.75751, 4.151651])


def _build() -> tuple[tf.keras.Model, tf.keras.optimizers.Optimizer]:
    layer = tf.keras.layers.Dense(1, kernel_initializer="ones")
    model = tf.keras.Sequential([tf.keras.Input([3]), layer])
    optimizer = tf.keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def _loss_sum(model: tf.keras.Model, part: dict) -> tf.Tensor:
    return tf.reduce_sum(tf.square(model(part["x"])[:, 0] - 1) * part["masked_weights"])


def _batch_at(step: int) -> dict[str, tf.Tensor]:
    x = np.random.default_rng(int(step)).normal(size=[10, 3])
    weights = np.arange(10) < [10, 7, 1][int(step) % 3]
    return {"x": tf.constant(x, tf.float32), "masked_weights": tf.constant(weights, tf.float32)}


def _check_accumulated(accumulated: object) -> str:
    model, _ = _build()
    parts = [_batch_at(step) for step in range(3)]
    gradients_of_sums = []
    for part in parts:
        with tf.GradientTape() as tape:
            loss = _loss_sum(model, part)
        gradients_of_sums.append(tape.gradient(loss, model.trainable_variables[0])[:, 0])
    sums = np.array(gradients_of_sums)
    gradients = returned(accumulated(model, _loss_sum, parts))
    first_gradient = np.ravel(gradients[0])
    # What the usual mistakes give, to say which one it is.
    mistakes = {
        "the mean of the parts' means: 1 token weighs as 10": sums.T @ [1 / 30, 1 / 21, 1 / 3],
        "those of the sum, divided by nothing": sums.sum(0),
        "those of the last part alone: add them up": sums[-1] / 18,
    }
    for mistake, gradient in mistakes.items():
        if np.allclose(first_gradient, gradient, 1e-4):
            raise Wrong(f"These gradients are {mistake}.")
    expected = sums.sum(0) / 18
    if len(gradients) != 2 or not np.allclose(first_gradient, expected, 1e-4):
        raise Wrong(
            f"Of two gradients, one for each weight, the first is {expected}, not {first_gradient}."
        )
    return "Parts of 10, 7 and 1 masked tokens have the gradients of one batch."


def _check_pretrain(pretrain: object) -> str:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])

    def build() -> tuple[tf.keras.Model, tf.keras.optimizers.Optimizer]:
        if tf.distribute.get_strategy() is not strategy:
            raise Wrong("build() is called outside of the strategy's scope.")
        return _build()

    # An error that was raised in a graph would lose its text, so what was seen is kept.
    calls_on_replica = []

    def loss_of(model: tf.keras.Model, batch: dict) -> tf.Tensor:
        is_on_replica = tf.distribute.get_replica_context() is not None
        calls_on_replica.append(is_on_replica and tf.distribute.get_strategy() is strategy)
        return _loss_sum(model, batch)

    def run(folder: pathlib.Path, steps: int) -> np.ndarray:
        losses = returned(pretrain(strategy, build, _batch_at, loss_of, str(folder), steps))
        return np.ravel(losses).astype(np.float32)

    # As on a machine that is taken away after three steps, and on the next one.
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work, "run")
        losses = run(folder, 3)
        checkpoints = len(list(folder.rglob("*.index")))
        resumed_losses = run(folder, 6)
    if len(losses) != 3 or not np.allclose(losses, LOSSES[:3], 1e-3):
        raise Wrong(f"The first 3 losses are {losses}, expected {LOSSES[:3]}.")
    if len(resumed_losses) == 6:
        if not np.allclose(resumed_losses[:3], LOSSES[:3], 1e-3):
            raise Wrong("Called again, it restored the weights, but took the steps from 0 again.")
        raise Wrong(
            "Called again, it began from scratch: restore the newest checkpoint, optimizer and all."
        )
    if len(resumed_losses) != 3 or not np.allclose(resumed_losses, LOSSES[3:], 1e-3):
        raise Wrong(
            f"Called again, its losses are {resumed_losses}; {LOSSES[3:]} if nothing is lost. "
            "What of the optimizer, or of the number of the step?"
        )
    if checkpoints != 2:
        raise Wrong(
            f"After 3 steps the folder holds {checkpoints} checkpoints, not the newest two: save "
            "after each step, with max_to_keep=2."
        )
    if not all(calls_on_replica):
        raise Wrong("The losses are right, but loss_of was called outside of strategy.run.")
    return "Ended after 3 steps, called again, and the losses are those of a run without an end."
