"""outputs/README.md: every figure and table with what it was made from, and the claims ledger. Generated."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.claims import evidence
from fedbench.claims.ledger import SCALES, ledger
from fedbench.files import write_text
from fedbench.papers.figure import SHOWN, shown
from fedbench.papers.markdown import markdown
from fedbench.papers.registry import CLAIMS, FIGURES

REPORT = "outputs/README.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
"""What stands between these lines of the report is generated; the rest is kept as it is."""
_HEAD = "# Results\n"


def write_report(root: Path) -> list[Path]:
    """Write the report and the ledger's CSV from what is kept below `root`; return their paths."""
    table = ledger(_evidence(root), CLAIMS)
    claims = root / SHOWN / "claims.csv"
    claims.parent.mkdir(parents=True, exist_ok=True)
    write_text(claims, table.to_csv(index=False, lineterminator="\n"))
    body = "\n".join([BEGIN, "", *_figures(root), "## Claims", "", *_claims(table), END])
    report = root / REPORT
    before = report.read_text(encoding="utf-8") if report.is_file() else f"{_HEAD}\n{BEGIN}\n{END}\n"
    if BEGIN not in before or END not in before:
        before = f"{before.rstrip()}\n\n{BEGIN}\n{END}\n"
    start, rest = before.split(BEGIN, 1)
    write_text(report, start + body + rest.split(END, 1)[1])
    return [report, claims]


def _best_scale(name: str, root: Path) -> str | None:
    """The largest scale at which a figure has results."""
    return next((s for s in reversed(SCALES) if evidence.made(shown(name, s, root)) is not None), None)


def _evidence(root: Path) -> dict[str, evidence.Evidence]:
    scales = {name: scale for name in FIGURES if (scale := _best_scale(name, root)) is not None}
    found = {name: evidence.read(shown(name, scale, root)) for name, scale in scales.items()}
    return {name: kept for name, kept in found.items() if kept is not None}


def _figures(root: Path) -> Iterable[str]:
    for name, figure in FIGURES.items():
        scale = _best_scale(name, root)
        if scale is None:
            continue
        out = shown(name, scale, root)
        made = evidence.made(out) or {}
        yield f"## {name}"
        yield ""
        yield f"Meant to show: {figure.about}. {_made_from(made) if figure.runs else ''}".rstrip()
        yield ""
        for file in made.get("files", []):
            yield from _shown(out / file, root)
        if (out / "tuning.csv").is_file():
            yield from _tuning(out, root, made)
        yield f"Made by `{made.get('command', '')}`."
        yield ""


def _made_from(made: dict[str, Any]) -> str:
    runs = ", ".join(f"{count} {status}" for status, count in made.get("runs", {}).items())
    data = {Path(item.get("path", "")).name for files in made.get("data", []) for item in files}
    hardware = "; ".join(_words(item) for item in made.get("hardware", []))
    versions = "; ".join(_words(item) for item in made.get("versions", []))
    heads = (str(commit).partition("+") for commit in made.get("commit", []))
    commits = ", ".join(dict.fromkeys(head[:10] + plus + state for head, plus, state in heads))
    parts = [
        f"Scale `{made.get('scale')}`",
        f"seeds {', '.join(map(str, made.get('seeds', [])))}",
        f"runs: {runs}",
        f"data: {', '.join(sorted(filter(None, data)))}" if any(data) else "",
        f"commit {commits}" if commits else "",
        hardware,
        versions,
        *dict.fromkeys(note for notes in made.get("notes", []) for note in notes),
    ]
    return "; ".join(filter(None, parts)) + "."


def _words(item: Any) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{key} {value}" for key, value in item.items() if value is not None)
    return str(item)


def _shown(file: Path, root: Path) -> Iterable[str]:
    """A picture with its caption, or a table."""
    place = (
        file.relative_to(root / "outputs").as_posix() if file.is_relative_to(root / "outputs") else file.name
    )
    if file.suffix == ".png" and file.is_file():
        yield f"![{file.stem}]({place})"
        yield ""
        caption = file.with_suffix(".json")
        if caption.is_file():
            yield from (f"*{text}*\n" for text in json.loads(caption.read_text()).get("text", []))
    elif file.suffix == ".md" and file.is_file() and not file.with_suffix(".png").is_file():
        yield file.read_text(encoding="utf-8")


def _tuning(out: Path, root: Path, made: dict[str, Any]) -> Iterable[str]:
    table = pd.read_csv(out / "tuning.csv")
    winners = table[table.role == "winner"].dropna(axis=1, how="all").drop(columns="role")
    place = (out / "tuning.csv").relative_to(root / "outputs").as_posix()
    lost = int(table.diverged.sum())
    tried = f"{len(table)} configurations ({lost} runs diverged, counted as 0)"
    yield f"Tuned over {tried}; [all of them]({place}). Winners:"
    yield ""
    yield markdown(winners)
    if made.get("edges"):
        yield f"At the edge of what was tried: {'; '.join(made['edges'])}."
        yield ""


def _claims(table: pd.DataFrame) -> list[str]:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in table.verdict.value_counts().items())
    columns = {"text": "claim", "source": "source", "verdict": "verdict", "numbers": "our numbers",
               "reason": "why", "seeds": "seeds", "settings": "settings", "command": "command"}  # fmt: skip
    shown_table = table[list(columns)].rename(columns=columns).fillna("")
    return [
        f"{len(table)} claims: {counts}. With the tests: [claims.csv](figures/claims.csv).",
        "",
        markdown(shown_table),
    ]
