"""Text to token ids: the ids that a tokenizer gives, word by word where that is exact."""

import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers

from helpers.base.errors import CourseError

# Maximum number of words whose ids are kept, and of characters in such a word: a bound for memory.
CACHED_WORDS = 500_000
CACHED_LENGTH = 64


def backend(tokenizer: Any) -> tokenizers.Tokenizer:
    """Copy the Rust tokenizer in whatever the user has; the copy neither pads nor truncates.

    Args:
        tokenizer: A ``BertTokenizerFast``, a ``tokenizers`` tokenizer, a ``tokenizer.json``'s path.

    Raises:
        CourseError: There is no such file, or it is no fast tokenizer.
    """
    try:
        if isinstance(tokenizer, str | os.PathLike):
            text = pathlib.Path(tokenizer).read_text("utf-8")
        else:
            found = getattr(tokenizer, "backend_tokenizer", tokenizer)
            text = getattr(found, "_tokenizer", found).to_str()
        copy = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises Exception itself
        raise CourseError(
            f"{str(tokenizer)[:80]} is no tokenizer that records can be written with.",
            f"{type(error).__name__}: {str(error)[:200].rstrip('.')}.",
            "Pass a BertTokenizerFast, a tokenizers.Tokenizer or the path of tokenizer.json, as "
            "save_pretrained or Tokenizer.save wrote it.",
        ) from error
    copy.no_padding()
    copy.no_truncation()
    return copy


def canonical(tokenizer: Any) -> str:
    """Write a tokenizer (as for `backend`) as JSON, the same however it was loaded."""
    state = json.loads(backend(tokenizer).to_str())
    return json.dumps(state, sort_keys=True, ensure_ascii=False, indent=1)


def fingerprint(tokenizer: Any) -> str:
    """Name a tokenizer (as for `backend`) by what it does, however it was loaded.

    Gives the SHA-256, in hexadecimal, of its vocabulary and rules; padding and truncation don't
    count.
    """
    return hashlib.sha256(canonical(tokenizer).encode()).hexdigest()


class Encoder:
    """Texts to ids, the very ids that the tokenizer (as for `backend`) gives.

    Where words can be encoded one by one, each is encoded once and remembered. That is exact if
    nothing looks across a space: BERT's normalizer changes single characters, its pre-tokenizer
    cuts at white space, WordPiece sees one piece at a time. Other tokenizers get whole texts.

    Raises:
        CourseError: As `backend`, or the tokenizer has no ``[CLS]``, ``[SEP]`` and ``[PAD]``.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = backend(tokenizer)
        self.vocabulary = self._tokenizer.get_vocab_size()
        self.type = np.dtype("<u2" if self.vocabulary <= 2**16 else "<i4")
        around = self._tokenizer.encode("").ids
        self.pad_id = self._tokenizer.token_to_id("[PAD]")
        if len(around) != 2 or self.pad_id is None:
            raise CourseError(
                f"The tokenizer puts {len(around)} special tokens around a text.",
                "BERT reads [CLS] text [SEP], and [PAD] where a row has no text.",
                "Give it a BertProcessing post-processor and the five special tokens of BERT, as "
                "corpus.train_tokenizer does.",
            )
        self.cls, self.sep = (self._raw([token]) for token in around)
        self._words: dict[str, bytes] | None = {} if self._by_words() else None

    def _by_words(self) -> bool:
        """Tell whether a text's ids are its words' ids, one after another."""
        state = json.loads(self._tokenizer.to_str())
        parts = ("normalizer", "pre_tokenizer", "model")
        return [(state[part] or {}).get("type") for part in parts] == [
            "BertNormalizer",
            "BertPreTokenizer",
            "WordPiece",
        ] and not any(  # an added token that looks at its neighbours, or spans words
            token["single_word"] or any(map(str.isspace, token["content"]))
            for token in state["added_tokens"]
        )

    def _raw(self, ids: Sequence[int]) -> bytes:
        return np.array(ids, self.type).tobytes()

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [self._raw(encoding.ids) for encoding in found]

    def __call__(self, texts: Sequence[str]) -> list[bytes]:
        """Encode texts: for each its ids without ``[CLS]`` and ``[SEP]``, as bytes of ``type``."""
        if self._words is None:
            return self._encode(texts)
        # At spaces only: Python and the tokenizer disagree about some other white space.
        words = [text.split(" ") for text in texts]
        if len(self._words) > CACHED_WORDS:
            self._words.clear()
        new = list(set(itertools.chain.from_iterable(words)).difference(self._words))
        self._words.update(zip(new, self._encode(new), strict=True))
        encoded = [b"".join(map(self._words.__getitem__, text)) for text in words]
        for word in new:
            if len(word) > CACHED_LENGTH:
                del self._words[word]
        return encoded
