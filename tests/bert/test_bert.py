import numpy as np
import pytest
import tensorflow as tf
from transformers import BertConfig, TFBertForMaskedLM, TFBertForPreTraining

from helpers.bert import model as bert
from helpers.bert.model import CausalModel, TFPackedBertForMaskedLM, WrongMask
from helpers.text import buckets

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


def test_chosen_places_alone_get_what_all_get(models):
    _, packed = models
    text = Text(8)
    batch = {k: v for k, v in text.packed.items() if k != "labels"}
    draw = np.random.default_rng(0)
    chosen = draw.integers(0, LENGTH, (len(batch["input_ids"]), 9), dtype=np.int32)
    everywhere = packed.bert(**batch)[0].numpy()
    got = packed.bert.encode_chosen(chosen, training=False, **batch)
    expected = np.take_along_axis(everywhere, chosen[..., None], axis=1)
    np.testing.assert_allclose(got, expected, atol=TOLERANCE)
    batch["attention_mask"] = batch["attention_mask"][0]
    with pytest.raises(WrongMask, match="one number per place"):
        packed.bert.encode_chosen(chosen, training=False, **batch)


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


# Pretraining: the model, its losses and its step, each against a plain reference.


SMALL = bert.Configuration(2, 32, 2)


def masked_places(batch, predictions, seed=0):
    """Mark masked places in both ways: a list of them, and labels at every place."""
    draw = np.random.default_rng(seed)
    rows, places = batch["input_ids"].shape
    at = np.stack([draw.permutation(places)[:predictions] for _ in range(rows)]).astype(np.int32)
    ids = draw.integers(5, VOCABULARY, at.shape, dtype=np.int32)
    real = np.take_along_axis(batch["attention_mask"], at, axis=1) > 0
    weights = (real & (draw.random(at.shape) < 0.7)).astype(np.float32)
    labels = np.full((rows, places), -100, np.int32)
    np.put_along_axis(labels, at, np.where(weights > 0, ids, -100), axis=1)
    listed = {"masked_positions": at, "masked_ids": ids, "masked_weights": weights}
    inputs = {k: v for k, v in batch.items() if k != "labels"}
    return {**inputs, "labels": labels}, {**inputs, **listed}


@pytest.mark.parametrize("layout", ["alone", "packed"])
@pytest.mark.parametrize("jit", [False, True])
def test_scores_at_the_masked_places_alone_give_the_same_loss_and_gradients(models, layout, jit):
    model = models[1]
    text = Text(6)
    batch = dict(getattr(text, layout))
    batch.setdefault("position_ids", np.tile(np.arange(LENGTH, dtype=np.int32), (40, 1)))
    everywhere, listed = masked_places(batch, 10)

    def masked_head():
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(bert.losses(model, listed) / bert.counts(listed))
        gradients = tape.gradient(total, model.trainable_variables)
        return total, [tf.convert_to_tensor(gradient) for gradient in gradients]

    _, loss, gradients = step(model, everywhere, jit)
    total, own = tf.function(masked_head, jit_compile=jit, autograph=False)()
    assert abs(float(total) - loss) < 1e-5
    for expected, gradient in zip(gradients.values(), own, strict=True):
        np.testing.assert_allclose(gradient, expected, atol=1e-6)
    assert bert.masked_scores(model, listed).shape == (len(text.packed["labels"]), 10, 500) or (
        layout == "alone"
    )


def test_both_heads_give_the_loss_of_hugging_faces_pretraining_model(tmp_path):
    ordinary = TFBertForPreTraining(config())
    ordinary.build_in_name_scope()
    ordinary.save_pretrained(tmp_path)
    packed = bert.TFPackedBertForPreTraining.from_pretrained(tmp_path)
    text = Text(7)
    rows = len(text.alone["input_ids"])
    everywhere, listed = masked_places(dict(text.alone), 10)
    types = (np.cumsum(text.alone["attention_mask"], 1) > 4).astype(np.int32)
    label = np.random.default_rng(0).integers(0, 2, rows).astype(np.int32)
    expected = ordinary({**everywhere, "token_type_ids": types}, next_sentence_label=label).loss
    pairs = {
        "token_type_ids": types,
        "pair_positions": np.zeros((rows, 2), np.int32),
        "pair_labels": np.stack([label, 1 - label], 1),
        "pair_weights": np.tile(np.float32([1, 0]), (rows, 1)),
    }
    listed = listed | pairs
    got = tf.reduce_sum(bert.losses(packed, listed) / bert.counts(listed))
    np.testing.assert_allclose(got, expected[0], atol=1e-5)
    np.testing.assert_array_equal(bert.counts(listed)[1], rows)
    first = [model(text.alone).seq_relationship_logits for model in (ordinary, packed)]
    np.testing.assert_allclose(*first, atol=TOLERANCE)


def test_every_pair_of_a_packed_row_is_judged():
    model = bert.pretraining_model(SMALL, VOCABULARY, longest=LENGTH, next_sentence=True)
    tokens = np.random.default_rng(0).integers(5, VOCABULARY, (2, 8)).astype(np.int32)

    def loss(ids, segments, positions, first):
        shape = np.zeros((len(ids), 1))
        batch = {"input_ids": ids, "attention_mask": segments, "position_ids": positions}
        batch |= {"masked_positions": shape.astype(np.int32), "masked_ids": shape.astype(np.int32)}
        batch |= {"masked_weights": shape.astype(np.float32), "pair_positions": np.int32(first)}
        batch |= {"pair_labels": np.ones_like(np.int32(first))}
        return bert.losses(model, batch | {"pair_weights": np.ones(np.shape(first), np.float32)})[1]

    places = np.arange(8, dtype=np.int32)[None]
    alone = loss(tokens, np.ones_like(tokens), np.repeat(places, 2, 0), [[0], [0]])
    segments = np.repeat([[1, 2]], 8, 1).astype(np.int32)
    together = loss(tokens.reshape(1, -1), segments, np.tile(places, 2), [[0, 8]])
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_configurations_have_the_published_numbers_of_weights():
    # Turc et al., "Well-read students learn better" (https://arxiv.org/abs/1908.08962), table 1;
    # with 30,522 tokens, and the pooler, which a model without the second head has not.
    for name, millions in (("tiny", 4.4), ("mini", 11.3), ("small", 29.1)):
        size = bert.configuration(name)
        model = bert.pretraining_model(size, 30_522)
        pooler = size.hidden * (size.hidden + 1)
        weights = sum(int(np.prod(w.shape)) for w in model.trainable_variables)
        assert abs((weights + pooler) / 1e6 - millions) < 0.05
    base = bert.configuration("base")
    assert (base.layers, base.hidden, base.heads) == (12, 768, 12)
    with pytest.raises(bert.UnknownConfiguration, match="tiny, mini, small, base"):
        bert.configuration("large")


def test_fresh_weights_are_a_function_of_the_seed():
    one, again, other = (
        bert.pretraining_model(SMALL, VOCABULARY, longest=LENGTH, seed=seed) for seed in (1, 1, 2)
    )
    for a, b, c in zip(one.weights, again.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)
        if "kernel" in a.name or ("embeddings" in a.name and "LayerNorm" not in a.name):
            related = np.corrcoef(np.ravel(a), np.ravel(c))[0, 1]
            assert abs(related) < 5 / np.sqrt(np.size(a)) and np.abs(a).max() <= 0.04
            # A normal distribution cut at two deviations has 0.88 of its deviation left.
            assert abs(np.std(a) / 0.02 - 0.88) < 3 / np.sqrt(np.size(a))
        else:
            assert set(np.unique(a)) <= {0.0, 1.0}


# Dropout.


def dropped(layer, shape, *where, jit=False):
    def run():
        with bert.place(*where):
            return layer(tf.ones(shape), training=True)

    return tf.function(run, jit_compile=jit, autograph=False)().numpy()


def test_dropout_is_a_function_of_seed_layer_step_and_row():
    layer, other = bert.Dropout(0.1, 0), bert.Dropout(0.1, 1)
    shape = (8, 33, 7)
    first = dropped(layer, shape, 3, 5)
    np.testing.assert_array_equal(first, dropped(layer, shape, 3, 5, jit=True))
    rows = dropped(layer, (3, *shape[1:]), 3, 5, 4)
    np.testing.assert_array_equal(first[4:7], rows)
    for differs in (
        dropped(layer, shape, 3, 6),
        dropped(layer, shape, 4, 5),
        dropped(other, shape, 3, 5),
        dropped(layer, shape, 3, 5, 8),
    ):
        both = np.mean((first == 0) & (differs == 0))
        assert 0.002 < both < 0.03  # 0.01 expected: no relation


def test_dropout_drops_its_share_and_keeps_the_mean():
    for rate in (0.1, 0.5):
        out = dropped(bert.Dropout(rate, 0), (64, 4_000), 0, 0)
        share = np.mean(out == 0)
        assert abs(share - rate) < 5 * np.sqrt(rate * (1 - rate) / out.size)
        np.testing.assert_allclose(out[out > 0], 1 / (1 - rate), rtol=1e-4)
    ones = tf.ones((2, 3))
    assert bert.Dropout(0.1, 0)(ones) is ones
    assert bert.Dropout(0.0, 0)(ones, training=True) is ones


def test_dropout_has_no_pattern():
    shape = (40, 30, 20)
    masks = np.stack(
        [
            [dropped(bert.Dropout(0.5, number), shape, seed, step) == 0 for step in range(3)]
            for seed, number in ((0, 0), (0, 1), (1, 0))
        ]
    )
    signs = np.where(masks, 1.0, -1.0)  # [layers and seeds, steps, rows, 30, 20]
    for axis in range(5):  # from one layer, seed, step, row or value to the next
        for far in range(1, min(signs.shape[axis], 9)):
            along = np.moveaxis(signs, axis, 0)
            product = along[far:] * along[:-far]
            assert abs(np.mean(product)) < 5 / np.sqrt(product.size), (axis, far)
    # As many dropped in each row, column and step as chance has it.
    for axes in ((2,), (3,), (4,), (3, 4), (0, 1), (0, 2, 3, 4)):
        share = masks.mean(axes)
        expected = 0.25 / (masks.size / share.size)
        assert abs(share.var() / expected - 1) < 5 * np.sqrt(2 / share.size), axes
    # All patterns of eight neighbours are as frequent.
    patterns = np.packbits(masks.reshape(-1, 8), axis=1)
    counts = np.bincount(patterns.ravel(), minlength=256)
    expected = len(patterns) / 256
    assert abs(((counts - expected) ** 2 / expected).sum() - 255) < 5 * np.sqrt(2 * 255)


def test_dropout_that_does_not_know_the_step_is_refused():
    model = bert.pretraining_model(SMALL, VOCABULARY, longest=LENGTH)
    ids = np.ones((2, 8), np.int32)
    with pytest.raises(bert.DropoutWithoutPlace, match=r"bert\.place"):
        model(ids, training=True)
    with bert.place(0, 0):
        a = model(ids, training=True).logits
    assert not np.allclose(a, model(ids).logits)


# Optimizer.


def test_the_learning_rate_rises_and_falls_in_straight_lines():
    rates = [float(bert.WarmUpLinearDecay(8.0, 4, 12)(step)) for step in range(14)]
    assert rates[:4] == [2, 4, 6, 8]
    np.testing.assert_allclose(rates[3:], np.maximum(8 * (12 - np.arange(3, 14)) / 9, 0), rtol=1e-6)
    one = bert.WarmUpLinearDecay(8.0, 1, 1)
    assert float(one(0)) == 8.0 and one.get_config() == {"peak": 8.0, "warm_up": 1, "steps": 1}


def reference_adamw(weight, gradients, rates, decay):
    m = v = 0.0
    for at, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        weight = weight - rate * decay * weight
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        # Epsilon as in Kingma & Ba's section 2: before the bias of v is corrected.
        weight = weight - rate * np.sqrt(1 - 0.999**at) / (1 - 0.9**at) * m / (np.sqrt(v) + 1e-6)
    return weight


def test_adamw_decays_weights_and_neither_biases_nor_layer_norms():
    model = bert.pretraining_model(SMALL, VOCABULARY, longest=LENGTH)
    optimizer = bert.adamw(model, bert.WarmUpLinearDecay(0.1, 2, 5), weight_decay=0.5)
    before = [weight.numpy() for weight in model.trainable_variables]
    draw = np.random.default_rng(0)
    steps = [[draw.normal(size=w.shape).astype(np.float32) for w in before] for _ in range(3)]
    for gradients in steps:
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    rates = [0.05, 0.1, 0.075]
    decayed = 0
    for at, weight in enumerate(model.trainable_variables):
        decay = 0.0 if "bias" in weight.name or "LayerNorm" in weight.name else 0.5
        decayed += decay > 0
        own = [gradients[at].astype(float) for gradients in steps]
        expected = reference_adamw(before[at].astype(float), own, rates, decay)
        np.testing.assert_allclose(weight, expected, atol=1e-5)
    assert 0 < decayed < len(before) / 2


# The step.


def numbered_batches(rows=8, places=16, predictions=3, seed=0):
    draw = np.random.default_rng(seed)
    while True:
        ids = draw.integers(5, VOCABULARY, (rows, places), dtype=np.int32)
        batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        batch["attention_mask"][:, -2:] = 0
        batch["position_ids"] = np.tile(np.arange(places, dtype=np.int32), (rows, 1))
        _, listed = masked_places(batch, predictions, draw.integers(1000))
        yield listed


def trained(steps=3, jit=False, accumulate=1, clip_norm=1.0, dropout=0.1):
    """Losses, norms and weights after some steps."""
    model = bert.pretraining_model(SMALL, VOCABULARY, longest=16, dropout=dropout)
    optimizer = bert.adamw(model, 1e-3)
    own = bert.training_step(
        model, optimizer, accumulate=accumulate, clip_norm=clip_norm, jit=jit, seed=9
    )
    run = bert.steps_function(tf.distribute.get_strategy(), own)
    spec = {k: tf.TensorSpec(v.shape, v.dtype) for k, v in next(numbered_batches()).items()}
    data = tf.data.Dataset.from_generator(numbered_batches, output_signature=spec)
    outcome = run(iter(data), 0, steps)
    return outcome, model


def test_a_step_is_the_plain_one(monkeypatch):
    outcome, model = trained(dropout=0.0, clip_norm=0.7)
    plain = bert.pretraining_model(SMALL, VOCABULARY, longest=16, dropout=0.0)
    optimizer = bert.adamw(plain, 1e-3)
    optimizer.global_clipnorm = 0.7
    for at, batch in zip(range(3), numbered_batches(), strict=False):
        with tf.GradientTape() as tape:
            scores = bert.masked_scores(plain, batch)
            entropy = tf.keras.losses.sparse_categorical_crossentropy(
                batch["masked_ids"], scores, from_logits=True
            )
            weights = batch["masked_weights"]
            loss = tf.reduce_sum(entropy * weights) / tf.reduce_sum(weights)
        gradients = tape.gradient(loss, plain.trainable_variables)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        np.testing.assert_allclose(outcome.loss[at], loss, rtol=1e-5)
        norm = np.sqrt(sum(np.square(gradient).sum() for gradient in gradients))
        np.testing.assert_allclose(outcome.norm[at], norm, rtol=1e-4)
        assert norm > 0.7 and outcome.tokens[at] == 8 * 14
        optimizer.apply_gradients(zip(gradients, plain.trainable_variables, strict=True))
    for a, b in zip(model.trainable_variables, plain.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("options", [{"accumulate": 4}, {"jit": True}])
def test_accumulated_or_compiled_the_step_is_the_same_dropout_too(options):
    (expected, model), (got, other) = trained(), trained(**options)
    np.testing.assert_allclose(got.loss, expected.loss, rtol=1e-5)
    np.testing.assert_allclose(got.norm, expected.norm, rtol=1e-4)
    for a, b in zip(model.trainable_variables, other.trainable_variables, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_rows_that_can_not_be_accumulated_are_refused():
    with pytest.raises(bert.CantSplit, match="8 rows on each replica"):
        trained(accumulate=3)


def test_a_batch_without_a_masked_token_changes_nothing_to_no_number():
    model = bert.pretraining_model(SMALL, VOCABULARY, longest=16)
    batch = next(numbered_batches())
    batch["masked_weights"] = np.zeros_like(batch["masked_weights"])
    own = bert.training_step(model, bert.adamw(model, 1e-3), jit=False)
    loss, norm, _ = own(batch, tf.constant(0, tf.int64), tf.constant(0, tf.int64))
    assert float(loss) == 0.0 and float(norm) == 0.0
    assert all(np.isfinite(weight).all() for weight in model.weights)


def test_in_bfloat16_weights_stay_float32_and_the_loss_is_near():
    batch = next(numbered_batches())
    values = []
    for precision in ("float32", "mixed_bfloat16"):
        model = bert.pretraining_model(SMALL, VOCABULARY, longest=16, precision=precision)
        assert {weight.dtype for weight in model.weights} == {tf.float32}
        hidden = model.bert(batch["input_ids"])[0]
        assert hidden.dtype == (tf.float32 if precision == "float32" else tf.bfloat16)
        own = bert.training_step(model, bert.adamw(model, 1e-3), jit=False)
        values.append(own(batch, tf.constant(0, tf.int64), tf.constant(0, tf.int64))[:2])
    assert tf.keras.mixed_precision.global_policy().name == "float32"
    np.testing.assert_allclose(values[1], values[0], rtol=0.02)
    assert values[0][0].dtype == values[1][0].dtype == tf.float32
