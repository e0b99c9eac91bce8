"""The shipped text, its tokenizer, and what can be wrong with a corpus. Imports no TensorFlow."""

import dataclasses
import hashlib
import itertools
import json
import pathlib
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Self

from helpers.base.errors import CourseError
from helpers.base.settings import ROOT

if TYPE_CHECKING:
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizerFast

DATA = ROOT / "notebooks" / "data"
LANGUAGES = ("ko", "en")

# Training WordPiece twice on the same text gives two vocabularies, so a model fits one file only.
TOKENIZER_SHA256 = "48f07447b584b372a43f42d322bc507ba38d7b38dd7b58783f8e2d006d6369a8"

# Korean text uses some two thousand different syllables, and Hanja; the library keeps the thousand
# most frequent characters and turns the others into [UNK].
ALPHABET = 6000


# Longer than any text in one piece: the longest articles of Wikipedia have about one million
# characters. What is longer is a file without line ends.
LONGEST = 10_000_000

# Control characters other than white space; and characters that are drawn as nothing: soft hyphen,
# zero-width space, direction marks, word joiners, the byte order mark. U+200C and U+200D stay: they
# change how some scripts and emoji are drawn.
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
INVISIBLE = re.compile(
    r"[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]"
)
REPLACED = "\ufffd"  # a decoder writes it for bytes that are no character: that text is lost


class NotUtf8(CourseError):
    """A text file has another encoding, or is damaged."""


class VocabularyTooSmall(CourseError):
    """The text's characters alone are more tokens than were asked for."""


_KINDS = pathlib.Path(__file__).with_name("not_text.toml")
_OTHER_KINDS = tomllib.loads(_KINDS.read_text("utf-8"))["kind"]


def other_kind(data: bytes) -> dict[str, str] | None:
    """Tell by its first bytes what kind of file this is, None if it may be text."""
    start = data[:8].hex()
    return next((kind for kind in _OTHER_KINDS if start.startswith(kind["bytes"])), None)


def _conversion(data: bytes, cut: bool) -> str:
    """Say how bytes that are not UTF-8, or end within a character, may become it."""
    if cut:
        return "A download or a copy was probably cut off: copy it again."
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "It is UTF-16, as Windows writes it: `iconv -f UTF-16 -t UTF-8 FILE > NEW_FILE`."
    if b"\0" in data:
        return "Text has no byte 0x00: it is another kind of file. Choose one with text."
    try:
        data.decode("cp949")
    except UnicodeDecodeError:
        return "It is damaged, or in another encoding: copy it again, or ask who wrote it."
    return "Older Korean files are often CP949: `iconv -f CP949 -t UTF-8 FILE > NEW_FILE`."


def is_json(line: str) -> bool:
    """Tell whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def check_file(path: pathlib.Path) -> None:
    """Refuse a text that is no file on this machine.

    Raises:
        CourseError: There is no such file; the message says what there is.
    """
    why = "No file of this name exists."
    fix = "Check the path; the course's own text comes back with `git checkout notebooks/data`."
    try:
        if path.is_file():
            return
        if path.is_dir():
            why, fix = f"{path.name} is a folder.", "Name the files in it, each with --input."
    except OSError as error:  # a name that is too long, a folder that must not be read
        why = f"{error.strerror}."
    if re.match(r"\w\w+:/", str(path)):
        why = "It has an address, and text is read from this machine's disk."
        fix = "Copy it here first; from a bucket with `gcloud storage cp`."
    raise CourseError(f"The text {path.name[:60]} is not there.", why, fix)


def lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Read UTF-8 line by line: in memory is one line, whatever the file's size.

    Gives number, from 1, and text of each line that is not blank, without its end. The file may
    begin with a byte order mark; ``name`` is what an error calls it.

    Raises:
        NotUtf8: It has another encoding; the message names line and byte.
        CourseError: It holds no text, or a line is longer than any text.
    """
    position, found = 0, False
    for number in itertools.count(1):
        if not (data := file.readline(4 * LONGEST)):  # a character has at most 4 bytes
            break
        try:
            cut = len(data) == 4 * LONGEST and not data.endswith(b"\n")
            line = "" if cut else data.decode("utf-8" if position else "utf-8-sig")
        except UnicodeDecodeError as error:
            raise NotUtf8(
                f"The text {name} is not UTF-8.",
                f"Line {number:,}: byte 0x{data[error.start]:02x} at position "
                f"{position + error.start} of the file ({error.reason}).",
                _conversion(data, cut=error.reason == "unexpected end of data"),
            ) from None
        if cut or len(line) > LONGEST:
            raise CourseError(
                f"Line {number:,} of {name} has more than {LONGEST:,} characters.",
                "No text has so many in one piece: the line ends are probably missing.",
                "Write one paragraph or article per line.",
            )
        position += len(data)
        if line.strip():
            found = True
            yield number, line.removesuffix("\n").removesuffix("\r")
    if not position:
        raise CourseError(
            f"The text {name} is empty.",
            "The file has 0 bytes: a download or a copy was probably cut off.",
            "Copy it again, or choose another file.",
        )
    if not found:
        raise CourseError(
            f"The text {name} has no text.",
            f"Its {position:,} bytes are spaces and line ends only.",
            "Choose another file.",
        )


def read(path: pathlib.Path) -> list[str]:
    """Read a text file in UTF-8, one paragraph per line, as `lines` does.

    Raises:
        NotUtf8: It has another encoding; the message names line and byte.
        CourseError: There is no such file, it is of another kind (compressed, Parquet, JSON, …),
            holds no text, or a line is longer than any text.
    """
    check_file(path)
    try:
        with path.open("rb") as file:
            if kind := other_kind(file.read(8)):
                raise CourseError(
                    f"The text {path.name} is no text.", f"It is {kind['what']}.", kind["fix"]
                )
            file.seek(0)
            paragraphs = [line for _, line in lines(file, path.name)]
    except OSError as error:
        raise CourseError(
            f"The text {path.name} can't be read.",
            f"{error.strerror}.",
            "Check who owns the file, and that you may read it.",
        ) from error
    if all(map(is_json, paragraphs[:3])):
        raise CourseError(
            f"The text {path.name} is JSON, not text.",
            "Each line is an object: a model would learn its names and brackets.",
            'Take the text out of it: `jq -r \'.text | gsub("\\n"; " ")\' FILE > NEW_FILE`.',
        )
    return paragraphs


def clean(text: str) -> str:
    """Write a text in the one way that equal texts share; empty if nothing visible is left.

    - NFC: a Hangul syllable that came as its letters (as file names on a Mac do) becomes one
      character again, and an accent joins its letter. NFKC would change the meaning (x² to x2,
      ½ to 1⁄2) and tear ㅋㅋㅋ into letters of another block (https://unicode.org/reports/tr15/).
    - No control characters, no zero-width space, no soft hyphen: a reader can't see them, but a
      program can.
    - One space for any white space, none at the ends: a document is one line.
    """
    text = INVISIBLE.sub("", CONTROL.sub("", text))
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclasses.dataclass(frozen=True)
class Survey:
    """What cleaning finds in texts."""

    texts: int
    decomposed: int  # texts that are not in NFC
    control: int  # control characters, without white space
    invisible: int  # zero-width spaces, soft hyphens and other format characters
    replaced: int  # U+FFFD: what stood there was lost when someone decoded the text wrongly
    first_replaced: int | None  # the first text with such a character, from 0
    empty: int  # texts of which nothing is left

    def __add__(self, more: Self) -> Self:
        """Count the texts that come after these, too."""
        numbers = {
            name: count + vars(more)[name]
            for name, count in vars(self).items()
            if name != "first_replaced"
        }
        first = self.first_replaced
        if first is None and more.first_replaced is not None:
            first = self.texts + more.first_replaced
        return dataclasses.replace(self, **numbers, first_replaced=first)

    def __repr__(self) -> str:
        where = "" if self.first_replaced is None else f" (first in text {self.first_replaced:,})"
        return (
            f"{self.texts:,} text{'s' * (self.texts != 1)}: {self.decomposed:,} not in NFC, "
            f"{self.control:,} control and {self.invisible:,} invisible characters, "
            f"{self.replaced:,} lost{where}, {self.empty:,} empty"
        )


def survey(texts: Sequence[str], cleaned: Iterable[str] | None = None) -> Survey:
    """Count what `clean` will change (or has made ``cleaned``), and what it can't repair."""
    replaced = [text.count(REPLACED) for text in texts]
    return Survey(
        texts=len(texts),
        decomposed=sum(not unicodedata.is_normalized("NFC", text) for text in texts),
        control=sum(len(CONTROL.findall(text)) for text in texts),
        invisible=sum(len(INVISIBLE.findall(text)) for text in texts),
        replaced=sum(replaced),
        first_replaced=next((at for at, count in enumerate(replaced) if count), None),
        empty=sum(not text for text in (map(clean, texts) if cleaned is None else cleaned)),
    )


def documents(texts: Iterable[str]) -> list[str]:
    """Clean texts, in order, and leave out those of which nothing is left."""
    return [text for text in map(clean, texts) if text]


def shipped() -> dict[str, str]:
    """Find the course's own text by language, and make sure that it can be read.

    Raises:
        CourseError: As `read`.
    """
    paths = {language: str(DATA / f"{language}.txt") for language in LANGUAGES}
    for path in paths.values():
        read(pathlib.Path(path))
    return paths


def held_out(line: int) -> bool:
    """Tell whether a paragraph is kept away from training: the last of each ten.

    Only the line's number (from 0) counts: a paragraph and its translation stand on the same line
    of their files, so they are always on the same side.
    """
    return line % 10 == 9


def reach_hub(dataset: str, timeout: float = 10.0) -> None:
    """Ask the Hugging Face Hub for a dataset's description, once, before anything is loaded.

    ``datasets`` alone retries five times, longer apart each time, and fills the screen with it.

    ``timeout`` is in seconds, for the connection and for each part of the answer.

    Raises:
        CourseError: There is no answer in time, or the Hub has no such public dataset.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        HfApi().dataset_info(dataset, timeout=timeout, token=False)
    except RepositoryNotFoundError:
        raise CourseError(
            f"The Hugging Face Hub has no public dataset {dataset!r}.",
            "The name is misspelt, or the dataset was moved or made private.",
            "Copy the name from the dataset's page.",
        ) from None
    except OSError as error:  # what requests raises, and the Hub's own offline mode
        raise CourseError(
            f"The Hugging Face Hub can't be reached, so {dataset!r} can't be loaded.",
            f"{type(error).__name__}, within {timeout:g} seconds.",
            'Check the network and HF_HUB_OFFLINE, or use the shipped text: DATASET = "shipped".',
        ) from None


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> "BertWordPieceTokenizer":
    """Train a WordPiece tokenizer that tells cases apart and leaves Hangul whole.

    It has ``vocabulary`` tokens, BERT's five special ones included, and puts ``[CLS]`` before a
    text and ``[SEP]`` after it. Training is not reproducible: two runs on one text number their
    tokens differently. Train once and keep the file.

    Raises:
        VocabularyTooSmall: The text has more characters than that; the message says how many.
        CourseError: The text gives fewer tokens; the message says how many.
    """
    from tokenizers import BertWordPieceTokenizer
    from tokenizers.processors import BertProcessing

    # strip_accents would decompose each Hangul syllable into its letters (NFD).
    tokenizer = BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    tokenizer.train_from_iterator(
        texts, vocab_size=vocabulary, limit_alphabet=ALPHABET, show_progress=False
    )
    given = tokenizer.get_vocab_size()
    if given < vocabulary:
        raise CourseError(
            f"The text gives {given:,} tokens; {vocabulary:,} were asked for.",
            "WordPiece joins pairs of tokens that occur at least twice, and none are left. A model "
            "of the size asked for would have rows that no text reaches.",
            f"Ask for at most {given - given % 100 or given:,} tokens, or give it more text.",
        )
    if given > vocabulary:
        raise VocabularyTooSmall(
            f"The text needs at least {given:,} tokens; {vocabulary:,} were asked for.",
            "Every character is a token, at the start of a word and inside, before any is joined.",
            f"Ask for clearly more than {given:,} tokens.",
        )
    tokenizer.post_processor = BertProcessing(
        *((token, tokenizer.token_to_id(token)) for token in ("[SEP]", "[CLS]"))
    )
    return tokenizer


def kept_tokenizer(
    path: pathlib.Path = DATA / "tokenizer.json", sha256: str = TOKENIZER_SHA256
) -> pathlib.Path:
    """Find a kept tokenizer, and make sure that its bytes have this SHA-256 (hexadecimal).

    Raises:
        CourseError: There is no such file, or it has other bytes: a model trained with the kept
            one would read noise.
    """
    if not path.is_file():
        raise CourseError(
            f"The tokenizer {path.name} is not there.",
            "It is kept beside the text, because training it again would give another one.",
            "Bring it back with `git checkout notebooks/data/tokenizer.json`.",
        )
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise CourseError(
            f"The tokenizer {path.name} is not the one that was kept.",
            f"Its SHA-256 begins with {found[:12]}, the kept one's with {sha256[:12]}: its ids "
            "mean other words.",
            "Bring it back with `git checkout notebooks/data/tokenizer.json`, or give the new "
            "file's own sha256 and train the model from the start.",
        )
    return path


def load_tokenizer(path: pathlib.Path = DATA / "tokenizer.json") -> "BertTokenizerFast":
    """Load `kept_tokenizer` for use with ``transformers``."""
    from transformers import BertTokenizerFast

    file = str(kept_tokenizer(path))
    return BertTokenizerFast(tokenizer_file=file, do_lower_case=False, strip_accents=False)
