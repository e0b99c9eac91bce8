"""What a classifier makes of texts whose labels are known. NumPy alone."""

import csv
import dataclasses
import functools
import io

import numpy as np

from helpers.bert.fine_tuning import metrics
from helpers.bert.fine_tuning.labelled import Part

WIDEST = 12  # labels of a confusion table that is written out


@dataclasses.dataclass(frozen=True)
class Guess:
    """One text, what it is, and what was guessed."""

    text: str
    label: str
    guessed: str
    confidence: float  # probability of the guessed label, 0 to 1


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """Guesses for labelled texts, and how good they are."""

    names: tuple[str, ...]  # of the labels
    part: Part
    probabilities: np.ndarray  # float32 [texts, labels]

    @functools.cached_property
    def guessed(self) -> np.ndarray:
        """The likeliest label of each text, int64 [texts]."""
        return self.probabilities.argmax(-1)

    @functools.cached_property
    def confusion(self) -> np.ndarray:
        """What was guessed for what: int64 [labels, labels], a row for each true label."""
        return metrics.confusion(self.part.labels, self.guessed, len(self.names))

    @functools.cached_property
    def numbers(self) -> dict[str, tuple[float, float, float]]:
        """Accuracy and macro-F1, each with its 95 % interval over the groups of texts."""
        found = {}
        for name in ("accuracy", "macro_f1"):
            measure = getattr(metrics, name)
            between = metrics.interval(
                self.part.labels,
                self.guessed,
                measure,
                len(self.names),
                groups=self.part.groups,
            )
            found[name] = (float(measure(self.confusion)), *between)
        return found

    @functools.cached_property
    def calibration(self) -> metrics.Calibration:
        """How often it is right when it is so sure."""
        return metrics.calibration(self.part.labels, self.probabilities)

    @functools.cached_property
    def guesses(self) -> list[Guess]:
        """Each text with its guess, in order."""
        rows = zip(self.part.texts, self.part.labels, self.guessed, strict=True)
        sure = self.probabilities.max(-1)
        return [
            Guess(text, self.names[label], self.names[guess], float(sure[at]))
            for at, (text, label, guess) in enumerate(rows)
        ]

    def mistakes(self, most: int = 10) -> list[Guess]:
        """Give the worst: wrong, and surest of it first."""
        wrong = [guess for guess in self.guesses if guess.guessed != guess.label]
        return sorted(wrong, key=lambda guess: -guess.confidence)[:most]

    def __repr__(self) -> str:
        said = [
            f"{name.replace('_f1', '-F1')} {value:.1%} (95 %: {low:.1%} to {high:.1%})"
            for name, (value, low, high) in self.numbers.items()
        ]
        error = f"calibration error {self.calibration.error:.1%}"
        return f"{len(self.part):,} texts: {', '.join([*said, error])}"

    def table(self) -> str:
        """Write what was guessed for what, in Markdown; of many labels the commonest mistakes."""
        if len(self.names) > WIDEST:
            wrong = self.confusion - np.diag(np.diag(self.confusion))
            order = np.argsort(-wrong, axis=None, kind="stable")[:WIDEST]
            places = [np.unravel_index(cell, wrong.shape) for cell in order]
            rows = [("true", "guessed", "texts")]
            rows += [(self.names[a], self.names[b], wrong[a, b]) for a, b in places if wrong[a, b]]
        else:
            rows = [("true \\ guessed", *self.names)]
            rows += [(name, *row) for name, row in zip(self.names, self.confusion, strict=True)]
        cells = [[str(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
            for row in cells
        ]
        return "\n".join([lines[0], "| " + " | ".join("-" * w for w in widths) + " |", *lines[1:]])

    def tsv(self) -> str:
        """Write each text with its label, its guess and the confidence, as a table with tabs."""
        file = io.StringIO()
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["label", "guessed", "confidence", "text"])
        for guess in self.guesses:
            writer.writerow([guess.label, guess.guessed, f"{guess.confidence:.4f}", guess.text])
        return file.getvalue()
