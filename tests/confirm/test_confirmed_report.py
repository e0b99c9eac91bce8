"""A report is read back as it was written, and one that can't be true is refused in words."""

import json
import re
from collections.abc import Iterator

import pytest
from confirm.reports import CHIP, content, text
from conventions import NOTEBOOKS, ROOT, source

from helpers.base.errors import CourseError
from helpers.confirm import checks, measure, programs
from helpers.confirm import report as reports


def test_a_report_is_read_back_as_it_was_written():
    report = reports.read(text())
    assert report.chip == CHIP and report.devices == 8 and not report.rehearsed
    assert reports.read(reports.to_json(report)) == report
    assert reports.read(f"```json\n{text()}\n```\n") == report


def change(part: str, number: int, **values):
    """Change fields of one of a report's times or sentences."""

    def broken() -> str:
        report = content()
        report[part][number].update(values)
        return json.dumps(report)

    return broken


def without(part: str) -> str:
    report = content()
    report[part].pop()
    return json.dumps(report)


def missing(field: str) -> str:
    report = content()
    del report[field]
    return json.dumps(report)


BROKEN = {
    "no JSON": (lambda: text()[:-1], "It is no JSON: Expecting ',' delimiter"),
    "an endless file": (lambda: " []" * 200_000, "more than 400,000 characters"),
    "not a number": (change("times", 0, predicted_ms=float("nan")), "NaN is no number of JSON"),
    "a list": (lambda: "[]", "The report: [] is not of type 'object'"),
    "another schema": (lambda: text(schema=2), "Its schema is 2, and this course reads 1."),
    "a missing field": (lambda: missing("framework"), "'framework' is a required property"),
    "an unknown field": (lambda: text(price=1), "'price' was unexpected"),
    "an unknown chip": (
        lambda: text(place={"kind": "tpu_vm", "chip": "v9", "devices": 8}),
        "place.chip is 'v9'; there are predictions for v2, v3, v4, v5e, v5p, v6e, tpu7x.",
    ),
    "nine measurements": (change("times", 0, steps_ms=[9.0] * 9), "times[0].steps_ms: "),
    "no time": (change("times", 1, steps_ms=[0.0] * 10), "less than or equal to the minimum of 0"),
    "an unknown program": (change("times", 2, program="sort"), "There is no program 'sort'."),
    "a program twice": (change("times", 1, program="product"), "The program product is there more"),
    "a missing program": (lambda: without("times"), "The program training is missing."),
    "too fast": (
        change("times", 0, steps_ms=[1.0] * 10),
        "product took 1 ms, and a v5e can't do it in less than",
    ),
    "another prediction": (change("times", 3, predicted_ms=1.0), "not changed afterwards"),
    "another memory predicted": (change("times", 3, predicted_bytes=1), "not changed afterwards"),
    "too much memory": (change("times", 4, peak_bytes=2**40), "training took 1,099,511,627,776"),
    "a fake counter": (change("times", 0, counter="fake"), "product has a fake memory counter"),
    "memory of no counter": (change("times", 0, counter="none"), "by the counter none"),
    "an unknown sentence": (change("sentences", 0, id="x"), "There is no sentence 'x'."),
    "a missing sentence": (lambda: without("sentences"), "is missing."),
    "an unknown verdict": (change("sentences", 0, verdict="yes"), "'yes' is not one of"),
    "no evidence": (
        change("sentences", 0, verdict="refuted"),
        "00-v4 is refuted, without evidence.",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_report_is_refused_in_words(name):
    broken, words = BROKEN[name]
    with pytest.raises(CourseError) as refusal:
        reports.read(broken())
    assert words in refusal.value.why
    assert len(refusal.value.why) < 400
    assert refusal.value.fix.endswith(".")


def test_a_rehearsal_may_be_quick_and_have_a_fake_counter():
    report = content(rehearsed=True)
    for time in report["times"]:
        time.update(steps_ms=[0.01] * 10, counter="fake")
    assert reports.read(json.dumps(report)).rehearsed


def test_each_kind_of_tpu_has_a_prediction_of_each_program():
    names = [program.name for program in programs.PROGRAMS]
    chips = {prediction.chip for prediction in reports.predictions()}
    assert len(reports.predictions()) == len(chips) * len(names)
    for chip in chips:
        rows = reports.predictions_of(chip)
        assert [*rows] == names
        peaks = [rows[program.name].peak_bytes for program in measure.in_order_of_memory(chip)]
        assert peaks == sorted(peaks)
        for program in programs.PROGRAMS:
            row = rows[program.name]
            assert row.ms >= row.least_ms > 0


# What says that only a TPU can confirm a sentence.
MARK = re.compile(
    r"(?:not (?:been )?confirmed on a TPU"
    r"|(?:not|Nothing)[^.,;]{0,30} (?:tried|run) on a TPU\b"
    r"|(?:we|and) have not tried|not tried by us|(?:and|;|command was) not tried[.)]|could not try)"
    r"[^.;)]*[.;)]",
    re.IGNORECASE,
)


def marked_sentences(words: str) -> Iterator[str]:
    for match in MARK.finditer(words):
        before = re.split(r"[.(]", words[: match.start()])[-1]
        yield (before + match[0]).strip()


def plain_text(path) -> str:
    """The words of a page, of a notebook's text, or of a program, on one line."""
    words = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(words)["cells"]
        words = "\n\n".join(source(cell) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"\s*\n\s*(?:# )?", " ", words)


def pages() -> list:
    """What a reader reads, and the programs that say what was not confirmed."""
    paths = [ROOT / "README.md", ROOT / "tpu_preflight/README.md", *NOTEBOOKS]
    for name in ("APPENDIX", "CHEATSHEET", "GLOSSARY", "TEACHING", "WELCOME"):
        paths.append(ROOT / f"notebooks/{name}.md")
    for folder in ("helpers", "course", "tpu_preflight/src"):
        for suffix in ("py", "toml"):
            paths += sorted((ROOT / folder).rglob(f"*.{suffix}"))
    return [path for path in paths if not path.is_relative_to(ROOT / "helpers/confirm")]


@pytest.mark.parametrize("sentence", reports.unconfirmed(), ids=lambda sentence: sentence.id)
def test_a_sentence_is_in_its_text_once_and_has_a_check(sentence):
    assert plain_text(ROOT / sentence.where).count(sentence.sentence) == 1
    assert callable(getattr(checks, sentence.check))


def test_no_other_sentence_says_that_it_is_not_confirmed():
    listed = {}
    for sentence in reports.unconfirmed():
        listed.setdefault(sentence.where, []).append(sentence.sentence)
    missed = []
    for path in pages():
        name = path.relative_to(ROOT).as_posix()
        for words in marked_sentences(plain_text(path)):
            if not any(words in sentence or sentence in words for sentence in listed.get(name, [])):
                missed.append((name, words))
    assert missed == []
