"""What is read of records: their masked batches, their pairs, their sequences."""

import collections
import dataclasses
import pathlib
import shutil

import numpy as np
import pytest
from runs import SETTINGS

from helpers.base.errors import CourseError
from helpers.bert.data import read, sequences
from helpers.bert.pretraining import batches
from helpers.text import corpus, records

pytestmark = pytest.mark.slow

PAIRED = dataclasses.replace(SETTINGS, next_sentence=True)


def test_the_pairs_of_a_batch_are_those_of_its_rows(paired):
    data = read(paired)
    rows = next(iter(records.dataset(paired, global_batch_size=8, seed=0)))
    batch = next(iter(batches(data, PAIRED)))
    cls = corpus.load_tokenizer().cls_token_id
    for row in range(8):
        used = batch["pair_weights"][row].numpy() > 0
        at = batch["pair_positions"][row].numpy()[used]
        np.testing.assert_array_equal(at, np.flatnonzero(rows["input_ids"][row] == cls))
        labels = batch["pair_labels"][row].numpy()[used]
        np.testing.assert_array_equal(labels, rows["random_next"][row].numpy()[at])
    assert batch["pair_weights"].shape == (8, 64 // 5)
    np.testing.assert_array_equal(batch["token_type_ids"], rows["token_type_ids"])
    assert 0.2 < np.average(batch["pair_labels"], weights=batch["pair_weights"]) < 0.8
    alone = next(iter(batches(data, dataclasses.replace(PAIRED, next_sentence=False))))
    assert not any(name.startswith("pair") for name in alone)
    np.testing.assert_array_equal(alone["input_ids"], batch["input_ids"])


def test_records_give_their_documents_back(data):
    manifest = read(data).manifest
    tokenizer = corpus.load_tokenizer()
    texts = [
        text
        for path in corpus.shipped().values()
        for line, text in enumerate(corpus.read(pathlib.Path(path)))
        if not corpus.held_out(line)
    ]
    short = [ids for ids in tokenizer(texts)["input_ids"] if len(ids) <= 64]
    found = collections.Counter(tuple(ids.tolist()) for ids in sequences(manifest))
    wanted = collections.Counter(map(tuple, short))
    assert not wanted - found
    assert sum(found.values()) == manifest.sequences


def test_a_tokenizer_without_a_token_to_mask_with_is_told(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(corpus.kept_tokenizer().read_text().replace("[MASK]", "[HIDE]"))
    made = records.write(["하나"], tmp_path / "data", path, shards=1)
    with pytest.raises(CourseError, match=r"tokenizer of the records has no \[MASK\]"):
        read(made.path)


def test_another_tokenizer_beside_the_records_is_refused(data, tmp_path):
    copied = shutil.copytree(data, tmp_path / "data")
    path = copied / records.TOKENIZER
    path.write_text(path.read_text().replace("[MASK]", "[HIDE]"))
    with pytest.raises(records.OtherTokenizer):
        read(copied)
