"""The very ids that Hugging Face gives, word by word or in whole texts."""

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import TOKENIZER, changed, contents, refused, write

from helpers.text import corpus, records
from helpers.text.records import encoder

pytestmark = pytest.mark.slow

CHARACTERS = st.one_of(
    st.sampled_from(" \t\n\x0b\x1c\x1f\x85\xa0\u2028\u3000\u200b\xad\ufeff\x00\x07\ufffd"),
    st.sampled_from("가각힣ㄱㅏ\u1100\u1161漢字éÉßİΣςabcXYZ019.,-_[]()#'\"…“”½²①"),
    st.characters(blacklist_categories=["Cs"]),
)


WORDS = ["[MASK]", "[SEP]", "[CLS]", "[UNK]", "[SEP", "SEP]", "a[SEP]b", " ", "a" * 120]
PIECES = st.one_of(st.text(CHARACTERS, max_size=20), st.sampled_from(WORDS))


def encoder_of(**options):
    options = {"lowercase": False, "strip_accents": False} | options
    normalizer = tokenizers.normalizers.BertNormalizer(**options)
    return records.Encoder(changed(lambda t: setattr(t, "normalizer", normalizer)))


def ids_of(encode, some):
    return [np.frombuffer(ids, encode.type).tolist() for ids in encode(some)]


OPTIONS = ({}, {"lowercase": True, "strip_accents": True}, {"handle_chinese_chars": False})
ENCODERS = [encoder_of(**options) for options in OPTIONS]


@settings(max_examples=120, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=8).map("".join), min_size=1, max_size=6))
def test_words_give_the_ids_of_the_text(some):
    for encode in ENCODERS:
        assert encode._words is not None
        whole = encode._tokenizer.encode_batch(some, add_special_tokens=False)
        for _ in range(2):
            assert ids_of(encode, some) == [encoding.ids for encoding in whole]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: setattr(t, "normalizer", tokenizers.normalizers.NFKC()),
        lambda t: setattr(t, "pre_tokenizer", tokenizers.pre_tokenizers.Metaspace()),
        lambda t: t.add_tokens(["two words"]),
        lambda t: t.add_tokens([tokenizers.AddedToken("ab", single_word=True)]),
    ],
)
def test_where_words_could_differ_whole_texts_are_encoded(change):
    tokenizer = changed(change)
    encode = records.Encoder(tokenizer)
    assert encode._words is None
    some = ["two words, ab abc x[ x[SEP] y", "가나 다"]
    wanted = [tokenizer.encode(text, add_special_tokens=False).ids for text in some]
    assert ids_of(encode, some) == wanted


def test_the_memory_for_words_is_bounded(monkeypatch):
    monkeypatch.setattr(encoder, "CACHED_WORDS", 10)
    encode = encoder_of()
    for start in range(0, 200, 8):
        some = [f"단어{number} {'a' * 70}{number}" for number in range(start, start + 8)]
        assert encode(some) == encoder_of()(some)
        assert len(encode._words) <= 18
        assert max(map(len, encode._words)) <= encoder.CACHED_LENGTH


def test_a_tokenizer_that_pads_and_truncates_is_used_without(tmp_path, texts, written):
    tokenizer = corpus.load_tokenizer()
    tokenizer(texts[:2], padding="max_length", truncation=True, max_length=8)
    again = write(texts, tmp_path, tokenizer)
    assert contents(tmp_path) == contents(written.path)
    assert again.settings.tokenizer_sha256 == records.fingerprint(TOKENIZER)
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 8


def test_what_is_no_tokenizer_of_bert_is_refused(tmp_path):
    unframed = changed(lambda t: setattr(t, "post_processor", None))
    unpadded = tokenizers.BertWordPieceTokenizer({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2})
    for tokenizer, words in (
        (3, "3 is no tokenizer"),
        (unframed, r"puts 0 special tokens around(.|\n)*\[PAD\] where a row has no text"),
        (unpadded, r"puts 2 special tokens around(.|\n)*\[PAD\] where a row has no text"),
    ):
        refused(words, ["하나"], tmp_path / "out", tokenizer, shards=1)
    assert not (tmp_path / "out").exists()
