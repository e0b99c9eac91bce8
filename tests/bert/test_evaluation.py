"""Evaluation against slow references: a bootstrap by hand, the model's own loss."""

import math

import numpy as np
import pytest
import tensorflow as tf
from packed_text import CLS, SEP, some_documents

from helpers.base.errors import CourseError
from helpers.bert import evaluation
from helpers.bert.data import read
from helpers.bert.model import Configuration, pretraining_model
from helpers.bert.ngram import fit_ngram
from helpers.bert.step import counts, losses
from helpers.text import corpus, masking, records

MASKS = masking.Masking(60, 4, (0, 1, 2, 3, 4), 5)


@pytest.fixture(scope="module")
def model():
    return pretraining_model(Configuration(1, 32, 1), 60, longest=32, dropout=0.5, seed=1)


# Masks.


def test_masks_are_fixed_and_hold_the_documents():
    documents = some_documents(20)
    one, again = (evaluation.fix_masks(documents, MASKS, 16) for _ in range(2))
    for name, values in one.batch.items():
        np.testing.assert_array_equal(values, again.batch[name])
    restored = one.batch["input_ids"].copy()
    for row, places in enumerate(one.batch["masked_positions"]):
        for at, place in enumerate(places):
            if one.batch["masked_weights"][row, at]:
                restored[row, place] = one.batch["masked_ids"][row, at]
    for row, document in enumerate(documents):
        size = min(16, len(document))
        assert restored[row, :size].tolist() == document[:16]
        assert one.batch["attention_mask"][row].sum() == size
        assert one.batch["position_ids"][row, :size].tolist() == list(range(size))
    assert one.tokens == one.batch["masked_weights"].sum() > 20
    other = evaluation.fix_masks(documents, MASKS, 16, seed=1)
    assert (one.batch["masked_positions"] != other.batch["masked_positions"]).any()


def test_padding_is_never_masked_even_if_its_id_is_an_ordinary_tokens():
    masks = masking.Masking(60, 4, (1, 2, 3, 4), 5)
    fixed = evaluation.fix_masks(some_documents(20, longest=3), masks, 16)
    used = np.take_along_axis(fixed.batch["attention_mask"], fixed.batch["masked_positions"], 1)
    assert (fixed.batch["masked_weights"] <= used).all()


@pytest.mark.parametrize("documents", [[], [[CLS, SEP]], [[CLS, 1, SEP]]])
def test_nothing_held_out_is_told(documents):
    with pytest.raises(CourseError, match=f"Of {len(documents)} held-out documents"):
        evaluation.fix_masks(documents, MASKS, 16)


def test_neighbours_are_what_the_model_sees():
    fixed = evaluation.fix_masks(some_documents(10), MASKS, 16)
    left, right = fixed.neighbours()
    ids, weights = fixed.batch["input_ids"], fixed.batch["masked_weights"]
    for row, at in zip(*np.nonzero(weights), strict=True):
        place = fixed.batch["masked_positions"][row, at]
        assert left[row, at] == ids[row, place - 1]
        if place < 15:
            assert right[row, at] == ids[row, place + 1]


# Scores.


def test_score_sums_up_and_draws_documents():
    draw = np.random.default_rng(3)
    weights = (np.arange(6) < draw.integers(1, 7, (40, 1))).astype(float)
    losses = draw.exponential(2, (40, 1)) + draw.random((40, 6))
    right = draw.random((40, 6)) < 0.3
    found = evaluation.score(losses, right, weights)
    assert math.isclose(found.loss, np.average(losses, weights=weights))
    assert math.isclose(found.accuracy, np.average(right, weights=weights))
    assert found.tokens == weights.sum()
    assert math.isclose(found.perplexity, math.exp(found.loss))
    # A bootstrap by hand, with other draws: the same interval, up to the draws.
    means = []
    for _ in range(4000):
        rows = draw.integers(0, 40, 40)
        means.append(np.average(losses[rows], weights=weights[rows]))
    np.testing.assert_allclose(found.loss_interval, np.quantile(means, [0.025, 0.975]), rtol=0.05)
    # Tokens of a document are alike here: drawing them by themselves would promise too much.
    alone = [draw.choice(losses[weights > 0], int(weights.sum())).mean() for _ in range(1000)]
    low, high = found.loss_interval
    assert high - low > 1.3 * np.diff(np.quantile(alone, [0.025, 0.975]))[0]
    assert f"loss {found.loss:.2f} (" in repr(found) and "tokens" in repr(found)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        losses = draw.normal(5, 1, (60, 1)) + draw.normal(0, 1, (60, 4))
        low, high = evaluation.score(losses, losses > 5, np.ones((60, 4))).loss_interval
        held += low < 5 < high
    assert 0.88 <= held / 200 <= 0.99


# All together.


def test_evaluate_gives_the_models_own_loss_and_the_baselines(model):
    documents = {"a": some_documents(37, 1), "b": some_documents(45, 2)}
    held_out = {name: evaluation.fix_masks(some, MASKS, 32) for name, some in documents.items()}
    ngrams = {name: fit_ngram(some_documents(50, 3), 60) for name in documents}
    found = evaluation.evaluate(model, held_out, ngrams, rows=16)
    for name, fixed in held_out.items():
        batch = {key: tf.constant(values) for key, values in fixed.batch.items()}
        expected = float(losses(model, batch)[0] / counts(batch)[0])
        scores = found.scores[name]
        assert abs(scores["BERT"].loss - expected) < 1e-4
        assert math.isclose(scores["uniform"].loss, math.log(60))
        assert math.isclose(scores["uniform"].accuracy, 1 / 60)
        labels, where = fixed.batch["masked_ids"], fixed.batch["masked_weights"] > 0
        unigram = ngrams[name].unigram
        assert math.isclose(scores["unigram"].loss, -np.log(unigram[labels[where]]).mean())
        left, right = fixed.neighbours()
        chances = [
            ngrams[name].chances(a, b) for a, b in zip(left[where], right[where], strict=True)
        ]
        expected = -np.mean([np.log(c[t]) for c, t in zip(chances, labels[where], strict=True)])
        assert math.isclose(scores["n-gram"].loss, expected)
        assert {one.tokens for one in scores.values()} == {fixed.tokens}
    table = found.table()
    assert list(table.index) == [(k, w) for k in "ab" for w in found.scores["a"]]
    lines = found.markdown().splitlines()
    assert lines[0].startswith("| text | guessed by | loss") and len(lines) == 2 + 8
    assert "<table" in found._repr_html_() and "unigram" in repr(found)


def test_held_out_records_are_evaluated(data, tmp_path):
    data = read(data)
    tokenizer = corpus.load_tokenizer()
    records.write(["문서를 저장합니다. Save it."] * 20, tmp_path / "held", tokenizer, shards=1)
    small = pretraining_model(Configuration(1, 32, 1), 3000, longest=64)
    found = evaluation.evaluate_records(small, data, tmp_path / "held")
    assert list(found.scores) == ["held-out"]
    assert found.scores["held-out"]["n-gram"].loss < found.scores["held-out"]["uniform"].loss
    other = corpus.train_tokenizer(["the same words again and again"] * 9, 40)
    records.write(["again and again"] * 20, tmp_path / "other", other, shards=1)
    with pytest.raises(CourseError, match="another tokenizer than the training's"):
        evaluation.evaluate_records(small, data, tmp_path / "other")


def test_the_shipped_text_is_evaluated_by_language(data):
    small = pretraining_model(Configuration(1, 32, 1), 3000, longest=64)
    found = evaluation.evaluate_shipped(small, read(data))
    assert set(found.scores) == {"ko", "en"}
    for scores in found.scores.values():
        # Fresh weights know nothing; whoever has read more guesses better.
        assert abs(scores["BERT"].loss - scores["uniform"].loss) < 0.1
        assert scores["n-gram"].loss < scores["unigram"].loss < scores["uniform"].loss


# The probe.


class _Encoder:
    """Stands for a BERT whose state says, or doesn't say, which token is missing."""

    def __init__(self, batches, knows):
        self.answers = {}
        for fixed in batches:
            for row, ids in enumerate(fixed.batch["input_ids"]):
                self.answers[ids.tobytes()] = (fixed, row)
        self.knows = knows
        self.bert = self

    def __call__(self, input_ids, attention_mask, position_ids):
        states = np.random.default_rng(0).normal(size=(*input_ids.shape, 64)).astype(np.float32)
        for number, ids in enumerate(input_ids.numpy()):
            fixed, row = self.answers[ids.tobytes()]
            for at, place in enumerate(fixed.batch["masked_positions"][row]):
                if self.knows:
                    states[number, place, fixed.batch["masked_ids"][row, at]] += 20
        return (tf.constant(states),)


def probe_with(first, second):
    parts = [evaluation.fix_masks(some_documents(n, n), MASKS, 32) for n in (300, 100)]
    return evaluation.probe(_Encoder(parts, first), _Encoder(parts, second), *parts), parts


def test_a_probe_finds_what_is_in_the_states_and_nothing_else():
    found, (_, judged) = probe_with(True, False)
    assert found.pretrained > 0.9 > 0.15 > found.random
    assert math.isclose(found.more, found.pretrained - found.random)
    assert found.more_interval[0] > 0.5 and found.asked == evaluation.ASKED
    labels = judged.batch["masked_ids"][judged.batch["masked_weights"] > 0]
    assert found.tokens <= len(labels)
    assert "which of 50 tokens is missing" in repr(found) and "difference" in repr(found)


def test_a_probe_of_equals_finds_no_difference():
    found, _ = probe_with(False, False)
    assert found.more == 0 and found.more_interval == (0, 0)


def test_a_probe_without_anything_to_judge_is_told(model):
    fitted = evaluation.fix_masks([[CLS, 7, SEP]] * 30, MASKS, 16)
    judged = evaluation.fix_masks([[CLS, 9, SEP]] * 30, MASKS, 16)
    with pytest.raises(CourseError, match="nothing to judge"):
        evaluation.probe(model, model, fitted, judged)
