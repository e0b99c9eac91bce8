"""The exercises of notebook 05, a TPU in your own machine."""

import dataclasses

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, returned

STEPS, PER_REPLICA = 3, 2
LEARNING_RATE = 0.5


def _strategy(answer: object) -> tf.distribute.Strategy:
    """Give the strategy of the notebook in which the answer was typed."""
    strategy = getattr(answer, "__globals__", {}).get("strategy")
    if not isinstance(strategy, tf.distribute.Strategy):
        raise Wrong("Run the cell that makes `strategy` first, at the top of the notebook.")
    return strategy


def _check_train_everywhere(answer: object) -> str:
    # Another strategy has another number of replicas, so a number that was typed in fails.
    for strategy in (_strategy(answer), tf.distribute.OneDeviceStrategy("/CPU:0")):
        run = _train(answer, strategy, hide_labels=False)
        _compare(strategy, run.result, run.weights)
    return "The scope, and the global batch: these are the weights of one device with all rows."


def _check_balanced_loss(answer: object) -> str:
    strategy = _strategy(answer)
    # Replicas 0, 2, 4, … have 20 labels; 1, 3, 5, … have 2, and then none.
    replicas = strategy.num_replicas_in_sync
    even = (replicas + 1) // 2
    odd = replicas // 2
    losses = tf.constant([[1.0] * 20, [4.0, 4.0] + [9.0] * 18])
    real = np.ones([2, 20], np.float32)
    for labels in (2, 0):
        real[1, labels:] = 0.0

        def on_replica(real: tf.Tensor) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            row = tf.cast(context.replica_id_in_sync_group, tf.int32) % 2

            def all_reduce(x: object) -> tf.Tensor:
                return context.all_reduce("SUM", tf.convert_to_tensor(x))

            return returned(answer(tf.gather(losses, row), tf.gather(real, row), all_reduce))

        # On a TPU only a compiled function runs; here each replica's error is shown as it is.
        run = strategy.run
        if isinstance(strategy, tf.distribute.TPUStrategy):
            run = tf.function(run)
        per_replica = run(on_replica, args=[tf.constant(real)])
        loss = float(strategy.reduce("SUM", per_replica, axis=None))
        expected = (even * 20 + odd * labels * 4) / (even * 20 + odd * labels)
        if not np.isclose(loss, expected, atol=1e-5):
            raise Wrong(
                f"20 labels with a loss of 1 on one replica, {labels} with a loss of 4 on the "
                f"next, and so on: the results must add up to {expected:.4f}, not {loss:.4f}."
            )
    return "The mean of all labels, however they fall on the replicas."


def _check_train_program(answer: object) -> str:
    strategy = _strategy(answer)
    run = _train(answer, strategy, hide_labels=True)
    if not isinstance(run.result, tuple | list) or len(run.result) != 2:
        raise Wrong("Return two things: the model, and the list of the losses.")
    model, losses = run.result
    if len(losses) != STEPS:
        raise Wrong(
            f"Return a loss for each of the {STEPS} whole steps; the list has {len(losses)}."
        )
    for step, (loss, expected) in enumerate(zip(losses, run.losses, strict=True), 1):
        if not np.isclose(float(loss), expected, atol=1e-4):
            raise Wrong(
                f"Step {step}: the mean of all its labels is {expected:.4f}, not {float(loss):.4f}."
            )
    _compare(strategy, model, run.weights)
    return "Losses and weights of one device with all rows, on every replica of the strategy."


@dataclasses.dataclass(frozen=True)
class Run:
    """A training program's result, and what one device with all rows gives."""

    result: object
    losses: list[float]
    weights: list[np.ndarray]


def _train(answer: object, strategy: tf.distribute.Strategy, hide_labels: bool) -> Run:
    """Run a training program; ``hide_labels`` takes many labels from all replicas but the first."""
    batch_size = PER_REPLICA * strategy.num_replicas_in_sync
    # One row more than whole batches, which must be left out.
    x = np.random.default_rng(0).normal(size=[STEPS * batch_size + 1, 3]).astype(np.float32)
    labels = (x.sum(1) > 0).astype(np.int32)
    if hide_labels:
        position = np.arange(len(x))
        on_first_replica = position % batch_size < PER_REPLICA
        labels[~on_first_replica & (position % 3 > 0)] = -100
    try:
        result = returned(answer(strategy, x, labels, PER_REPLICA))
    except ValueError as error:
        if "strategy scope" in str(error):
            raise Wrong("Model and optimizer belong in the scope: one was outside.") from error
        if "non-empty" in str(error):
            raise Wrong(
                f"With {strategy.num_replicas_in_sync} replicas and {len(x)} rows no batch was "
                "full: ask the strategy how many replicas it has."
            ) from error
        raise
    losses, weights = _train_on_one_device(x, labels, batch_size)
    return Run(result, losses, weights)


def _train_on_one_device(x: np.ndarray, labels: np.ndarray, batch_size: int) -> tuple[list, list]:
    """Descend by hand; returns the losses, and kernel and bias at the end."""
    kernel = np.zeros([3, 2])
    bias = np.zeros(2)
    losses = []
    for step in range(STEPS):
        rows = np.arange(step * batch_size, (step + 1) * batch_size)
        rows = rows[labels[rows] >= 0]
        chances = np.exp(x[rows] @ kernel + bias)
        chances /= chances.sum(1, keepdims=True)
        chance_of_label = chances[np.arange(len(rows)), labels[rows]]
        losses.append(-np.log(chance_of_label).mean())
        slope = (chances - np.eye(2)[labels[rows]]) / len(rows)
        kernel = kernel - LEARNING_RATE * x[rows].T @ slope
        bias = bias - LEARNING_RATE * slope.sum(0)
    return losses, [kernel, bias]


def _compare(strategy: tf.distribute.Strategy, model: object, expected: list[np.ndarray]) -> None:
    if not isinstance(model, tf.keras.Model):
        raise Wrong("Return the trained model.")
    if not all(map(strategy.extended.variable_created_in_scope, model.variables)):
        raise Wrong("The model was made outside the scope: it has one copy, on one device.")
    weights = model.get_weights()
    # Floating point adds up in another order on several replicas.
    if len(weights) == 2 and all(map(_close, weights, expected)):
        return
    # The most usual reason is another batch size, which shows in the number of steps.
    optimizer = getattr(model, "optimizer", None)
    steps = int(tf.identity(getattr(optimizer, "iterations", STEPS)))
    if steps != STEPS:
        raise Wrong(f"The model made {steps} steps; the rows are {STEPS} whole ones.")
    raise Wrong(
        "The weights aren't those of one device that has all rows of a step, in their order."
    )


def _close(array: np.ndarray, expected: np.ndarray) -> bool:
    return array.shape == expected.shape and np.allclose(array, expected, rtol=0, atol=1e-4)
