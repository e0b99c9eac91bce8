"""Labelled text from a table (TSV) or JSON lines, and its two parts. Imports no TensorFlow."""

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from helpers.base.errors import CourseError
from helpers.text import corpus

PARTS = ("train", "test")
EVERY = 5  # without a part of its own, the last of so many texts of a label is tested

# Where a row stands, for a message, and its values by column.
_Row = tuple[str, dict[str, str]]


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Texts and what they are."""

    texts: tuple[str, ...]
    labels: np.ndarray  # of each text, as a number in `Labelled.names`: int64 [texts]
    # Texts of one group (a page, an author) are alike beyond their label: int64 [texts].
    groups: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int] | np.ndarray) -> "Part":
        """Give some of the texts, by number."""
        texts = tuple(self.texts[row] for row in rows)
        return Part(texts, self.labels[rows], self.groups[rows])

    def few(self, per_label: int, seed: int = 0) -> "Part":
        """Draw so many texts of each label (all where there are fewer); a larger draw has them."""
        draw = np.random.default_rng(seed)
        rows = [
            draw.permutation(np.flatnonzero(self.labels == label))[:per_label]
            for label in np.unique(self.labels)
        ]
        return self.take(np.concatenate(rows))


@dataclasses.dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled texts, to train on and to test on."""

    names: tuple[str, ...]  # of the labels, in order
    train: Part
    test: Part

    def __repr__(self) -> str:
        sizes = [
            f"{name} {np.sum(self.train.labels == at):,}/{np.sum(self.test.labels == at):,}"
            for at, name in enumerate(self.names)
        ]
        return (
            f"{len(self.train):,} texts to train on, {len(self.test):,} to test on; "
            f"{len(self.names)} labels: {', '.join(sizes)}"
        )

    @functools.cached_property
    def overlap(self) -> int:
        """Number of test texts that are in the training part, too."""
        seen = set(self.train.texts)
        return sum(text in seen for text in self.test.texts)

    @property
    def fingerprint(self) -> dict[str, object]:
        """What tells these data from others."""
        parts = [(part.texts, part.labels.tolist()) for part in (self.train, self.test)]
        content = json.dumps([self.names, parts]).encode()
        return {"rows": len(self.train), "content": hashlib.sha256(content).hexdigest()}


def read(
    path: str | os.PathLike[str],
    *,
    text: str = "text",
    label: str = "label",
    part: str | None = None,
    group: str | None = None,
    test: str | os.PathLike[str] | None = None,
) -> Labelled:
    """Read labelled texts.

    Args:
        path: A table with tabs between its columns and their names in the first line, or JSON
            lines; UTF-8.
        text: Name of the column with the text.
        label: Of the column with the label.
        part: Of the column that says ``train`` or ``test``; None: ``part``, where there is one.
        group: Of a column; texts with the same value there stay in one part.
        test: Another file, with the texts to test on.

    Without ``part`` and ``test`` the last of each five groups of a label is tested on; a text that
    stands there twice is a group.

    Raises:
        CourseError: A file can't be read or lacks a column; a text is empty; there is one label
            alone, or one that only the test part has; or a part has no text.
    """
    name = pathlib.Path(path).name
    rows = _rows(pathlib.Path(path))
    if test is not None and part is not None:
        raise CourseError(
            "The texts to test on are named twice.",
            f"The column {part!r} tells them, and {pathlib.Path(test).name} holds others.",
            "Name one of the two.",
        )
    wanted = {"text": text, "label": label} | ({"group": group} if group else {})
    if part is None and test is None and "part" in rows[0][1]:
        part = "part"
    found = [_checked(row, name, wanted | ({"part": part} if part else {})) for row in rows]
    if test is not None:
        path = pathlib.Path(test)
        found = [row | {"part": "train"} for row in found]
        found += [_checked(row, path.name, wanted) | {"part": "test"} for row in _rows(path)]
    elif part is None:
        _hold_out(found)
    return _divided(found, name)


def _rows(path: pathlib.Path) -> list[_Row]:
    """Read a file's rows, whatever columns it has; there is at least one."""
    corpus.check_file(path)
    with path.open("rb") as file:
        if kind := corpus.other_kind(file.read(8)):
            raise CourseError(f"{path.name} is no text.", f"It is {kind['what']}.", kind["fix"])
        file.seek(0)
        lines = corpus.lines(file, path.name)
        first = next(lines)
        lines = itertools.chain([first], lines)
        found = list(
            _json(lines, path.name) if corpus.is_json(first[1]) else _tsv(lines, path.name)
        )
    if not found:
        what = f"{path.name} has a first line and nothing below it."
        why = "The first line of a table names the columns."
        raise CourseError(what, why, "Name a table with texts.")
    return found


def _json(lines: Iterator[tuple[int, str]], name: str) -> Iterator[_Row]:
    for number, line in lines:
        if not corpus.is_json(line):
            raise CourseError(
                f"{name}, line {number:,}, is no JSON object, and the first line is.",
                "Each line must be one.",
                "Mend this line. If it is the last, the file was cut off: copy it again.",
            )
        row = json.loads(line)
        # A number or a truth value is a fine label; a list is none.
        kept = {key: "" if value is None else str(value) for key, value in row.items()}
        for key in [key for key, value in row.items() if isinstance(value, list | dict)]:
            del kept[key]
        yield f"line {number:,}", kept


def _tsv(lines: Iterator[tuple[int, str]], name: str) -> Iterator[_Row]:
    columns = [_unquoted(value) for value in next(lines)[1].split("\t")]
    for number, line in lines:
        values = [_unquoted(value) for value in line.split("\t")]
        if len(values) != len(columns):
            raise CourseError(
                f"{name}, line {number:,}, has {len(values)} columns, and the first line "
                f"{len(columns)}.",
                "A tab or the end of a line stands in a text, or something is missing.",
                "Write a space for it in the text.",
            )
        yield f"line {number:,}", dict(zip(columns, values, strict=True))


def _unquoted(value: str) -> str:
    """Take away the quotation marks that a spreadsheet puts around a value; others are text."""
    inside = value[1:-1]
    quoted = len(value) > 1 and value[0] == value[-1] == '"'
    if quoted and '"' not in inside.replace('""', ""):
        return inside.replace('""', '"')
    return value


def _checked(row: _Row, name: str, wanted: dict[str, str]) -> dict[str, str]:
    """Take what is wanted of a row."""
    where, values = row
    found = {"where": f"{name}, {where}"}
    for what, column in wanted.items():
        if column not in values:
            has = ", ".join(map(repr, values))
            fix = f"Name the column: --{what} NAME."
            if len(values) == 1 and "," in has:
                fix = "Divide the columns by tabs; a spreadsheet saves such a table as TSV."
            raise CourseError(
                f"{found['where']}, has no {what}: there is no column {column!r}.",
                f"It has {has[:200]}.",
                fix,
            )
        if not values[column].strip():
            raise CourseError(
                f"{found['where']}, has an empty {what}.",
                "Nothing can be learned or told of it.",
                "Fill it in, or remove the line.",
            )
        found[what] = values[column].strip()
    if found.get("part", "train") not in PARTS:
        raise CourseError(
            f"{found['where']}, is of the part {found['part']!r}.",
            "A text is trained on or tested on.",
            "Write train or test in each row, and remove the rows that shall be neither.",
        )
    return found


def _hold_out(rows: list[dict[str, str]]) -> None:
    """Give each row a part: the last of each `EVERY` groups of a label is tested."""
    parts, counts = {}, {}
    for row in rows:
        of = row.get("group", row["text"])
        if of not in parts:
            counts[row["label"]] = counts.get(row["label"], 0) + 1
            parts[of] = PARTS[counts[row["label"]] % EVERY == 0]
        row["part"] = parts[of]


def _divided(rows: list[dict[str, str]], name: str) -> Labelled:
    parts = {part: [row for row in rows if row["part"] == part] for part in PARTS}
    for part, some in parts.items():
        if not some:
            raise CourseError(
                f"{name} has no text to {part} on.",
                f"With fewer than {EVERY} texts of each label none is held out."
                if not any(row["part"] == "test" for row in rows)
                else "Each row is of the other part.",
                "Add texts, or name a file to test on: --test FILE.",
            )
    names = tuple(sorted({row["label"] for row in parts["train"]}))
    if len(names) == 1:
        raise CourseError(
            f"All texts to train on have the label {names[0]!r}.",
            "With one label there is nothing to tell apart.",
            "Look whether --label names the right column, and the part has all labels.",
        )
    for row in parts["test"]:
        if row["label"] not in names:
            raise CourseError(
                f"{row['where']}: the label {row['label']!r} is in the test part alone.",
                "No text to train on has it, so it can't be guessed.",
                "Move some of its texts to the training part, or mend the label.",
            )
    groups = {row.get("group", row["text"]) for row in rows}
    numbers = {group: at for at, group in enumerate(sorted(groups))}
    made = (
        Part(
            tuple(row["text"] for row in some),
            np.array([names.index(row["label"]) for row in some]),
            np.array([numbers[row.get("group", row["text"])] for row in some]),
        )
        for some in (parts["train"], parts["test"])
    )
    return Labelled(names, *made)
