"""The report: its status, and the forms that show it."""

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
        ms=2.0,
        low_ms=2.4,
        high_ms=9.7,
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
        assert "v5e-8: 2.4 to 9.7 ms a step; the estimate is 2 ms" in form
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
