"""The optimizer and the training step, each against a plain reference."""

import numpy as np
import pytest
import tensorflow as tf
from packed_text import LENGTH, SMALL, VOCABULARY
from replicas import replicas
from small_runs import child, ended
from transformers import TFBertForMaskedLM

from helpers.bert.model import pretraining_model
from helpers.bert.step import WarmUpLinearDecay, adamw, steps_function, training_step

pytestmark = pytest.mark.long


def test_the_learning_rate_rises_and_falls_in_straight_lines():
    schedule = WarmUpLinearDecay(8.0, 4, 12)
    rates = [float(schedule(step)) for step in range(14)]
    assert rates[:4] == [2, 4, 6, 8]
    falling = 8 * (12 - np.arange(3, 14)) / 9
    np.testing.assert_allclose(rates[3:], np.maximum(falling, 0), rtol=1e-6)
    assert float(WarmUpLinearDecay(8.0, 0, 1)(0)) == 4.0
    assert float(WarmUpLinearDecay(8.0, 1, 1)(0)) == 8.0


def reference_adamw(weight, gradients, rates, decay):
    m = 0.0
    v = 0.0
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        weight = weight - rate * decay * weight
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        # Epsilon as in Kingma & Ba's section 2: before the bias of v is corrected.
        corrected_rate = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        weight = weight - corrected_rate * m / (np.sqrt(v) + 1e-6)
    return weight


def test_adamw_decays_weights_and_neither_biases_nor_layer_norms():
    model = pretraining_model(SMALL, VOCABULARY, longest=LENGTH)
    optimizer = adamw(model, WarmUpLinearDecay(0.1, 2, 5), weight_decay=0.5)
    weights = model.trainable_variables
    initial = [weight.numpy() for weight in weights]
    draw = np.random.default_rng(0)
    steps = []
    for _ in range(3):
        gradients = [draw.normal(size=weight.shape).astype(np.float32) for weight in weights]
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        steps.append(gradients)
    for number, weight in enumerate(weights):
        decay = 0.5
        if "bias" in weight.name or "LayerNorm" in weight.name:
            decay = 0.0
        expected = reference_adamw(
            initial[number].astype(float),
            gradients=[gradients[number].astype(float) for gradients in steps],
            rates=[0.05, 0.1, 0.075],
            decay=decay,
        )
        np.testing.assert_allclose(weight, expected, atol=1e-5)


def some_batch(seed, rows=8, length=16, predictions=3):
    """Ordinary rows, masked both ways: a list of positions, and labels at every position."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(5, VOCABULARY, (rows, length), dtype=np.int32)
    attention_mask = np.ones_like(ids)
    attention_mask[:, -2:] = 0
    positions = np.stack([draw.permutation(length - 2)[:predictions] for _ in range(rows)])
    masked_ids = draw.integers(5, VOCABULARY, positions.shape, dtype=np.int32)
    weights = (draw.random(positions.shape) < 0.7).astype(np.float32)
    labels = np.full((rows, length), -100, np.int32)
    np.put_along_axis(labels, positions, np.where(weights > 0, masked_ids, -100), axis=1)
    inputs = {"input_ids": ids, "attention_mask": attention_mask}
    batch = inputs | {
        "position_ids": np.tile(np.arange(length, dtype=np.int32), (rows, 1)),
        "masked_positions": positions.astype(np.int32),
        "masked_ids": masked_ids,
        "masked_weights": weights,
    }
    return batch, inputs | {"labels": labels}


def trained(batches, strategy=None, dropout=0.1, **options):
    """Losses, norms and number of tokens of some steps, and the model after them."""
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        model = pretraining_model(SMALL, VOCABULARY, longest=16, dropout=dropout)
        optimizer = adamw(model, 1e-3)
    options = {"jit": False, "seed": 9, "replicas": strategy.num_replicas_in_sync, **options}
    step = training_step(model, optimizer, **options)
    stacked = {}
    for name in batches[0]:
        stacked[name] = np.stack([batch[name] for batch in batches])
    data = tf.data.Dataset.from_tensor_slices(stacked)
    iterator = iter(strategy.experimental_distribute_dataset(data))
    return steps_function(strategy, step)(iterator, 0, len(batches)), model


BATCHES = [some_batch(seed)[0] for seed in range(3)]
LABELLED = [some_batch(seed)[1] for seed in range(3)]


@pytest.mark.parametrize("jit", [False, True])
def test_a_step_is_that_of_hugging_faces_model_and_keras_optimizer(jit):
    outcome, model = trained(BATCHES, dropout=0.0, clip_norm=0.7, jit=jit)
    start = pretraining_model(SMALL, VOCABULARY, longest=16, dropout=0.0)
    plain = TFBertForMaskedLM(start.config)
    plain.build_in_name_scope()
    plain.set_weights(start.get_weights())
    optimizer = tf.keras.optimizers.AdamW(1e-3, 0.01, epsilon=1e-6, global_clipnorm=0.7)
    optimizer.exclude_from_weight_decay(var_names=["LayerNorm", "bias"])
    for number, batch in enumerate(LABELLED):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(plain(batch).loss)
        gradients = tape.gradient(loss, plain.trainable_variables)
        norm = tf.linalg.global_norm(list(map(tf.convert_to_tensor, gradients)))
        np.testing.assert_allclose(outcome.loss[number], loss, rtol=1e-5)
        np.testing.assert_allclose(outcome.norm[number], norm, rtol=1e-4)
        assert norm > 0.7  # so that it is clipped
        assert outcome.tokens[number] == 8 * 14
        optimizer.apply_gradients(zip(gradients, plain.trainable_variables, strict=True))
    for a, b in zip(model.trainable_variables, plain.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_compiled_the_step_drops_the_same_values():
    expected, _ = trained(BATCHES, jit=False)
    compiled, _ = trained(BATCHES, jit=True)
    np.testing.assert_allclose(compiled.loss, expected.loss, rtol=1e-5)
    np.testing.assert_allclose(compiled.norm, expected.norm, rtol=1e-4)
    without_dropout, _ = trained(BATCHES, dropout=0.0)
    assert abs(compiled.loss[0] - without_dropout.loss[0]) > 1e-4


def with_uneven_masks():
    """Three steps on two replicas with 20 and 2 masked tokens, and on one: the same."""
    batch, _ = some_batch(0, rows=4, predictions=10)
    weights = np.ones([4, 10], np.float32)
    weights[2:, 1:] = 0  # the second replica's two rows have one masked token each
    batch["masked_weights"] = weights
    on_two, _ = trained([batch] * 3, replicas(2))
    on_one, _ = trained([batch] * 3)
    np.testing.assert_allclose(on_two.loss, on_one.loss, rtol=1e-5)
    np.testing.assert_allclose(on_two.norm, on_one.norm, rtol=1e-5)
    assert on_two.tokens.numpy().tolist() == [4 * 14] * 3


def test_replicas_with_20_and_2_masked_tokens_give_the_step_of_one(tmp_path):
    process = child(with_uneven_masks, output=tmp_path / "shown")
    assert ended(process) == 0, (tmp_path / "shown").read_text()
