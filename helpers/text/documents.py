"""Documents, and which of them a shard gets. `course.documents` reads them from files of any kind.

Which documents a shard gets is a pure function of the documents, the number of shards and the seed.
"""

import abc
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow.compute

from helpers.text import corpus

LONGEST = 2**20  # bytes of a document in UTF-8: the tokenizer needs a hundred for each


def cut(document: bytes) -> Iterator[bytes]:
    """Cut a document in UTF-8 into some of at most ``LONGEST`` bytes: at a space, if there is one.

    Pieces are taken from the beginning on, so those of a document that goes on are its first.
    """
    start = 0
    while len(document) - start > LONGEST:
        end = document.rfind(b" ", start + 1, start + LONGEST)
        if end < 0:
            end = start + LONGEST
            while document[end] & 0xC0 == 0x80:  # inside of a character
                end -= 1
        yield document[start:end]
        start = end
    yield document[start:]


def _cut_all(arrays: Iterable[pyarrow.Array]) -> Iterator[pyarrow.Array]:
    """Give arrays of documents, where long ones are cut: each piece is then a document."""
    for texts in arrays:
        longest = pyarrow.compute.max(pyarrow.compute.binary_length(texts)).as_py()
        if longest is None or longest <= LONGEST:
            yield texts
            continue
        for text in texts:
            document = (text.as_py() or "").encode()
            for piece in cut(document):
                yield pyarrow.array([piece.decode()], pyarrow.string())


class Source(abc.ABC):
    """Where documents come from: one file or several, each with documents in order.

    A document of more than ``LONGEST`` bytes counts as several.
    """

    @abc.abstractmethod
    def files(self) -> Iterator[Iterable[pyarrow.Array]]:
        """Give the documents of each file as arrays of strings, some thousand at a time."""

    def versions(self) -> list[str]:
        """Name the state of each file; the name changes when the file does."""
        return []

    def digest(self) -> str:
        """Name the documents by what they say and by their order.

        Raises `CourseError`: A file can't be read.
        """
        total = hashlib.blake2b(digest_size=8)
        for arrays in self.files():
            for texts in _cut_all(arrays):
                for text in texts.to_pylist():
                    total.update(f"{text or ''}\0".encode())
            total.update(b"\0")
        return total.hexdigest()

    def shard(self, part: str, number: int, shards: int, seed: int) -> Iterator[str]:
        """Give one shard's documents, cleaned, without those of which nothing is left.

        Args:
            part: ``all``, ``train`` or ``held-out``: of each file, the last of each ten documents
                is held out (`corpus.held_out`; blank lines don't count).
            number: Of the shard, from 0.
            shards: How many shards there are; which one gets a document is drawn.
            seed: Of that draw.
        """
        for file_number, arrays in enumerate(self.files()):
            # Numbers of this generator are the same in every version of NumPy (its policy, NEP 19).
            generator = np.random.Philox(key=[seed, file_number])
            documents_so_far = 0
            for texts in _cut_all(arrays):
                # Blank lines don't count for what is held out, but they do for the draw: it is
                # made for all texts of an array at once.
                trimmed = pyarrow.compute.utf8_trim_whitespace(texts)
                lengths = pyarrow.compute.utf8_length(trimmed).fill_null(0).to_numpy()
                has_text = lengths > 0
                position = documents_so_far + np.cumsum(has_text) - 1
                documents_so_far += int(has_text.sum())
                draw = generator.random_raw(len(texts)) % np.uint64(shards)
                mask = has_text & (draw == number)
                if part != "all":
                    mask &= corpus.held_out(position) == (part == "held-out")
                for text in texts.filter(pyarrow.array(mask)).to_pylist():
                    cleaned = corpus.clean(text)
                    if cleaned:
                        yield cleaned


@dataclasses.dataclass(frozen=True)
class InMemory(Source):
    """Documents in memory: a sequence of texts for each file."""

    texts: tuple[Sequence[str], ...]

    def files(self) -> Iterator[Iterable[pyarrow.Array]]:
        """Give the documents of each file as one array."""
        for texts in self.texts:
            yield [pyarrow.array(texts, pyarrow.string())]


def shipped() -> InMemory:
    """Give the course's own text: a file for each language, by name."""
    paths = sorted(corpus.DATA / f"{language}.txt" for language in corpus.LANGUAGES)
    return InMemory(tuple(corpus.read(path) for path in paths))
