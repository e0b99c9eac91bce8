"""What a result looks like, once for all: as plain text, and as HTML in a notebook or a page."""

import abc
import html
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tpu_preflight.text import aligned, translated

_LEFT = 'style="text-align:left;vertical-align:top;padding:.2em .8em .2em 0"'

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
    """Rows of cells by the names of their columns; ``help``, where there is one, goes below."""

    @classmethod
    def by_target(cls, rows: Iterable[Mapping[str, str]]) -> "Table":
        """Turn rows of targets into columns: side by side, what is told of them would not fit."""
        rows = list(rows)
        names = [name for name in rows[0] if name != "target"] if rows else []
        return cls({"": name} | {row["target"]: row[name] for row in rows} for name in names)

    def __str__(self) -> str:
        names = [name for name in self[0] if name != "help"]
        titled = [dict(zip(names, names, strict=True)), *self]
        first, *lines = aligned([[translated(row[n]) for n in names] for row in titled])
        said = [first]
        for line, row in zip(lines, self, strict=True):
            said.append(line)
            if row.get("help"):
                said.append(f"    {translated('help')}: {translated(row['help'])}")
        return "\n".join(said)

    def _repr_html_(self) -> str:
        names = [name for name in self[0] if name != "help"]
        head = "".join(f"<th {_LEFT}>{escaped(name)}</th>" for name in names)
        body = f"<thead><tr>{head}</tr></thead><tbody>"
        for row in self:
            cells = [_cell(row[name]) for name in names]
            if row.get("help"):
                cells[0] += f"<br><em>{escaped('Help')}:</em> {escaped(row['help'])}"
            body += f"<tr>{''.join(f'<td {_LEFT}>{cell}</td>' for cell in cells)}</tr>"
        return f'<div style="overflow-x:auto"><table>{body}</tbody></table></div>'


def _cell(text: str) -> str:
    said = escaped(text)
    return f'<a href="{html.escape(text.address)}">{said}</a>' if isinstance(text, Link) else said


def escaped(text: str) -> str:
    """Translate a text, and write it as HTML."""
    return html.escape(translated(text), quote=False)


class Displayable(abc.ABC):
    """A result that reads well when it is printed, and in a notebook."""

    __slots__ = ()

    @abc.abstractmethod
    def blocks(self) -> Iterator[Any]:
        """Give its parts in order: lines, headings, tables, and other results."""

    def __repr__(self) -> str:
        return "\n".join(
            translated(block) if isinstance(block, str) else str(block) for block in self.blocks()
        )

    def _repr_html_(self) -> str:
        parts = []
        for block in self.blocks():
            if not isinstance(block, str):
                parts.append(block._repr_html_())
            else:
                text = escaped(block).replace("\n", "<br>")
                is_heading = isinstance(block, Heading)
                parts.append(f"<p><strong>{text}</strong></p>" if is_heading else f"<p>{text}</p>")
        return "".join(parts)
