"""The report: its status, and the forms that show it."""

import dataclasses
import json
import pathlib

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from tpu_preflight import report
from tpu_preflight import text as texts
from tpu_preflight.estimate.price import Price
from tpu_preflight.estimate.step import Estimate, Exchange, Row, Timing
from tpu_preflight.report import FAIL, OPEN, Item, Report

NUMBERS = st.floats(0, 1e15)


def tuples(elements, **sizes):
    return st.lists(elements, **sizes).map(tuple)


ITEMS = st.builds(
    Item,
    check=st.sampled_from(sorted(report.CHECKS)),
    state=st.sampled_from(report.STATES),
    fix=...,
    where=...,
    decisive=...,
)
ESTIMATES = st.builds(
    Estimate,
    flops=NUMBERS,
    bytes=NUMBERS,
    compute_ms=NUMBERS,
    memory_ms=NUMBERS,
    link_ms=NUMBERS,
    all_reduce_bytes=...,
    largest_rows=...,
)
ROWS = tuples(st.builds(Row, ms=NUMBERS, share=NUMBERS), min_size=1, max_size=3)
EXCHANGES = tuples(st.builds(Exchange, bytes=NUMBERS, low_ms=NUMBERS, high_ms=NUMBERS))
TIMINGS = st.builds(
    Timing,
    target=st.sampled_from(["v5e-8", "v6e-1"]),
    ms=NUMBERS,
    low_ms=NUMBERS,
    high_ms=NUMBERS,
    busy=NUMBERS,
    operations=ROWS,
    layers=ROWS,
    lines=ROWS,
    exchanges=EXCHANGES,
)
PRICES = st.builds(
    Price,
    rows=st.none() | st.integers(1, 999),
    low_hours=NUMBERS,
    high_hours=NUMBERS,
    per_chip_hour=st.none() | NUMBERS,
)
REPORTS = st.builds(
    Report,
    items=tuples(ITEMS, max_size=6),
    estimates=tuples(ESTIMATES, max_size=3),
    timings=tuples(TIMINGS, max_size=1),
    prices=tuples(PRICES, max_size=2),
    changes=tuples(st.builds(report.Change), max_size=2),
    versions=...,
)
FILE = pathlib.Path(report.__file__).with_name("report.schema.json")
SCHEMA = json.loads(FILE.read_text("utf-8"))
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
VALIDATOR.check_schema(SCHEMA)  # once: it takes longer than all examples


@given(REPORTS)
def test_the_json_is_as_its_schema_says(example):
    """The schema allows no further properties, so it knows each field that a report has."""
    VALIDATOR.validate(json.loads(example.json()))


def expected_exit_status(example):
    states = {item.state for item in example.items}
    if FAIL in states:
        return 1
    if any(item.state == OPEN and item.decisive for item in example.items):
        return 2
    if any(change.worse for change in example.changes):
        return 3
    return 0


@given(REPORTS)
def test_json_keeps_everything_and_the_status_is_the_worst_that_was_found(example):
    assert Report.from_json(example.json()) == example
    exit_status = expected_exit_status(example)
    assert example.exit_status == exit_status
    status = ("ready", "not ready", "can't tell", "ready")[exit_status]
    assert example.status == status
    assert status in example.summary


def test_the_page_stands_alone_and_follows_the_readers_theme():
    item = Item(1, "<b>", FAIL, "a < b & c", "fix <it>", "x = y  # <")
    page = Report("model", ("v5e-8",), (item,)).html()
    assert "<b>" not in page
    assert "a &lt; b &amp; c" in page
    for part in ("1 &lt;b&gt;:", ">✗ fail<", "fix &lt;it&gt;", ">x = y  # &lt;</code>"):
        assert part in item._repr_html_()
        assert part in page
    assert "http" not in page
    assert "src=" not in page


def test_the_command_names_the_versions_that_answered_and_a_notebook_does_not():
    example = Report("model", ("v5e-8",), (), versions=("JAX 0.10.2", "libtpu 0.0.51"))
    line = "Answered by JAX 0.10.2, libtpu 0.0.51."
    assert example.text().splitlines()[1] == line
    assert f"<p>{line}</p>" in example.html()
    assert line not in repr(example)
    assert line not in example._repr_html_()


def rows_named(name):
    return Row(name, 1.5, 0.75, "HBM", help="half of it in bfloat16"), Row("2 more", 0.5, 0.25, "")


def test_a_steps_time_is_shown_by_operation_layer_and_line_with_what_helps():
    exchange = Exchange("all-reduce", 420 * 2**20, 4, 4, 3.9, 7.7)
    timing = Timing(
        target="v5e-8",
        ms=200.0,
        low_ms=240.0,
        high_ms=970.0,
        factor="v5e: from 3 runs",
        busy=0.4,
        missing=3,
        operations=rows_named("MatMul"),
        layers=rows_named("bert/layer"),
        lines=rows_named("y = <x>"),
        exchanges=(exchange,),
    )
    result = Report("model", ("v5e-8",), (), (), (timing,))
    words = ("75.0%", "MatMul", "bert/layer", "in bfloat16", "2 more", "not counted in full")
    for form in (repr(result), result._repr_html_()):
        assert "v5e-8: 240 to 970 ms a step; the estimate is 200 ms" in form
        assert "all-reduce: 420 MiB" in form
        for word in words:
            assert word in form
    assert "y = &lt;x&gt;" in result._repr_html_()
    assert "y = <x>" in repr(result)


def test_an_installed_package_translates_what_is_shown_but_not_the_json(monkeypatch):
    monkeypatch.setattr(texts, "translator", lambda: str.upper)
    item = Item(1, "step", FAIL, "it fails", "mend it", "line 9")
    result = Report("model", ("v5e-8",), (item,))
    for form in (repr(result), result._repr_html_()):
        assert "IT FAILS" in form
        assert "MEND IT" in form
        assert "LINE 9" in form
    assert result.summary == "model FOR v5e-8: NOT READY (1 FAIL)"
    assert "it fails" in result.json()


def mixed_report():
    """Make a report whose items come in the order of the checks, each in another state."""
    states = {"pass": 2, "warn": 1, "not checked": 1, "does not apply": 1, "fail": 1}
    items = []
    for state, count in states.items():
        for i in range(count):
            items.append(Item(len(items) + 1, f"{state}, {i}", state, "seen"))
    return Report("model", ("v5e-8",), tuple(items))


def test_failures_come_first_and_what_passes_is_one_line_until_it_is_asked_for():
    example = mixed_report()
    needed = ["✗ 6 fail, 0: seen", "! 3 warn, 0: seen", "? 4 not checked, 0: seen"]
    assert example.text().splitlines()[1:] == [
        *needed,
        "2 checks passed, 1 does not apply (-v lists them)",
    ]
    assert "(text(verbose=True) lists them)" in repr(example)
    assert example.text(verbose=True).splitlines()[1:] == [
        *needed,
        "✓ 1 pass, 0: seen",
        "✓ 2 pass, 1: seen",
        "– 5 does not apply, 0: seen",
    ]
    states = [item["state"] for item in json.loads(example.json())["items"]]
    assert states == [item.state for item in example.items]


def test_a_page_folds_what_passes_and_nothing_else():
    page = mixed_report().html()
    shown, folded = page.split("<details><summary>2 checks passed, 1 does not apply</summary>")
    folded, _ = folded.split("</details>")
    assert "pass, 0" in folded and "pass, 1" in folded and "does not apply, 0" in folded
    assert "fail, 0" in shown and "warn, 0" in shown and "not checked, 0" in shown
    assert "lists them" not in page
    assert "<details>" not in Report("model", ("v5e-8",), (Item(1, "a", FAIL, "b"),)).html()


@given(REPORTS)
def test_a_page_has_every_finding_that_a_verbose_text_has(example):
    text = example.text(verbose=True)
    page = example.html()
    for item in example.items:
        assert str(item) in text
        assert item._repr_html_() in page


def test_a_program_for_one_of_several_devices_says_so_in_one_row():
    estimate = Estimate(
        target="v5e-8",
        replicas=8,
        rows=None,
        flops=1e9,
        bytes=1e8,
        peak_bytes=100,
        available_bytes=1000,
        compute_ms=1.0,
        memory_ms=2.0,
    )
    text = Report("model", ("v5e-8",), (), (estimate,)).text()
    assert "replicas     1 of 8, no sharding\n" in text
    for empty in ("rows each", "all-reduce", "most rows"):
        assert empty not in text
    sharded = dataclasses.replace(estimate, rows=4, all_reduce_bytes=0)
    text = Report("model", ("v5e-8",), (), (sharded,)).text()
    assert "replicas     8\n" in text and "rows each    4\n" in text
