"""Labelled text as it is read from a file, and what is wrong with one."""

import json

import numpy as np
import pytest

from helpers.base.errors import CourseError
from helpers.bert.fine_tuning import exported
from helpers.bert.fine_tuning.labelled import read

ROWS = [(f"text {at} of {label}", label) for at in range(5) for label in ("b", "a")]


def table(rows, columns="text\tlabel"):
    return "\n".join([columns, *("\t".join(row) for row in rows)]) + "\n"


def file(folder, content, name="data.tsv"):
    path = folder / name
    path.write_text(content, "utf-8")
    return path


def test_a_table_and_json_lines_with_the_same_texts_are_the_same_data(tmp_path):
    found = read(file(tmp_path, table(ROWS)))
    lines = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)
    assert read(file(tmp_path, lines, "data.jsonl")).fingerprint == found.fingerprint
    assert found.names == ("a", "b") and found.overlap == 0
    assert found.test.texts == ("text 4 of b", "text 4 of a")  # the fifth of each label
    assert repr(found) == "8 texts to train on, 2 to test on; 2 labels: a 4/1, b 4/1"


def test_a_column_or_a_file_tells_the_parts(tmp_path):
    rows = [(*row, ("train", "test")[at % 3 == 0]) for at, row in enumerate(ROWS)]
    by_column = read(file(tmp_path, table(rows, "text\tlabel\tpart")))
    assert by_column.test.texts == tuple(text for text, _ in ROWS[::3])
    apart = [
        file(tmp_path, table([r[:2] for r in rows if r[2] == p]), p) for p in ("train", "test")
    ]
    assert read(apart[0], test=apart[1]).fingerprint == by_column.fingerprint
    named = table(rows, "en\tprogram\tsplit")
    found = read(file(tmp_path, named), text="en", label="program", part="split")
    assert found.fingerprint == by_column.fingerprint


def test_texts_of_a_group_and_equal_texts_stay_in_one_part(tmp_path):
    rows = [(f"text {at}", "ab"[at % 2], f"page {at // 6}") for at in range(60)]
    found = read(file(tmp_path, table(rows, "text\tlabel\tpage")), group="page")
    assert len(found.test) == 12 and not {*found.train.groups} & {*found.test.groups}
    twice = read(file(tmp_path, table([(text, label) for text, label, _ in rows] * 2)))
    assert len(twice.test) == 24 and twice.overlap == 0


def test_quotation_marks_are_text_but_around_a_value_as_a_spreadsheet_writes_it(tmp_path):
    texts = ['"OK" is a button', 'a "b" c', '"', '"Save" or "Open"', 'say ""']
    written = [(text, "a") for text in (texts[0], '"a ""b"" c"', *texts[2:])]
    found = read(file(tmp_path, table([*written, *ROWS])))
    assert {*texts} < {*found.train.texts, *found.test.texts}


def test_few_texts_of_each_label_are_among_more(tmp_path):
    part = read(file(tmp_path, table([(f"{at}", "abc"[at % 3]) for at in range(90)]))).train
    two, all_of_them = part.few(2, seed=3), part.few(99, seed=3)
    assert np.bincount(two.labels).tolist() == [2, 2, 2] and len(all_of_them) == len(part)
    assert {*two.texts} < {*part.few(4, seed=3).texts} and two.texts != part.few(2, seed=4).texts


GOOD = table(ROWS)
BAD = {
    "empty": ("", "is empty"),
    "names alone": ("text\tlabel\n", "a first line and nothing below"),
    "no such column": (
        table(ROWS, "text\tkind"),
        r"line 2, has no label: .*'text', 'kind'.*--label",
    ),
    "commas": ("text,label\na,b\n", "Divide the columns by tabs"),
    "an empty text": (GOOD + " \ta\n", r"line 12, has an empty text"),
    "no label": (GOOD + "x\t\n", r"line 12, has an empty label"),
    "a tab too much": (GOOD + "x\ty\ta\n", "line 12, has 3 columns"),
    "one label": (table([(text, "a") for text, _ in ROWS]), "have the label 'a'"),
    "too few": (table(ROWS[:4]), "no text to test on.\n.*fewer than 5"),
    "an unknown part": (table([("x", "a", "dev")], "text\tlabel\tpart"), "of the part 'dev'"),
    "all of one part": (table([("x", "a", "test")], "text\tlabel\tpart"), "no text to train on"),
    "an unseen label": (
        table([*((*row, "train") for row in ROWS), ("x", "c", "test")], "text\tlabel\tpart"),
        "line 12: the label 'c' is in the test part alone",
    ),
    "a list for a label": ('{"text": "x", "label": ["a"]}\n', "there is no column 'label'"),
    "half a line of JSON": ('{"text": "x", "label": "a"}\n{"te', "line 2, is no JSON object"),
    "a picture": ("\x89PNG\r\n", "is no text"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_with_its_line(tmp_path, name):
    content, says = BAD[name]
    path = tmp_path / "data.tsv"
    path.write_bytes(content.encode("latin-1" if name == "a picture" else "utf-8"))
    with pytest.raises(CourseError, match=f"(?s){says}"):
        read(path)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (None, "There is no model bert"),
        ({}, "There is no config.json"),
        ({"settings.json": "{}"}, "tpu-course export bert FOLDER"),
        ({"config.json": "{"}, "can't be read"),
        ({"config.json": '{"model_type": "gpt2"}'}, "is no BERT"),
        ({"config.json": '{"model_type": "bert"}'}, "has no weights"),
        ({"config.json": '{"model_type": "bert"}', "tf_model.h5": ""}, "has no tokenizer"),
    ],
)
def test_a_folder_without_a_model_is_refused(tmp_path, files, says):
    folder = tmp_path / "bert"
    if files is not None:
        folder.mkdir()
        for name, content in files.items():
            file(folder, content, name)
    with pytest.raises(CourseError, match=says):
        exported.find(folder)
