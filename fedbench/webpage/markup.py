"""HTML by hand: everything that comes from runs is escaped, links are relative to the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

_NUMBER = ' class="number"'


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its HTML, and the value by which its column is sorted (None: last)."""

    html: str
    value: float | str | None


def said(value: object) -> Cell:
    """A value of a configuration, as a configuration writes it."""
    if isinstance(value, bool) or value is None:
        word = "null" if value is None else str(value).lower()
        return Cell(word, word)
    if isinstance(value, int | float):
        return Cell(escape(str(value)), value)
    return Cell(escape(str(value)), str(value))


def count(value: float | None, form: str = "") -> Cell:
    """A measured number; empty where there is none."""
    return Cell("" if value is None else format(value, form), value)


def link(target: Path, page: Path, text: str) -> str:
    """A link from `page` to a file, or the text where there is none; a quoted colon makes no scheme."""
    if not target.exists():
        return escape(text)
    address = quote(os.path.relpath(target, page.parent))
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def table(name: str, titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table whose columns can be sorted."""
    columns = [[row[at].value for row in rows if row[at].value is not None] for at in range(len(titles))]
    numeric = [bool(values) and all(isinstance(value, int | float) for value in values) for values in columns]
    head = "".join(
        f'<th{_NUMBER if right else ""}><button type="button">{escape(title)}</button></th>'
        for title, right in zip(titles, numeric, strict=True)
    )
    body = "\n".join(f"<tr>{''.join(map(_cell, cells))}</tr>" for cells in rows)
    found = f'<table id="{name}" class="sortable"><thead><tr>{head}</tr></thead>'
    return f'<div class="wide">{found}<tbody>\n{body}\n</tbody></table></div>'


def _cell(cell: Cell) -> str:
    value = "" if cell.value is None else escape(str(cell.value))
    number = _NUMBER if isinstance(cell.value, int | float) else ""
    return f'<td data-v="{value}"{number}>{cell.html}</td>'
