"""What `tpu-course confirm` prints of a report, and that a rehearsal confirms nothing."""

import csv
import json

import pytest
from confirm.reports import content, text
from conventions import NOTEBOOKS
from typer.testing import CliRunner

from course.commands.app import app
from helpers.confirm import report as reports
from tpu_preflight.estimate.calibration import Run


@pytest.fixture
def confirm(tmp_path):
    """The command, given what is in the file."""

    def run(words: str):
        path = tmp_path / "report.json"
        path.write_text(words, "utf-8")
        return CliRunner().invoke(app, ["confirm", str(path)])

    return run


def with_verdicts(**verdicts: str) -> str:
    """A report with some verdicts by id, in which "_" stands for "-"."""
    report = content()
    for sentence in report["sentences"]:
        verdict = verdicts.get(sentence["id"].replace("-", "_"))
        if verdict:
            sentence.update(verdict=verdict, evidence="seen")
    return json.dumps(report)


def test_a_report_gives_rows_that_the_table_of_published_steps_can_take(confirm):
    result = confirm(text())
    assert result.exit_code == 0
    lines = [line for line in result.output.splitlines() if line.startswith("Notebook 13, ")]
    assert len(lines) == 5
    for line in lines:
        (row,) = csv.DictReader([line], fieldnames=Run.__dataclass_fields__, delimiter="\t")
        values = {}
        for name, field in Run.__dataclass_fields__.items():
            values[name] = field.type(row[name])
        run = Run(**values)
        assert run.ratio == pytest.approx(1.1, rel=1e-3)
        assert run.excluded and run.target == "v5e-1"


def test_it_names_the_sentences_to_change_and_no_others(confirm):
    result = confirm(with_verdicts(readme="refuted", symptom_int8="confirmed"))
    _, _, changes = result.output.partition("Sentences to change:\n")
    assert "README.md: change the sentence: it is not so\n  Nothing was run on a TPU." in changes
    assert "helpers/display/symptoms.toml: take out that it isn't confirmed" in changes
    assert changes.count("(seen)") == 2


def test_a_rehearsal_is_labelled_and_gives_neither_rows_nor_sentences(confirm):
    result = confirm(text(rehearsed=True))
    assert result.exit_code == 1
    assert "Rehearsed on a CPU: it has the right form, and it confirms nothing." in result.output
    assert "Rows for" not in result.output and "Sentences to change" not in result.output


def test_what_notebook_13_printed_last_is_a_report_that_can_be_read(confirm):
    notebook = json.loads(NOTEBOOKS[13].read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    printed = "".join(code[-1]["outputs"][0]["text"])
    assert reports.read(printed).rehearsed
    assert confirm(printed).exit_code == 1
