"""What the kept results say of all claims: findings corrected for their number, verdicts together, counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedbench.papers import FIGURES, PAPERS
from fedbench.papers.claims import (
    ALPHA,
    CONSISTENT,
    OPPOSITE,
    UNKNOWN,
    YES,
    Claim,
    ClaimTest,
    Evidence,
    Finding,
    holm,
    judge,
    made,
    read,
    together,
)
from fedbench.papers.figure import Paper, shown

MARKS = {YES: "yes", CONSISTENT: "~", UNKNOWN: "?", OPPOSITE: "no"}
UNCORRECTED = "not after Holm's correction"
ABSENT = Finding(UNKNOWN, reason="not made yet")
"""The finding where no results of a test's figure are kept."""
Judged = list[tuple[ClaimTest, Finding]]


@dataclass(frozen=True)
class Results:
    """All that is kept: figure -> its directory and its evidence; and what was found of every claim, but of
    tables of other suites only where the table is kept."""

    places: Mapping[str, Path]
    evidence: Mapping[str, Evidence]
    judged: Mapping[Claim, Judged]

    def home(self, claim: Claim) -> str | None:
        """The figure at which a claim is counted: that of the first of its readings whose figure is kept."""
        return next((name for name in claim.figures if name in self.evidence), None)


def gather(root: Path, smoke: bool = False, papers: Sequence[Paper] = PAPERS) -> Results:
    """Judge all claims of `papers` by what is kept below `root`: of each figure the results at scale paper,
    or else cpu. With `smoke`, by the smoke results."""
    scales = ("smoke",) if smoke else ("cpu", "paper")  # the last one that is kept
    asked = {name for paper in papers for claim in paper.claims for name in claim.figures}
    places = {name: out for name in FIGURES if name in asked or papers is PAPERS
              for scale in scales if made(out := shown(name, scale, root))}  # fmt: skip
    evidence = {name: kept for name, out in places.items() if (kept := read(out)) is not None}
    judged = {claim: said for paper in papers for claim, said in judgements(paper, evidence).items()
              if claim.kind != "peers" or set(claim.figures) & set(evidence)}  # fmt: skip
    return Results(places, evidence, judged)


def judgements(paper: Paper, evidence: Mapping[str, Evidence]) -> dict[Claim, Judged]:
    """The findings of a paper's claims. A "yes" that holds at 95 % only before Holm's correction becomes
    "consistent". One correction covers the paper's claims (kinds paper and peers) that rest on a p-value, and
    another our own questions and readings."""
    judged = {
        claim: [
            (one, judge(claim, one, evidence[one.figure]) if one.figure in evidence else ABSENT)
            for one in claim.tests
        ]
        for claim in paper.claims
    }
    for ours in (False, True):
        tested = [(claim, rank) for claim, said in judged.items() for rank, (reading, one) in enumerate(said)
                  if one.p is not None and claim.kind != "construction"
                  and ours == (claim.kind == "ours" or reading.ours)]  # fmt: skip
        adjusted = holm([judged[claim][rank][1].p or 0.0 for claim, rank in tested])
        for (claim, rank), p in zip(tested, adjusted, strict=True):
            reading, one = judged[claim][rank]
            if one.verdict == YES and p >= ALPHA:
                weak = replace(one, verdict=CONSISTENT, reason=f"{one.reason}; {UNCORRECTED}".strip("; "))
                judged[claim][rank] = reading, weak
    return judged


def mark(said: Judged) -> str:
    """The mark of a claim's verdict: of its readings together, without those of ours."""
    return MARKS[together([one.verdict for reading, one in said if not reading.ours])]


def mark_of_readings(said: Judged) -> str:
    """The same, and if only some readings hold, how many: `~ (1 of 4)`."""
    counted = [one.verdict in (YES, CONSISTENT) for reading, one in said if not reading.ours]
    return mark(said) + f" ({sum(counted)} of {len(counted)})" * (0 < sum(counted) < len(counted))


def counts(judged: Iterable[Judged]) -> str:
    """How many claims have each mark: `12 yes, 5 ~, 3 ?, 9 no`."""
    marks = list(map(mark, judged))
    return ", ".join(f"{marks.count(one)} {one}" for one in MARKS.values() if one in marks)
