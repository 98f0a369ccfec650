"""The report on what is kept: a first page of claims, every figure, and the ledger beside it. Generated."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fedbench.files import write_text
from fedbench.papers import claims, pages
from fedbench.papers.claims import ledger
from fedbench.papers.figure import SHOWN, SMOKE, shown
from fedbench.papers.registry import CLAIMS, FIGURES, PAPERS

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
"""What stands between these lines of the report is generated; the rest is kept as it is."""
_EXPLAINED = """\
The claims of which a paper states a number or an order, with the paper's and ours: mean +- standard deviation
over seeds, beside the baseline that comes nearest. A verdict is "shown", "not shown" or "untested" (too few
rounds, seeds or values, or too small a scale), and says why.
"""


def write_report(root: Path, smoke: bool = False) -> list[Path]:
    """Write the report, the ledger and its CSV from what is kept below `root`; return their paths.

    outputs/README.md is of the scales cpu and paper; `smoke`: outputs/smoke/README.md is of smoke results.
    """
    place = root / (SMOKE if smoke else SHOWN)
    top = place if smoke else place.parent
    found = {name: scale for name in FIGURES if (scale := _largest_scale(name, root, smoke))}
    read = {name: claims.read(shown(name, scale, root)) for name, scale in found.items()}
    table = ledger({name: kept for name, kept in read.items() if kept is not None}, CLAIMS)
    report, ledger_page, csv = top / "README.md", top / "ledger.md", place / "claims.csv"
    place.mkdir(parents=True, exist_ok=True)
    write_text(csv, table.to_csv(index=False, lineterminator="\n"))
    link = csv.relative_to(top).as_posix()
    head = f"# Ledger\n\n{pages.counts(table)}. With the tests: [claims.csv]({link}). Generated.\n\n"
    write_text(ledger_page, head + pages.all_claims(table))
    _write_between(report, "\n".join([BEGIN, "", *_body(found, table, root, top), END]))
    return [report, ledger_page, csv]


def _largest_scale(name: str, root: Path, smoke: bool) -> str | None:
    """The largest scale at which a figure has results."""
    scales = ("smoke",) if smoke else ("paper", "cpu")
    return next((scale for scale in scales if claims.made(shown(name, scale, root)) is not None), None)


def _body(found: dict[str, str], table: pd.DataFrame, root: Path, top: Path) -> Iterable[str]:
    yield f"{_EXPLAINED}{pages.counts(table)}; all of them stand in [ledger.md](ledger.md).\n"
    for paper in PAPERS:
        name, file = paper.picture
        place = shown(name, found[name], root).relative_to(top) / file if name in found else None
        if paper.claims:
            yield from pages.at_a_glance(paper, table, place)
    for name, scale in found.items():
        out = shown(name, scale, root)
        yield from pages.section(FIGURES[name], out, claims.made(out) or {}, top)


def _write_between(report: Path, body: str) -> None:
    before = report.read_text(encoding="utf-8") if report.is_file() else f"# Results\n\n{BEGIN}\n{END}\n"
    if BEGIN not in before or END not in before:
        before = f"{before.rstrip()}\n\n{BEGIN}\n{END}\n"
    start, rest = before.split(BEGIN, 1)
    write_text(report, start + body + rest.split(END, 1)[1])
