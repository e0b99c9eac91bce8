"""The training step: the paper's loss and optimizer, the same step wherever it runs.

It computes the last layer and the scores of the vocabulary at the masked positions only, divides
the loss by the number of masked tokens of all replicas, and draws dropout from (seed, layer, step,
row). So it gives the same numbers on one replica or eight, and after a resume.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import tensorflow as tf

from helpers.bert.model import dropout_at, is_bias_or_norm

Batch = Mapping[str, tf.Tensor]


class Results(NamedTuple):
    """What a step gives, of all replicas; or steps, each field [steps]."""

    loss: tf.Tensor  # mean cross entropy per masked token, float32
    norm: tf.Tensor  # of the gradients before they were clipped, float32
    tokens: tf.Tensor  # number of positions that hold a token, int64


def masked_scores(model: tf.keras.Model, batch: Batch, training: bool = False) -> tf.Tensor:
    """Score the vocabulary at the masked positions only: float32 [rows, predictions, vocabulary].

    The batch has ``input_ids``, ``attention_mask``, ``position_ids`` int32 [rows, length];
    ``masked_positions`` int32 [rows, predictions]. ``training`` switches dropout on.
    """
    # Labels and weights of the batch are no business of the model.
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "position_ids")}
    hidden = model.bert.encode_chosen(batch["masked_positions"], training=training, **inputs)
    return tf.cast(model.mlm(hidden), tf.float32)


def loss_sum(model: tf.keras.Model, batch: Batch, training: bool = False) -> tf.Tensor:
    """Sum the cross entropies of a batch's masked tokens, in nats: a scalar, float32.

    Divided by the number of masked tokens of all replicas' batches together, it is the paper's
    loss, however the masked tokens are spread over the replicas. The batch is as for
    `masked_scores`, with ``masked_ids`` int32 and ``masked_weights`` float32 [rows, predictions].
    """
    scores = masked_scores(model, batch, training)
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["masked_ids"], scores)
    return tf.reduce_sum(entropy * batch["masked_weights"])


class WarmUpLinearDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly from 0 to its peak, then falls linearly to 0.

    Notebooks 07 and 11 type it in full, in TensorFlow and in JAX: these are copies.

    Args:
        peak: The highest learning rate, of step ``warm_up - 1``.
        warm_up: Number of steps on the way up, at least 1.
        steps: Steps of the whole run; the learning rate would be 0 at this one.
    """

    def __init__(self, peak: float, warm_up: int, steps: int) -> None:
        self.peak = peak
        self.warm_up = warm_up
        self.steps = steps

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Give the learning rate after so many steps, float32, at least 0."""
        steps_done = tf.cast(step, tf.float32)
        up = (steps_done + 1) / self.warm_up
        down = (self.steps - steps_done) / max(1, self.steps - self.warm_up + 1)
        return self.peak * tf.maximum(tf.minimum(up, down), 0)

    def get_config(self) -> dict:
        """Give the arguments."""
        return {"peak": self.peak, "warm_up": self.warm_up, "steps": self.steps}


def adamw(
    model: tf.keras.Model,
    schedule: WarmUpLinearDecay | float,
    weight_decay: float = 0.01,
) -> tf.keras.optimizers.AdamW:
    """Make BERT's optimizer: AdamW that leaves biases and layer norms undecayed.

    Numbers as in the paper, appendix A.2, epsilon as in google-research/bert; ``weight_decay`` is
    the share of a weight that goes per step and unit of learning rate. Its state is made here, so
    that a checkpoint finds it.
    """
    optimizer = tf.keras.optimizers.AdamW(
        schedule, weight_decay, beta_1=0.9, beta_2=0.999, epsilon=1e-6, jit_compile=False
    )
    undecayed = [weight for weight in model.trainable_variables if is_bias_or_norm(weight)]
    optimizer.exclude_from_weight_decay(var_list=undecayed)
    optimizer.build(model.trainable_variables)
    return optimizer


def training_step(
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    *,
    seed: int = 0,
    clip_norm: float = 1.0,
    replicas: int = 1,
    jit: bool = True,
) -> Callable[[Batch, tf.Tensor, tf.Tensor | int], Results]:
    """Make a step to call in a graph: in a ``tf.function``, or in ``strategy.run`` in one.

    With ``jit`` XLA compiles it: with one replica all of it, with several what comes before the
    gradients are summed, because XLA on a CPU or GPU can't compile TensorFlow's exchange between
    replicas. On a TPU leave it off: a TPUStrategy compiles by itself. ``seed`` is dropout's,
    ``clip_norm`` the largest norm of the gradient over all weights, ``replicas`` those of a step.

    Returns:
        A function of (batch, step, replica's number): the batch as `loss_sum` takes it, with the
        replica's rows of the global batch; step int64, of the run, from 0. It updates the weights.
    """
    weights = model.trainable_variables

    def count_masked(batch: Batch) -> tf.Tensor:
        return tf.reduce_sum(batch["masked_weights"])

    def count_tokens(batch: Batch) -> tf.Tensor:
        return tf.math.count_nonzero(batch["attention_mask"])

    def compute_gradients(
        batch: Batch, masked: tf.Tensor, step: tf.Tensor, replica: tf.Tensor
    ) -> list[tf.Tensor]:
        """Give the loss, then the gradient of each weight."""
        # A row drops the same values on any replica: it is told by its number in the global batch.
        first_row = tf.cast(replica, tf.int64) * batch["input_ids"].shape[0]
        with tf.GradientTape() as tape, dropout_at(seed, step, first_row):
            # A batch without a masked token has no loss, and changes nothing.
            loss = tf.math.divide_no_nan(loss_sum(model, batch, training=True), masked)
        gradients = tape.gradient(loss, weights)
        # An embedding's gradient comes as the rows that were looked up, not as a tensor.
        return [loss, *map(tf.convert_to_tensor, gradients)]

    def update_weights(gradients: list[tf.Tensor]) -> tf.Tensor:
        """Give the norm that the gradients had."""
        clipped, norm = tf.clip_by_global_norm(gradients, clip_norm)
        pairs = zip(clipped, weights, strict=True)
        optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        return norm

    def compiled(function: Callable) -> Callable:
        # None leaves it to the strategy; False would keep XLA out on a TPU as well.
        return tf.function(function, jit_compile=jit or None, autograph=False)

    @compiled
    def single_step(batch: Batch, step: tf.Tensor, replica: tf.Tensor) -> Results:
        loss, *gradients = compute_gradients(batch, count_masked(batch), step, replica)
        norm = update_weights(gradients)
        return Results(loss, norm, count_tokens(batch))

    compiled_gradients = compiled(compute_gradients)

    def replica_step(batch: Batch, step: tf.Tensor, replica: tf.Tensor) -> Results:
        context = tf.distribute.get_replica_context()
        # Divided by the masked tokens of all replicas, so that each token counts the same.
        masked = context.all_reduce("SUM", count_masked(batch))
        own_gradients = compiled_gradients(batch, masked, step, replica)
        loss, *gradients = context.all_reduce("SUM", own_gradients)
        norm = update_weights(gradients)
        tokens = context.all_reduce("SUM", count_tokens(batch))
        return Results(loss, norm, tokens)

    if replicas == 1:
        return single_step
    return replica_step


def steps_function(
    strategy: tf.distribute.Strategy, step: Callable[[Batch, tf.Tensor, tf.Tensor], Results]
) -> Callable[[Iterator, int | tf.Tensor, int | tf.Tensor], Results]:
    """Make a function of several steps in one call: ``steps_per_execution`` of Keras.

    Python is left once for all of them; on a TPU, where a step can be shorter than Python's part
    of it, this is what keeps the TPU busy. It takes an iterator over a dataset that the strategy
    distributes, the first step and the number of steps, and is traced once.
    """

    def on_replica(batch: Batch, number: tf.Tensor) -> Results:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return step(batch, number, tf.cast(replica, tf.int64))

    # No tf.map_fn: where tracing fails inside it, no strategy's scope can be entered afterwards.
    @tf.function(autograph=False)
    def run(iterator: Iterator, first: tf.Tensor, count: tf.Tensor) -> Results:
        def body(index: tf.Tensor, *arrays: tf.TensorArray) -> tuple:
            per_replica = strategy.run(on_replica, args=(next(iterator), first + index))
            row = tf.cast(index, tf.int32)
            written = []
            for array, values in zip(arrays, per_replica, strict=True):
                # All replicas have the same: their losses, norms and tokens are summed already.
                value = strategy.experimental_local_results(values)[0]
                written.append(array.write(row, value))
            return (index + 1, *written)

        size = tf.cast(count, tf.int32)
        arrays = []
        for dtype in (tf.float32, tf.float32, tf.int64):  # of `Results`
            arrays.append(tf.TensorArray(dtype, size, element_shape=[]))
        # One step after the other: each needs the weights that the one before has left.
        _, *arrays = tf.while_loop(
            lambda index, *_: index < count,
            body,
            [tf.zeros([], tf.int64), *arrays],
            parallel_iterations=1,
        )
        loss, norm, tokens = [array.stack() for array in arrays]
        return Results(loss, norm, tokens)

    def steps(iterator: Iterator, first: int | tf.Tensor, count: int | tf.Tensor) -> Results:
        return run(iterator, tf.cast(first, tf.int64), tf.cast(count, tf.int64))

    return steps
