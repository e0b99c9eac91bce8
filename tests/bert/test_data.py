"""What is read of records: their sequences, and a tokenizer that fits them."""

import collections
import pathlib

import pytest

from helpers.base.errors import CourseError
from helpers.bert.data import read, sequences
from helpers.text import corpus, records

pytestmark = pytest.mark.slow


def test_records_give_their_documents_back(data):
    manifest = read(data).manifest
    tokenizer = corpus.load_tokenizer()
    texts = [
        text
        for path in corpus.shipped().values()
        for line, text in enumerate(corpus.read(pathlib.Path(path)))
        if not corpus.held_out(line)
    ]
    options = {"truncation": True, "max_length": 64, "return_overflowing_tokens": True}
    wanted = collections.Counter(map(tuple, tokenizer(texts, **options)["input_ids"]))
    assert collections.Counter(tuple(ids.tolist()) for ids in sequences(manifest)) == wanted


def test_a_tokenizer_without_a_token_to_mask_with_is_told(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(corpus.kept_tokenizer().read_text().replace("[MASK]", "[HIDE]"))
    made = records.write(["하나"], tmp_path / "data", path, shards=1)
    with pytest.raises(CourseError, match=r"tokenizer of the records has no \[MASK\]"):
        read(made.path)
