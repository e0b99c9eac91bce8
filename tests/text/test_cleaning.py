"""What leaves a document out: each rule, what it counts, and that all ways of writing agree."""

import json
import random
import re
import sys

import pytest
from plain import contents
from terminal import call

from helpers.base.errors import CourseError
from helpers.text import cleaning, corpus, prepare, sources

LONG = "문서에 있는 모든 표의 여백을 한 번에 다시 설정하려면 먼저 표를 모두 선택해야 합니다."
TEXTS = {
    "a.txt": ["하나 둘", "Only English here", "3.14", LONG, "하나  둘", "\u200b", "가"],
    "b.txt": ["하나 둘", LONG + "!", "나 and one English sentence", "라라라라라라라라라라라라"],
}


@pytest.fixture
def found(tmp_path):
    for name, texts in TEXTS.items():
        (tmp_path / name).write_text("\n".join(texts), "utf-8")
    return sources.find([str(tmp_path / "*.txt")])


# Left out by each rule: counts beside the one empty text, and which documents.
RULES = [
    ({}, {}, []),
    ({"min_characters": 4}, {"too_short": 1}, [("a", 6)]),
    ({"max_characters": 30}, {"too_long": 2}, [("a", 3), ("b", 1)]),
    ({"scripts": ("hangul",)}, {"other_script": 2}, [("a", 1), ("b", 2)]),
    (
        {"scripts": ("Latin",)},
        {"other_script": 7},
        [*(("a", at) for at in (0, 3, 4, 6)), *(("b", at) for at in (0, 1, 3))],
    ),
    ({"scripts": ("hangul", "latin")}, {}, []),
    ({"drop_duplicates": True}, {"duplicates": 2}, [("a", 4), ("b", 0)]),
    ({"near_duplicates": "count"}, {"near_duplicates": 3}, []),
    ({"near_duplicates": "drop"}, {"near_duplicates": 3}, [("a", 4), ("b", 0), ("b", 1)]),
    (
        {"near_duplicates": "drop", "drop_duplicates": True, "max_characters": 49},
        {"near_duplicates": 0, "duplicates": 2, "too_long": 1},
        [("a", 4), ("b", 0), ("b", 1)],
    ),
]


@pytest.mark.parametrize(("rules", "counts", "left_out"), RULES)
def test_a_rule_leaves_out_and_counts(found, rules, counts, left_out):
    rules = cleaning.Rules(**rules)
    cleaned = [cleaning.Cleaned(source, rules) for source in found]
    if rules.compare:
        cleaned = cleaning.compared(cleaned)
    kept = {(d.source[0], d.place) for one in cleaned for d in one.documents()}
    every = {(name[0], at) for name, texts in TEXTS.items() for at in range(len(texts))}
    assert every - kept == {("a", 5), *left_out}
    total = dict.fromkeys(cleaning.LEFT_OUT, 0) | {"empty": 1} | counts
    reports = [one.report()["left_out"] for one in cleaned]
    assert {why: sum(report[why] for report in reports) for why in total} == total


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"scripts": ("",)}, "no script"),
        ({"max_characters": 0}, "All of them would be left out"),
    ],
)
def test_a_rule_that_cant_be_meant_is_refused(rules, words):
    with pytest.raises(CourseError, match=words):
        cleaning.Rules(**rules)


def test_nearly_equal_texts_are_found_as_often_as_is_said():
    lines = [line for line in corpus.read(corpus.DATA / "ko.txt") if len(line) > 80]
    rng = random.Random(0)

    def share(changes):
        """How many are found of texts with so many letters changed; and how much they share."""
        near, seen, shared = cleaning._Near(), 0, 0.0
        for line in lines[:150]:
            other = list(line)
            for at in rng.sample(range(len(other)), changes):
                other[at] = "ㅎ"
            one, two = ({t[i : i + 5] for i in range(len(t) - 4)} for t in (line, "".join(other)))
            shared += len(one & two) / len(one | two) / 150
            near.seen(line)
            seen += near.seen("".join(other))
        return seen / 150, shared

    found, shared = share(1)
    assert 0.88 < shared < 0.95 and found > 0.8
    found, shared = share(8)
    assert 0.4 < shared < 0.7 and found < 0.1


@pytest.mark.slow
def test_the_manifest_counts_and_more_processes_change_no_byte(found, tmp_path):
    rules = cleaning.Rules(min_characters=2, drop_duplicates=True, near_duplicates="drop")

    def written(name, **options):
        options = {"texts": [source.address for source in found], "tokenizer": None} | options
        options = {"sequence_length": 64, "shards": 2, "seed": 0, "workers": 1} | options
        told = list(prepare.prepare(str(tmp_path / name), **options))
        return told, json.loads((tmp_path / name / "manifest.json").read_text("utf-8"))

    told, manifest = written("one", rules=rules)
    counts = {"empty": 1, "too_short": 1, "too_long": 0, "other_script": 0}
    counts |= {"duplicates": 2, "near_duplicates": 1}
    assert manifest["cleaning"]["left_out"] == counts
    assert manifest["cleaning"]["rules"]["drop_duplicates"] is True
    assert "By the rules: too short 1, duplicates 2, near duplicates 1" in told
    written("two", rules=rules, workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert "cleaning" not in written("plain")[1]
    with pytest.raises(CourseError, match="made of other documents"):
        written("one", rules=cleaning.Rules())


def test_many_sources_are_told_in_one_line():
    report = {"survey": vars(corpus.survey(["가", "\ufffd"])), "left_out": {"duplicates": 1}}
    told = list(cleaning.told([(f"{at}.txt", report) for at in range(21)]))
    assert told[0].startswith("21 files: 42 texts") and "(first in text 1)" in told[0]
    assert told[1:] == ["By the rules: duplicates 21"]


PEAK = """\
import re, sys
from helpers.text import sources
import pyarrow.parquet
(source,) = sources.find(sys.argv[1:])
def mb(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
start = mb("VmRSS")
count = sum(1 for _ in source.documents())
print(count, mb("VmHWM") - start)
"""


@pytest.fixture(scope="module")
def many():
    words = re.findall(r"\S+", (corpus.DATA / "ko.txt").read_text("utf-8"))
    rng = random.Random(0)
    return [" ".join(rng.choices(words, k=200)) for _ in range(40_000)]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kind", ["plain text", "JSON lines", "Parquet"])
def test_reading_takes_no_memory_of_the_files_size(kind, many, tmp_path):
    """80 MB of text: in memory they take 60. pyarrow itself takes some 30."""
    import gzip

    from test_sources import KINDS

    data = KINDS[kind](many)
    (tmp_path / "texts").write_bytes(gzip.compress(data, 1) if kind == "JSON lines" else data)
    done = call(sys.executable, "-c", PEAK, tmp_path / "texts", check=True)
    count, peak = done.stdout.split()
    assert int(count) == len(many) and float(peak) < 45, done.stdout
