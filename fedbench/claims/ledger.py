"""The claims ledger: which claims of the papers our runs show, with our numbers, seeds, settings and command.

A claim is data: its words, where they stand, the figure that should show it, its test, and the least scale
and number of rounds at which the test means anything. Verdicts and numbers come from the CSV files; nothing
is typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import pandas as pd

from fedbench.claims.evidence import Evidence
from fedbench.claims.finding import Finding, Test

SCALES = ("smoke", "cpu", "paper")
VERDICTS = {True: "shown", False: "not shown", None: "untested"}


@dataclass(frozen=True)
class Claim:
    """One claim. `scale` and `rounds`: the least at which its test counts; below, it is untested.
    `published`: the paper's number or order, for the claims on the report's first page."""

    name: str
    text: str
    source: str
    figure: str
    test: Test
    scale: str = "cpu"
    rounds: int = 0
    published: str = ""


@dataclass(frozen=True)
class Row:
    """A claim's row of the ledger, all as text: `numbers` are all of ours, `brief` those that matter most,
    `reason` why the verdict is what it is, in one clause."""

    claim: str
    text: str
    source: str
    figure: str
    published: str
    verdict: str
    brief: str
    numbers: str
    reason: str
    seeds: str
    settings: str
    test: str
    command: str


def judge(claim: Claim, evidence: Evidence) -> Row:
    """Return the claim's row, with numbers even where the scale is too small for a verdict."""
    finding = claim.test(evidence)
    shown, reason = _verdict(claim, finding, evidence)
    failed = int((evidence.runs.status == "failed").sum()) if "status" in evidence.runs else 0
    return Row(
        claim=claim.name,
        text=claim.text,
        source=claim.source,
        figure=claim.figure,
        published=claim.published,
        verdict=VERDICTS[shown],
        brief=finding.brief or finding.numbers,
        numbers=finding.numbers,
        reason=reason + (f"; {failed} failed runs left out" if failed else ""),
        seeds=" ".join(map(str, finding.seeds)),
        settings=", ".join(f"{key}={value}" for key, value in evidence.settings.items()),
        test=describe(claim.test),
        command=evidence.command,
    )


def _verdict(claim: Claim, finding: Finding, evidence: Evidence) -> tuple[bool | None, str]:
    rounds = float(evidence.settings.get("rounds", float("inf")))
    if finding.shown is not None and SCALES.index(evidence.scale) < SCALES.index(claim.scale):
        return None, f"needs scale {claim.scale}, this is {evidence.scale}"
    if finding.shown is not None and rounds < claim.rounds:
        return None, f"needs {claim.rounds} rounds, these are {rounds:g}"
    return finding.shown, claim.test.because if finding.shown else finding.reason


def ledger(evidence: Mapping[str, Evidence], claims: Iterable[Claim]) -> pd.DataFrame:
    """Return one row per claim, in order. `evidence` is by figure; without its figure a claim is untested."""
    rows = [judge(claim, evidence.get(claim.figure, Evidence())) for claim in claims]
    return pd.DataFrame(rows, columns=[field.name for field in fields(Row)])


def describe(test: Test) -> str:
    """Return a test in words: what it is and its parameters."""
    said = (type(test).__doc__ or "").split("\n\n")[0].replace("`", "").rstrip(".")
    values = {field.name: getattr(test, field.name) for field in fields(test)}  # type: ignore[arg-type]
    return (
        f"{' '.join(said.split())} [{', '.join(f'{k}={v}' for k, v in values.items() if v not in ({}, ''))}]"
    )
