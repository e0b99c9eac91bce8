"""The table of transformers' models against the compilers, and how it is made when models crash."""

import dataclasses
import pathlib
import re

import nbformat
import pytest
from cases import cases
from conventions import ROOT
from obedient import obedient

from helpers.base.errors import CourseError
from helpers.base.settings import locked_versions
from helpers.xla import models
from helpers.xla.models import Row, Table, child, making
from helpers.xla.models.child import Examined, Told
from tpu_preflight.compiler import process
from tpu_preflight.program import NotCompilable, export

STORED = models.read()


def recompiled(*names: str) -> None:
    wanted = [STORED[name] for name in names]
    assert list(models.rows([(row.kind, row.name) for row in wanted])) == wanted


# --- the stored table -----------------------------------------------------------------------------


def test_the_stored_table_is_of_the_locked_versions():
    locked = locked_versions()
    for name in ("tensorflow", "transformers", "jax", "libtpu"):
        assert f"{name} {locked[name]}" in STORED.versions


@pytest.mark.slow
def test_every_model_class_of_transformers_has_a_row():
    assert [(row.kind, row.name) for row in STORED.rows] == models.classes()
    assert len(STORED.rows) == len({row.name for row in STORED.rows}) >= 250


def test_verdicts_messages_and_places_go_together():
    for row in STORED.rows:
        assert row.cpu in ("compiles", "refused", "not built", "no package"), row
        assert row.tpu in ("compiles", "refused", "not reached", "no package"), row
        assert row.training in ("compiles", "refused", "crashed", "not reached", "no package"), row
        assert (row.message == "") == (row.cpu == row.tpu == row.training == "compiles"), row
        assert row.bounded == 0 or row.where, row
        assert not re.search(r"site-packages|/tmp|/home|__inference", row.message + row.where), row
        assert re.fullmatch(r"accepted|refused|not traced|host: [\w, ]+", row.bridge), row


def test_the_places_are_lines_of_transformers():
    import importlib.util

    folder = pathlib.Path(importlib.util.find_spec("transformers").origin).parent
    places = {row.where for row in STORED.rows} - {""}
    assert places
    for place in places:
        file, line, function = re.fullmatch(r"(\S+\.py):(\d+) (\S+)", place).groups()
        lines = (folder / file).read_text("utf-8").splitlines()[: int(line)]
        assert any(f"def {function}(" in line for line in lines), place


@pytest.mark.slow
def test_one_that_is_refused_and_one_that_is_not_are_so_today():
    recompiled("TFBartForSequenceClassification", "TFLongformerModel")


@pytest.mark.slow
def test_longformer_compiles_where_its_mask_is_no_argument():
    """The mask's tokens with global attention are counted, and the count is a size."""
    from helpers.xla.models import building

    tiny = building.build("TFLongformerModel")
    ids = {"input_ids": tiny.inputs["input_ids"]}
    assert export(tiny.forward, ids).results
    for name in ("attention_mask", "global_attention_mask"):
        with pytest.raises(NotCompilable, match="op Tile must be a compile-time constant"):
            export(tiny.forward, ids | {name: tiny.inputs[name]})


@pytest.mark.slow
def test_wav2vec2_compiles_where_its_axes_are_a_list():
    """As a tensor made in ``__init__`` they are an argument of the function that captures it."""
    from helpers.xla.models import building

    tiny = building.build("TFWav2Vec2Model")
    with pytest.raises(NotCompilable, match="op Sum must be a compile-time constant"):
        export(tiny.forward, tiny.inputs)
    (layer,) = [m for m in tiny.model.submodules if hasattr(m, "kernel_norm_axes")]
    layer.kernel_norm_axes = layer.kernel_norm_axes.numpy().tolist()
    assert export(tiny.forward, tiny.inputs).results


# --- models that crash, and runs that are stopped -------------------------------------------------


@pytest.fixture
def unreal(monkeypatch, tmp_path):
    monkeypatch.setattr(child, "serve", obedient)
    monkeypatch.setattr(making, "LIMIT", 8.0)  # a child starts in one, on a busy machine in three
    monkeypatch.setattr(making, "PARTIAL", tmp_path / "models.tsv")


@pytest.mark.slow
def test_a_crash_and_a_time_limit_are_rows(unreal):
    names = ["TFFirst", "TFKilled", "TFEndless", "TFLast"]
    rows = list(models.rows([("kind", name) for name in names]))
    assert [row.name for row in rows] == names
    assert [row.state for row in rows] == ["not built", "crashed", "timed out", "not built"]
    assert [row.message for row in rows[:2]] == [
        "ImportError: TFFirst",
        "the process ended by SIGKILL",
    ]


def test_a_run_that_was_stopped_goes_on(unreal, monkeypatch):
    names = [("a", "TFOne"), ("a", "TFTwo"), ("b", "TFThree")]
    monkeypatch.setattr(making, "classes", lambda: names)
    real, asked = making.rows, []

    def stopped(todo):
        asked.append([name for _, name in todo])
        for row in real(todo[:2]):
            yield row
            if len(asked) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(making, "rows", stopped)
    with pytest.raises(KeyboardInterrupt):
        models.make()
    seen = []
    table = models.make(lambda done, of: seen.append((done, of)))
    assert asked == [["TFOne", "TFTwo", "TFThree"], ["TFTwo", "TFThree"]]
    assert [row.name for row in table.rows] == ["TFOne", "TFTwo", "TFThree"]
    assert seen == [(2, 3), (3, 3)] and not making.PARTIAL.exists()


def test_what_other_versions_had_found_is_not_taken_over(unreal, monkeypatch):
    monkeypatch.setattr(making, "classes", lambda: [("a", "TFOne")])
    old = Row("a", "TFOne", "compiles", "compiles", "compiles", "accepted", 0, "", "")
    models.write(Table("tensorflow 1", (old,)), making.PARTIAL)
    assert models.make().rows[0].state == "not built"


def test_the_table_needs_googles_compiler(unreal, monkeypatch):
    monkeypatch.setattr(process, "versions", dict)
    with pytest.raises(CourseError, match="can't be made here"):
        models.make()


# --- rows and the file ----------------------------------------------------------------------------

GOOD = Row("bert", "TFBertModel", "compiles", "compiles", "compiles", "accepted", 0, "", "")


@pytest.mark.parametrize(("change", "state"), cases(__file__, "model_states"))
def test_a_rows_verdicts_in_a_word(change, state):
    assert dataclasses.replace(GOOD, **change).state == state


def test_what_is_written_is_read_and_reads_well(tmp_path):
    odd = dataclasses.replace(GOOD, name="TFOdd", bounded=20, message="a\tb\\n\n", tpu="refused")
    table = Table("tensorflow 2, jax 1", (GOOD, odd))
    models.write(table, tmp_path / "models.tsv")
    assert models.read(tmp_path / "models.tsv") == table
    assert str(table) == "2 models (tensorflow 2, jax 1): 1 compile, with their gradients"
    assert table["TFOdd"] is odd
    with pytest.raises(CourseError, match="no model 'TFNone'"):
        table["TFNone"]
    (tmp_path / "models.tsv").write_text("# x\nkind\n", "utf-8")
    with pytest.raises(CourseError, match="can't be read as the table of models"):
        models.read(tmp_path / "models.tsv")


def test_steps_that_tensorflow_refuses_are_told(monkeypatch):
    refused = Told(None, "Input 1 must be a compile-time constant", "models/a/a.py:7 call")
    row = making._row(("a", "TFA"), Examined("", refused, "XLA's words", refused), None)
    assert (row.cpu, row.tpu, row.training) == ("refused", "not reached", "not reached")
    assert (row.where, row.message) == ("models/a/a.py:7 call", refused.message)
    lacking = Told(None, "NameError: name 'tfp' is not defined", "models/a/a.py:7 call", "tfp")
    row = making._row(("a", "TFA"), Examined("", lacking, lacking.message, lacking), None)
    assert (row.cpu, row.tpu, row.training, row.state) == ("no package",) * 4
    assert row.message == "it needs tfp: NameError: name 'tfp' is not defined"


# --- notebook 02 ----------------------------------------------------------------------------------


def test_notebook_02_shows_the_table():
    notebook = nbformat.read(ROOT / "notebooks/02_xla_rules.ipynb", 4)
    (cell,) = [c for c in notebook.cells if "models.read()" in c.source]
    text = "".join(str(output) for output in cell.outputs)
    assert f"{len(STORED.rows)} models" in text
