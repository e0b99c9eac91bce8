"""Text to token ids: the ids that a tokenizer gives, word by word where that is exact."""

import hashlib
import itertools
import json
import os
import pathlib
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.base.errors import CourseError
from helpers.base.folders import short
from helpers.text.records.format import TOKENIZER, Settings, other_tokenizer

if TYPE_CHECKING:
    import tokenizers

# Maximum number of words whose ids are kept, and of characters in such a word: a bound for memory.
CACHED_WORDS = 500_000
CACHED_LENGTH = 64

JOINED = 256  # new words that are given to the tokenizer as one text


def _backend(tokenizer: Any) -> "tokenizers.Tokenizer":
    """Find the Rust tokenizer in whatever the user has; a copy that neither pads nor truncates."""
    import tokenizers

    is_path = isinstance(tokenizer, str | os.PathLike)
    if is_path:
        path = pathlib.Path(tokenizer)
        if not path.is_file():
            raise CourseError(
                f"The tokenizer {path.name} is not there.",
                f"{path.name} is a folder." if path.is_dir() else "No file of this name exists.",
                "Check the path; it must be the tokenizer.json that the tokenizer was saved as.",
            )
        text = path.read_bytes().decode(errors="replace")
    else:
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        backend = getattr(backend, "_tokenizer", backend)
        if not isinstance(backend, tokenizers.Tokenizer):
            raise CourseError(
                f"{type(tokenizer).__name__} is no tokenizer that records can be written with.",
                "Only the fast ones, written in Rust, give the same ids at this speed.",
                "Pass a BertTokenizerFast, a tokenizers.Tokenizer or the path of tokenizer.json.",
            )
        text = backend.to_str()
    name = pathlib.Path(tokenizer).name if is_path else type(tokenizer).__name__
    fix = "Pass the tokenizer.json that save_pretrained or Tokenizer.save wrote."
    copy = _parsed(text, name, fix)
    copy.no_padding()
    copy.no_truncation()
    return copy


def _parsed(text: str, name: str, fix: str) -> "tokenizers.Tokenizer":
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises Exception itself
        raise CourseError(
            f"The tokenizer {name} can't be read.", f"{error}".strip().rstrip(".") + ".", fix
        ) from None


def check_tokenizer(kept: bytes, settings: Settings, path: str) -> "tokenizers.Tokenizer":
    """Read the tokenizer that lies beside records, and compare it with theirs.

    Raises:
        OtherTokenizer: The file was exchanged, or was there before the records.
        CourseError: It can't be read.
    """
    fix = f"Bring it back, or delete it; or take another folder than {short(path)}."
    found = _parsed(kept.decode(errors="replace"), f"beside the records, {TOKENIZER},", fix)
    sha256 = hashlib.sha256(canonical(found)).hexdigest()
    if sha256 != settings.tokenizer_sha256:
        raise other_tokenizer(path, settings.tokenizer_sha256, sha256)
    return found


def canonical(backend: "tokenizers.Tokenizer") -> bytes:
    """Write a tokenizer as JSON, the same however it was loaded."""
    state = json.loads(backend.to_str()) | {"padding": None, "truncation": None}
    return json.dumps(state, sort_keys=True, ensure_ascii=False, indent=1).encode()


def fingerprint(tokenizer: Any) -> str:
    """Name a tokenizer by what it does, however it was loaded (or by its ``tokenizer.json``).

    Gives the SHA-256, in hexadecimal, of its vocabulary and rules; padding and truncation don't
    count.

    Raises:
        CourseError: There is no such file, or it is no fast tokenizer.
    """
    return hashlib.sha256(canonical(_backend(tokenizer))).hexdigest()


class Encoder:
    """Texts to ids as bytes, the very ids that the tokenizer gives.

    Where words can be encoded one by one, each is encoded once and remembered. That is exact if
    nothing looks across a space: BERT's normalizer changes single characters, its pre-tokenizer
    cuts at white space, WordPiece sees one piece at a time. Other tokenizers get whole texts.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.backend = _backend(tokenizer)
        self.vocabulary = self.backend.get_vocab_size()
        self._code = "H" if self.vocabulary <= 2**16 else "i"
        self.type = np.dtype(f"<{self._code}")
        around = self.backend.encode("").ids
        if len(around) != 2 or self.backend.token_to_id("[PAD]") is None:
            raise CourseError(
                f"The tokenizer puts {len(around)} special tokens around a text.",
                "BERT reads [CLS] text [SEP], and [PAD] where a row has no text.",
                "Give it a BertProcessing post-processor and the five special tokens of BERT, as "
                "corpus.train_tokenizer does.",
            )
        self.cls, self.sep = (self._raw([token]) for token in around)
        self._separator_id = around[1]
        self._separator = self.backend.id_to_token(around[1])
        self.pad_id = self.backend.token_to_id("[PAD]")
        inside = [at for token, at in self.backend.get_vocab().items() if token.startswith("##")]
        self.continues = np.isin(np.arange(self.vocabulary), inside)
        self._ids: dict[str, bytes] | None = {} if self._by_words() else None

    @property
    def caches(self) -> bool:
        """Whether words are encoded once and remembered."""
        return self._ids is not None

    def _by_words(self) -> bool:
        """Tell whether a text's ids are its words' ids, one after another."""
        state = json.loads(self.backend.to_str())
        added = {token["content"]: token for token in state["added_tokens"]}
        separator = added.get(self._separator, {"normalized": True})
        return (
            (state["normalizer"] or {}).get("type") == "BertNormalizer"
            and (state["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
            and state["model"].get("type") == "WordPiece"
            and not separator["normalized"]
            # No added token looks at its neighbours, spans words, or swallows the separator.
            and not any(token["single_word"] for token in added.values())
            and not any(character.isspace() for text in added for character in text)
            and not any(self._separator in text for text in added.keys() - {self._separator})
            and not any(
                self._separator.startswith(text[at:])
                for text in added
                for at in range(1, len(text))
            )
        )

    def _raw(self, ids: Sequence[int]) -> bytes:
        return struct.pack(f"<{len(ids)}{self._code}", *ids)

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        """Encode each text by itself."""
        found = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [self._raw(encoding.ids) for encoding in found]

    def _encode_words(self, words: Sequence[str]) -> list[bytes]:
        """Encode many short texts at once: each call of the tokenizer costs more than a word."""
        starts = range(0, len(words), JOINED)
        texts = [self._separator.join(words[start : start + JOINED]) for start in starts]
        flat = np.frombuffer(b"".join(ids + self.sep for ids in self._encode(texts)), self.type)
        ends = np.flatnonzero(flat == self._separator_id)
        if len(ends) != len(words):  # a word has the separator in it
            return self._encode(words)
        raw, size = flat.tobytes(), self.type.itemsize
        starts = [0, *((ends + 1) * size).tolist()]
        return [raw[start:end] for start, end in zip(starts, (ends * size).tolist(), strict=False)]

    def __call__(self, texts: Sequence[str]) -> list[bytes]:
        """Encode texts: for each its ids without ``[CLS]`` and ``[SEP]``, as bytes of ``type``."""
        if self._ids is None:
            return self._encode(texts)
        # At spaces only: Python and the tokenizer disagree about some other white space.
        words = [text.split(" ") for text in texts]
        if len(self._ids) > CACHED_WORDS:
            self._ids.clear()
        new = list(set(itertools.chain.from_iterable(words)).difference(self._ids))
        self._ids.update(zip(new, self._encode_words(new), strict=True))
        encoded = [b"".join(map(self._ids.__getitem__, text)) for text in words]
        for word in new:
            if len(word) > CACHED_LENGTH:
                del self._ids[word]
        return encoded
