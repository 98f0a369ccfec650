"""The parts of the report: a paper's claims at a glance, a figure with what it was made from, the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.papers.figure import Figure, Paper
from fedbench.papers.markdown import markdown

Made = Mapping[str, Any]  # the content of made.json


def at_a_glance(paper: Paper, ledger: pd.DataFrame, picture: Path | None) -> Iterable[str]:
    """One picture and a table of the claims of which the paper states a number or an order."""
    chosen = ledger[ledger.claim.isin([claim.name for claim in paper.claims]) & (ledger.published != "")]
    yield f"### {paper.citation}\n"
    if picture:
        yield f"![{picture.stem}]({picture.as_posix()})\n"
    verdicts = chosen.verdict + ": " + chosen.reason
    table = {"claim": chosen.text, "paper": chosen.published, "ours": chosen.brief, "verdict": verdicts}
    yield markdown(pd.DataFrame(table))


def counts(ledger: pd.DataFrame) -> str:
    """`64 claims: 30 untested, ...`."""
    found = ", ".join(f"{count} {verdict}" for verdict, count in ledger.verdict.value_counts().items())
    return f"{len(ledger)} claims: {found}"


def all_claims(ledger: pd.DataFrame) -> str:
    """The whole ledger as a table."""
    columns = {"text": "claim", "source": "source", "verdict": "verdict", "numbers": "our numbers",
               "reason": "why", "seeds": "seeds", "settings": "settings", "command": "command"}  # fmt: skip
    return markdown(ledger[list(columns)].rename(columns=columns).fillna(""))


def section(figure: Figure, out: Path, made: Made, top: Path) -> Iterable[str]:
    """A figure's pictures or tables, with how it was tuned and what it was made from. `top`: the directory of
    the report."""
    yield f"## {figure.name}\n"
    yield f"Meant to show: {figure.about}. {_made_from(made) if figure.runs else ''}".rstrip() + "\n"
    for file in (out / name for name in made.get("files", [])):
        if file.suffix == ".png" and file.is_file():
            yield f"![{file.stem}]({file.relative_to(top).as_posix()})\n"
            caption = file.with_suffix(".json")
            if caption.is_file():
                yield from (f"*{text}*\n" for text in json.loads(caption.read_text()).get("text", []))
        elif file.suffix == ".md" and file.is_file() and not file.with_suffix(".png").is_file():
            yield file.read_text(encoding="utf-8")
    if (out / "tuning.csv").is_file():
        yield from _tuning(out / "tuning.csv", made, top)
    yield f"Made by `{made.get('command', '')}`.\n"


def _made_from(made: Made) -> str:
    runs = ", ".join(f"{count} {status}" for status, count in made.get("runs", {}).items())
    data = {Path(item.get("path", "")).name for files in made.get("data", []) for item in files}
    commits = ", ".join(dict.fromkeys(map(_commit, made.get("commit", []))))
    parts = [
        f"Scale `{made.get('scale')}`{_stand_ins(made)}",
        f"seeds {', '.join(map(str, made.get('seeds', [])))}",
        f"runs: {runs}",
        f"data: {', '.join(sorted(filter(None, data)))}" if any(data) else "",
        f"commit {commits}" if commits else "",
        "; ".join(map(_words, made.get("hardware", []))),
        "; ".join(map(_words, made.get("versions", []))),
        *dict.fromkeys(note for notes in made.get("notes", []) for note in notes),
    ]
    return "; ".join(filter(None, parts)) + "."


def _stand_ins(made: Made) -> str:
    shared = made.get("shared", {})
    said = " and ".join(str(shared[key]) for key in ("dataset", "model") if key in shared)
    return f", with {said} in place of the paper's data and model" if made.get("scale") == "smoke" else ""


def _commit(text: str) -> str:
    """A commit as published; runs from before clean commits were asked for say what they were made from."""
    head, _, dirty = text.partition("+")
    return head[:10] + (" with changes that were not committed" if dirty else "")


def _words(item: Any) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{key} {value}" for key, value in item.items() if value is not None)
    return str(item)


def _tuning(file: Path, made: Made, top: Path) -> Iterable[str]:
    table = pd.read_csv(file)
    winners = table[table.role == "winner"].dropna(axis=1, how="all").drop(columns="role")
    tried = f"{len(table)} configurations ({int(table.diverged.sum())} runs diverged, counted as 0)"
    early = pd.Series(table.get("pruned"), dtype=float).dropna()
    if len(early):
        ended = " and ".join(f"{int(rounds):,}" for rounds in early.unique())
        tried += f", {len(early)} of them run for {ended} rounds only and passed over for better ones"
    yield f"Tuned over {tried}; [all of them]({file.relative_to(top).as_posix()}). Winners:\n"
    yield markdown(winners)
    if made.get("edges"):
        yield f"At the edge of what was tried: {'; '.join(made['edges'])}.\n"
