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
    for name, values in one.items():
        np.testing.assert_array_equal(values, again[name])
    ids, mask = one["input_ids"], one["attention_mask"]
    restored = ids.copy()
    for row, number in zip(*np.nonzero(one["masked_weights"]), strict=True):
        at = one["masked_positions"][row, number]
        restored[row, at] = one["masked_ids"][row, number]
        assert ids[row, at] == 4  # [MASK], where training leaves one in ten as it stands
        assert mask[row, at]
    for row, document in enumerate(documents):
        size = min(16, len(document))
        assert restored[row, :size].tolist() == document[:16]
        assert mask[row].sum() == size
        assert one["position_ids"][row, :size].tolist() == list(range(size))
    assert one["masked_weights"].sum() > 20
    other = evaluation.fix_masks(documents, masks, 16, seed=1)
    assert (one["masked_positions"] != other["masked_positions"]).any()


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
    alone = float(np.average(losses[0], weights=weights[0]))
    assert evaluation.mean(losses[:1], weights[:1]) == (alone, (alone, alone))


# All together.


def test_evaluate_gives_the_models_own_loss_and_the_baselines(model):
    documents = {"a": some_documents(37, 1), "b": some_documents(45, 2)}
    held_out = {name: evaluation.fix_masks(some, MASKS, 32) for name, some in documents.items()}
    ngrams = {name: fit_ngram(some_documents(50, 3), 60) for name in documents}
    found = evaluation.evaluate(model, held_out, ngrams)
    for name, batch in held_out.items():
        labels, where = batch["masked_ids"], batch["masked_weights"] > 0
        expected = float(loss_sum(model, {k: tf.constant(v) for k, v in batch.items()}))
        loss, right = found.loc[name].loss, found.loc[name].right
        assert abs(loss["BERT"] - expected / where.sum()) < 1e-4
        assert math.isclose(loss["uniform"], math.log(60))
        assert math.isclose(right["uniform"], 1 / 60)
        unigram = ngrams[name].unigram
        assert math.isclose(loss["unigram"], -np.log(unigram[labels[where]]).mean())
        guessed = []
        for row, number in zip(*np.nonzero(where), strict=True):
            at, ids = batch["masked_positions"][row, number], batch["input_ids"][row]
            chances = ngrams[name].chances(ids[at - 1], ids[min(at + 1, 31)])
            guessed.append(-np.log(chances[labels[row, number]]))
        assert math.isclose(loss["n-gram"], np.mean(guessed))
    assert evaluation.rounded(found).loc[("a", "uniform"), "perplexity"] == "60"


@pytest.fixture(scope="module")
def small():
    return pretraining_model(NANO, 3000, longest=64)


def test_held_out_records_are_evaluated(small, data, tmp_path):
    data = read(data)
    tokenizer = corpus.load_tokenizer()
    records.write(["문서를 저장합니다. Save it."] * 20, tmp_path / "held", tokenizer, shards=1)
    found = evaluation.evaluate_records(small, data, tmp_path / "held")
    assert found.loss["held-out", "n-gram"] < found.loss["held-out", "uniform"]
    other = corpus.train_tokenizer(["the same words again and again"] * 9, 40)
    records.write(["again and again"] * 20, tmp_path / "other", other, shards=1)
    with pytest.raises(CourseError, match="another tokenizer than the training's"):
        evaluation.evaluate_records(small, data, tmp_path / "other")
