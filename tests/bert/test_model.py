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


def differences(orders, one, other):
    """Largest difference of the tokens' logits, of the loss and of the gradients."""
    (logits, loss, gradients), (logits_2, loss_2, gradients_2) = one, other
    assert gradients.keys() == gradients_2.keys()
    tokens, tokens_2 = (
        np.reshape(each, [-1, VOCABULARY])[order]
        for each, order in zip((logits, logits_2), orders, strict=True)
    )
    return (
        np.abs(tokens - tokens_2).max(),
        abs(loss - loss_2),
        max(np.abs(gradient - gradients_2[name]).max() for name, gradient in gradients.items()),
    )


@pytest.mark.long
@pytest.mark.parametrize(("seed", "jit"), [(0, False), (1, True)])
def test_a_packed_row_gives_what_rows_of_one_sequence_give(models, seed, jit):
    ordinary, packed = models
    text = Text(seed)
    expected = gradients_of(ordinary, text.alone, jit)
    assert np.std(expected[0]) > 0.5 and np.abs(next(iter(expected[2].values()))).max() > 1e-3
    got = gradients_of(packed, text.packed, jit)
    assert max(differences(text.orders, expected, got)) < TOLERANCE

    if jit:  # XLA compiles a minute; what is wrong is wrong without it
        return
    inputs = {name: values for name, values in text.packed.items() if name != "labels"}
    chosen = np.random.default_rng(0).integers(0, 2 * LENGTH, (len(inputs["input_ids"]), 10))
    states = tf.gather(packed.bert(**inputs)[0], chosen, batch_dims=1)
    own = packed.bert.encode_chosen(chosen, training=False, **inputs)
    np.testing.assert_allclose(own, states, atol=TOLERANCE)
    no_mask = text.packed | {"attention_mask": np.minimum(text.packed["attention_mask"], 1)}
    along = np.arange(2 * LENGTH, dtype=np.int32) % LENGTH
    not_restarted = text.packed | {"position_ids": np.tile(along, (len(no_mask["labels"]), 1))}
    for wrong in (no_mask, not_restarted):
        got = gradients_of(packed, wrong, jit)
        assert min(differences(text.orders, expected, got)) > 10 * TOLERANCE


def test_ordinary_batches_give_what_the_ordinary_model_gives(models):
    text = Text(3)
    want, got = (gradients_of(model, text.alone, False) for model in models)
    assert max(differences(text.orders[:1] * 2, want, got)) < TOLERANCE
    ids = text.alone["input_ids"]
    embedded = models[0].bert.embeddings.weight.numpy()[ids]
    for batch in ({"inputs_embeds": embedded}, {"input_ids": ids, "token_type_ids": ids % 2}):
        want, got = (model(batch).logits for model in models)
        np.testing.assert_allclose(got, want, atol=TOLERANCE)


def test_the_packed_models_weights_are_read_by_the_ordinary_model(models, tmp_path):
    ordinary, packed = models
    packed.save_pretrained(tmp_path)
    back, info = TFBertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    for a, b in zip(ordinary.weights, back.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("name", "millions"), [("tiny", 4.4), ("mini", 11.3)])
def test_configurations_have_the_published_numbers_of_weights(name, millions):
    # Turc et al., "Well-read students learn better" (https://arxiv.org/abs/1908.08962), table 1;
    # with 30,522 tokens, and the pooler, which ours has not.
    size = CONFIGURATIONS[name]
    model = pretraining_model(size, 30_522)
    weights = model.num_parameters() + size.hidden * (size.hidden + 1)
    assert abs(weights / 1e6 - millions) < 0.05


def test_fresh_weights_are_a_function_of_the_seed():
    one, again, other = (fresh(seed=seed) for seed in (2**32 - 1, 2**32 - 1, 2))
    for a, b, c in zip(one.weights, again.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)
        if "kernel" in a.name or ("embeddings" in a.name and "LayerNorm" not in a.name):
            related = np.corrcoef(np.ravel(a), np.ravel(c))[0, 1]
            assert abs(related) < 5 / np.sqrt(np.size(a)) and np.abs(a).max() <= 0.04
            # A normal distribution cut at two deviations has 0.88 of its deviation left.
            assert abs(np.std(a) / 0.02 - 0.88) < 3 / np.sqrt(np.size(a))
        else:
            assert set(np.unique(a)) <= {0.0, 1.0}


def dropped(layer, shape, *where, jit=False):
    def run():
        with dropout_at(*where):
            return layer(tf.ones(shape), training=True)

    return tf.function(run, jit_compile=jit, autograph=False)().numpy()


def test_dropout_is_a_function_of_seed_layer_step_and_row():
    layer, shape = Dropout(0.1, 0), (8, 33, 7)
    first = dropped(layer, shape, 3, 5)
    np.testing.assert_array_equal(first, dropped(layer, shape, 3, 5, jit=True))
    rows = dropped(layer, (3, *shape[1:]), 3, 5, 4)
    np.testing.assert_array_equal(first[4:7], rows)


def test_dropout_drops_its_share_and_keeps_the_mean():
    out = dropped(Dropout(0.1, 0), (64, 4_000), 0, 0)
    assert abs(np.mean(out == 0) - 0.1) < 5 * np.sqrt(0.1 * 0.9 / out.size)
    np.testing.assert_allclose(out[out > 0], 1 / 0.9, rtol=1e-4)
    ones = tf.ones((2, 3))
    assert Dropout(0.1, 0)(ones) is ones and Dropout(0.0, 0)(ones, training=True) is ones
    with pytest.raises(ValueError, match=r"model\.dropout_at"):
        Dropout(0.1, 0)(ones, training=True)


def test_dropout_has_no_pattern():
    kinds = ((0, Dropout(0.5, 0)), (0, Dropout(0.5, 1)), (1, Dropout(0.5, 0)))
    drawn = [
        [dropped(layer, (40, 30, 20), seed, step) for step in range(3)] for seed, layer in kinds
    ]
    signs = np.where(np.equal(drawn, 0), 1.0, -1.0)  # [layers and seeds, steps, rows, 30, 20]
    for axis in range(5):  # from one layer, seed, step, row or value to the next
        for far in range(1, min(signs.shape[axis], 9)):
            along = np.moveaxis(signs, axis, 0)
            product = along[far:] * along[:-far]
            assert abs(np.mean(product)) < 5 / np.sqrt(product.size), (axis, far)
