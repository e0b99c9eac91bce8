"""A source of documents: a file, or a part of a dataset."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from helpers.base.folders import is_remote
from helpers.text.sources import kinds
from helpers.text.sources.streams import failures, stream


@dataclasses.dataclass(frozen=True)
class Document:
    """A text as it stands in its source; `corpus.clean` is still to come."""

    text: str  # the text; nothing of it may be left after cleaning
    source: str  # its source's name
    place: int  # its number in that source, from 0, whatever else is read


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of documents, that can be read again, and sent to another process."""

    name: str  # tells it from the other sources, wherever the files lie
    address: str  # its path, ``gs://…`` or ``hf://…``
    kind: str  # ``plain text``, ``JSON lines``, ``Parquet`` or ``dataset``
    compression: str | None  # ``gzip``, ``bz2``, ``xz``, ``zstd``, or None
    size: int | None  # bytes as stored, None where that is not known
    field: str = "text"  # with the text, where there are fields
    part: tuple[int, int] = (0, 1)  # (2, 8) for the third of a dataset's eight files

    def documents(self, done: Callable[[int], None] = lambda size: None) -> Iterator[Document]:
        """Read the documents in order; few of them are in memory at a time.

        ``done`` is called with the number of bytes just read, of `size`.

        Raises:
            CourseError: The file can't be read, or what is in it; the message says where.
        """
        where = ["its start"]
        remote = is_remote(self.address)
        with failures(self.name, self.compression, remote, where), contextlib.ExitStack() as stack:
            if self.kind == "dataset":
                texts = kinds.rows(kinds.dataset(self.address, self.part), self.name, self.field)
            elif self.kind == "Parquet":
                texts = kinds.parquet(self.address, self.compression, self.name, self.field, done)
            else:
                file = stack.enter_context(stream(self.address, self.compression, done))
                if self.kind == "JSON lines":
                    texts = kinds.json_lines(file, self.name, self.field)
                else:
                    texts = kinds.plain(file, self.name)
            for place, (at, text) in enumerate(texts):
                where[-1] = at
                if self.kind == "dataset":
                    done(len(text.encode()))  # how much was loaded for it, datasets doesn't say
                yield Document(text, self.name, place)
