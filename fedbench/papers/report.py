"""The generated report on the kept results: one page of verdicts, a page for each figure, and the ledger."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from fedbench.config.places import SHOWN, SMOKE
from fedbench.files import write_text
from fedbench.papers import FIGURES, PAPERS
from fedbench.papers.claims import AFTER, Claim, Evidence, FrontPageRow, describe
from fedbench.papers.figure import markdown
from fedbench.papers.figure_page import CLAIMS, hours, section
from fedbench.papers.verdicts import MARKS, Judged, Results, counts, gather, mark, mark_of_readings

KINDS = {
    "paper": "Claims of the papers",
    "peers": "Tables of other suites and papers",
    "construction": "True by construction",
    "ours": "Our own questions",
}
SETTINGS = ("dataset", "model", "rounds", "clients.total", "clients.per_round", "local.steps")
"""Shared choices that claims.csv states with a number."""
PAGES = Path(__file__).with_name("pages")
"""The words of the pages."""
_SUBSET = re.compile(
    r"([\d,]+) training and ([\d,]+) test samples, where the (\w+) split has ([\d,]+) and ([\d,]+)"
)

_TESTED = re.compile(r"([\d,]+ of [\d,]+) test samples were used")


def write_report(root: Path, smoke: bool = False) -> list[Path]:
    """Write the page, the ledger, its CSV and a page for each figure from the results kept below `root`.
    Return the paths of the first three.

    outputs/README.md shows each figure at scale paper, or else cpu. With `smoke`, outputs/smoke/README.md
    shows the smoke results.
    """
    place = root / (SMOKE if smoke else SHOWN)
    top = place if smoke else place.parent
    report, page, csv = top / "README.md", top / "ledger.md", place / "claims.csv"
    results = gather(root, smoke)
    place.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame([row for claim in results.judged for row in _csv_rows(claim, results)])
    write_text(csv, table.to_csv(index=False, lineterminator="\n"))
    write_text(page, _ledger(results, csv.relative_to(top).as_posix(), top))
    write_text(report, _page(results, top, smoke))
    for name, out in results.places.items():
        lines = [*section(FIGURES[name], out, results.evidence[name].made), *_claims_of(results, name, top)]
        write_text(out / "README.md", "\n".join(lines))
    return [report, page, csv]


# ---- the ledger ------------------------------------------------------------------------------------------


def _csv_rows(claim: Claim, results: Results) -> Iterator[dict[str, Any]]:
    """The rows of claims.csv: one for each reading."""
    for reading, one in results.judged[claim]:
        data = results.evidence.get(reading.figure, Evidence())
        failed = int((data.runs.status == "failed").sum()) if "status" in data.runs else 0
        yield {
            "claim": claim.name,
            "kind": claim.kind,
            "text": claim.text,
            "source": claim.source,
            "reading": reading.words,
            "asked": reading.asked,
            "figure": reading.figure,
            "verdict": one.verdict,
            "numbers": one.numbers,
            "reason": one.reason + (f"; {failed} failed runs left out" if failed else ""),
            "p": one.p,
            "seeds": " ".join(map(str, one.seeds)),
            "tuned_on_test": data.tuned_on_test or data.best_on_test,
            "settings": ", ".join(f"{key}={data.settings[key]}" for key in SETTINGS if key in data.settings),
            "test": describe(reading.test),
            "command": data.made.get("command", ""),
        }


def _ledger(results: Results, csv: str, top: Path) -> str:
    parts = []
    for kind, title in KINDS.items():
        mine = [claim for claim in results.judged if claim.kind == kind]
        if mine:
            verdicts = counts(results.judged[claim] for claim in mine)
            parts.append(f"## {title}: {len(mine)} ({verdicts})\n")
        parts += ["\n".join(_entry(claim, results, top)) for claim in mine]
    return _filled("ledger", csv=csv, claims="\n".join(parts))


def _entry(claim: Claim, results: Results, top: Path) -> Iterator[str]:
    """The lines on a claim: its verdict and its source, and a paragraph for each test."""
    yield f"### {claim.name}\n"
    late = f" *{AFTER}*" if claim.post_hoc else ""
    verdict = mark_of_readings(results.judged[claim])
    yield _wrapped(f"**{verdict}** {claim.text}. *{claim.source}.*{late}") + "\n"
    for tested, one in results.judged[claim]:
        out = results.places.get(tested.figure)
        link = f"[{tested.figure}]({_page_of(out, top)})" if out else tested.figure
        words = ", ".join(filter(None, [tested.words, link]))
        asked = f" *{tested.asked}*" if tested.asked else ""
        said = "; ".join(filter(None, [one.numbers, one.reason]))
        yield _wrapped(f"- **{MARKS[one.verdict]}** {words}: {said}.{asked}", "  ")
    yield ""


def _filled(name: str, **parts: str) -> str:
    """A page from its text in pages/."""
    legend, text = ((PAGES / f"{one}.md").read_text(encoding="utf-8") for one in ("legend", name))
    return Template(text).substitute(parts, legend=legend)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 110, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _page_of(out: Path, top: Path) -> str:
    return (out / "README.md").relative_to(top).as_posix()


def anchor(claim: str) -> str:
    """The fragment of a claim's heading in the ledger, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", claim.lower()).replace(" ", "-")


# ---- the first page ----------------------------------------------------------------------------------------


def _page(results: Results, top: Path, smoke: bool) -> str:
    named = {claim.name: claim for claim in results.judged}
    rows = [_front_row(row, named, results, smoke) for paper in PAPERS for row in paper.rows
            if {name.partition("/")[0] for name in row.claims} <= set(named)]  # fmt: skip
    kinds = {kind: [said for claim, said in results.judged.items() if claim.kind == kind] for kind in KINDS}
    not_run = sum(not any(finding.numbers for _, finding in judged) for judged in kinds["peers"])
    said = {kind: counts(judged) for kind, judged in kinds.items()}
    absent = [name for name in FIGURES if name not in results.places]
    peers = (
        f"{len(kinds['peers'])} rows of tables of other suites and papers (presets `peers/NAME`), at the"
        f" settings that their pages name: {said['peers']}. Smaller settings are ~ at most;"
        f" {not_run} are ? since they were not run here."
    )
    return _filled(
        "first",
        scale=" Nothing at scale smoke, which only tries the code" * smoke,
        beware="".join(f"{_wrapped(text)}\n\n" for text in _beware(results)),
        rows=markdown(pd.DataFrame(rows)),
        papers=f"{len(kinds['paper'])} claims of the papers",
        verdicts=said["paper"],
        ours=f"{len(kinds['ours'])} questions of our own: {said['ours']}",
        peers=f"{peers}\n\n" if kinds["peers"] else "",
        construction=said["construction"],
        on_test="".join(f"{text}\n\n" for text in _tuned_on_test(results)),
        absent=f"Not made yet: {', '.join(absent)}.\n\n" if absent else "",
        gallery="\n".join(_gallery(results, top)),
    )


def _beware(results: Results) -> Iterator[str]:
    """What holds for the whole page: which data are a subset, and what an accuracy is."""
    notes = [
        note
        for data in results.evidence.values()
        for several in data.made.get("notes", [])
        for note in several
    ]
    found = dict.fromkeys(match.groups() for note in notes if (match := _SUBSET.search(note)))
    parts = [f"{ours} training and {test} test samples where the {split} split has {all_} and {all_test}"
             for ours, test, split, all_, all_test in found]  # fmt: skip
    if parts:
        yield f"**EMNIST is a subset here**, one file in place of the official ones: {'; '.join(parts)}."
    tested: dict[str, list[str]] = {}
    for name, data in results.evidence.items():
        words = " ".join(note for several in data.made.get("notes", []) for note in several)
        for few in dict.fromkeys(_TESTED.findall(words)):
            tested.setdefault(few, []).append(name)
    if tested:
        parts = [f"{few} in {', '.join(names)}" for few, names in tested.items()]
        yield f"**A part of the test samples** was used in some figures: {'; '.join(parts)}."
    last: dict[int, list[str]] = {}
    for name, data in results.evidence.items():
        if "eval.final_k" in data.settings:
            last.setdefault(int(data.settings["eval.final_k"]), []).append(name)
    if last:
        usual = max(last, key=lambda count: len(last[count]))
        others = [f"{count} in {', '.join(last[count])}" for count in sorted(last) if count != usual]
        text = f"**An accuracy is the mean of the last {usual} evaluations** of a run"
        text += f" ({'; '.join(others)})" if others else ""
        yield f"{text}. FedProxVR's tables have the best evaluation, as its paper does."


def _front_row(
    row: FrontPageRow, named: Mapping[str, Claim], results: Results, smoke: bool
) -> dict[str, str]:
    picked: Judged = []
    for name, _, reading in (one.partition("/") for one in row.claims):
        mine = [pair for pair in results.judged[named[name]] if not reading or pair[0].words == reading]
        known = [pair for pair in mine if pair[0].figure in results.evidence]
        picked += known if known or picked else mine
    words = [tested.words.split(", ") for tested, _ in picked]
    shared = set.intersection(*map(set, words)) if len(picked) > 1 else set()
    ours = []
    for own, (tested, one) in zip(words, picked, strict=True):
        text = ": ".join(filter(None, [", ".join(word for word in own if word not in shared), one.brief]))
        ours.append(text + f" *{tested.asked}*" * bool(tested.asked))
    claims = list(dict.fromkeys(one.partition("/")[0] for one in row.claims))
    ours += [f"*{AFTER}*"] if any(named[name].post_hoc for name in claims) else []
    links = [f"[{name}](ledger.md#{anchor(name)})" for name in claims]
    return {
        "": mark_of_readings(picked),
        "result": "<br>".join([row.result, *links]),
        "paper": row.published,
        "ours (n)": "<br>".join(ours),
        "same setting?": _ran(picked, results) if smoke else row.setting,
    }


def _ran(picked: Judged, results: Results) -> str:
    """What the runs behind a row of scale smoke have in place of the paper's: `smoke: digits, 10 rounds`."""
    said: dict[str, None] = {}
    for figure in [tested.figure for tested, _ in picked if tested.figure in results.evidence]:
        shared = results.evidence[figure].settings
        rounds = f"{shared['rounds']} rounds" if "rounds" in shared else ""
        said[", ".join(filter(None, [str(shared.get("dataset", "")), rounds]))] = None
    return f"smoke: {'; '.join(filter(None, said)) or 'no runs'}"


def _tuned_on_test(results: Results) -> Iterator[str]:
    on_test = {name: data.made for name, data in results.evidence.items() if data.tuned_on_test}
    shown = [name for name, data in results.evidence.items() if data.best_on_test]
    if on_test:
        yield (
            f"**Tuned on test data**: hyper-parameters in {', '.join(on_test)} were chosen by test accuracy"
            " with seed 0, which is also evaluated. This favours the tuned methods, mostly baselines."
            " Made again with `scripts/figures NAME`, each is tuned on held-out samples, with seeds that are"
            f" not evaluated: about {sum(map(hours, on_test.values())):.0f} core-hours for the final runs of"
            " all, and the searches."
        )
    if shown:
        yield (
            f"**The best of what was run, by test data**: {', '.join(shown)} have no search. Where several"
            " step sizes were run, the one with the best test accuracy of the evaluated seeds counts, or with"
            " the fewest rounds to the target. untuned and untuned_scaled choose it on their first task."
        )


def _gallery(results: Results, top: Path) -> Iterator[str]:
    for name, out in results.places.items():
        page, text = _page_of(out, top), FIGURES[name].about
        pictures = [file for file in results.evidence[name].made.get("files", []) if file.endswith(".png")]
        image = f"[![{name}]({(out / pictures[0]).relative_to(top).as_posix()})]({page})" if pictures else ""
        mine = [said for claim, said in results.judged.items() if results.home(claim) == name]
        others = sorted(
            {str(results.home(claim)) for claim in results.judged if name in claim.figures} - {name}
        )
        text += f". Claims: {counts(mine)}" if mine else ""
        text += f". Tests claims of {', '.join(others)} too" if others else ""
        yield f"| {image} | **[{name}]({page})** {text}. |"


def _claims_of(results: Results, name: str, top: Path) -> Iterator[str]:
    """A line for each claim that a figure's page bears on, with its verdict."""
    ledger = "../" * len(results.places[name].relative_to(top).parts) + "ledger.md"
    mine = [claim for claim in results.judged if name in claim.figures]
    if mine:
        yield CLAIMS
    for claim in mine:
        link = f"[{claim.name}]({ledger}#{anchor(claim.name)})"
        yield f"- **{mark(results.judged[claim])}** {link}: {claim.text}"
    yield ""
