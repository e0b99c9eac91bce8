"""The table of operations against the compilers, and its page against what it promises."""

import base64
import hashlib
import random
import re

import nbformat
import pytest
from bs4 import BeautifulSoup
from conventions import ROOT

from helpers.base.errors import CourseError
from helpers.base.settings import locked_versions
from helpers.xla import ops
from helpers.xla.ops import Row, Table, cases
from tpu_preflight import compiler

pytestmark = pytest.mark.slow

# Another sample in each release of the table; the same at each run, so that a failure stays.
SEED, SAMPLE = 2026, 24

STORED = ops.read()


def sample() -> list[str]:
    """Names of cases: some of each verdict, the rest at random."""
    rng = random.Random(SEED)
    groups = {}
    for row in STORED.rows:
        groups.setdefault((row.cpu, row.tpu), []).append(row.name)
    some = [name for names in groups.values() for name in rng.sample(names, min(2, len(names)))]
    rest = sorted({row.name for row in STORED.rows} - set(some))
    return some + rng.sample(rest, SAMPLE - len(some))


def test_a_sample_of_the_stored_table_is_what_the_compilers_say_today(own_cache, capfd):
    named = {case.name: case for case in cases.cases()}
    names = sample()
    found = list(ops.rows([named[name] for name in names]))
    assert found == [STORED[name] for name in names]


def test_the_stored_table_holds_every_case_in_order():
    stored = [(row.subject, row.name, row.code, row.arguments) for row in STORED.rows]
    assert stored == [
        (case.subject, case.name, case.shown, ", ".join(map(written, case.specs)))
        for case in cases.cases()
    ]
    assert len(stored) == len({name for _, name, _, _ in stored}) >= 290


def written(spec):
    return f"{spec.dtype.name}{spec.shape.as_list()}"


def test_the_stored_table_is_of_the_locked_versions():
    locked = locked_versions()
    for name in ("tensorflow", "jax", "libtpu"):
        assert f"{name} {locked[name]}" in STORED.versions.lower()


def test_verdicts_and_messages_go_together():
    for row in STORED.rows:
        assert row.cpu in ("compiles", "refused"), row
        assert row.tpu in ("compiles", "refused", "not reached"), row
        assert (row.message == "") == (row.cpu == row.tpu == "compiles"), row
        assert row.tpu != "not reached" or row.cpu == "refused", row
        assert not re.search(r"site-packages|/tmp|/home|__inference|\.py:\d", row.message), row
        assert row.code and row.arguments, row


def test_the_bridge_refuses_one_operation_that_compiles():
    """MirroredStrategy refuses it, too: a variable can't be scattered into under a strategy."""
    compiled = {row.name for row in STORED.rows if row.tpu == "compiles"}
    assert {n for n in compiled if STORED[n].bridge != "accepted"} == {"variable_scatter"}
    kinds = {row.bridge.partition(":")[0] for row in STORED.rows}
    assert kinds == {"accepted", "host", "refused", "not traced"}


def test_the_numbers_that_notebook_02_tells():
    rows = STORED.rows
    asked = [row for row in rows if row.tpu != "not reached"]
    differ = {row.name: row.tpu for row in asked if row.tpu != row.cpu}
    assert differ == {
        "int64_matmul": "refused",
        "fft_complex128": "refused",
        "random_shuffle": "compiles",
    }
    notebook = nbformat.read(ROOT / "notebooks/02_xla_rules.ipynb", 4)
    text = " ".join(" ".join(c.source for c in notebook.cells).split())
    assert f"{len(rows)} operations of the course's table" in text
    assert f"{len(asked)} get as far as this compiler. Its verdict differs" in text


def test_the_code_shown_is_the_code_compiled():
    assert STORED["while_on_a_tensor"].code.startswith("def while_on_a_tensor(x):\n    while tf.")
    assert STORED["gradient_of_sort"].code == "gradient of: tf.sort(x) * x"
    assert STORED["variable_assign"].code.startswith("def variable_assign():\n    variable = ")
    assert STORED["lstm"].code == "layers.LSTM(4)"
    assert STORED["boolean_mask"].arguments == "float32[8]"
    assert str(STORED).startswith(f"{len(STORED.rows)} operations (TensorFlow 2.20.")
    with pytest.raises(CourseError, match="no operation 'sine'"):
        STORED["sine"]


def test_the_table_needs_googles_compiler(monkeypatch):
    monkeypatch.setattr(compiler.process, "versions", dict)
    with pytest.raises(CourseError, match="can't be made here"):
        list(ops.rows(cases.cases()[:1]))


def test_making_it_reports_progress_and_prints_nothing(own_cache, monkeypatch, capfd):
    few = [case for case in cases.cases() if case.name in ("python_print", "py_function")]
    monkeypatch.setattr(cases, "cases", lambda: few)
    seen = []
    table = ops.make(lambda done, of: seen.append((done, of)))
    assert [row.name for row in table.rows] == ["python_print", "py_function"]
    assert seen == [(2, 2)]
    assert capfd.readouterr() == ("", "")


ODD = Row(
    "A & B",
    "odd",
    'tf.f("<x>")\n\tline\\n',
    "f32[8]",
    "refused",
    "compiles",
    "accepted",
    True,
    "<b>",
)


def test_what_is_written_is_read(tmp_path):
    table = Table("TensorFlow 1, jax 2", (ODD, *STORED.rows[:3]))
    ops.write(table, tmp_path / "ops.tsv")
    assert ops.read(tmp_path / "ops.tsv") == table
    assert len((tmp_path / "ops.tsv").read_text("utf-8").splitlines()) == 6


@pytest.mark.parametrize("text", [None, "", "x\ty\n", "# a\nsubject\n", "# a\nsubject\tname\nz\n"])
def test_what_is_no_table_is_told(tmp_path, text):
    path = tmp_path / "ops.tsv"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(CourseError, match=r"ops\.tsv can't be read") as raised:
        ops.read(path)
    assert str(tmp_path) not in str(raised.value)


def test_the_page_escapes_and_loads_nothing():
    page = ops.page(Table("v", (ODD,)))
    soup = BeautifulSoup(page, "html.parser")
    assert soup.select_one("pre").text == ODD.code
    assert "<b>" not in page
    assert soup.select("[src], [href], link, iframe") == []
    assert "prefers-color-scheme: dark" in page
    # Its policy allows the search, and no other script.
    (script,) = soup.select("script")
    digest = base64.b64encode(hashlib.sha256(script.string.encode()).digest()).decode()
    policy = soup.select_one("meta[http-equiv]")["content"]
    assert policy.startswith("default-src 'none'")
    assert policy.partition("; script-src ")[2] == f"'sha256-{digest}'"


def test_the_page_has_every_row_and_can_be_filtered():
    soup = BeautifulSoup(ops.page(STORED), "html.parser")
    states = [row["data-state"] for row in soup.select("tbody tr:not(.subject)")]
    assert len(states) == len(STORED.rows) and states.count("differs") == 3
    options = {option["value"] for option in soup.select("select option")} - {""}
    assert set(states) == options == {"compiles", "bounded", "differs", "refused"}
    assert soup.select_one("label[for=search]") and soup.select_one("#search")
