"""The core of each notebook stands alone: it never uses what only a left-out cell makes."""

import builtins
import io
import symtable
from unittest.mock import ANY, create_autospec

import nbformat
import pytest
from conventions import METADATA, tagged
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console

from helpers.course import kernels, running
from helpers.course.commands.app import app
from helpers.course.map import notebooks

pytestmark = pytest.mark.slow

KNOWN = notebooks()
GIVEN = {*dir(builtins), "__file__", "__name__", "display", "get_ipython"}


def names(table: symtable.SymbolTable) -> tuple[set[str], set[str], set[str]]:
    """Global names that a cell makes, needs at once, and needs when a function is called."""
    made, now, later = set(), set(), set()
    for symbol in table.get_symbols():
        bound = symbol.is_assigned() or symbol.is_imported()
        if table.get_type() == "module" or symbol.is_global():
            (made if bound else now).add(symbol.get_name())
    for inner in table.get_children():
        made_inside, now_inside, later_inside = names(inner)
        made |= made_inside
        later |= later_inside
        # The body of a class runs at once.
        (now if inner.get_type() == "class" else later).update(now_inside)
    return made, now, later


def missing(cells: list[nbformat.NotebookNode]) -> list[str]:
    """What the core uses and no cell of the core makes before, with the cell's first line."""
    made, wanted, found = set(GIVEN), [], []
    for cell in cells:
        if cell.cell_type != "code" or kernels.BEYOND_CORE in cell.metadata.get("tags", ()):
            continue
        source = TransformerManager().transform_cell(cell.source)
        here, now, later = names(symtable.symtable(source, "cell", "exec"))
        first = cell.source.splitlines()[0]
        found += [f"{name} in {first!r}" for name in sorted(now - made - here)]
        made |= here
        wanted += [(name, first) for name in later]
    return found + [f"{name} in {first!r}" for name, first in wanted if name not in made]


def cell(source: str, *tags: str) -> nbformat.NotebookNode:
    return new_code_cell(source, metadata={"tags": list(tags)})


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        ([cell("a = 1"), cell("print(a)")], []),
        ([cell("a = 1", "beyond-core"), cell("print(a)")], ["a in 'print(a)'"]),
        ([cell("import a.b", "beyond-core"), cell("a.b.c()")], ["a in 'a.b.c()'"]),
        ([cell("def f(): return a"), cell("a = 1"), cell("f()")], []),
        ([cell("def f(): return a"), cell("a = 1", "beyond-core")], ["a in 'def f(): return a'"]),
        ([cell("def f(a): return [a + b for b in a]")], []),
        ([cell("print(a)"), cell("a = 1")], ["a in 'print(a)'"]),
        ([cell("def f():\n    global a\n    a = 1"), cell("f()\na")], []),
        ([cell("%time a = 1"), cell("[x for x in y]")], ["y in '[x for x in y]'"]),
        ([cell("class C:\n    b = a"), cell("with open('f') as a: pass")], ["a in 'class C:'"]),
    ],
)
def test_a_name_that_only_a_left_out_cell_makes_is_found(cells, found):
    assert missing(cells) == found


@pytest.mark.parametrize("notebook", KNOWN, ids=lambda n: n.name)
def test_the_core_stands_alone_and_keeps_its_beginning_and_end(notebook):
    node = nbformat.read(notebook.path, 4)
    assert missing(node.cells) == []
    beyond = {*tagged(node, kernels.BEYOND_CORE)}
    assert not beyond & {0, len(node.cells) - 1}
    for tag in ("setup", "parameters", "exercise"):
        assert not beyond & {*tagged(node, tag)}


def test_a_shortened_notebook_says_so_below_its_title():
    node = new_notebook(cells=[new_markdown_cell("# A?"), cell("1", "beyond-core"), cell("2")])
    short = kernels.core(node, "01_a")
    title, told, kept = short.cells
    assert (title.source, kept.source) == ("# A?", "2")
    assert "Workshop edition" in told.source and "1 of its 3 cells" in told.source
    assert "notebooks/01_a.ipynb" in told.source
    assert len(node.cells) == 3
    nbformat.validate(short)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A whole run of a small notebook, then a workshop's with a changed parameter."""
    folder = tmp_path_factory.mktemp("workshop")
    cells = [
        new_markdown_cell("# Is it <short>?"),
        cell("steps = 1", "parameters"),
        cell("print('long')", "beyond-core"),
        cell("print(steps * 2)"),
    ]
    nbformat.write(new_notebook(cells=cells, metadata=METADATA), folder / "01_a.ipynb")
    console = Console(file=io.StringIO(), width=100)
    whole = running.run(folder=folder, build=folder / "build", console=console)
    before = {path.name: path.read_bytes() for path in (folder / "build").iterdir()}
    given = [("steps", "21")]
    short = running.run([], given, folder, folder / "build", console, workshop=True)
    return folder / "build", whole, before, short


def test_a_workshops_run_leaves_out_what_is_tagged_and_takes_parameters(ran):
    build, _, _, short = ran
    node = nbformat.read(build / "workshop/01_a.ipynb", 4)
    assert [o.text for c in node.cells for o in c.get("outputs", [])] == ["42\n"]
    assert [(result.state, result.left_out) for result in short.results] == [("passed", 1)]


def test_a_workshops_run_is_never_taken_for_a_whole_one(ran):
    build, whole, before, short = ran
    assert (whole.page, short.page) == (build / "index.html", build / "workshop/index.html")
    assert {p.name: p.read_bytes() for p in build.iterdir() if p.is_file()} == before
    page = short.page.read_text("utf-8")
    assert "A workshop's run:" in page and "the core; cells left out: 1" in page
    assert "workshop" not in whole.page.read_text("utf-8")
    assert "Workshop edition" in (build / "workshop/01_a.html").read_text("utf-8")


def test_the_command_line_passes_the_wish_on_and_says_what_was_run(monkeypatch, capsys, tmp_path):
    report = running.Report((kernels.Result("02_b", "passed"),), tmp_path / "index.html")
    run = create_autospec(running.run, return_value=report)
    monkeypatch.setattr(running, "run", run)
    words = ["run", "2", "--workshop", "-p", "BATCHES", "3", "--jobs", "2", "--no-open"]
    with pytest.raises(SystemExit, match="0"):
        app(words)
    run.assert_called_once_with(["2"], [("BATCHES", "3")], workshop=True, jobs=2, console=ANY)
    assert capsys.readouterr().out.startswith("The core alone: 1 passed.")
