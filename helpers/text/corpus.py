"""The shipped text, how a text is read and cleaned, and tokenizers. Imports no TensorFlow."""

import hashlib
import json
import os
import pathlib
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import BertWordPieceTokenizer
from tokenizers.processors import BertProcessing

from helpers.base.errors import CourseError
from helpers.base.settings import ROOT

DATA = ROOT / "notebooks" / "data"
LANGUAGES = ("ko", "en")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# Training WordPiece twice on the same text gives two vocabularies, so a model fits one file only.
TOKENIZER_SHA256 = "48f07447b584b372a43f42d322bc507ba38d7b38dd7b58783f8e2d006d6369a8"

# Korean text uses some two thousand different syllables, and Hanja; the library keeps the thousand
# most frequent characters and turns the others into [UNK].
ALPHABET = 6000

# Control characters other than white space; and characters that are drawn as nothing: soft hyphen,
# zero-width space, direction marks, word joiners, the byte order mark. U+200C and U+200D stay: they
# change how some scripts and emoji are drawn.
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
INVISIBLE = re.compile(
    r"[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]"
)


class NotUtf8(CourseError):
    """A text file has another encoding, or is damaged."""


class VocabularyTooSmall(CourseError):
    """The text's characters alone are more tokens than were asked for."""


def read(path: pathlib.Path) -> list[str]:
    """Read a text file in UTF-8, one paragraph per line; blank lines are left out.

    Raises `NotUtf8`: It has another encoding; the message names line and byte.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise NotUtf8(
            f"The text {path.name} is not UTF-8.",
            f"Line {line:,}: byte 0x{error.object[error.start]:02x} at position {error.start} of "
            f"the file ({error.reason}).",
            "Older Korean files are often CP949: `iconv -f CP949 -t UTF-8 FILE > NEW_FILE`; else "
            "it is damaged: copy it again, or ask who wrote it.",
        ) from None
    return [line for line in re.split(r"\r\n?|\n", text) if line.strip()]


def clean(text: str) -> str:
    r"""Write a text in the one way that equal texts share; empty if nothing visible is left.

    - NFC: a Hangul syllable that came as its letters (as file names on a Mac do) becomes one
      character again, and an accent joins its letter. NFKC would change the meaning (x² to x2,
      ½ to 1⁄2) and tear ㅋㅋㅋ into letters of another block (https://unicode.org/reports/tr15/).
    - No control characters, no zero-width space, no soft hyphen, which only a program can see.
    - One space for any white space, none at the ends: a document is one line.

    Example:
        >>> clean("  one\u200b \t two ")
        'one two'
    """
    text = CONTROL.sub("", text)
    text = INVISIBLE.sub("", text)
    return " ".join(unicodedata.normalize("NFC", text).split())


def documents(texts: Iterable[str]) -> list[str]:
    """Clean texts, in order, and leave out those of which nothing is left."""
    cleaned = map(clean, texts)
    return [text for text in cleaned if text]


def shipped() -> dict[str, str]:
    """Give the files of the course's own text by language."""
    return {language: str(DATA / f"{language}.txt") for language in LANGUAGES}


def held_out(line: int) -> bool:
    """Tell whether a paragraph is kept away from training: the last of each ten.

    Only the line's number (from 0; or an array of them) counts: a paragraph and its translation
    are on the same line of their files, so they are always on the same side.
    """
    return line % 10 == 9


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> BertWordPieceTokenizer:
    """Train a WordPiece tokenizer that tells cases apart and leaves Hangul whole.

    It has ``vocabulary`` tokens at most, BERT's five special ones included, and puts ``[CLS]``
    before a text and ``[SEP]`` after it. Two trainings on one text number their tokens differently:
    keep the file.

    Raises `VocabularyTooSmall`: The text has more characters than that; the message says how many.
    """
    # strip_accents would decompose each Hangul syllable into its letters (NFD).
    tokenizer = BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    tokenizer.train_from_iterator(
        texts, vocab_size=vocabulary, limit_alphabet=ALPHABET, show_progress=False
    )
    size = tokenizer.get_vocab_size()
    if size > vocabulary:
        raise VocabularyTooSmall(
            f"The text needs at least {size:,} tokens; {vocabulary:,} were asked for.",
            "Every character is a token, at the start of a word and inside, before any is joined.",
            f"Ask for clearly more than {size:,} tokens.",
        )
    tokenizer.post_processor = BertProcessing(
        sep=("[SEP]", tokenizer.token_to_id("[SEP]")),
        cls=("[CLS]", tokenizer.token_to_id("[CLS]")),
    )
    return tokenizer


def kept_tokenizer() -> pathlib.Path:
    """Find the shipped text's tokenizer, and make sure that it is the one that was kept.

    Raises `CourseError`: There is no such file, or another, in whose ids a kept model reads noise.
    """
    path = DATA / "tokenizer.json"
    digest = "nothing"
    if path.is_file():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != TOKENIZER_SHA256:
        raise CourseError(
            f"The tokenizer {path.name} is not there, or not the one that was kept.",
            f"Its SHA-256 begins with {digest[:12]}, the kept one's with {TOKENIZER_SHA256[:12]}: "
            "its ids mean other words, and training it again would give another one.",
            "Bring it back with `git checkout notebooks/data/tokenizer.json`.",
        )
    return path


def load_tokenizer() -> Any:
    """Load `kept_tokenizer` as a ``BertTokenizerFast`` of ``transformers``."""
    from transformers import BertTokenizerFast  # Apache Beam's environment has none

    file = str(kept_tokenizer())
    return BertTokenizerFast(tokenizer_file=file, do_lower_case=False, strip_accents=False)


def canonical(tokenizer: Any) -> str:
    """Write a tokenizer as JSON, the same however it was loaded, without padding or truncation.

    Takes a ``BertTokenizerFast``, a ``tokenizers`` tokenizer, or a ``tokenizer.json``'s path.

    Raises `CourseError`: It is none of these, lacks one of ``SPECIAL``, or its ids have gaps.
    """
    try:
        # A copy: the one that was passed keeps its settings.
        copy = tokenizers.Tokenizer.from_str(_as_json(tokenizer))
        copy.no_padding()
        copy.no_truncation()
        _check_for_records(copy)
    except Exception as error:  # the library raises Exception itself
        raise CourseError(
            f"{str(tokenizer)[:80]} is no tokenizer that records can be written with.",
            f"{type(error).__name__}: {str(error)[:200].rstrip('.')}.",
            "Pass a BertTokenizerFast, a tokenizers.Tokenizer or the path of tokenizer.json, such "
            "as corpus.train_tokenizer makes.",
        ) from error
    # Keys in order, so that equal tokenizers are equal texts.
    state = json.loads(copy.to_str())
    return json.dumps(state, sort_keys=True, ensure_ascii=False, indent=1)


def _as_json(tokenizer: Any) -> str:
    """Give a tokenizer of any of the libraries, or of a file, as JSON."""
    if isinstance(tokenizer, str | os.PathLike):
        file = pathlib.Path(tokenizer)
        if not file.is_file() or file.stat().st_size > 2**30:
            raise ValueError("it is no file, or too large")
        return file.read_text("utf-8")
    # transformers wraps a tokenizer of `tokenizers`, whose Python classes wrap one of Rust.
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    return getattr(backend, "_tokenizer", backend).to_str()


def _check_for_records(tokenizer: tokenizers.Tokenizer) -> None:
    """Raise a `ValueError` unless records can be written with a tokenizer."""
    if tokenizer.encode("").tokens != ["[CLS]", "[SEP]"]:
        raise ValueError("it puts no [CLS] and [SEP] around a text")
    if None in map(tokenizer.token_to_id, SPECIAL):
        raise ValueError(f"it has not all of {', '.join(SPECIAL)}, which masking needs")
    ids = sorted(tokenizer.get_vocab().values())
    if ids != list(range(len(ids))) or len(ids) == len(SPECIAL):
        raise ValueError(f"its {len(ids)} tokens aren't numbered from 0, or none is a word")
