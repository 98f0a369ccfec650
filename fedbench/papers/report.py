"""The generated report on the kept results: one page of verdicts, a page for each figure, and the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.files import write_text
from fedbench.papers import FIGURES, PAPERS
from fedbench.papers.claims import (
    AFTER,
    ALPHA,
    CONSISTENT,
    OPPOSITE,
    UNKNOWN,
    YES,
    Claim,
    Evidence,
    Finding,
    Reading,
    describe,
    holm,
    judge,
    made,
    read,
    together,
)
from fedbench.papers.figure import SHOWN, SMOKE, Figure, Paper, command, markdown, shown

MARKS = {YES: "yes", CONSISTENT: "~", UNKNOWN: "?", OPPOSITE: "no"}
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
number, k of n settings or readings, not after Holm's correction). **?** cannot tell: within noise, or two
seeds. **no**: the opposite is shown at 95 % by a test of its own. Ours: mean +- standard deviation (number of
seeds); after a semicolon, the best of the others. Methods are paired by seed in one-sided Student tests. A
step is normalised by one norm, as the papers write it, or by a norm per tensor, as a loop over a model does.
"""
Made = Mapping[str, Any]  # the content of made.json
Judged = list[tuple[Reading, Finding]]


def write_report(root: Path, smoke: bool = False) -> list[Path]:
    """Write the page, the ledger, its CSV and a page for each figure from the results kept below `root`.
    Return the paths of the first three.

    outputs/README.md shows each figure at scale paper, or else cpu. With `smoke`, outputs/smoke/README.md
    shows the smoke results.
    """
    place = root / (SMOKE if smoke else SHOWN)
    top = place if smoke else place.parent
    kept_at = {name: [shown(name, scale, root) for scale in (("smoke",) if smoke else ("paper", "cpu"))]
               for name in FIGURES}  # fmt: skip
    found = {name: next(out for out in places if made(out)) for name, places in kept_at.items()
             if any(map(made, places))}  # fmt: skip
    evidence = {name: kept for name, out in found.items() if (kept := read(out)) is not None}
    judged = {claim: said for paper in PAPERS for claim, said in judgements(paper, evidence).items()
              if claim.kind != "peers" or any(one.figure in evidence for one, _ in said)}  # fmt: skip
    table = pd.DataFrame([row for claim, said in judged.items() for row in _rows(claim, said, evidence)])
    report, page, csv = top / "README.md", top / "ledger.md", place / "claims.csv"
    place.mkdir(parents=True, exist_ok=True)
    write_text(csv, table.to_csv(index=False, lineterminator="\n"))
    write_text(page, "\n".join(_ledger(judged, evidence, csv.relative_to(top).as_posix())))
    write_text(report, "\n".join(_page(judged, evidence, found, top)))
    for name, out in found.items():
        write_text(out / "README.md", "\n".join(section(FIGURES[name], out, made(out) or {})))
    return [report, page, csv]


def judgements(paper: Paper, evidence: Mapping[str, Evidence]) -> dict[Claim, Judged]:
    """The findings of a paper's claims. A "yes" that holds at 95 % only before Holm's correction becomes
    "consistent". The correction covers the paper's claims (kinds paper and peers) that rest on a p-value."""
    judged = {
        claim: [(one, judge(claim, one, evidence.get(one.figure, Evidence()))) for one in claim.readings]
        for claim in paper.claims
    }
    tested = [(claim, rank) for claim, said in judged.items() for rank, (_, one) in enumerate(said)
              if one.p is not None and claim.kind in ("paper", "peers")
              and not said[rank][0].ours]  # fmt: skip
    adjusted = holm([judged[claim][rank][1].p or 0.0 for claim, rank in tested])
    for (claim, rank), p in zip(tested, adjusted, strict=True):
        reading, one = judged[claim][rank]
        if one.verdict == YES and p >= ALPHA:
            late = replace(one, verdict=CONSISTENT, reason=f"{one.reason}; not after Holm's correction")
            judged[claim][rank] = reading, late
    return judged


def _rows(claim: Claim, said: Judged, evidence: Mapping[str, Evidence]) -> Iterator[dict[str, Any]]:
    """The rows of claims.csv: one for each reading."""
    for reading, one in said:
        data = evidence.get(reading.figure, Evidence())
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


def _verdict(said: Judged) -> str:
    return MARKS[together([one.verdict for _, one in _papers(said)])]


def _papers(said: Judged) -> Judged:
    """The readings that decide: not ours."""
    return [pair for pair in said if not pair[0].ours]


def _of_readings(said: Judged) -> str:
    """The verdict, and if a claim holds in some readings only, in how many: `~ (1 of 4)`."""
    counted = _papers(said)
    holds = sum(one.verdict in (YES, CONSISTENT) for _, one in counted)
    return _verdict(said) + f" ({holds} of {len(counted)})" * (0 < holds < len(counted))


def _counts(judged: Iterable[Judged]) -> str:
    """`12 yes, 5 ~, 3 ?, 9 no`."""
    verdicts = [_verdict(said) for said in judged]
    return ", ".join(f"{verdicts.count(mark)} {mark}" for mark in MARKS.values() if mark in verdicts)


def _ledger(judged: Mapping[Claim, Judged], evidence: Mapping[str, Evidence], csv: str) -> Iterator[str]:
    yield f"# Ledger\n\n{LEGEND}\nEvery number with its test and settings: [claims.csv]({csv}). Generated.\n"
    for kind, title in KINDS.items():
        mine = {claim: said for claim, said in judged.items() if claim.kind == kind}
        if not mine:
            continue
        yield f"## {title}: {len(mine)} ({_counts(mine.values())})\n"
        rows = []
        for claim, said in mine.items():
            each = [_labelled([f"{MARKS[one.verdict]} {reading.words}".rstrip()], one.numbers)
                    + f" ({one.reason})" * bool(one.reason) + f" *{reading.asked}*" * reading.late
                    for reading, one in said]  # fmt: skip
            late = " Added after its result was known." if claim.post_hoc else ""
            commands = dict.fromkeys(evidence[one.figure].made.get("command", "") for one, _ in said
                                     if one.figure in evidence)  # fmt: skip
            rows.append({"": _of_readings(said), "claim": claim.text + late, "source": claim.source,
                         "ours": "<br>".join(each), "made by": "<br>".join(commands)})  # fmt: skip
        yield markdown(pd.DataFrame(rows))


def _labelled(words: Sequence[str], text: str) -> str:
    return ": ".join(filter(None, [", ".join(words), text]))


def _page(
    judged: Mapping[Claim, Judged], evidence: Mapping[str, Evidence], found: Mapping[str, Path], top: Path
) -> Iterator[str]:
    named = {claim.name: claim for claim in judged}
    kinds = {kind: [said for claim, said in judged.items() if claim.kind == kind] for kind in KINDS}
    yield f"# What was reproduced?\n\n{LEGEND}"
    rows = []
    for row in (row for paper in PAPERS for row in paper.rows):
        if not {name.partition("/")[0] for name in row.claims} <= set(named):  # its table is not kept
            continue
        picked: Judged = []
        for name, _, words in (one.partition("/") for one in row.claims):
            mine = [pair for pair in judged[named[name]] if not words or pair[0].words == words]
            known = [pair for pair in mine if pair[0].figure in evidence]
            picked += known if known or picked else mine
        late = any(named[one.partition("/")[0]].post_hoc for one in row.claims)
        shared = (
            set.intersection(*(set(one.words.split(", ")) for one, _ in picked)) if len(picked) > 1 else set()
        )
        ours = [_labelled([word for word in one.words.split(", ") if word not in shared], said.brief)
                + f" *{one.asked}*" * one.late for one, said in picked]  # fmt: skip
        rows.append({"": _of_readings(picked), "result": row.result, "paper": row.published,
                     "ours (n)": "<br>".join(ours) + f"<br>*{AFTER}*" * late,
                     "same setting?": row.setting})  # fmt: skip
    yield markdown(pd.DataFrame(rows))
    yield (
        f"All {len(kinds['paper'])} claims of the papers, readings merged: {_counts(kinds['paper'])}."
        f" {len(kinds['ours'])} questions of our own: {_counts(kinds['ours'])}. All are listed in"
        " [ledger.md](ledger.md).\n"
    )
    if kinds["peers"]:
        yield (
            f"{len(kinds['peers'])} rows of tables of other suites and papers (presets `peers/NAME`), at the"
            f" settings that their pages name: {_counts(kinds['peers'])}. Smaller settings are ~ at most.\n"
        )
    yield (
        "**True by construction**, whatever is trained (a factor on the loss changes nothing, step sizes"
        " follow from S, K and T, traffic, delays, the optimum that FedProxVR's bound prescribes):"
        f" {_counts(kinds['construction'])}.\n"
    )
    on_test = {name: data.made for name, data in evidence.items() if data.tuned_on_test}
    if on_test:
        hours = sum(made.get("run_seconds", 0) for made in on_test.values()) / 3600
        yield (
            f"**Tuned on test data**: hyper-parameters in {', '.join(on_test)} were chosen by test accuracy"
            " with seed 0, which is also evaluated. This favours the tuned methods, mostly baselines."
            " Made again with `scripts/figures NAME`, each is tuned on held-out samples, with seeds that are"
            f" not evaluated: about {hours:.0f} core-hours for the final runs of all, and the searches.\n"
        )
    yield "## What would change a verdict, and its cost\n"
    costs = []
    for more in (more for paper in PAPERS for more in paper.more):
        if more.figure not in evidence or more.by in evidence:
            continue
        kept = evidence[more.figure].made
        if more.scale == kept["scale"]:
            continue
        hours = f"{kept.get('run_seconds', 0) * more.times / 3600:.1f}" if more.times else "not measured"
        by = command(more.by or more.figure, more.scale or kept["scale"])
        costs.append(
            {"what": more.words, "core-hours": hours, "GPU-hours": more.gpu_hours, "made by": f"`{by}`"}
        )
    yield markdown(pd.DataFrame(costs))
    yield "Seeds are listed in conf/scale. Hours follow from the runs kept so far, one thread each.\n"
    yield "## Gallery\n\nEach links to its page: captions, how it was tuned, what it was made from.\n"
    yield from _gallery(found, judged, top)


def _gallery(found: Mapping[str, Path], judged: Mapping[Claim, Judged], top: Path) -> Iterator[str]:
    yield "| | |\n|---|---|"
    for name, out in found.items():
        page = (out / "README.md").relative_to(top).as_posix()
        pictures = [file for file in (made(out) or {}).get("files", []) if file.endswith(".png")]
        image = f"[![{name}]({(out / pictures[0]).relative_to(top).as_posix()})]({page})" if pictures else ""
        mine = [[pair for pair in said if pair[0].figure == name] for said in judged.values()]
        claims = [said for said in mine if said]
        said = f" Claims: {_counts(claims)}." if claims else ""
        yield f"| {image} | **[{name}]({page})** {FIGURES[name].about}.{said} |"


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
