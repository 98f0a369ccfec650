"""The report on what is kept: a first page of claims, every figure, and the ledger beside it. Generated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.files import write_text
from fedbench.papers import CLAIMS, FIGURES, PAPERS
from fedbench.papers.claims import ledger, made, read
from fedbench.papers.figure import SHOWN, SMOKE, Figure, Paper, markdown, shown

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
"""What stands between these lines of the report is generated; the rest is kept as it is."""
_EXPLAINED = """\
The claims of which a paper states a number or an order, with the paper's and ours: mean +- standard deviation
over seeds, beside the baseline that comes nearest. A verdict is "shown", "not shown" or "untested" (too few
rounds, seeds or values, or too small a scale), and says why.
"""
_LEDGER = {"text": "claim", "source": "source", "verdict": "verdict", "numbers": "our numbers",
           "reason": "why", "seeds": "seeds", "settings": "settings", "command": "command"}  # fmt: skip
"""The ledger's columns on its page, by those of the table."""

Made = Mapping[str, Any]  # the content of made.json


def write_report(root: Path, smoke: bool = False) -> list[Path]:
    """Write the report, the ledger and its CSV from what is kept below `root`; return their paths.

    outputs/README.md is of the scales cpu and paper; `smoke`: outputs/smoke/README.md is of smoke results.
    """
    place = root / (SMOKE if smoke else SHOWN)
    top = place if smoke else place.parent
    scales = ("smoke",) if smoke else ("paper", "cpu")
    found: dict[str, Path] = {}
    for name in FIGURES:
        kept_at = [out for scale in scales if made(out := shown(name, scale, root)) is not None]
        found |= {name: kept_at[0]} if kept_at else {}  # the largest scale first
    evidence = {name: kept for name, out in found.items() if (kept := read(out)) is not None}
    table = ledger(evidence, CLAIMS)
    report, page, csv = top / "README.md", top / "ledger.md", place / "claims.csv"
    place.mkdir(parents=True, exist_ok=True)
    write_text(csv, table.to_csv(index=False, lineterminator="\n"))
    link = csv.relative_to(top).as_posix()
    head = f"# Ledger\n\n{_counts(table)}. With the tests: [claims.csv]({link}). Generated.\n\n"
    write_text(page, head + markdown(table[list(_LEDGER)].rename(columns=_LEDGER).fillna("")))
    _write_between(report, "\n".join([BEGIN, "", *_body(found, table, top), END]))
    return [report, page, csv]


def _write_between(report: Path, body: str) -> None:
    before = report.read_text(encoding="utf-8") if report.is_file() else f"# Results\n\n{BEGIN}\n{END}\n"
    if BEGIN not in before or END not in before:
        before = f"{before.rstrip()}\n\n{BEGIN}\n{END}\n"
    start, rest = before.split(BEGIN, 1)
    write_text(report, start + body + rest.split(END, 1)[1])


def _counts(table: pd.DataFrame) -> str:
    """`64 claims: 30 untested, ...`."""
    found = ", ".join(f"{count} {verdict}" for verdict, count in table.verdict.value_counts().items())
    return f"{len(table)} claims: {found}"


def _body(found: Mapping[str, Path], table: pd.DataFrame, top: Path) -> Iterator[str]:
    yield f"{_EXPLAINED}{_counts(table)}; all of them stand in [ledger.md](ledger.md).\n"
    for paper in PAPERS:
        name, file = paper.picture
        if paper.claims:
            yield from _at_a_glance(
                paper, table, found[name].relative_to(top) / file if name in found else None
            )
    for name, out in found.items():
        yield from section(FIGURES[name], out, made(out) or {}, top)


def _at_a_glance(paper: Paper, table: pd.DataFrame, picture: Path | None) -> Iterator[str]:
    """One picture and a table of the claims of which the paper states a number or an order."""
    chosen = table[table.claim.isin([claim.name for claim in paper.claims]) & (table.published != "")]
    yield f"### {paper.citation}\n"
    if picture:
        yield f"![{picture.stem}]({picture.as_posix()})\n"
    verdicts = chosen.verdict + ": " + chosen.reason
    rows = {"claim": chosen.text, "paper": chosen.published, "ours": chosen.brief, "verdict": verdicts}
    yield markdown(pd.DataFrame(rows))


def section(figure: Figure, out: Path, made: Made, top: Path) -> Iterator[str]:
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
    shared, scale = made.get("shared", {}), made.get("scale")
    used = " and ".join(str(shared[key]) for key in ("dataset", "model") if key in shared)
    stand_ins = f", with {used} in place of the paper's data and model" if scale == "smoke" else ""
    runs = ", ".join(f"{count} {status}" for status, count in made.get("runs", {}).items())
    data = {Path(item.get("path", "")).name for files in made.get("data", []) for item in files} - {""}
    commits = ", ".join(dict.fromkeys(map(_commit, made.get("commit", []))))
    parts = [
        f"Scale `{scale}`{stand_ins}",
        f"seeds {', '.join(map(str, made.get('seeds', [])))}",
        f"runs: {runs}",
        f"data: {', '.join(sorted(data))}" if data else "",
        f"commit {commits}" if commits else "",
        *("; ".join(map(_words, made.get(key, []))) for key in ("hardware", "versions")),
        *dict.fromkeys(note for notes in made.get("notes", []) for note in notes),
    ]
    return "; ".join(filter(None, parts)) + "."


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
