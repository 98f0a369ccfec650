"""The runs behind a claim's numbers: `fedbench figures --behind CLAIM`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedbench.config.identity import MARK, identity
from fedbench.config.overrides import written
from fedbench.errors import ConfigError
from fedbench.figures.results import read as read_runs
from fedbench.papers import PAPERS
from fedbench.papers.claims import Claim, ClaimTest, Finding
from fedbench.papers.verdicts import MARKS, Results, gather, mark_of_readings


def behind(name: str, root: Path) -> Iterator[str]:
    """Yield lines on a claim: its verdict, and for every test its numbers and the runs that they come from,
    each with the command that computes it. Raises ConfigError if no claim has this name."""
    of = {claim.name: (claim, paper) for paper in PAPERS for claim in paper.claims}
    if name not in of:
        allowed = "must be a claim, such as outputs/README.md and outputs/ledger.md name it"
        raise ConfigError("--behind", name, allowed, sorted(of))
    claim, paper = of[name]
    return _lines(claim, gather(root, papers=[paper]))


def _lines(claim: Claim, results: Results) -> Iterator[str]:
    yield f"{claim.text} ({claim.source}): {mark_of_readings(results.judged[claim])}"
    for tested, finding in results.judged[claim]:
        words = ", ".join(filter(None, [tested.words, tested.figure]))
        said = "; ".join(filter(None, [finding.numbers, finding.reason, tested.asked]))
        yield f"\n{MARKS[finding.verdict]}  {words}: {said}"
        if tested.figure in results.places:
            yield from _runs(tested, finding, results)


def _runs(tested: ClaimTest, finding: Finding, results: Results) -> Iterator[str]:
    data, out = results.evidence[tested.figure], results.places[tested.figure]
    runs = {
        "/".join(Path(run.source).parts[-2:]): run for run in (read_runs([out]) if len(data.runs) else ())
    }
    commits = ", ".join(text[:10] for text in data.made.get("commit", []))
    made = f"   made by `{data.made.get('command')}`" + (f", commit {commits}" if commits else "")
    names = finding.runs or list(runs)  # of a test on a drawn table: all runs of the figure
    yield f"{made}; {len(names)} runs, whose tables are in {out}" if runs else f"{made}, without runs"
    for name in names:
        run = runs[name]
        final, best = run.summary.get("final_accuracy"), run.summary.get("best_accuracy")
        yield f"   {final} (best {best}), {run.status}: {name}"
        yield f"      {command_of(run.choices)}"


def command_of(choices: Mapping[str, Any]) -> str:
    """The shortest command line that computes a run with these choices."""
    words = {key: value for key, value in identity(choices).items() if not key.endswith(MARK)}
    return shlex.join(["fedbench", *(f"{key}={written(value)}" for key, value in words.items())])
