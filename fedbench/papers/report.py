"""The generated report on the kept results: one page of verdicts, a page for each figure, and the ledger."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.files import write_text
from fedbench.papers import FIGURES, PAPERS
from fedbench.papers.claims import AFTER, Claim, Evidence, FrontPageRow, describe
from fedbench.papers.figure import SHOWN, SMOKE, Figure, markdown
from fedbench.papers.verdicts import MARKS, Judged, Results, counts, gather, mark, mark_of_readings

KINDS = {
    "paper": "Claims of the papers",
    "peers": "Tables of other suites and papers",
    "construction": "True by construction",
    "ours": "Our own questions",
}
SETTINGS = ("dataset", "model", "rounds", "clients.total", "clients.per_round", "local.steps")
"""Shared choices that claims.csv states with a number."""
LEGEND = """\
**yes**: shown at 95 % with three seeds or more, after Holm's correction over the tests of the paper's claims.
**~** consistent: it agrees but shows no more (one seed, an interval with the paper's number in it, a higher
number, only some of several settings or ways to read the claim, not after Holm's correction). **?** cannot
tell: within noise, or two seeds. **no**: the opposite is shown at 95 % by a test of its own. Ours: mean +-
standard deviation (number of seeds); after a semicolon, the best of the others. Methods are paired by seed in
one-sided Student tests. A step is normalised by one norm, as the papers write it, or by a norm per tensor, as
a loop over a model does.
"""
CHECK = """\
**To check a line**, follow the name of its claim to [the ledger](ledger.md), which has every way in which the
claim was read and tested. `scripts/figures --behind CLAIM` prints the runs behind its numbers, each with the
command that computes it.
"""
CHANGE = """\
**What would change a verdict**: more seeds (conf/scale lists them), or the papers' own sizes, by
`scripts/figures NAME --scale paper`. The page of each figure says how many core-hours its runs took here, and
`outputs/benchmarks` what runs cost on a GPU.
"""
_SUBSET = re.compile(
    r"([\d,]+) training and ([\d,]+) test samples, where the (\w+) split has ([\d,]+) and ([\d,]+)"
)
Made = Mapping[str, Any]  # the content of made.json


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
    write_text(page, "\n".join(_ledger(results, csv.relative_to(top).as_posix(), top)))
    write_text(report, "\n".join(_page(results, top)))
    for name, out in results.places.items():
        made = results.evidence[name].made
        write_text(
            out / "README.md",
            "\n".join([*section(FIGURES[name], out, made), *_claims_of(results, name, top)]),
        )
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
            "tuned_on_test": data.tuned_on_test,
            "settings": ", ".join(f"{key}={data.settings[key]}" for key in SETTINGS if key in data.settings),
            "test": describe(reading.test),
            "command": data.made.get("command", ""),
        }


def _ledger(results: Results, csv: str, top: Path) -> Iterator[str]:
    yield f"# Ledger\n\n{LEGEND}\nEvery number with its test and settings: [claims.csv]({csv})."
    yield "The runs behind a claim: `scripts/figures --behind CLAIM`. Generated.\n"
    for kind, title in KINDS.items():
        mine = [claim for claim in results.judged if claim.kind == kind]
        if mine:
            yield f"## {title}: {len(mine)} ({counts(results.judged[claim] for claim in mine)})\n"
        for claim in mine:
            yield f"### {claim.name}\n"
            late = f" *{AFTER}*" if claim.post_hoc else ""
            verdict = mark_of_readings(results.judged[claim])
            yield _wrapped(f"**{verdict}** {claim.text}. *{claim.source}.*{late}") + "\n"
            for reading, one in results.judged[claim]:
                out = results.places.get(reading.figure)
                link = _link(reading.figure, out, top) if out else reading.figure
                words = ", ".join(filter(None, [reading.words, link]))
                asked = f" *{reading.asked}*" if reading.asked else ""
                said = "; ".join(filter(None, [one.numbers, one.reason]))
                yield _wrapped(f"- **{MARKS[one.verdict]}** {words}: {said}.{asked}", "  ")
            yield ""


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 110, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _link(name: str, out: Path, top: Path) -> str:
    return f"[{name}]({(out / 'README.md').relative_to(top).as_posix()})"


def anchor(claim: str) -> str:
    """The fragment of a claim's heading in the ledger, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", claim.lower()).replace(" ", "-")


# ---- the first page ----------------------------------------------------------------------------------------


def _page(results: Results, top: Path) -> Iterator[str]:
    yield f"# What was reproduced?\n\n{LEGEND}\n{CHECK}"
    yield from _beware(results)
    yield markdown(pd.DataFrame(_front_rows(results)))
    yield from _totals(results)
    yield from _tuned_on_test(results)
    yield CHANGE
    absent = [name for name in FIGURES if name not in results.places]
    yield f"Not made yet: {', '.join(absent)}.\n" if absent else ""
    yield "## Gallery\n\nEach links to its page: captions, how it was tuned, what it was made from."
    yield "A claim counts once, as above: at the first figure that shows it.\n"
    yield "| | |\n|---|---|"
    yield from _gallery(results, top)


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
        text = f"**EMNIST is a subset here**, one file in place of the official ones: {'; '.join(parts)}."
        yield _wrapped(text) + "\n"
    last: dict[int, list[str]] = {}
    for name, data in results.evidence.items():
        if "eval.final_k" in data.settings:
            last.setdefault(int(data.settings["eval.final_k"]), []).append(name)
    if last:
        usual = max(last, key=lambda count: len(last[count]))
        others = [f"{count} in {', '.join(last[count])}" for count in sorted(last) if count != usual]
        text = f"**An accuracy is the mean of the last {usual} evaluations** of a run"
        text += f" ({'; '.join(others)})" if others else ""
        yield _wrapped(f"{text}. FedProxVR's tables have the best evaluation, as its paper does.") + "\n"


def _front_rows(results: Results) -> list[dict[str, str]]:
    named = {claim.name: claim for claim in results.judged}
    rows = [row for paper in PAPERS for row in paper.rows]
    kept = [row for row in rows if {name.partition("/")[0] for name in row.claims} <= set(named)]
    return [_front_row(row, named, results) for row in kept]  # of tables that are kept


def _front_row(row: FrontPageRow, named: Mapping[str, Claim], results: Results) -> dict[str, str]:
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
        "same setting?": row.setting,
    }


def _totals(results: Results) -> Iterator[str]:
    kinds = {kind: [said for claim, said in results.judged.items() if claim.kind == kind] for kind in KINDS}
    yield (
        f"All {len(kinds['paper'])} claims of the papers, each counted once, however many ways there are to"
        f" read it: {counts(kinds['paper'])}. {len(kinds['ours'])} questions of our own:"
        f" {counts(kinds['ours'])}. All are listed in [ledger.md](ledger.md).\n"
    )
    if kinds["peers"]:
        yield (
            f"{len(kinds['peers'])} rows of tables of other suites and papers (presets `peers/NAME`), at the"
            f" settings that their pages name: {counts(kinds['peers'])}. Smaller settings are ~ at most.\n"
        )
    yield (
        "**True by construction**, whatever is trained (a factor on the loss changes nothing, step sizes"
        " follow from S, K and T, traffic, delays, the optimum that FedProxVR's bound prescribes):"
        f" {counts(kinds['construction'])}.\n"
    )


def _tuned_on_test(results: Results) -> Iterator[str]:
    on_test = {name: data.made for name, data in results.evidence.items() if data.tuned_on_test}
    if on_test:
        hours = sum(map(_hours, on_test.values()))
        yield (
            f"**Tuned on test data**: hyper-parameters in {', '.join(on_test)} were chosen by test accuracy"
            " with seed 0, which is also evaluated. This favours the tuned methods, mostly baselines."
            " Made again with `scripts/figures NAME`, each is tuned on held-out samples, with seeds that are"
            f" not evaluated: about {hours:.0f} core-hours for the final runs of all, and the searches.\n"
        )


def _hours(made: Made) -> float:
    """Core-hours of a figure's final runs, one thread each."""
    return float(made.get("run_seconds", 0)) / 3600


def _gallery(results: Results, top: Path) -> Iterator[str]:
    for name, out in results.places.items():
        pictures = [file for file in results.evidence[name].made.get("files", []) if file.endswith(".png")]
        page = (out / "README.md").relative_to(top).as_posix()
        image = f"[![{name}]({(out / pictures[0]).relative_to(top).as_posix()})]({page})" if pictures else ""
        mine = [said for claim, said in results.judged.items() if results.home(claim) == name]
        said = f" Claims: {counts(mine)}." if mine else ""
        others = sorted(
            {str(results.home(claim)) for claim in results.judged if name in claim.figures} - {name}
        )
        said += f" Tests claims of {', '.join(others)} too." if others else ""
        yield f"| {image} | **[{name}]({page})** {FIGURES[name].about}.{said} |"


# ---- the page of a figure ----------------------------------------------------------------------------------


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


def _claims_of(results: Results, name: str, top: Path) -> Iterator[str]:
    """A line for each claim that a figure's page bears on, with its verdict."""
    ledger = "../" * len(results.places[name].relative_to(top).parts) + "ledger.md"
    mine = [claim for claim in results.judged if name in claim.figures]
    if mine:
        yield "Claims, by all figures that show them:\n"
    for claim in mine:
        link = f"[{claim.name}]({ledger}#{anchor(claim.name)})"
        yield f"- **{mark(results.judged[claim])}** {link}: {claim.text}"
    yield ""


def _made_from(made: Made) -> str:
    shared, scale = made.get("shared", {}), made.get("scale")
    used = " and ".join(str(shared[key]) for key in ("dataset", "model") if key in shared)
    stand_ins = f", with {used} in place of the paper's data and model" if scale == "smoke" else ""
    runs = ", ".join(f"{count} {status}" for status, count in made.get("runs", {}).items())
    hours = f" ({_hours(made):.1f} core-hours)" if made.get("run_seconds") else ""
    data = {Path(item.get("path", "")).name for files in made.get("data", []) for item in files} - {""}
    commits = ", ".join(dict.fromkeys(map(short_commit, made.get("commit", []))))
    parts = [
        f"Scale `{scale}`{stand_ins}",
        f"seeds {', '.join(map(str, made.get('seeds', [])))}",
        f"runs: {runs}{hours}",
        f"data: {', '.join(sorted(data))}" if data else "",
        f"commit {commits}" if commits else "",
        *("; ".join(map(_words, made.get(key, []))) for key in ("hardware", "versions")),
        *dict.fromkeys(note for notes in made.get("notes", []) for note in notes),
    ]
    return "; ".join(filter(None, parts)) + "."


def short_commit(text: str) -> str:
    """A commit as published. Runs from before clean commits were required say that it had changes."""
    head, _, dirty = text.partition("+")
    return head[:10] + (" with uncommitted changes" if dirty else "")


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
