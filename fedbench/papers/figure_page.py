"""The page of a figure: its pictures or tables, how it was tuned, what it was made from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.files import write_text
from fedbench.papers.evidence import MADE
from fedbench.papers.figure import Figure, markdown

Made = Mapping[str, Any]  # the content of made.json
CLAIMS = "Claims, by all figures that show them:\n"
"""The line of a figure's page below which its claims and their words are."""


def section(figure: Figure, out: Path, made: Made) -> Iterator[str]:
    """The lines of a figure's page: its pictures or tables, how it was tuned, what it was made from."""
    yield f"# {figure.name}\n\n{figure.about}.\n"
    for file in (out / name for name in made.get("files", [])):
        if file.suffix == ".png" and file.is_file():
            yield f"![{file.stem}]({file.name})\n"
            caption = file.with_suffix(".json")
            if caption.is_file():
                yield from (f"*{text}*\n" for text in json.loads(caption.read_text()).get("text", []))
        elif file.suffix == ".md" and file.is_file() and not file.with_suffix(".png").is_file():
            yield file.read_text(encoding="utf-8")
    if (out / "tuning.csv").is_file():
        yield from _tuning(out / "tuning.csv", made)
    yield f"{_made_from(made)}\n" if figure.runs else ""
    yield f"Made by `{made.get('command', '')}`.\n"


def write_page_of_changed(figure: Figure, out: Path, published: Path) -> None:
    """Write the page of a figure with a setting of one's own: beside each picture the published one, which
    lies in `published` if it was made at this scale."""
    made = json.loads((out / MADE).read_text())
    pictures = [name for name in made["files"] if name.endswith(".png") and (published / name).is_file()]
    beside = [f"| ![as published]({os.path.relpath(published / name, out)}) | ![changed]({name}) |"
              for name in pictures]  # fmt: skip
    said = " ".join(made["changed"])
    head = [f"**Changed: {said}.** No claim is judged by it.\n"]
    table = [f"| as published | {said} |", "|---|---|", *beside, ""] if beside else []
    title, *rest = section(figure, out, made)
    write_text(out / "README.md", "\n".join([title, *head, *table, *rest]))


def update_page(figure: Figure, out: Path, made: Made) -> bool:
    """Write the page in `out` anew, but for what it says of claims. Returns whether there is a page."""
    page = out / "README.md"
    if not page.is_file():
        return False
    _, line, claims = page.read_text(encoding="utf-8").partition(CLAIMS)
    write_text(page, "\n".join([*section(figure, out, made), line + claims]))
    return True


def _made_from(made: Made) -> str:
    shared, scale = made.get("shared", {}), made.get("scale")
    used = " and ".join(str(shared[key]) for key in ("dataset", "model") if key in shared)
    stand_ins = f", with {used} in place of the paper's data and model" if scale == "smoke" else ""
    runs = ", ".join(f"{count} {status}" for status, count in made.get("runs", {}).items())
    spent = f" ({hours(made):.1f} core-hours)" if made.get("run_seconds") else ""
    data = {Path(item.get("path", "")).name for files in made.get("data", []) for item in files} - {""}
    commits = ", ".join(text[:10] for text in made.get("commit", []))
    parts = [
        f"Scale `{scale}`{stand_ins}",
        f"seeds {', '.join(map(str, made.get('seeds', [])))}",
        f"runs: {runs}{spent}",
        f"data: {', '.join(sorted(data))}" if data else "",
        f"commit {commits}" if commits else "",
        *("; ".join(map(_words, made.get(key, []))) for key in ("hardware", "versions")),
        *dict.fromkeys(note for notes in made.get("notes", []) for note in notes),
    ]
    return "; ".join(filter(None, parts)) + "."


def hours(made: Made) -> float:
    """Core-hours of a figure's final runs, one thread each."""
    return float(made.get("run_seconds", 0)) / 3600


def _words(item: Any) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{key} {value}" for key, value in item.items() if value is not None)
    return str(item)


def _tuning(file: Path, made: Made) -> Iterable[str]:
    table = pd.read_csv(file)
    winners = table[table.role == "winner"].dropna(axis=1, how="all").drop(columns="role")
    tried = f"{len(table)} configurations ({int(table.diverged.sum())} runs diverged, counted as 0)"
    early = pd.Series(table.get("pruned"), dtype=float).dropna()
    if len(early):
        ended = " and ".join(f"{int(rounds):,}" for rounds in early.unique())
        tried += f", {len(early)} of them run for {ended} rounds only and passed over for better ones"
    yield f"Tuned over {tried}; [all of them]({file.name}). Winners:\n"
    yield markdown(winners)
    if made.get("edges"):
        yield f"At the edge of what was tried: {'; '.join(made['edges'])}.\n"
