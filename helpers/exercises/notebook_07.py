"""Exercises of notebook 07: one loss over all parts of a batch, and a run that survives its end."""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned

RIGHT = np.float32([44.67619, 9.51214, 2.046455, 23.21295, 11.75751, 4.151651])  # Adam's losses


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
    model, parts = _build()[0], [_batch_at(step) for step in range(3)]
    with tf.GradientTape(persistent=True) as tape:
        sums = [_loss_sum(model, part) for part in parts]
    each = np.array([tape.gradient(loss, model.trainable_variables[0])[:, 0] for loss in sums])
    given = returned(accumulated(model, _loss_sum, parts))
    found, right = np.ravel(given[0]), each.sum(0) / 18
    for wrong, told in (
        (each.T @ [1 / 30, 1 / 21, 1 / 3], "the mean of the parts' means: 1 token weighs as 10"),
        (each.sum(0), "those of the sum, divided by nothing"),
        (each[-1] / 18, "those of the last part alone: add them up"),
    ):
        if np.allclose(found, wrong, 1e-4):
            raise Wrong(f"These gradients are {told}.")
    if len(given) != 2 or not np.allclose(found, right, 1e-4):
        raise Wrong(f"Of two gradients, one for each weight, the first is {right}, not {found}.")
    return "Parts of 10, 7 and 1 masked tokens have the gradients of one batch."


def _check_pretrain(pretrain: object) -> str:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])

    def build() -> tuple[tf.keras.Model, tf.keras.optimizers.Optimizer]:
        if tf.distribute.get_strategy() is not strategy:
            raise Wrong("build() is called outside of the strategy's scope.")
        return _build()

    def run(folder: pathlib.Path, steps: int) -> np.ndarray:
        given = strategy, build, _batch_at, _loss_sum, str(folder), steps
        return np.ravel(returned(pretrain(*given))).astype(np.float32)

    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work, "run")
        before, kept = run(folder, 3), len([*folder.rglob("*.index")])
        after = run(folder, 6)
    if not (len(before) == 3 and np.allclose(before, RIGHT[:3], 1e-3)):
        raise Wrong(f"The first 3 losses are {before}, expected {RIGHT[:3]}.")
    if len(after) == 6:
        raise Wrong(
            "Called again, it began anew: restore the newest checkpoint, optimizer and all."
        )
    if not (len(after) == 3 and np.allclose(after, RIGHT[3:], 1e-3)):
        raise Wrong(
            f"Called again, its losses are {after}; {RIGHT[3:]} if nothing is lost. "
            "What of the optimizer, or of the number of the step?"
        )
    if kept != 2:
        raise Wrong(f"After 3 steps the folder holds {kept} checkpoints, not the newest two.")
    return "Ended after 3 steps, called again, and the losses are those of a run without an end."
