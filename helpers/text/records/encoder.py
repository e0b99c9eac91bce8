"""The tokenizer that records are written with, and its name by what it does."""

import hashlib
import json
import os
import pathlib
from typing import Any

import tokenizers

from helpers.base.errors import CourseError


def backend(tokenizer: Any) -> tokenizers.Tokenizer:
    """Copy the Rust tokenizer in whatever the user has; the copy neither pads nor truncates.

    Args:
        tokenizer: A ``BertTokenizerFast``, a ``tokenizers`` tokenizer, a ``tokenizer.json``'s path.

    Raises:
        CourseError: There is no such file, it is no fast tokenizer, or it has no ``[CLS]``,
            ``[SEP]`` and ``[PAD]``.
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
    if len(around := copy.encode("").ids) != 2 or copy.token_to_id("[PAD]") is None:
        raise CourseError(
            f"The tokenizer puts {len(around)} special tokens around a text.",
            "BERT reads [CLS] text [SEP], and [PAD] where a row has no text.",
            "Give it a BertProcessing post-processor and the five special tokens of BERT, as "
            "corpus.train_tokenizer does.",
        )
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
