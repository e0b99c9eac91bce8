"""Evaluation against slow references: a bootstrap by hand, the model's own loss."""

import math

import numpy as np
import pytest
import tensorflow as tf
from packed_text import CLS, SEP, some_documents
from runs import NANO

from helpers.base.errors import CourseError
from helpers.bert import evaluation
from helpers.bert.data import read, sequences
from helpers.bert.model import pretraining_model
from helpers.bert.ngram import fit_ngram
from helpers.bert.step import loss_sum
from helpers.text import corpus, masking, records

pytestmark = pytest.mark.slow

MASKS = masking.Masking(60, 4, (0, 1, 2, 3, 4), 5)


def test_records_give_their_documents_back(tmp_path):
    texts, tokenizer = ["문서를 저장합니다.", "Save it.", "하나"] * 3, corpus.load_tokenizer()
    made = records.write(texts, tmp_path, tokenizer, shards=1)
    found = [ids.tolist() for ids in sequences(made)]
    assert sorted(found) == sorted(tokenizer(texts)["input_ids"])


def test_two_shards_that_were_exchanged_are_told(tmp_path):
    made = records.write([*map(str, range(99))], tmp_path, corpus.load_tokenizer(), shards=2)
    one, two = (tmp_path / shard.name for shard in made.shards)
    assert made.shards[0].bytes == made.shards[1].bytes
    one.write_bytes(two.read_bytes())
    with pytest.raises(records.ShardDamaged):
        read(tmp_path)


# With [PAD]'s id as an ordinary token's, too: padding is never masked.
@pytest.mark.parametrize("special", [(0, 1, 2, 3, 4), (1, 2, 3, 4)])
def test_masks_are_fixed_and_hold_the_documents(special):
    documents, masks = some_documents(20), masking.Masking(60, 4, special, 5)
    one, again = (evaluation.fix_masks(documents, masks, 16) for _ in range(2))
    for name, values in one.items():
        np.testing.assert_array_equal(values, again[name])
    restored = one["input_ids"].copy()
    for row, number in zip(*np.nonzero(one["masked_weights"]), strict=True):
        at = one["masked_positions"][row, number]
        assert restored[row, at] == 4  # [MASK], where training leaves one in ten as it stands
        restored[row, at] = one["masked_ids"][row, number]
    for row, document in enumerate(documents):
        size = min(16, len(document))
        assert restored[row, :size].tolist() == document[:16]
        assert one["attention_mask"][row].tolist() == [1] * size + [0] * (16 - size)
        assert one["position_ids"][row, :size].tolist() == list(range(size))
    assert one["masked_weights"].sum() > 20


@pytest.mark.parametrize("documents", [[], [[CLS, SEP]], [[CLS, 1, SEP]]])
def test_nothing_held_out_is_told(documents):
    with pytest.raises(CourseError, match=f"Of {len(documents)} held-out documents"):
        evaluation.fix_masks(documents, MASKS, 16)


def test_a_mean_has_an_interval_over_documents():
    draw = np.random.default_rng(3)
    weights = (np.arange(6) < draw.integers(1, 7, (40, 1))).astype(float)
    losses = draw.exponential(2, (40, 1)) + draw.random((40, 6))
    loss, interval = evaluation.mean(losses, weights)
    assert math.isclose(loss, np.average(losses, weights=weights))
    # A bootstrap by hand, with other draws: the same interval, up to the draws.
    drawn = draw.integers(0, 40, (4000, 40))
    means = [np.average(losses[rows], weights=weights[rows]) for rows in drawn]
    np.testing.assert_allclose(interval, np.quantile(means, [0.025, 0.975]), rtol=0.05)
    alone = float(np.average(losses[0], weights=weights[0]))
    assert evaluation.mean(losses[:1], weights[:1]) == (alone, (alone, alone))


def test_evaluate_gives_the_models_own_loss_and_the_baselines():
    model = pretraining_model(NANO, 60, longest=32, dropout=0.5, seed=1)
    documents = {"a": some_documents(37, 1), "b": some_documents(45, 2)}
    held_out = {name: evaluation.fix_masks(some, MASKS, 32) for name, some in documents.items()}
    ngram = fit_ngram(some_documents(50, 3), 60)
    found = evaluation.evaluate(model, held_out, dict.fromkeys(documents, ngram))
    for name, batch in held_out.items():
        labels, where = batch["masked_ids"], batch["masked_weights"] > 0
        expected = float(loss_sum(model, {k: tf.constant(v) for k, v in batch.items()}))
        loss, right = found.loc[name].loss, found.loc[name].right
        assert abs(loss["BERT"] - expected / where.sum()) < 1e-4
        assert math.isclose(found.perplexity[name, "uniform"], 60)
        assert math.isclose(right["uniform"], 1 / 60)
        assert math.isclose(loss["unigram"], -np.log(ngram.unigram[labels[where]]).mean())
        guessed = []
        for row, number in zip(*np.nonzero(where), strict=True):
            at, ids = batch["masked_positions"][row, number], batch["input_ids"][row]
            chances = ngram.chances(ids[at - 1], ids[min(at + 1, 31)])
            guessed.append(-np.log(chances[labels[row, number]]))
        assert math.isclose(loss["n-gram"], np.mean(guessed))
