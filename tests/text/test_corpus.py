"""The shipped text and tokenizer, how a text is cleaned and read, and what can be wrong with it."""

import json
import pathlib
import re
import unicodedata

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from record_files import TOKENIZER, changed

from helpers.base.errors import CourseError
from helpers.text import corpus


@pytest.fixture(scope="module")
def lines():
    paths = corpus.shipped().items()
    return {language: corpus.read(pathlib.Path(path)) for language, path in paths}


def is_hangul(character):
    return "가" <= character <= "힣"


def count(predicate, text):
    return len(list(filter(predicate, text)))


def test_shipped_text_is_clean_and_parallel(lines):
    assert len(lines["ko"]) == len(lines["en"]) == 1464
    for language, paragraphs in lines.items():
        file = corpus.DATA / f"{language}.txt"
        assert file.read_text("utf-8") == "\n".join(paragraphs) + "\n"
        assert corpus.documents(paragraphs) == paragraphs
        assert len(set(paragraphs)) == len(paragraphs)
    for ko, en in zip(lines["ko"], lines["en"], strict=True):
        latin = re.findall("[A-Za-z]", ko)
        assert count(is_hangul, ko) > len(latin)
        assert not count(is_hangul, en)


def test_what_is_removed_is_what_unicode_calls_control_and_format():
    for number in range(0x110000):
        character = chr(number)
        kind = unicodedata.category(character)
        assert bool(corpus.CONTROL.match(character)) == (kind == "Cc" and not character.isspace())
        assert kind == "Cf" or not corpus.INVISIBLE.match(character) or number == 0xFFF8


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (unicodedata.normalize("NFD", "한글 é"), "한글 é"),
        ("ㅋㅋㅋ x² ½ ㎏ ①", "ㅋㅋㅋ x² ½ ㎏ ①"),  # NFKC would change every one
        ("소프트\u00ad하이픈 제로\u200b폭 \ufeff표시", "소프트하이픈 제로폭 표시"),
        ("\t a\u3000b\xa0c\r\n", "a b c"),
        ("a\x00b\x07c\x9dd", "abcd"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("\u200b\x07 \n", ""),
    ],
)
def test_clean_writes_a_text_in_one_way(text, cleaned):
    assert corpus.clean(text) == cleaned


@given(st.text())
def test_clean_twice_is_clean_once(text):
    cleaned = corpus.clean(text)
    assert corpus.clean(cleaned) == cleaned == " ".join(cleaned.split())
    assert unicodedata.is_normalized("NFC", cleaned)
    assert not corpus.CONTROL.search(cleaned)
    assert not corpus.INVISIBLE.search(cleaned)


@pytest.mark.parametrize(("end", "encoding"), [("\n", "utf-8"), ("\r\n", "utf-8-sig")])
def test_read_gives_the_lines_that_have_text(tmp_path, end, encoding):
    (tmp_path / "text").write_bytes(end.join(["하나\u2028둘", " ", "", "셋 "]).encode(encoding))
    assert corpus.read(tmp_path / "text") == ["하나\u2028둘", "셋 "]


def test_another_encoding_is_told_with_line_and_byte(tmp_path):
    (tmp_path / "text").write_bytes("하나\n둘\n".encode() + "셋".encode("cp949"))
    with pytest.raises(corpus.NotUtf8, match=r"Line 3: byte 0xbc .* 11"):
        corpus.read(tmp_path / "text")


def test_train_gives_the_vocabulary_asked_for_and_berts_frame(lines):
    trained = corpus.train_tokenizer(lines["ko"], vocabulary=1500)
    assert trained.get_vocab_size() == 1500
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert [trained.token_to_id(token) for token in special] == [*range(5)]
    pair = trained.encode("셀", "행")
    assert (pair.tokens[0], pair.tokens[-1]) == ("[CLS]", "[SEP]")
    assert pair.tokens.count("[SEP]") == 2
    assert max(pair.type_ids) == 1


def test_a_vocabulary_has_every_character_and_the_pairs_that_occur_twice():
    # 5 special; a, b, c; ##b, ##c; then "ab", the one pair that occurs twice.
    assert corpus.train_tokenizer(["ab ab abc"], 1000).get_vocab_size() == 11
    with pytest.raises(corpus.VocabularyTooSmall, match="at least 10 tokens; 6 were asked"):
        corpus.train_tokenizer(["ab ab abc"], 6)
    syllables = " ".join(map(chr, range(0xAC00, 0xAC00 + 2000)))
    assert corpus.train_tokenizer([syllables], 9000).get_vocab_size() == 2_005


def test_kept_tokenizer_is_cased_leaves_hangul_whole_and_knows_the_text(hugging_face, lines):
    assert len(hugging_face) == 3000
    pieces = "".join(hugging_face.tokenize("한글")).replace("#", "")
    assert all(map(is_hangul, pieces))
    assert hugging_face.tokenize("The") != hugging_face.tokenize("the")
    plain_tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    for paragraphs in lines.values():
        trained_on = [line for at, line in enumerate(paragraphs) if not corpus.held_out(at)]
        ids = hugging_face(trained_on)["input_ids"]
        for row in ids:
            assert hugging_face.unk_token_id not in row
        encodings = plain_tokenizer.encode_batch(trained_on)
        assert ids == [encoding.ids for encoding in encodings]


def test_load_refuses_another_tokenizer(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "DATA", tmp_path)
    with pytest.raises(CourseError, match=r"tokenizer\.json is not there"):
        corpus.load_tokenizer()
    content = json.loads(TOKENIZER.read_text("utf-8")) | {"version": "1.1"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CourseError, match=corpus.TOKENIZER_SHA256[:12]):
        corpus.load_tokenizer()


def test_a_tokenizer_is_the_same_however_it_is_loaded_and_set():
    tokenizer = corpus.load_tokenizer()
    tokenizer("하나", padding="max_length", truncation=True, max_length=8)
    assert corpus.canonical(tokenizer) == corpus.canonical(str(TOKENIZER))
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 8
    larger_tokenizer = changed(lambda tokenizer: tokenizer.add_tokens(["새로운"]))
    assert corpus.canonical(larger_tokenizer) != corpus.canonical(TOKENIZER)


def numbered(*tokens, by=1):
    """A tokenizer whose tokens have the ids 0, ``by``, …"""
    vocabulary = {token: by * number for number, token in enumerate(tokens)}
    return tokenizers.BertWordPieceTokenizer(vocabulary)


def remove_post_processor(tokenizer):
    tokenizer.post_processor = None


@pytest.mark.parametrize(
    ("tokenizer", "words"),
    [
        (3, "3 is no tokenizer"),
        (changed(remove_post_processor), r"puts no \[CLS\]"),
        (numbered("[UNK]", "[CLS]", "[SEP]", "a"), r"not all of \[PAD\]"),
        (numbered(*corpus.SPECIAL[:4], "a"), r"not all of .*\[MASK\]"),
        (numbered(*corpus.SPECIAL), "none is a word"),
        (numbered(*corpus.SPECIAL, "a", by=1000), "aren't numbered from 0"),
    ],
)
def test_what_is_no_tokenizer_of_bert_is_refused(tokenizer, words):
    with pytest.raises(CourseError, match=words):
        corpus.canonical(tokenizer)
