"""The table of operations as one page that can be searched without a network."""

import base64
import hashlib
import itertools

import jinja2

from helpers.base.html import POLICY, STYLE
from helpers.base.settings import ROOT
from helpers.xla.ops.table import TARGET, Table

PAGE = ROOT / "build" / "ops.html"

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
<tr role="row" data-state="{{ row.state }}">
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
        groups=itertools.groupby(table.rows, lambda row: row.subject),
        versions=table.versions,
        target=TARGET,
        symbols=_SYMBOLS,
    )
