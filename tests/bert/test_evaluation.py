"""Evaluation against slow references: a bootstrap by hand, the model's own loss."""

import math
import shutil

import numpy as np
import pytest
import tensorflow as tf
from packed_text import CLS, SEP, some_documents
from small_runs import NANO

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
    texts = ["문서를 저장합니다.", "Save it.", "하나"] * 3
    tokenizer = corpus.load_tokenizer()
    manifest = records.write(texts, tmp_path, tokenizer, shards=1)
    documents = [ids.tolist() for ids in sequences(manifest)]
    assert sorted(documents) == sorted(tokenizer(texts)["input_ids"])


def test_two_shards_that_were_exchanged_are_told(tmp_path):
    texts = list(map(str, range(99)))
    manifest = records.write(texts, tmp_path, corpus.load_tokenizer(), shards=2)
    target, source = manifest.shards
    assert target.bytes == source.bytes
    shutil.copy(tmp_path / source.name, tmp_path / target.name)
    with pytest.raises(records.ShardDamaged):
        read(tmp_path)


# With [PAD]'s id as an ordinary token's, too: padding is never masked.
@pytest.mark.parametrize("special", [(0, 1, 2, 3, 4), (1, 2, 3, 4)])
def test_masks_are_fixed_and_hold_the_documents(special):
    documents = some_documents(20)
    masks = masking.Masking(60, 4, special, 5)
    batch = evaluation.fix_masks(documents, masks, 16)
    second_batch = evaluation.fix_masks(documents, masks, 16)
    for name, values in batch.items():
        np.testing.assert_array_equal(values, second_batch[name])
    restored = batch["input_ids"].copy()
    for row, column in zip(*np.nonzero(batch["masked_weights"]), strict=True):
        position = batch["masked_positions"][row, column]
        assert restored[row, position] == 4  # [MASK], where training leaves one in ten as it is
        restored[row, position] = batch["masked_ids"][row, column]
    for row, document in enumerate(documents):
        size = min(16, len(document))
        assert restored[row, :size].tolist() == document[:16]
        assert batch["attention_mask"][row].tolist() == [1] * size + [0] * (16 - size)
        assert batch["position_ids"][row, :size].tolist() == list(range(size))
    assert batch["masked_weights"].sum() > 20


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
    samples = draw.integers(0, 40, (4000, 40))
    means = [np.average(losses[rows], weights=weights[rows]) for rows in samples]
    np.testing.assert_allclose(interval, np.quantile(means, [0.025, 0.975]), rtol=0.05)
    of_one_document = float(np.average(losses[0], weights=weights[0]))
    result = evaluation.mean(losses[:1], weights[:1])
    assert result == (of_one_document, (of_one_document, of_one_document))


def test_evaluate_gives_the_models_own_loss_and_the_baselines():
    model = pretraining_model(NANO, 60, longest=32, dropout=0.5, seed=1)
    documents = {"a": some_documents(37, 1), "b": some_documents(45, 2)}
    held_out = {}
    for name, ids in documents.items():
        held_out[name] = evaluation.fix_masks(ids, MASKS, 32)
    ngram = fit_ngram(some_documents(50, 3), 60)
    table = evaluation.evaluate(model, held_out, dict.fromkeys(documents, ngram))
    for name, batch in held_out.items():
        labels = batch["masked_ids"]
        is_masked = batch["masked_weights"] > 0
        tensors = {feature: tf.constant(values) for feature, values in batch.items()}
        own_loss = float(loss_sum(model, tensors)) / is_masked.sum()
        loss = table.loc[name].loss
        assert abs(loss["BERT"] - own_loss) < 1e-4
        assert math.isclose(table.perplexity[name, "uniform"], 60)
        assert math.isclose(table.loc[name].right["uniform"], 1 / 60)
        frequencies = ngram.unigram[labels[is_masked]]
        assert math.isclose(loss["unigram"], -np.log(frequencies).mean())
        ngram_losses = []
        for row, column in zip(*np.nonzero(is_masked), strict=True):
            position = batch["masked_positions"][row, column]
            ids = batch["input_ids"][row]
            chances = ngram.chances(ids[position - 1], ids[min(position + 1, 31)])
            ngram_losses.append(-np.log(chances[labels[row, column]]))
        assert math.isclose(loss["n-gram"], np.mean(ngram_losses))
