"""The packed model beside Hugging Face's, its fresh weights, and its dropout."""

import numpy as np
import pytest
import tensorflow as tf
from packed_text import LENGTH, SMALL, TOLERANCE, VOCABULARY, Text, gradients_of
from transformers import TFBertForMaskedLM

from helpers.bert.model import Dropout, dropout_at, pretraining_model
from helpers.bert.settings import CONFIGURATIONS

pytestmark = pytest.mark.slow


def fresh(**options):
    return pretraining_model(SMALL, VOCABULARY, longest=LENGTH, **options)


def differences(outputs, order, other_outputs, other_order):
    """Largest difference of the tokens' logits, of the loss and of the gradients.

    The outputs are those of `gradients_of`; the orders say where the same tokens are.
    """
    logits, loss, gradients = outputs
    other_logits, other_loss, other_gradients = other_outputs
    assert gradients.keys() == other_gradients.keys()
    tokens = np.reshape(logits, [-1, VOCABULARY])[order]
    other_tokens = np.reshape(other_logits, [-1, VOCABULARY])[other_order]
    result = [np.abs(tokens - other_tokens).max(), abs(loss - other_loss)]
    for name, gradient in gradients.items():
        result.append(np.abs(gradient - other_gradients[name]).max())
    return result[0], result[1], max(result[2:])


@pytest.mark.long
@pytest.mark.parametrize(("seed", "jit"), [(0, False), (1, True)])
def test_a_packed_row_gives_what_rows_of_one_sequence_give(models, seed, jit):
    ordinary, packed = models
    text = Text(seed)
    expected = gradients_of(ordinary, text.padded, jit)
    logits, _, gradients = expected
    assert np.std(logits) > 0.5  # there is something to compare
    assert np.abs(next(iter(gradients.values()))).max() > 1e-3

    def differences_of(batch):
        outputs = gradients_of(packed, batch, jit)
        return differences(expected, text.padded_order, outputs, text.packed_order)

    assert max(differences_of(text.packed)) < TOLERANCE
    if jit:  # XLA compiles a minute; what is wrong is wrong without it
        return
    inputs = dict(text.packed)
    del inputs["labels"]
    rows = len(inputs["input_ids"])
    positions = np.random.default_rng(0).integers(0, 2 * LENGTH, (rows, 10))
    states = tf.gather(packed.bert(**inputs)[0], positions, batch_dims=1)
    chosen_states = packed.bert.encode_chosen(positions, training=False, **inputs)
    np.testing.assert_allclose(chosen_states, states, atol=TOLERANCE)
    # The test would see a mask or positions that don't tell sequences apart.
    one_segment = np.minimum(text.packed["attention_mask"], 1)
    along_the_row = np.tile(np.arange(2 * LENGTH, dtype=np.int32) % LENGTH, (rows, 1))
    assert min(differences_of(text.packed | {"attention_mask": one_segment})) > 10 * TOLERANCE
    assert min(differences_of(text.packed | {"position_ids": along_the_row})) > 10 * TOLERANCE


@pytest.mark.long
def test_ordinary_batches_give_what_the_ordinary_model_gives(models):
    text = Text(3)
    ordinary, packed = models
    expected = gradients_of(ordinary, text.padded, False)
    outputs = gradients_of(packed, text.padded, False)
    order = text.padded_order
    assert max(differences(expected, order, outputs, order)) < TOLERANCE
    ids = text.padded["input_ids"]
    embedded = ordinary.bert.embeddings.weight.numpy()[ids]
    for batch in ({"inputs_embeds": embedded}, {"input_ids": ids, "token_type_ids": ids % 2}):
        logits = packed(batch).logits
        np.testing.assert_allclose(logits, ordinary(batch).logits, atol=TOLERANCE)


def test_the_packed_models_weights_are_read_by_the_ordinary_model(models, tmp_path):
    ordinary, packed = models
    packed.save_pretrained(tmp_path)
    loaded, info = TFBertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    for weight, loaded_weight in zip(ordinary.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(weight, loaded_weight)


@pytest.mark.parametrize(("name", "millions"), [("tiny", 4.4), ("mini", 11.3)])
def test_configurations_have_the_published_numbers_of_weights(name, millions):
    # Turc et al., "Well-read students learn better" (https://arxiv.org/abs/1908.08962), table 1;
    # with 30,522 tokens, and the pooler, which ours has not.
    size = CONFIGURATIONS[name]
    model = pretraining_model(size, 30_522)
    weights = model.num_parameters() + size.hidden * (size.hidden + 1)
    assert abs(weights / 1e6 - millions) < 0.05


def test_fresh_weights_are_a_function_of_the_seed():
    model = fresh(seed=2**32 - 1)
    same_seed = fresh(seed=2**32 - 1)
    other_seed = fresh(seed=2)
    triples = zip(model.weights, same_seed.weights, other_seed.weights, strict=True)
    for weight, same_weight, other_weight in triples:
        np.testing.assert_array_equal(weight, same_weight)
        is_embedding = "embeddings" in weight.name and "LayerNorm" not in weight.name
        if "kernel" in weight.name or is_embedding:
            correlation = np.corrcoef(np.ravel(weight), np.ravel(other_weight))[0, 1]
            assert abs(correlation) < 5 / np.sqrt(np.size(weight))
            assert np.abs(weight).max() <= 0.04
            # A normal distribution cut at two deviations has 0.88 of its deviation left.
            assert abs(np.std(weight) / 0.02 - 0.88) < 3 / np.sqrt(np.size(weight))
        else:
            assert set(np.unique(weight)) <= {0.0, 1.0}


def dropped(layer, shape, *where, jit=False):
    def run():
        with dropout_at(*where):
            return layer(tf.ones(shape), training=True)

    return tf.function(run, jit_compile=jit, autograph=False)().numpy()


def test_dropout_is_a_function_of_seed_layer_step_and_row():
    layer, shape = Dropout(0.1, 0), (8, 33, 7)
    values = dropped(layer, shape, 3, 5)
    np.testing.assert_array_equal(values, dropped(layer, shape, 3, 5, jit=True))
    rows = dropped(layer, (3, *shape[1:]), 3, 5, 4)
    np.testing.assert_array_equal(values[4:7], rows)


def test_dropout_drops_its_share_and_keeps_the_mean():
    values = dropped(Dropout(0.1, 0), (64, 4_000), 0, 0)
    deviation = np.sqrt(0.1 * 0.9 / values.size)
    assert np.mean(values == 0) == pytest.approx(0.1, rel=0, abs=5 * deviation)
    np.testing.assert_allclose(values[values > 0], 1 / 0.9, rtol=1e-4)
    ones = tf.ones((2, 3))
    assert Dropout(0.1, 0)(ones) is ones
    assert Dropout(0.0, 0)(ones, training=True) is ones
    with pytest.raises(ValueError, match=r"model\.dropout_at"):
        Dropout(0.1, 0)(ones, training=True)


def test_dropout_has_no_pattern():
    values = np.zeros((3, 3, 40, 30, 20))  # layers and seeds, steps, rows, values
    for kind, (seed, layer_number) in enumerate([(0, 0), (0, 1), (1, 0)]):
        layer = Dropout(0.5, layer_number)
        for step in range(3):
            values[kind, step] = dropped(layer, (40, 30, 20), seed, step)
    signs = np.where(values == 0, 1.0, -1.0)
    for axis in range(5):  # from one layer, seed, step, row or value to the next
        axis_first = np.moveaxis(signs, axis, 0)
        for distance in range(1, min(signs.shape[axis], 9)):
            product = axis_first[distance:] * axis_first[:-distance]
            assert abs(np.mean(product)) < 5 / np.sqrt(product.size), (axis, distance)
