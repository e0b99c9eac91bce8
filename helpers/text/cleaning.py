"""Which documents are trained on: long enough, short enough, in the right script, and said once."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from helpers.base.errors import CourseError
from helpers.text import corpus, sources

# What can be wrong with a document, as the command and the manifest count it.
WORDS = {
    "empty": "empty",
    "too_short": "too short",
    "too_long": "too long",
    "other_script": "in another script",
    "duplicates": "duplicates",
    "near_duplicates": "near duplicates",
}
LEFT_OUT = tuple(WORDS)
TOLD = 20  # sources that are told of one by one

PIECE = 5  # characters
PERMUTATIONS, BANDS, ROWS = 64, 5, 11  # what datasketch takes for a similarity of 0.8


@dataclasses.dataclass(frozen=True)
class Rules:
    """What leaves a document out; by default only that it is empty.

    Attributes:
        min_characters: The fewest a document may have, when it is clean.
        max_characters: The most; None for any number.
        scripts: Unicode's names, such as ``hangul``. More than half of a document's letters must
            be of these; one without letters stays. Empty: any.
        drop_duplicates: Leave out what is, character by character, an earlier document: in order of
            the files' names. It takes some 95 MB of memory for each million documents.
        near_duplicates: Count or leave out what shares most of its pieces of five characters with
            an earlier one: of those that share 95 % it finds 99 %, at 90 % 85 %, at 80 % 36 %, at
            60 % 2 % (MinHash, 5 bands of 11). Some 500 MB for each million documents.

    Raises:
        CourseError: A number is out of its range, or Unicode knows no such script.
    """

    min_characters: int = 0
    max_characters: int | None = None
    scripts: tuple[str, ...] = ()
    drop_duplicates: bool = False
    near_duplicates: Literal["count", "drop"] | None = None

    def __post_init__(self) -> None:
        most = self.max_characters
        if most is not None and most < max(1, self.min_characters):
            raise CourseError(
                f"No document has {self.min_characters:,} to {most:,} characters.",
                "All of them would be left out.",
                "Make --max-characters larger than --min-characters.",
            )
        if self.scripts:
            _letters(self.scripts)

    @property
    def compare(self) -> bool:
        """Whether documents are compared with each other, which takes a reading of its own."""
        return self.drop_duplicates or self.near_duplicates is not None

    def against(self, text: str) -> str | None:
        """Say what leaves a clean text out, by itself; None if nothing does."""
        if not text:
            return "empty"
        if len(text) < self.min_characters:
            return "too_short"
        if self.max_characters is not None and len(text) > self.max_characters:
            return "too_long"
        if self.scripts:
            every, these = _letters(self.scripts)
            if sum(map(len, these.findall(text))) * 2 < sum(map(len, every.findall(text))):
                return "other_script"
        return None


@functools.cache
def _letters(scripts: tuple[str, ...]) -> tuple[Any, Any]:
    """Give patterns for all letters, and for those of some scripts."""
    import regex

    try:
        if not all(map(str.strip, scripts)):
            raise regex.error("no name")
        each = "".join(rf"\p{{Script={script.strip()}}}" for script in scripts)
        return regex.compile(r"\p{L}+"), regex.compile(rf"[\p{{L}}&&[{each}]]+", regex.V1)
    except regex.error:
        raise CourseError(
            f"Unicode has no script of the name {', '.join(scripts)}.",
            "A script is a set of letters, such as hangul, latin, han, hiragana, cyrillic.",
            "Write one of those; --script can be repeated.",
        ) from None


@dataclasses.dataclass
class Cleaned:
    """A source's documents as they are trained on."""

    source: sources.Source  # where they come from
    rules: Rules = dataclasses.field(default_factory=Rules)  # what leaves a document out
    # From `compared`: for each place 1 if the document is a duplicate, 2 if nearly.
    repeats: bytes = b""

    def __post_init__(self) -> None:
        self._survey, self._left_out = corpus.survey([]), collections.Counter()

    @property
    def name(self) -> str:
        """The source's."""
        return self.source.name

    def documents(
        self, done: Callable[[int], None] = lambda size: None
    ) -> Iterator[sources.Document]:
        """Clean the source's documents, leave some out, and count what is found in them."""
        self.__post_init__()
        documents, repeats = self.source.documents(done=done), self.repeats
        while some := list(itertools.islice(documents, 1_000)):
            given = [document.text for document in some]
            texts = [corpus.clean(text) for text in given]
            self._survey += corpus.survey(given, texts)
            for document, text in zip(some, texts, strict=True):
                why = self.rules.against(text)
                if why is None and document.place < len(repeats) and repeats[document.place]:
                    near = repeats[document.place] == 2
                    why = "near_duplicates" if near else "duplicates"
                if why:
                    self._left_out[why] += 1
                if why is None or (why, self.rules.near_duplicates) == ("near_duplicates", "count"):
                    yield dataclasses.replace(document, text=text)

    def report(self) -> dict[str, Any]:
        """Give what was found in all documents, and how many were left out for what."""
        left_out = {why: self._left_out[why] for why in LEFT_OUT}
        return {"survey": dataclasses.asdict(self._survey), "left_out": left_out}


def compared(
    found: Sequence[Cleaned], done: Callable[[int], None] = lambda size: None
) -> list[Cleaned]:
    """Find the documents that repeat an earlier one, of any source (all have the same rules).

    All are read once, here, in the order given; where they are read again, in whatever process,
    the same are left out. ``done`` as for `sources.Source.documents`.
    """
    seen, near, marked = set(), None, []
    for cleaned in found:
        marks, rules = bytearray(), cleaned.rules
        for document in cleaned.source.documents(done=done):
            text = corpus.clean(document.text)
            if rules.against(text):
                continue
            marks.extend(bytes(document.place + 1 - len(marks)))
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            if rules.drop_duplicates and digest in seen:
                marks[-1] = 1
            elif rules.near_duplicates:
                near = near or _Near()
                marks[-1] = 2 * near.seen(text)
            if rules.drop_duplicates:
                seen.add(digest)
        marked.append(dataclasses.replace(cleaned, repeats=bytes(marks)))
    return marked


class _Near:
    """Texts by what nearly equal ones share: some part of their MinHash."""

    def __init__(self) -> None:
        from datasketch import MinHash

        first = MinHash(PERMUTATIONS, hashfunc=zlib.crc32)
        # Drawing the permutations anew for each text would take most of the time.
        self._empty = functools.partial(
            MinHash, PERMUTATIONS, hashfunc=zlib.crc32, permutations=first.permutations,
            scheme=first.scheme,
        )  # fmt: skip
        self._seen: set[bytes] = set()

    def seen(self, text: str) -> bool:
        """Tell whether a nearly equal text was seen before; if not, keep this one."""
        pieces = {text[at : at + PIECE] for at in range(max(1, len(text) - PIECE + 1))}
        hashed = self._empty()
        hashed.update_batch(piece.encode() for piece in pieces)
        values = hashed.hashvalues[: BANDS * ROWS].reshape(BANDS, ROWS)
        bands = {
            hashlib.blake2b(bytes([at]) + band.tobytes(), digest_size=16).digest()
            for at, band in enumerate(values)
        }
        if not self._seen.isdisjoint(bands):
            return True
        self._seen |= bands
        return False


def told(reports: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Say what `Cleaned.report` gave for sources (one by one if few), and what was left out."""
    named = [(name, report["survey"]) for name, report in sorted(reports)]
    surveys = [(name, corpus.Survey(**survey)) for name, survey in named]
    if len(surveys) > TOLD:
        total = functools.reduce(lambda one, other: one + other, (found for _, found in surveys))
        surveys = [(f"{len(surveys):,} files", total)]
    yield from (f"{name}: {survey}" for name, survey in surveys)
    counts = collections.Counter()
    for _, report in reports:
        counts.update(report["left_out"])
    if left_out := [f"{WORDS[why]} {counts[why]:,}" for why in LEFT_OUT[1:] if counts[why]]:
        yield f"By the rules: {', '.join(left_out)}"
