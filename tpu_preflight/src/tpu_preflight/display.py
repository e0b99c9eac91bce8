"""What every result looks like: as plain text, and as HTML in a notebook or a page."""

import abc
import dataclasses
import html
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tpu_preflight.text import aligned, translated

# Written into each cell: notebooks center theirs, and a report's page has no style sheet for them.
_LEFT = 'style="text-align:left;vertical-align:top;padding:.2em .8em .2em 0"'

MISSING = "–"  # in a cell of a table

# Of a report alone: no network, and light or dark as the reader's system.
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>{title}</title><style>
body {{ font: 16px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: anywhere; background: Canvas; color: CanvasText; }}
</style></head><body><main>{body}</main></body></html>
"""


class Heading(str):
    """A line that begins a part."""


class Link(str):
    """A text that leads to a page, where a form can."""

    def __new__(cls, text: str, address: str) -> "Link":
        """Make one, with the page's address."""
        link = super().__new__(cls, text)
        link.address = address
        return link


class Table(list[dict[str, str]]):
    """Rows of cells by the names of their columns; ``help``, where there is one, goes below.

    >>> print(Table([{"operation": "MatMul", "ms": "1.5", "help": "use bfloat16"}]))
    operation  ms
    MatMul     1.5
        help: use bfloat16
    """

    @classmethod
    def by_target(cls, rows: Iterable[Mapping[str, str]]) -> "Table":
        """Turn rows of targets into columns: side by side, the many cells of a row don't fit.

        What no target has a value for is left out.
        """
        rows = list(rows)
        table = cls()
        if not rows:
            return table
        for name in rows[0]:
            if name == "target":
                continue
            cells = {row["target"]: row[name] for row in rows}
            if set(cells.values()) != {MISSING}:
                table.append({"": name, **cells})
        return table

    @property
    def _columns(self) -> list[str]:
        return [name for name in self[0] if name != "help"]

    def __str__(self) -> str:
        columns = self._columns
        cells = [[translated(name) for name in columns]]
        for row in self:
            cells.append([translated(row[name]) for name in columns])
        # Aligned together, so that the columns are as wide as their heads need.
        head, *body = aligned(cells)
        lines = [head]
        for line, row in zip(body, self, strict=True):
            lines.append(line)
            if row.get("help"):
                lines.append(f"    {translated('help')}: {translated(row['help'])}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        # Help goes into the first cell: a column of its own would be empty in most rows.
        columns = self._columns
        head = _html_row("th", map(escaped, columns))
        parts = [f"<thead>{head}</thead><tbody>"]
        for row in self:
            cells = [_cell(row[name]) for name in columns]
            if row.get("help"):
                cells[0] += f"<br><em>{escaped('Help')}:</em> {escaped(row['help'])}"
            parts.append(_html_row("td", cells))
        body = "".join(parts)
        return f'<div style="overflow-x:auto"><table>{body}</tbody></table></div>'


def _html_row(tag: str, cells: Iterable[str]) -> str:
    row = "".join(f"<{tag} {_LEFT}>{cell}</{tag}>" for cell in cells)
    return f"<tr>{row}</tr>"


def _cell(text: str) -> str:
    content = escaped(text)
    if isinstance(text, Link):
        return f'<a href="{html.escape(text.address)}">{content}</a>'
    return content


def escaped(text: str) -> str:
    """Translate a text, and write it as HTML."""
    return html.escape(translated(text), quote=False)


@dataclasses.dataclass(frozen=True)
class Folded:
    """Parts of which a text has one line, and a page all, once that line is clicked."""

    summary: str
    hint: str  # how a text's reader sees them
    parts: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{translated(self.summary)} ({translated(self.hint)})"

    def _repr_html_(self) -> str:
        parts = as_html(self.parts)
        return f"<details><summary>{escaped(self.summary)}</summary>{parts}</details>"


class Displayable(abc.ABC):
    """A result that reads well when it is printed, and in a notebook.

    A subclass defines `blocks`, and gets both forms.
    """

    __slots__ = ()

    @abc.abstractmethod
    def blocks(self) -> Iterator[Any]:
        """Give its parts in order: lines, headings, tables, and other results."""

    def __repr__(self) -> str:
        return as_text(self.blocks())

    def _repr_html_(self) -> str:
        return as_html(self.blocks())


def as_text(blocks: Iterable[Any]) -> str:
    """Write the parts of a result as plain text."""
    lines = []
    for block in blocks:
        if isinstance(block, str):
            lines.append(translated(block))
        else:
            lines.append(str(block))
    return "\n".join(lines)


def as_html(blocks: Iterable[Any]) -> str:
    """Write the parts of a result as HTML."""
    return "".join(map(_html_block, blocks))


def _html_block(block: Any) -> str:
    if not isinstance(block, str):
        return block._repr_html_()
    # Lines of text are broken where they are when printed.
    text = escaped(block).replace("\n", "<br>")
    if isinstance(block, Heading):
        text = f"<strong>{text}</strong>"
    return f"<p>{text}</p>"
