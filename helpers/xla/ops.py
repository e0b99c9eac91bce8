"""The table of operations: which compile, by XLA on a CPU and by Google's TPU compiler.

Made by compiling each case of `op_cases` from shapes and types alone (never from values), kept in
``notebooks/data/ops.tsv``, and shown as one page that can be searched without a network.

Imports TensorFlow only to make the table, not to read it.
"""

import ast
import base64
import contextlib
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import jinja2

from helpers.base import files
from helpers.base.errors import CourseError
from helpers.base.html import POLICY, STYLE
from helpers.base.settings import ROOT

if TYPE_CHECKING:
    from helpers.xla.op_cases import Case

STORED = ROOT / "notebooks" / "data" / "ops.tsv"
PAGE = ROOT / "build" / "ops.html"
TARGET = "v5e-8"

# Cases compiled together: few enough that a progress line moves.
_BATCH = 20


class NoTpuCompiler(CourseError):
    """The table can't be made without Google's compiler."""


class NoTable(CourseError):
    """The stored table is missing or not a table."""


class UnknownCase(CourseError):
    """No operation of the table has this name."""


@dataclasses.dataclass(frozen=True)
class Row:
    """What was seen of one operation or idiom.

    Attributes:
        subject: The heading it stands under.
        name: Its name.
        code: What was compiled, in Python.
        arguments: Types and shapes, as XLA writes them: ``f32[8]``.
        cpu: XLA's verdict on a CPU: ``compiles`` or ``refused``.
        tpu: The TPU compiler's: ``compiles``, ``refused``, ``crashed``; ``not reached`` where
            TensorFlow made no program that could be handed to it.
        bounded: Whether a size depends on values, so that the largest possible one is used.
        message: The first line of the first refusal; empty where all compile.
    """

    subject: str
    name: str
    code: str
    arguments: str
    cpu: str
    tpu: str
    bounded: bool
    message: str


@dataclasses.dataclass(frozen=True)
class Table:
    """All that was seen, with what it was seen.

    Attributes:
        versions: TensorFlow's, jax's and libtpu's, in words.
        rows: One for each operation or idiom.
    """

    versions: str
    rows: tuple[Row, ...]

    def __getitem__(self, name: str) -> Row:
        """Look up a row.

        Args:
            name: An operation's name.

        Returns:
            Its row.

        Raises:
            UnknownCase: There is none of this name.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownCase(
            f"There is no operation {name!r} in the table.",
            f"It has {len(self.rows)} names, such as {self.rows[0].name}.",
            "Look for it in the page: python -m helpers ops --stored",
        )

    def __repr__(self) -> str:
        both = sum(row.cpu == row.tpu == "compiles" for row in self.rows)
        return f"{len(self.rows)} operations ({self.versions}): {both} compile for CPU and TPU"


# --- making it ------------------------------------------------------------------------------------


@functools.cache
def _written() -> dict[str, str]:
    """Read from the source of the cases what each compiles: expression or function, by name."""
    from helpers.xla import op_cases

    tree = ast.parse(pathlib.Path(op_cases.__file__).read_text("utf-8"))
    functions = {n.name: ast.unparse(n) for n in tree.body if isinstance(n, ast.FunctionDef)}

    def text(node: ast.expr) -> str:
        if isinstance(node, ast.Lambda):
            return ast.unparse(node.body)
        if isinstance(node, ast.Name):
            return functions[node.id]
        called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if called == "gradient":
            return f"gradient of: {text(node.args[0])}"
        if called.startswith("_keras"):
            return ", ".join(map(text, node.args))
        return ast.unparse(node)

    return {
        node.args[0].value: text(node.args[1])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Case"
    }


def _on_cpu(case: "Case") -> str:
    """Let XLA compile for this CPU; say its refusal."""
    import tensorflow as tf

    from helpers.base.messages import steady

    fn = case.function
    step = tf.function(lambda *tensors: fn(*tensors), jit_compile=True)
    try:
        step.experimental_get_compiler_ir(*case.specs)(stage="optimized_hlo")
    except Exception as error:
        message = str(error).removeprefix("Failed getting HLO text: '")
        return steady(next((x for x in message.splitlines() if x.strip()), type(error).__name__))
    return ""


def rows(cases: Sequence["Case"], subjects: Sequence[str]) -> Iterator[Row]:
    """Compile cases for this CPU and for a TPU.

    Args:
        cases: What to compile.
        subjects: The heading of each.

    Yields:
        A row for each, in order.

    Raises:
        NoTpuCompiler: jax or libtpu is missing.
    """
    from helpers.xla import tpu_compiler

    programs, refusals, cpu = [], {}, {}
    for case in cases:
        try:
            program = tpu_compiler.export(case.function, *case.specs)
            programs.append(dataclasses.replace(program, name=case.name))
            cpu[case.name] = _on_cpu(case)
        except tpu_compiler.NotCompilable as error:
            refusals[case.name] = error.why
    compiled = {c.name: c for c in tpu_compiler.compile_many(programs, TARGET)}
    bounded = {p.name: bool(p.bounded) for p in programs}
    for case, subject in zip(cases, subjects, strict=True):
        arguments = ", ".join(f"{s.dtype.name}{s.shape.as_list()}" for s in case.specs)
        told = (subject, case.name, _written()[case.name], arguments)
        if case.name in refusals:
            yield Row(*told, "refused", "not reached", False, _first_line(refusals[case.name]))
            continue
        result = compiled[case.name]
        if result.verdict == "not available":
            raise NoTpuCompiler(
                "The table of operations can't be made here.",
                result.message,
                "Install it, or read the stored table: python -m helpers ops --stored",
            )
        message = _first_line(cpu[case.name] or result.message)
        on_cpu = "refused" if cpu[case.name] else "compiles"
        yield Row(*told, on_cpu, result.verdict, bounded[case.name], message)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what cases print, and TensorFlow's own words about refused ones, off the terminal."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _first_line(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= 240 else f"{line[:239]}…"


def make(progress: Callable[[int, int], None] | None = None) -> Table:
    """Compile every case.

    Args:
        progress: Called with the number of cases that are done, and of all.

    Returns:
        The table.

    Raises:
        NoTpuCompiler: jax or libtpu is missing.
    """
    import tensorflow as tf

    from helpers.xla import op_cases, tpu_compiler

    found = tpu_compiler.versions()
    todo = [(s, case) for s, group in op_cases.cases().items() for case in group]
    done: list[Row] = []
    for start in range(0, len(todo), _BATCH):
        part = todo[start : start + _BATCH]
        with _quiet():
            done += rows([case for _, case in part], [subject for subject, _ in part])
        if progress is not None:
            progress(len(done), len(todo))
    names = (("TensorFlow", tf.__version__), *((n, found[n]) for n in ("jax", "libtpu")))
    return Table(", ".join(f"{name} {version}" for name, version in names), tuple(done))


# --- keeping it -----------------------------------------------------------------------------------


def write(table: Table, path: pathlib.Path = STORED) -> None:
    """Keep a table as text, one line for each operation.

    Args:
        table: The table.
        path: Where.

    Raises:
        files.CantWrite: The disk is full, or the place is not writable.
    """
    lines = [f"# {table.versions}; from shapes and types alone; TPU {TARGET}, nothing was run"]
    lines.append("\t".join(field.name for field in dataclasses.fields(Row)))
    for row in table.rows:
        cells = dataclasses.replace(row, bounded="yes" if row.bounded else "")
        lines.append("\t".join(map(_escaped, dataclasses.astuple(cells))))
    files.write(path, "\n".join(lines) + "\n")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def _unescaped(text: str) -> str:
    pairs = {"\\\\": "\\", "\\n": "\n", "\\t": "\t"}
    return re.sub(r"\\[\\nt]", lambda found: pairs[found[0]], text)


def read(path: pathlib.Path = STORED) -> Table:
    """Read the stored table.

    Args:
        path: Where it is.

    Returns:
        The table.

    Raises:
        NoTable: The file is missing, or something else.
    """
    names = [field.name for field in dataclasses.fields(Row)]
    try:
        first, head, *lines = path.read_text("utf-8").splitlines()
        if not first.startswith("# ") or head.split("\t") != names:
            raise ValueError(f"its first lines are {first[:40]!r} and {head[:40]!r}")
        rows = []
        for line in lines:
            told = dict(zip(names, map(_unescaped, line.split("\t")), strict=True))
            rows.append(Row(**told | {"bounded": told["bounded"] == "yes"}))
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise NoTable(
            f"{path.name} can't be read as the table of operations.",
            f"{type(error).__name__}: {error}".replace(str(path), path.name),
            "Make it again (3 minutes): python -m helpers ops",
        ) from error
    return Table(first.removeprefix("# ").partition(";")[0], tuple(rows))


# --- showing it -----------------------------------------------------------------------------------

_SCRIPT = """
const field = document.getElementById("search"), only = document.getElementById("only");
const rows = Array.from(document.querySelectorAll("tbody tr:not(.subject)"));
const texts = rows.map(row => row.textContent.toLowerCase());
const count = document.getElementById("count");
function show() {
  const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, i) => {
    const fits = words.every(word => texts[i].includes(word)) &&
      (only.value === "" || row.dataset.state === only.value);
    row.hidden = !fits;
    shown += fits;
  });
  document.querySelectorAll("tbody").forEach(body => {
    body.hidden = !body.querySelector("tr:not(.subject):not([hidden])");
  });
  count.textContent = shown + " of " + rows.length + " operations";
}
field.addEventListener("input", show);
only.addEventListener("change", show);
document.getElementById("controls").hidden = false;
show();
"""

_STYLE = """
body { max-width: 80rem; }
#controls { display: flex; flex-wrap: wrap; gap: 1rem; align-items: end; margin: 0 0 1.5rem; }
#controls div { max-width: 100%; }
#controls[hidden], tr[hidden], tbody[hidden] { display: none; }
label { display: block; color: var(--soft); font-size: .875rem; }
input, select { font: inherit; color: inherit; background: var(--card); padding: .4rem .6rem;
  border: 1px solid var(--soft); border-radius: .4rem; }
input { width: 22rem; max-width: 100%; }
input:focus-visible, select:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
tbody th[scope="rowgroup"] { background: var(--paper); font-size: 1.05rem; }
pre { margin: .3rem 0 0; font: .82rem/1.4 ui-monospace, "DejaVu Sans Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; font-weight: 400; }
.compiles { color: var(--good); } .refused, .crashed { color: var(--bad); }
.not-reached { color: var(--soft); } .bounded { color: var(--wait); }
td { overflow-wrap: anywhere; }
@media (max-width: 44rem) {
  td:empty { display: none; }
  tbody th[scope="rowgroup"] { background: none; }
}
@media (min-width: 44.01rem) {
  table { table-layout: fixed; }
  thead th:nth-child(1) { width: 46%; }
  thead th:nth-child(2), thead th:nth-child(3) { width: 9rem; }
}
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<title>Which operations compile for a TPU?</title>
<style>{{ style }}</style>
</head>
<body>
<header>
<h1>Which operations compile for a TPU?</h1>
<p class="lead">{{ rows|length }} operations and idioms of TensorFlow, compiled from shapes and
types alone by XLA for a CPU and by Google's TPU compiler for {{ target }}. Nothing was run.
{{ versions }}.</p>
</header>
<main>
<div id="controls" hidden>
<div><label for="search">Search names, code and messages</label>
<input id="search" type="search" autocomplete="off"></div>
<div><label for="only">Show</label>
<select id="only"><option value="">all</option><option value="compiles">compiles for both</option>
<option value="bounded">compiles, with a bounded size</option>
<option value="differs">CPU and TPU differ</option>
<option value="refused">refused</option></select></div>
<div id="count" role="status" aria-live="polite"></div>
</div>
<table role="table">
<thead role="rowgroup"><tr role="row">
<th role="columnheader" scope="col">Operation</th>
<th role="columnheader" scope="col">XLA on a CPU</th>
<th role="columnheader" scope="col">TPU compiler</th>
<th role="columnheader" scope="col">What it says</th>
</tr></thead>
{%- for subject, group in groups %}
<tbody role="rowgroup">
<tr role="row" class="subject"><th role="rowheader" scope="rowgroup" colspan="4">{{ subject }}</th>
</tr>
{%- for row in group %}
<tr role="row" data-state="{{ state(row) }}">
<th role="rowheader" scope="row">{{ row.name|replace("_", " ") }}
<pre>{{ row.code }}</pre><span class="small">{{ row.arguments }}</span></th>
{%- for label, verdict in (("XLA on a CPU", row.cpu), ("TPU compiler", row.tpu)) %}
<td role="cell" data-label="{{ label }}" class="state {{ verdict|replace(" ", "-") }}">
{#- #}<span aria-hidden="true">{{ symbols.get(verdict, "✕") }}</span> {{ verdict }}</td>
{%- endfor %}
<td role="cell" data-label="What it says">{{ row.message }}
{%- if row.bounded %}<span class="bounded">Its size depends on values: it is compiled, and paid
for, at the largest possible size.</span>{% endif %}</td>
</tr>
{%- endfor %}
</tbody>
{%- endfor %}
</table>
</main>
<footer>
<p>"Compiles" does not say that the result is right, or fast. "Not reached": TensorFlow made no
program of it that could be handed to the TPU's compiler. Its refusals come from XLA's operations
for a CPU; where they were compared with those of the TPU's TensorFlow, 191 of 193 agreed.
Make this page again with <code>python -m helpers ops</code>.</p>
</footer>
<script>{{ script }}</script>
</body>
</html>
"""

_SYMBOLS = {"compiles": "✓", "not reached": "–"}


def _state(row: Row) -> str:
    if row.cpu == row.tpu == "compiles":
        return "bounded" if row.bounded else "compiles"
    return "refused" if row.tpu == "not reached" or row.cpu == row.tpu else "differs"


def _groups(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.subject, []).append(row)
    return list(found.items())


def page(table: Table) -> str:
    """Write the table as one page that loads nothing and can be searched.

    Args:
        table: The table.

    Returns:
        The page. Every text is escaped; the only script that may run is the search.
    """
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    plain = jinja2.utils.markupsafe.Markup
    return environment.from_string(_PAGE).render(
        policy=plain(f"{POLICY}; script-src 'sha256-{digest}'"),
        style=plain(STYLE + _STYLE),
        script=plain(_SCRIPT),
        rows=table.rows,
        groups=_groups(table.rows),
        versions=table.versions,
        target=TARGET,
        state=_state,
        symbols=_SYMBOLS,
    )
