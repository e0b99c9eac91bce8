"""The exercises of notebook 05, a TPU in your own machine."""

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned

STEPS, PER_REPLICA = 3, 2


def _strategy(answer: object) -> tf.distribute.Strategy:
    """Give the strategy of the notebook in which the answer was typed."""
    strategy = getattr(answer, "__globals__", {}).get("strategy")
    if not isinstance(strategy, tf.distribute.Strategy):
        raise Wrong("Run the cell that makes `strategy` first, at the top of the notebook.")
    return strategy


def _check_train_everywhere(answer: object) -> str:
    model, _, weights = _trained(answer, hide=False)
    _compare(_strategy(answer), model, weights)
    return "The scope, and the global batch: these are the weights of one device with all rows."


def _check_balanced_loss(answer: object) -> str:
    strategy = _strategy(answer)
    on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    even, odd = (strategy.num_replicas_in_sync + 1) // 2, strategy.num_replicas_in_sync // 2
    losses, real = tf.constant([[1.0] * 20, [4.0, 4.0] + [9.0] * 18]), np.ones([2, 20], np.float32)
    for labels in (2, 0):  # on every second replica; on the others 20
        real[1, labels:] = 0.0

        def on_replica(real: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            at = tf.cast(context.replica_id_in_sync_group, tf.int32) % 2
            together = lambda x: context.all_reduce("SUM", tf.convert_to_tensor(x))  # noqa: E731
            return returned(answer(tf.gather(losses, at), tf.gather(real, at), together))

        run = tf.function(strategy.run) if on_tpu else strategy.run
        given = float(strategy.reduce("SUM", run(on_replica, args=[tf.constant(real)]), axis=None))
        right = (even * 20 + odd * labels * 4) / (even * 20 + odd * labels)
        if not np.isclose(given, right, atol=1e-5):
            raise Wrong(
                f"20 labels with a loss of 1 on one replica, {labels} with a loss of 4 on the "
                f"next, and so on: the results must add up to {right:.4f}, not {given:.4f}."
            )
    return "The mean of all labels, however they fall on the replicas."


def _check_train_program(answer: object) -> str:
    given, losses, weights = _trained(answer, hide=True)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise Wrong("Return two things: the model, and the list of the losses.")
    model, said = given
    if len(said) != STEPS:
        raise Wrong(f"The rows are {STEPS} whole steps; there are {len(said)} losses.")
    for step, (loss, right) in enumerate(zip(map(float, said), losses, strict=True), 1):
        if not np.isclose(loss, right, atol=1e-4):
            raise Wrong(f"Step {step}: the mean of all its labels is {right:.4f}, not {loss:.4f}.")
    _compare(_strategy(answer), model, weights)
    return "Losses and weights of one device with all rows, on every replica of the strategy."


def _trained(answer: object, hide: bool) -> tuple:
    """Run a training program: what it gives, and one device's losses and weights."""
    strategy = _strategy(answer)
    batch = PER_REPLICA * strategy.num_replicas_in_sync
    x = np.random.default_rng(0).normal(size=[STEPS * batch + 1, 3]).astype(np.float32)
    labels, at = (x.sum(1) > 0).astype(np.int32), np.arange(len(x))
    labels[hide & (at % batch >= PER_REPLICA) & (at % 3 > 0)] = -100
    try:
        given = returned(answer(strategy, x, labels, PER_REPLICA))
    except ValueError as error:
        if "strategy scope" in str(error):
            raise Wrong("Model and optimizer belong in the scope: one was outside.") from error
        raise
    kernel, bias, losses = np.zeros([3, 2]), np.zeros(2), []
    for rows in np.split(np.arange(STEPS * batch), STEPS):
        rows = rows[labels[rows] >= 0]
        chances = np.exp(x[rows] @ kernel + bias)
        chances /= chances.sum(1, keepdims=True)
        losses.append(-np.log(chances[np.arange(len(rows)), labels[rows]]).mean())
        slope = (chances - np.eye(2)[labels[rows]]) / len(rows)
        kernel, bias = kernel - 0.5 * x[rows].T @ slope, bias - 0.5 * slope.sum(0)
    return given, losses, [kernel, bias]


def _compare(strategy: tf.distribute.Strategy, model: object, right: list) -> None:
    if not isinstance(model, tf.keras.Model):
        raise Wrong("Return the trained model.")
    if not all(map(strategy.extended.variable_created_in_scope, model.variables)):
        raise Wrong("The model was made outside the scope: it has one copy, on one device.")
    given = model.get_weights()
    if len(given) != 2 or not all(map(np.allclose, given, right, [0] * 2, [1e-4] * 2)):
        steps = getattr(getattr(model, "optimizer", None), "iterations", STEPS)
        if (made := int(tf.identity(steps))) != STEPS:
            raise Wrong(f"The model made {made} steps; the rows are {STEPS} whole ones.")
        raise Wrong("The weights aren't those of one device that has all rows of a step.")
