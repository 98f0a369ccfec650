"""The claims ledger: which claims of the papers our runs show, with our numbers, seeds, settings and command.

A claim is data: its words, where they stand, the figure that should show it, its test, and the least scale
and number of rounds at which the test means anything. Verdicts and numbers come from the CSV files; nothing
is typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

import pandas as pd

from fedbench.claims.evidence import Evidence, Finding

SCALES = ("smoke", "cpu", "paper")
VERDICTS = {True: "shown", False: "not shown", None: "untested at this scale"}
COLUMNS = (
    "claim",
    "text",
    "source",
    "figure",
    "verdict",
    "numbers",
    "reason",
    "seeds",
    "settings",
    "test",
    "command",
)


@dataclass(frozen=True)
class Claim:
    """One claim. `scale` and `rounds`: the least at which its test counts; below, it is untested."""

    name: str
    text: str
    source: str
    figure: str
    test: Callable[[Evidence], Finding]
    scale: str = "cpu"
    rounds: int = 0


def judge(claim: Claim, evidence: Evidence) -> dict[str, str]:
    """Return the claim's row of the ledger, with numbers even where the scale is too small for a verdict."""
    finding = claim.test(evidence)
    shown, reason = finding.shown, finding.reason
    rounds = float(evidence.settings.get("rounds", float("inf")))
    if shown is not None and SCALES.index(evidence.scale) < SCALES.index(claim.scale):
        shown, reason = None, f"needs scale {claim.scale}, this is {evidence.scale}"
    elif shown is not None and rounds < claim.rounds:
        shown, reason = None, f"needs {claim.rounds} rounds, these are {rounds:g}"
    failed = int((evidence.runs.status == "failed").sum()) if "status" in evidence.runs else 0
    if failed:
        reason = f"{reason}; {failed} failed runs left out".removeprefix("; ")
    return {
        "claim": claim.name,
        "text": claim.text,
        "source": claim.source,
        "figure": claim.figure,
        "verdict": VERDICTS[shown],
        "numbers": finding.numbers,
        "reason": reason,
        "seeds": " ".join(map(str, finding.seeds)),
        "settings": ", ".join(f"{key}={value}" for key, value in evidence.settings.items()),
        "test": describe(claim.test),
        "command": evidence.command,
    }


def ledger(evidence: Mapping[str, Evidence], claims: Iterable[Claim]) -> pd.DataFrame:
    """Return one row per claim, in order. `evidence` is by figure; without its figure a claim is untested."""
    rows = [judge(claim, evidence.get(claim.figure, Evidence())) for claim in claims]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def describe(test: Callable[[Evidence], Finding]) -> str:
    """Return a test in words: what it is and its parameters."""
    said = (type(test).__doc__ or "").split("\n\n")[0].replace("`", "").rstrip(".")
    values = {field.name: getattr(test, field.name) for field in fields(test)}  # type: ignore[arg-type]
    return (
        f"{' '.join(said.split())} [{', '.join(f'{k}={v}' for k, v in values.items() if v not in ({}, ''))}]"
    )
