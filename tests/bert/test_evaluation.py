"""Evaluation against slow references: a bootstrap by hand, the model's own loss."""

import math

import numpy as np
import pytest
import tensorflow as tf
from packed_text import CLS, SEP, some_documents
from runs import NANO

from helpers.base.errors import CourseError
from helpers.bert import evaluation
from helpers.bert.data import read
from helpers.bert.model import pretraining_model
from helpers.bert.ngram import fit_ngram
from helpers.bert.step import loss_sum
from helpers.text import corpus, masking, records

pytestmark = pytest.mark.slow

MASKS = masking.Masking(60, 4, (0, 1, 2, 3, 4), 5)


@pytest.fixture(scope="module")
def model():
    return pretraining_model(NANO, 60, longest=32, dropout=0.5, seed=1)


# Masks.


# With [PAD]'s id as an ordinary token's, too: padding is never masked.
@pytest.mark.parametrize("special", [(0, 1, 2, 3, 4), (1, 2, 3, 4)])
def test_masks_are_fixed_and_hold_the_documents(special):
    documents, masks = some_documents(20), masking.Masking(60, 4, special, 5)
    one, again = (evaluation.fix_masks(documents, masks, 16) for _ in range(2))
    for name, values in one.batch.items():
        np.testing.assert_array_equal(values, again.batch[name])
    ids, mask = one.batch["input_ids"], one.batch["attention_mask"]
    left, right = one.neighbours()
    restored = ids.copy()
    for row, number in zip(*np.nonzero(one.batch["masked_weights"]), strict=True):
        at = one.batch["masked_positions"][row, number]
        restored[row, at] = one.batch["masked_ids"][row, number]
        assert ids[row, at] == 4  # [MASK], where training leaves one in ten as it stands
        assert mask[row, at] and left[row, number] == ids[row, at - 1]
        assert at == 15 or right[row, number] == ids[row, at + 1]
    for row, document in enumerate(documents):
        size = min(16, len(document))
        assert restored[row, :size].tolist() == document[:16]
        assert mask[row].sum() == size
        assert one.batch["position_ids"][row, :size].tolist() == list(range(size))
    assert one.tokens == one.batch["masked_weights"].sum() > 20
    other = evaluation.fix_masks(documents, masks, 16, seed=1)
    assert (one.batch["masked_positions"] != other.batch["masked_positions"]).any()


@pytest.mark.parametrize("documents", [[], [[CLS, SEP]], [[CLS, 1, SEP]]])
def test_nothing_held_out_is_told(documents):
    with pytest.raises(CourseError, match=f"Of {len(documents)} held-out documents"):
        evaluation.fix_masks(documents, MASKS, 16)


# Scores.


def test_a_mean_has_an_interval_over_documents():
    draw = np.random.default_rng(3)
    weights = (np.arange(6) < draw.integers(1, 7, (40, 1))).astype(float)
    losses = draw.exponential(2, (40, 1)) + draw.random((40, 6))
    loss, interval = evaluation.mean(losses, weights)
    assert math.isclose(loss, np.average(losses, weights=weights))
    # A bootstrap by hand, with other draws: the same interval, up to the draws.
    means = []
    for _ in range(4000):
        rows = draw.integers(0, 40, 40)
        means.append(np.average(losses[rows], weights=weights[rows]))
    np.testing.assert_allclose(interval, np.quantile(means, [0.025, 0.975]), rtol=0.05)
    # Tokens of a document are alike here: drawing them by themselves would promise too much.
    alone = [draw.choice(losses[weights > 0], int(weights.sum())).mean() for _ in range(1000)]
    low, high = interval
    assert high - low > 1.3 * np.diff(np.quantile(alone, [0.025, 0.975]))[0]
    assert (
        evaluation.mean(losses[:1], weights[:1])[1]
        == (np.average(losses[0], weights=weights[0]),) * 2
    )


# All together.


def test_evaluate_gives_the_models_own_loss_and_the_baselines(model):
    documents = {"a": some_documents(37, 1), "b": some_documents(45, 2)}
    held_out = {name: evaluation.fix_masks(some, MASKS, 32) for name, some in documents.items()}
    ngrams = {name: fit_ngram(some_documents(50, 3), 60) for name in documents}
    found = evaluation.evaluate(model, held_out, ngrams)
    for name, fixed in held_out.items():
        batch = {key: tf.constant(values) for key, values in fixed.batch.items()}
        expected = float(loss_sum(model, batch) / fixed.tokens)
        scores = found.scores[name]
        assert abs(scores["BERT"].loss - expected) < 1e-4
        assert math.isclose(scores["uniform"].loss, math.log(60))
        assert math.isclose(scores["uniform"].accuracy, 1 / 60)
        labels, where = fixed.batch["masked_ids"], fixed.batch["masked_weights"] > 0
        unigram = ngrams[name].unigram
        assert math.isclose(scores["unigram"].loss, -np.log(unigram[labels[where]]).mean())
        left, right = fixed.neighbours()
        triples = zip(left[where], labels[where], right[where], strict=True)
        guessed = [np.log(ngrams[name].chances(a, c)[b]) for a, b, c in triples]
        assert math.isclose(scores["n-gram"].loss, -np.mean(guessed))
    lines = found.markdown().splitlines()
    assert lines[0].startswith("| text | guessed by | loss") and len(lines) == 2 + 8


@pytest.fixture(scope="module")
def small():
    return pretraining_model(NANO, 3000, longest=64)


def test_held_out_records_are_evaluated(small, data, tmp_path):
    data = read(data)
    tokenizer = corpus.load_tokenizer()
    records.write(["문서를 저장합니다. Save it."] * 20, tmp_path / "held", tokenizer, shards=1)
    found = evaluation.evaluate_records(small, data, tmp_path / "held")
    assert list(found.scores) == ["held-out"]
    assert found.scores["held-out"]["n-gram"].loss < found.scores["held-out"]["uniform"].loss
    other = corpus.train_tokenizer(["the same words again and again"] * 9, 40)
    records.write(["again and again"] * 20, tmp_path / "other", other, shards=1)
    with pytest.raises(CourseError, match="another tokenizer than the training's"):
        evaluation.evaluate_records(small, data, tmp_path / "other")
