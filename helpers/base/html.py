"""What all pages of the course share: their style and their content policy."""

# Says to the browser what the code below has made true: no script, no request to anywhere.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"


STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1f2328; --soft: #57606a; --line: #dcd8cf;
  --link: #0b57a4; --good: #0c6b3f; --bad: #a8200d; --wait: #6b5200;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --card: #1c2024; --ink: #e8e6e1; --soft: #a9b1ba; --line: #353b42;
    --link: #8cc4ff; --good: #7ddba8; --bad: #ffa193; --wait: #e8c766;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 62rem; padding: 2.5rem 1.25rem 4rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif;
}
h1 { font-size: clamp(1.7rem, 1.2rem + 2vw, 2.4rem); line-height: 1.15; margin: 0; }
h2 { font-size: 1.15rem; margin: 0 0 .75rem; }
.lead { color: var(--soft); font-size: 1.1rem; margin: .5rem 0 2rem; }
a { color: var(--link); text-underline-offset: .2em; }
a:focus-visible { outline: 3px solid var(--link); outline-offset: 3px; border-radius: 2px; }
dl { display: grid; grid-template-columns: repeat(4, 1fr); gap: 1rem; margin: 0 0 2.5rem; }
dl div, table { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
dl div { padding: .8rem 1rem; }
dt { color: var(--soft); font-size: .875rem; }
dd { margin: 0; font-size: 1.2rem; font-weight: 600; }
table { width: 100%; border-collapse: separate; border-spacing: 0; }
caption { text-align: left; font-size: 1.15rem; font-weight: 700; padding-bottom: .75rem; }
thead th { font-size: .875rem; font-weight: 600; color: var(--soft); }
th, td { text-align: left; vertical-align: top; padding: .8rem 1rem; }
tbody th, tbody td { border-top: 1px solid var(--line); }
tbody th { font-weight: 600; }
.number { color: var(--soft); font-weight: 400; margin-right: .4rem; }
.small { display: block; color: var(--soft); font-size: .875rem; font-weight: 400; }
.small { margin-top: .15rem; overflow-wrap: anywhere; }
.figure { white-space: nowrap; font-variant-numeric: tabular-nums; }
.state { font-weight: 600; white-space: nowrap; }
.passed { color: var(--good); }
.failed, .died { color: var(--bad); }
.interrupted { color: var(--wait); }
.not-run { color: var(--soft); }
footer { color: var(--soft); font-size: .875rem; margin-top: 2rem; }
code { font: .9em ui-monospace, "DejaVu Sans Mono", monospace; }
@media (max-width: 44rem) {
  body { padding-top: 1.5rem; }
  dl { grid-template-columns: 1fr 1fr; gap: .6rem; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, tbody, tr, th, td { display: block; }
  table { border: 0; background: none; border-radius: 0; }
  caption { display: block; }
  tbody tr { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; }
  tbody tr { margin-bottom: .8rem; padding: .9rem 1rem; }
  tbody th, tbody td { border: 0; padding: 0; }
  td { margin-top: .5rem; }
  td::before { content: attr(data-label) ": "; color: var(--soft); font-size: .875rem; }
}
@media print { body { max-width: none; padding: 0; } table, dl div { background: none; } }
"""
