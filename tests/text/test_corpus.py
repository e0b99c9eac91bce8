"""The shipped text and tokenizer, and each thing that can be wrong with a corpus."""

import hashlib
import json
import pathlib
import re
import unicodedata

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from helpers.base.errors import CourseError
from helpers.text import corpus


@pytest.fixture(scope="module")
def texts():
    return {lang: corpus.read(pathlib.Path(path)) for lang, path in corpus.shipped().items()}


def file(folder, data):
    path = folder / "text.txt"
    path.write_bytes(data)
    return path


# The shipped text


def test_shipped_text_is_clean_and_parallel(texts):
    assert len(texts["ko"]) == len(texts["en"]) == 1464
    for lang, lines in texts.items():
        raw = (corpus.DATA / f"{lang}.txt").read_bytes()
        text = raw.decode()
        assert 150_000 < len(raw) < 220_000
        assert text == "".join(f"{line}\n" for line in lines)
        assert unicodedata.is_normalized("NFC", text)
        assert "\r" not in text and "  " not in text and "\ufffd" not in text
        assert not re.search(r"</?(p|a|span|br|img)\b|&[a-z]+;", text)
        assert len(set(lines)) == len(lines)
        assert corpus.documents(lines) == lines
    for ko, en in zip(texts["ko"], texts["en"], strict=True):
        assert sum("가" <= c <= "힣" for c in ko) > sum(c.isascii() and c.isalpha() for c in ko)
        assert not any("가" <= c <= "힣" for c in en)
        assert 0.2 < len(ko) / len(en) < 1


def test_readme_tells_the_files_that_are_there():
    readme = (corpus.DATA / "README.md").read_text("utf-8")
    weights = ("bert-tiny/model.safetensors", "bert-tiny/tf_model.h5")
    for name in ("ko.txt", "en.txt", "tokenizer.json", "programs.tsv", *weights):
        assert hashlib.sha256((corpus.DATA / name).read_bytes()).hexdigest() in readme
    assert "Mozilla Public License" in (corpus.DATA / "LICENSE").read_text("utf-8")


# Cleaning


def test_what_is_removed_is_what_unicode_calls_control_and_format():
    for number in range(0x110000):
        character = chr(number)
        kind = unicodedata.category(character)
        assert bool(corpus.CONTROL.match(character)) == (kind == "Cc" and not character.isspace())
        if corpus.INVISIBLE.match(character) and number != 0xFFF8:
            assert kind == "Cf"
    for name in ("ZERO WIDTH SPACE", "SOFT HYPHEN", "WORD JOINER", "ZERO WIDTH NO-BREAK SPACE"):
        assert corpus.INVISIBLE.match(unicodedata.lookup(name))
    for name in ("ZERO WIDTH JOINER", "ZERO WIDTH NON-JOINER", "NO-BREAK SPACE"):
        assert not corpus.INVISIBLE.match(unicodedata.lookup(name))


@pytest.mark.parametrize(
    ("text", "wanted"),
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
def test_clean_writes_a_text_in_one_way(text, wanted):
    assert corpus.clean(text) == wanted


@given(st.text())
def test_clean_twice_is_clean_once(text):
    once = corpus.clean(text)
    assert corpus.clean(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert not corpus.CONTROL.search(once) and not corpus.INVISIBLE.search(once)
    assert "  " not in once and once == once.strip()


# Reading


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n"))))
def test_read_gives_the_lines_that_have_text(tmp_path_factory, lines):
    wanted = [line for line in lines if line.strip()]
    if not wanted or wanted[0].startswith("\ufeff"):
        return
    folder = tmp_path_factory.mktemp("read")
    for end, encoding in (("\n", "utf-8"), ("\r\n", "utf-8"), ("\n", "utf-8-sig")):
        assert corpus.read(file(folder, end.join(lines).encode(encoding))) == wanted


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (None, CourseError, "No such file"),
        (b"", CourseError, "is empty"),
        (b" \n\r\n", CourseError, "is empty"),
        ("하나\n둘\n".encode() + "셋".encode("cp949"), corpus.NotUtf8, "Line 3: byte 0xbc .* 11"),
        ("하나\n둘".encode()[:-1], corpus.NotUtf8, "Line 2: (.|\n)*unexpected end"),
    ],
)
def test_read_refuses_with_the_cause(tmp_path, data, error, words):
    with pytest.raises(error, match=words):
        corpus.read(tmp_path / "text.txt" if data is None else file(tmp_path, data))


def test_one_paragraph_of_ten_is_held_out():
    held = [line for line in range(100) if corpus.held_out(line)]
    assert held == list(range(9, 100, 10))


# The tokenizer


def test_train_gives_the_vocabulary_asked_for_and_berts_frame(texts):
    trained = corpus.train_tokenizer(texts["ko"], vocabulary=1500)
    assert trained.get_vocab_size() == 1500
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert [trained.token_to_id(token) for token in special] == [*range(5)]
    assert trained.encode("셀").tokens[0] == "[CLS]" and trained.encode("셀").tokens[-1] == "[SEP]"
    pair = trained.encode("셀", "행")
    assert pair.tokens.count("[SEP]") == 2 and max(pair.type_ids) == 1


@pytest.mark.parametrize(
    ("texts", "vocabulary", "error", "words"),
    [
        # 5 special; a, b, c; ##b, ##c; then "ab", the one pair that occurs twice.
        (["ab ab abc"], 1000, CourseError, r"gives 11 tokens; 1,000 were asked"),
        (["ab ab abc"], 6, corpus.VocabularyTooSmall, r"at least 10 tokens; 6 were asked"),
        # Every syllable is a token of its own, so none is [UNK].
        ([" ".join(map(chr, range(0xAC00, 0xAC00 + 2000)))], 9000, CourseError, "2,005 tokens"),
    ],
)
def test_train_says_how_many_tokens_the_text_gives(texts, vocabulary, error, words):
    with pytest.raises(error, match=words):
        corpus.train_tokenizer(texts, vocabulary)
    assert corpus.train_tokenizer(["ab ab abc"], vocabulary=11).get_vocab_size() == 11


def test_kept_tokenizer_is_cased_leaves_hangul_whole_and_knows_the_text(hugging_face, texts):
    tokenizer = hugging_face
    assert len(tokenizer) == 3000
    assert tokenizer.tokenize("한글") != tokenizer.tokenize(unicodedata.normalize("NFD", "한글"))
    assert all("가" <= c <= "힣" for t in tokenizer.tokenize("한글") for c in t.removeprefix("##"))
    assert tokenizer.tokenize("The") != tokenizer.tokenize("the")
    assert "é" not in tokenizer.tokenize("cafe")
    for lines in texts.values():
        trained_on = [line for at, line in enumerate(lines) if not corpus.held_out(at)]
        ids = tokenizer(trained_on, add_special_tokens=False)["input_ids"]
        assert not any(tokenizer.unk_token_id in row for row in ids)
        own = tokenizers.Tokenizer.from_file(str(corpus.DATA / "tokenizer.json"))
        for line in lines[:50]:
            assert tokenizer(line)["input_ids"] == own.encode(line).ids


def test_load_refuses_another_tokenizer(tmp_path):
    changed = json.loads((corpus.DATA / "tokenizer.json").read_text("utf-8"))
    path = file(tmp_path, json.dumps(changed | {"version": "1.1"}).encode())
    with pytest.raises(CourseError, match=corpus.TOKENIZER_SHA256[:12]):
        corpus.load_tokenizer(path)
    with pytest.raises(CourseError, match=r"none\.json is not there"):
        corpus.load_tokenizer(tmp_path / "none.json")
