"""Where documents come from: each input read as a stream, each document with its place in it."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

from helpers.base.errors import CourseError
from helpers.text import corpus


@dataclasses.dataclass(frozen=True)
class Document:
    """A text as it stands in its source; `corpus.clean` is still to come.

    Attributes:
        text: The text; nothing of it may be left after cleaning.
        source: Its source's name.
        place: Its number in that source, from 0, whatever else is read.
    """

    text: str
    source: str
    place: int


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of documents, that can be read again, and sent to another process.

    Attributes:
        name: Tells it from the other sources, wherever the files lie.
        address: Where it is.
        kind: What it holds: ``text``.
        compression: How it is compressed, None if it isn't.
        size: Bytes as stored, None where that is not known.
    """

    name: str
    address: str
    kind: str
    compression: str | None
    size: int | None

    def documents(self, start: int = 0) -> Iterator[Document]:
        """Read the documents in order; in memory is one at a time.

        Args:
            start: Place of the first one that is wanted.

        Raises:
            CourseError: The file can't be read, or what is in it; the message says where.
        """
        path = pathlib.Path(self.address)
        try:
            with path.open("rb") as file:
                for place, (_, line) in enumerate(corpus.lines(file, self.name)):
                    if place >= start:
                        yield Document(line, self.name, place)
        except OSError as error:
            raise CourseError(
                f"The text {self.name} can't be read.",
                f"{error.strerror}.",
                "Check who owns the file, and that you may read it.",
            ) from error


def find(inputs: Sequence[str], *, field: str = "text") -> tuple[Source, ...]:
    """Find what the inputs name, and tell of what kind each is.

    Args:
        inputs: Text files.
        field: Not used yet.

    Returns:
        The sources by their names, so the order of the inputs doesn't count.

    Raises:
        CourseError: There is no such file, or one is named twice.
    """
    found = {}
    for name in inputs:
        path = pathlib.Path(name).expanduser()
        corpus.check_file(path)
        address = str(path.resolve())
        if address in found:
            raise CourseError(
                f"The text {path.name} is given twice.",
                "Each of its documents would be trained on twice as often, and one copy of a "
                "held-out document could be trained on.",
                "Name each file once.",
            )
        found[address] = Source(path.name, address, "text", None, path.stat().st_size)
    return tuple(sorted(found.values(), key=lambda source: (source.name, source.address)))
