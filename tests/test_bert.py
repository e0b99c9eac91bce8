import numpy as np
import pytest
import tensorflow as tf
from transformers import BertConfig, TFBertForMaskedLM

from helpers import buckets
from helpers.bert import CausalModel, TFPackedBertForMaskedLM, WrongMask

VOCABULARY = 500
LENGTH = 64
TOLERANCE = 1e-4


def config(**options):
    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=LENGTH,
        initializer_range=0.15,  # larger than usual: logits of the size that training gives
        **options,
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """An ordinary BERT, and a packed one with its weights, read from its files."""
    tf.keras.utils.set_random_seed(1)
    folder = tmp_path_factory.mktemp("bert")
    ordinary = TFBertForMaskedLM(config())
    ordinary(np.ones((1, 4), np.int32))
    ordinary.save_pretrained(folder)
    return ordinary, TFPackedBertForMaskedLM.from_pretrained(folder)


class Text:
    """The same sequences, one per row and packed."""

    def __init__(self, seed, count=40):
        draw = np.random.default_rng(seed)
        lengths = np.minimum(draw.geometric(1 / 16, count) + 2, LENGTH)
        tokens = draw.integers(5, VOCABULARY, lengths.sum(), dtype=np.int32)
        chosen = draw.random(lengths.sum()) < 0.15
        labels = np.where(chosen, tokens, -100).astype(np.int32)
        starts = np.cumsum(lengths) - lengths
        alone = np.zeros((3, count, LENGTH), np.int32)
        alone[2] = -100
        for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            for table, values in zip(alone, (tokens, np.ones_like(tokens), labels), strict=True):
                table[row, :length] = values[start : start + length]
        self.alone = dict(zip(("input_ids", "attention_mask", "labels"), alone, strict=True))
        packing = buckets.pack(lengths, LENGTH)
        assert max(len(row) for row in packing.rows) > 2
        self.packed = {
            "input_ids": packing.lay_out(tokens),
            "attention_mask": packing.segment_ids(),
            "position_ids": packing.position_ids(),
            "labels": packing.lay_out(labels, -100),
        }
        self._place = packing.lay_out(np.arange(len(tokens)), -1)

    def of_tokens(self, values):
        """Put what was computed in one of the layouts into the tokens' order."""
        values = np.asarray(values)
        if len(values) == len(self.alone["input_ids"]):
            return values[self.alone["attention_mask"] > 0]
        filled = self._place >= 0
        return values[filled][np.argsort(self._place[filled])]


def step(model, batch, jit):
    """Logits, loss and gradients by the name of their weights."""

    def run():
        with tf.GradientTape() as tape:
            out = model(batch)
        gradients = tape.gradient(out.loss, model.trainable_variables)
        return out.logits, out.loss, [tf.convert_to_tensor(g) for g in gradients]

    logits, loss, gradients = tf.function(run, jit_compile=jit)()
    names = [weight.name.partition("/")[2] for weight in model.trainable_variables]
    assert len(set(names)) == len(names)
    return logits, float(tf.reduce_mean(loss)), dict(zip(names, gradients, strict=True))


def differences(text, one, other):
    """Largest difference of the tokens' logits, of the loss and of the gradients."""
    (logits, loss, gradients), (logits_2, loss_2, gradients_2) = one, other
    assert gradients.keys() == gradients_2.keys()
    return (
        np.abs(text.of_tokens(logits) - text.of_tokens(logits_2)).max(),
        abs(loss - loss_2),
        max(np.abs(gradient - gradients_2[name]).max() for name, gradient in gradients.items()),
    )


@pytest.mark.parametrize(("seed", "jit"), [(0, False), (0, True), (1, False), (2, False)])
def test_a_packed_row_gives_what_rows_of_one_sequence_give(models, seed, jit):
    ordinary, packed = models
    text = Text(seed)
    expected = step(ordinary, text.alone, jit)
    assert np.std(expected[0]) > 0.5 and np.abs(next(iter(expected[2].values()))).max() > 1e-3
    got = step(packed, text.packed, jit)
    assert len(text.packed["input_ids"]) < len(text.alone["input_ids"])
    assert max(differences(text, expected, got)) < TOLERANCE

    no_mask = text.packed | {"attention_mask": np.minimum(text.packed["attention_mask"], 1)}
    not_restarted = {k: v for k, v in text.packed.items() if k != "position_ids"}
    for wrong in (no_mask, not_restarted):
        assert min(differences(text, expected, step(packed, wrong, jit))) > 10 * TOLERANCE


def test_ordinary_batches_give_what_the_ordinary_model_gives(models):
    ordinary, packed = models
    text = Text(3)
    assert max(differences(text, *(step(m, text.alone, False) for m in models))) < TOLERANCE
    ids = text.alone["input_ids"]
    np.testing.assert_allclose(packed(ids).logits, ordinary(ids).logits, atol=TOLERANCE)
    embedded = ordinary.bert.embeddings.weight.numpy()[ids]
    types = ids % 2
    for batch in (
        {"inputs_embeds": embedded},
        {"input_ids": ids, "token_type_ids": types, "output_attentions": True},
        {"input_ids": ids, "output_hidden_states": True, "return_dict": False},
    ):
        want, got = (tf.nest.flatten(model(batch)) for model in (ordinary, packed))
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(a, b, atol=TOLERANCE)


def test_weights_go_both_ways(models, tmp_path):
    ordinary, packed = models
    text = Text(4)
    packed.save_pretrained(tmp_path)
    for kind in (TFBertForMaskedLM, TFPackedBertForMaskedLM):
        back, info = kind.from_pretrained(tmp_path, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"]
        for a, b in zip(ordinary.weights, back.weights, strict=True):
            np.testing.assert_array_equal(a, b)
        batch = {k: v[:2] for k, v in text.alone.items()}
        kept = batch["attention_mask"] > 0
        got = back(batch).logits.numpy()[kept]
        np.testing.assert_allclose(got, ordinary(batch).logits.numpy()[kept], atol=TOLERANCE)


def test_rows_may_be_longer_than_the_longest_sequence(models):
    _, packed = models
    tokens = np.random.default_rng(5).integers(5, VOCABULARY, (3, LENGTH)).astype(np.int32)
    row = {
        "input_ids": tokens.reshape(1, -1),
        "attention_mask": np.repeat([[1, 2, 3]], LENGTH, axis=1).astype(np.int32),
        "position_ids": np.tile(np.arange(LENGTH, dtype=np.int32), 3)[None],
    }
    together = packed(row).logits.numpy().reshape(3, LENGTH, VOCABULARY)
    np.testing.assert_allclose(together, packed(tokens).logits, atol=TOLERANCE)


def test_fit_takes_packed_batches_and_learns():
    tf.keras.utils.set_random_seed(0)
    draw = np.random.default_rng(0)
    lengths = draw.integers(3, 32, 100)
    tokens = draw.integers(5, 15, lengths.sum(), dtype=np.int32)
    dataset = tf.data.Dataset.from_tensor_slices(tf.RaggedTensor.from_row_lengths(tokens, lengths))
    batches = buckets.packed(dataset, 32, global_batch_size=8, remainder="pad")
    model = TFPackedBertForMaskedLM(config())
    model.compile(optimizer=tf.keras.optimizers.Adam(1e-3), jit_compile=True)
    losses = model.fit(batches.dataset, epochs=5, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0] / 2


def test_rows_of_padding_alone_are_numbers(models):
    _, packed = models
    empty = np.zeros((2, LENGTH), np.int32)
    logits = packed(input_ids=empty, attention_mask=empty, position_ids=empty).logits
    assert np.isfinite(logits).all()


def test_in_bfloat16_other_sequences_stay_out():
    tokens = np.full((1, LENGTH), 7, np.int32)
    half = np.repeat([[1, 2]], LENGTH // 2, axis=1).astype(np.int32)
    changed = np.where(half == 2, 9, tokens)
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = TFPackedBertForMaskedLM(config())
        first, second = (model(input_ids=x, attention_mask=half).logits for x in (tokens, changed))
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    same = np.all(first.numpy() == second.numpy(), axis=-1)[0]
    assert same[: LENGTH // 2].all() and not same[LENGTH // 2 :].any()


@pytest.mark.parametrize("shape", [(2, LENGTH, LENGTH), (2, 1, 1, LENGTH), (LENGTH,)])
def test_a_mask_of_another_form_has_one_clear_message(models, shape):
    _, packed = models
    ids = np.ones((2, LENGTH), np.int32)
    with pytest.raises(WrongMask, match="one number per place") as raised:
        packed(input_ids=ids, attention_mask=np.ones(shape, np.int32))
    assert str(shape) in str(raised.value) and "buckets.packed" in raised.value.fix


def test_what_the_model_cannot_do_is_refused(models):
    _, packed = models
    with pytest.raises(CausalModel, match="is_decoder=False"):
        TFPackedBertForMaskedLM(config(is_decoder=True))
    with pytest.raises(NotImplementedError, match="head_mask"):
        packed(input_ids=np.ones((1, 4), np.int32), head_mask=np.ones(4, np.float32))
