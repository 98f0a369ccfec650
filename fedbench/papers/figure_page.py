"""The page of a figure: its pictures or tables, how it was tuned, what it was made from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.files import write_text
from fedbench.papers.evidence import MADE, TUNING_CSV, made
from fedbench.papers.figure import Figure, markdown, shown

Made = Mapping[str, Any]  # the content of made.json
CLAIMS = "Claims, by all figures that show them:\n"
"""The line of a figure's page below which its claims and their words are."""


def section(figure: Figure, out: Path, content: Made) -> Iterator[str]:
    """The lines of a figure's page: its pictures or tables, how it was tuned, what it was made from."""
    yield f"# {figure.name}\n\n{figure.about}.\n"
    for file in (out / name for name in content.get("files", [])):
        if file.suffix == ".png" and file.is_file():
            yield f"![{file.stem}]({file.name})\n"
            caption = file.with_suffix(".json")
            if caption.is_file():
                yield from (f"*{text}*\n" for text in json.loads(caption.read_text()).get("text", []))
        elif file.suffix == ".md" and file.is_file() and not file.with_suffix(".png").is_file():
            yield file.read_text(encoding="utf-8")
    if (tuning := out / TUNING_CSV).is_file():
        yield from _tuning(tuning, content)
    yield f"{_made_from(content)}\n" if figure.runs else ""
    yield f"Made by `{content.get('command', '')}`.\n"


def beside(figure: Figure, scale: str, root: Path) -> str:
    """What a figure with a setting of one's own is shown beside, in words."""
    if made(published := shown(figure.name, scale, root)):
        return f"beside the one in {published}"
    scales = [one for one in figure.scales if made(shown(figure.name, one, root))]
    return f"nothing beside it: no {figure.name} is kept at scale {scale}" + (
        f", but with --scale {' or '.join(scales)}" if scales else ""
    )


def write_page_of_changed(figure: Figure, scale: str, out: Path, root: Path) -> None:
    """Write the page of a figure with a setting of one's own: beside each picture the one that is kept at
    this scale."""
    content, published = json.loads((out / MADE).read_text()), shown(figure.name, scale, root)
    pictures = [name for name in content["files"] if name.endswith(".png") and (published / name).is_file()]
    rows = [f"| ![as published]({os.path.relpath(published / name, out)}) | ![changed]({name}) |"
            for name in pictures]  # fmt: skip
    changed = " ".join(content["changed"])
    head = [f"**Changed: {changed}.** No claim is judged by it; {beside(figure, scale, root)}.\n"]
    table = [f"| as published | {changed} |", "|---|---|", *rows, ""] if rows else []
    title, *rest = section(figure, out, content)
    write_text(out / "README.md", "\n".join([title, *head, *table, *rest]))


def update_page(figure: Figure, out: Path, content: Made) -> bool:
    """Write the page in `out` anew, but for what it says of claims. Returns whether there is a page."""
    page = out / "README.md"
    if not page.is_file():
        return False
    _, line, claims = page.read_text(encoding="utf-8").partition(CLAIMS)
    write_text(page, "\n".join([*section(figure, out, content), line + claims]))
    return True


def _made_from(content: Made) -> str:
    shared, scale = content.get("shared", {}), content.get("scale")
    used = " and ".join(str(shared[key]) for key in ("dataset", "model") if key in shared)
    stand_ins = f", with {used} in place of the paper's data and model" if scale == "smoke" else ""
    runs = ", ".join(f"{count} {status}" for status, count in content.get("runs", {}).items())
    seconds = float(content.get("run_seconds", 0))  # of the final runs, one thread each
    spent = f" ({seconds / 3600:.1f} core-hours)" if seconds else ""
    data = {Path(item.get("path", "")).name for files in content.get("data", []) for item in files} - {""}
    commits = ", ".join(text[:10] for text in content.get("commit", []))
    parts = [
        f"Scale `{scale}`{stand_ins}",
        f"seeds {', '.join(map(str, content.get('seeds', [])))}",
        f"runs: {runs}{spent}",
        f"data: {', '.join(sorted(data))}" if data else "",
        f"commit {commits}" if commits else "",
        *("; ".join(map(_words, content.get(key, []))) for key in ("hardware", "versions")),
        *dict.fromkeys(note for notes in content.get("notes", []) for note in notes),
    ]
    return "; ".join(filter(None, parts)) + "."


def _words(item: Any) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{key} {value}" for key, value in item.items() if value is not None)
    return str(item)


def _tuning(file: Path, content: Made) -> Iterable[str]:
    table = pd.read_csv(file)
    winners = table[table.role == "winner"].dropna(axis=1, how="all").drop(columns="role")
    tried = f"{len(table)} configurations ({int(table.diverged.sum())} runs diverged, counted as 0)"
    early = pd.Series(table.get("pruned"), dtype=float).dropna()
    if len(early):
        ended = " and ".join(f"{int(rounds):,}" for rounds in early.unique())
        tried += f", {len(early)} of them run for {ended} rounds only and passed over for better ones"
    yield f"Tuned over {tried}; [all of them]({file.name}). Winners:\n"
    yield markdown(winners)
    if content.get("edges"):
        yield f"At the edge of what was tried: {'; '.join(content['edges'])}.\n"
