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

items = st.builds(
    Item,
    check=st.sampled_from(sorted(report.CHECKS)),
    state=st.sampled_from(report.STATES),
    fix=...,
    where=...,
    decisive=...,
)
numbers = st.floats(0, 1e15)
amounts = ("flops", "bytes", "compute_ms", "memory_ms", "link_ms")
kinds = dict.fromkeys(amounts, numbers)
estimates = st.builds(Estimate, **kinds, all_reduce_bytes=..., largest_rows=...)
rows = st.lists(st.builds(Row, ms=numbers, share=numbers), min_size=1, max_size=3).map(tuple)
sent = st.lists(st.builds(Exchange, bytes=numbers, low_ms=numbers, high_ms=numbers)).map(tuple)
times = {"ms": numbers, "low_ms": numbers, "high_ms": numbers, "busy": numbers}
tables = {"operations": rows, "layers": rows, "lines": rows}
timings = st.builds(Timing, **times, **tables, exchanges=sent)
hours = {"low_hours": numbers, "high_hours": numbers, "per_chip_hour": st.none() | numbers}
prices = st.builds(Price, rows=st.none() | st.integers(1, 999), **hours)
reports = st.builds(
    Report,
    items=st.lists(items, max_size=6).map(tuple),
    estimates=st.lists(estimates, max_size=3).map(tuple),
    timings=st.lists(timings, max_size=1).map(tuple),
    prices=st.lists(prices, max_size=2).map(tuple),
    changes=st.lists(st.builds(report.Change), max_size=2).map(tuple),
)
FILE = pathlib.Path(report.__file__).with_name("report.schema.json")
SCHEMA = json.loads(FILE.read_text("utf-8"))
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
VALIDATOR.check_schema(SCHEMA)  # once: it takes longer than all examples


@given(reports)
def test_the_json_is_as_its_schema_says(given_report):
    """The schema allows no further properties, so it knows each field that a report has."""
    VALIDATOR.validate(json.loads(given_report.json()))


@given(reports)
def test_json_keeps_everything_and_the_status_is_the_worst_that_was_found(given_report):
    assert Report.from_json(given_report.json()) == given_report
    found = {item.state for item in given_report.items}
    undecided = any(i.state == OPEN and i.decisive for i in given_report.items)
    worse = any(change.worse for change in given_report.changes)
    expected = 1 if FAIL in found else 2 if undecided else 3 if worse else 0
    assert given_report.exit_status == expected
    status = ("ready", "not ready", "can't tell", "ready")[expected]
    assert given_report.status == status and status in given_report.summary


def test_the_page_stands_alone_and_follows_the_readers_theme():
    item = Item(1, "<b>", FAIL, "a < b & c", "fix <it>", "x = y  # <")
    page = Report("model", ("v5e-8",), (item,)).html()
    assert "<b>" not in page and "a &lt; b &amp; c" in page
    for part in ("1 &lt;b&gt;:", ">✗ fail<", "fix &lt;it&gt;", ">x = y  # &lt;</code>"):
        assert part in item._repr_html_() and part in page
    assert "http" not in page and "src=" not in page


def test_a_steps_time_is_shown_by_operation_layer_and_line_with_what_helps():
    def parts(name):
        first = Row(name, 1.5, 0.75, "HBM", help="half of it in bfloat16")
        return first, Row("2 more", 0.5, 0.25, "")

    sent = (Exchange("all-reduce", 420 * 2**20, 4, 4, 3.9, 7.7),)
    tables = parts("MatMul"), parts("bert/layer"), parts("y = <x>")
    timing = Timing("v5e-8", 2.0, 2.4, 9.7, "v5e: from 3 runs", 0.4, 3, *tables, sent)
    shown = Report("model", ("v5e-8",), (), (), (timing,))
    told = ("75.0%", "MatMul", "bert/layer", "in bfloat16", "2 more", "not counted in full")
    for form in (repr(shown), shown._repr_html_()):
        assert "v5e-8: 2.4 to 9.7 ms a step; the estimate is 2 ms" in form
        assert "all-reduce: 420 MiB" in form and all(text in form for text in told)
    assert "y = &lt;x&gt;" in shown._repr_html_() and "y = <x>" in repr(shown)


def test_an_installed_package_translates_what_is_shown_but_not_the_json(monkeypatch):
    monkeypatch.setattr(texts, "translator", lambda: str.upper)
    shown = Report("model", ("v5e-8",), (Item(1, "step", FAIL, "it fails", "mend it", "line 9"),))
    for form in (repr(shown), shown._repr_html_()):
        assert "IT FAILS" in form and "MEND IT" in form and "LINE 9" in form
    assert shown.summary == "model FOR v5e-8: NOT READY (1 FAIL)" and "it fails" in shown.json()
