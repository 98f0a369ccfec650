"""How a claim has its word: `fedbench figures --why CLAIM` prints the numbers by seed, how the methods were
tuned, their runs and commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedbench.config.identity import MARK, identity
from fedbench.config.overrides import written
from fedbench.errors import ConfigError, counted
from fedbench.papers import PAPERS
from fedbench.papers.behind import method_of, other_work, runs_behind, searches, steps, what_was_run
from fedbench.papers.claims import Claim, Way, counts, word_of
from fedbench.papers.evidence import name_of
from fedbench.papers.report import Results, gather
from fedbench.runs.lists import RUNS_CSV


def why(name: str, root: Path) -> Iterator[str]:
    """Yield lines on a claim: for every way to read it the numbers by seed, the runs that they come from,
    each with the command that computes it, and how the word follows. Raises ConfigError if no claim has this
    name."""
    of = {claim.name: (claim, paper) for paper in PAPERS for claim in paper.claims}
    if name not in of:
        allowed = "must be a claim, such as outputs/README.md and the papers' pages name it"
        raise ConfigError("--why", name, allowed, sorted(of))
    claim, paper = of[name]
    results = gather(root, papers=[paper])
    yield from _lines(claim, results.ways.get(claim, ()), results)


def _lines(claim: Claim, found: Any, results: Results) -> Iterator[str]:
    yield f"{claim.text} ({claim.source}): {word_of(found)}"
    if claim.differs:
        yield f"setting: {claim.differs}"
    for rank, way in enumerate(found, 1):
        ours = " (our way to read it, which decides nothing)" * way.reading.ours
        yield f"\n{rank}. {', '.join(filter(None, [way.words, way.reading.figure]))}: {way.word}{ours}"
        yield from _numbers(way, results)
    decide = [way for way in found if not way.reading.ours]
    many = counted(len(decide), "way")
    yield f"\n{many} to read it ({counts(way.word for way in decide)}): {word_of(found)}"


def _numbers(way: Way, results: Results) -> Iterator[str]:
    figure = way.reading.figure
    if ran := what_was_run(way, results.evidence.get(figure)):
        yield f"   run: {ran}"
    for part in (behind := runs_behind(way)):
        words = ", ".join(filter(None, [other_work(part, behind[0]), steps(part, swept=True)]))
        yield f"   {method_of(part)}: {words}"
    for one in searches(results.evidence[figure], behind) if behind else ():
        yield f"   tuned {one.words}"
    if way.ours:
        yield f"   ours {way.ours}; other {way.other}"
    for seed in way.margin.index:
        parts = [f"{name} {score[seed]:.4g}" for name, score in way.scores.items() if seed in score.index]
        margin = way.margin[seed]
        sign = "holds" if margin > 0 else "the opposite" if margin < 0 else "neither"
        at = "exact" if way.exact else f"seed {seed}"
        yield f"   {at}: {', '.join(parts[:8])}; {sign} by {abs(margin):.4g}"
    yield f"   so {way.word}: {way.judged[1]}"
    late = "added when its result was known" * way.reading.late
    if note := "; ".join(filter(None, [way.detail, late])):
        yield f"   note: {note}"
    if figure in results.places:
        yield from _runs(way, results)


def _runs(way: Way, results: Results) -> Iterator[str]:
    data, out = results.evidence[way.reading.figure], results.places[way.reading.figure]
    runs = {name_of(run): run for run in data.records}
    commits = ", ".join(text[:10] for text in data.made.get("commit", []))
    made = f"   made by `{data.made.get('command')}`" + (f", commit {commits}" if commits else "")
    names = way.runs or list(runs)  # of numbers from a drawn table: all runs of the figure
    yield f"{made}; {len(names)} runs, rows of {out / RUNS_CSV} (dir)" if runs else f"{made}, without runs"
    for name in names:
        run = runs[name]
        final, best = run.summary.get("final_accuracy"), run.summary.get("best_accuracy")
        yield f"   seed {run.seed}: {final} (best {best}), {run.status}: {name}"
        yield f"      {command_of(run.choices)}"


def command_of(choices: Mapping[str, Any]) -> str:
    """The shortest command line that computes a run with these choices."""
    words = {key: value for key, value in identity(choices).items() if not key.endswith(MARK)}
    return shlex.join(["fedbench", *(f"{key}={written(value)}" for key, value in words.items())])
