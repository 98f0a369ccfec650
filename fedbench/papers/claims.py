"""Claims of papers as numbers by seed, and the word that follows from them.

A claim is data: its words, where it stands, and for each way to read it (a norm, a number of classes, a step
size that the paper does not name) a figure and what is measured there. Every word follows from two signs: in
each seed a claim holds or the opposite does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from fedbench.papers.evidence import SCALES, Evidence, Untested
from fedbench.sweeps.tables import interval

AGREES, DISAGREES, MIXED, TOO_FEW = WORDS = ("agrees", "disagrees", "mixed", "too few")
FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Reading:
    """One way to read a claim: its words, the figure that should show it, and what is measured there. `late`:
    it was added when its result was known. `ours`: it is not the paper's; it is shown and decides nothing.
    `cut`: what is smaller in its setting than in the paper's, at scales below `paper`."""

    words: str = ""
    figure: str = ""
    measure: Measure = lambda _: ()
    late: bool = False
    ours: bool = False
    cut: str = ""

    @property
    def marks(self) -> str:
        """A dagger if it was added late, a double one if it is ours."""
        return "†" * self.late + "‡" * self.ours


@dataclass(frozen=True)
class Way:
    """A reading of a claim in numbers by seed, as a measure finds them.

    `ours`, `other`: our number and what it is compared with, in words. `margin`: by seed, how far the claim
    is from failing: above 0 it holds in this seed, below 0 the opposite does. `scores`: name -> its number in
    each seed. `gap`: by seed, ours minus the best other's or the published number. `rows`: the runs behind
    it. `detail`: what else a reader should know. `limit`: why it cannot agree, whatever the seeds say.
    `exact`: nothing in it is random, so one value suffices. `setting`: which of several settings it is.
    `chosen`: whose settings are the best of those shown, if any are. `reading`, `cut`: what was read, and why
    no word follows, or nothing; `ways` says both.
    """

    ours: str = ""
    other: str = ""
    margin: pd.Series = field(default_factory=lambda: pd.Series(dtype=float))
    scores: Mapping[str, pd.Series] = field(default_factory=dict)
    gap: pd.Series | None = None
    rows: tuple[pd.DataFrame, ...] = ()
    detail: str = ""
    limit: str = ""
    exact: bool = False
    setting: str = ""
    chosen: str = ""
    reading: Reading = Reading()
    cut: str = ""

    @property
    def judged(self) -> tuple[str, str]:
        """The word of this way alone, and why it has it."""
        few = f"{len(self.margin)} of the {FEWEST_SEEDS} seeds that a word needs"
        enough = len(self.margin) >= FEWEST_SEEDS
        if self.cut:
            return TOO_FEW, f"its setting was cut: {self.cut}" + ("" if enough else f"; {few}")
        if self.margin.empty:
            return TOO_FEW, "there are no numbers"
        if not (enough or self.exact):
            return TOO_FEW, few
        if (self.margin < 0).all():
            return DISAGREES, "the opposite holds in every seed"
        if self.limit or not (self.margin > 0).all():
            return MIXED, self.limit or f"it holds in {self.holds} seeds"
        return AGREES, "it holds in every seed"

    @property
    def word(self) -> str:
        """The word alone."""
        return self.judged[0]

    @property
    def holds(self) -> str:
        """In how many seeds it holds: `2 of 3`."""
        many = f"{int((self.margin > 0).sum())} of {len(self.margin)}"
        return "" if self.margin.empty else "exact" if self.exact else many

    @property
    def runs(self) -> list[str]:
        """The runs behind it (`dir` of runs.csv), each once, in order."""
        return list(dict.fromkeys(name for part in self.rows if "dir" in part for name in part.dir))

    @property
    def interval(self) -> tuple[float, float, float]:
        """The mean of `gap` and the ends of its 95 % interval (Student's); NaN where there is none."""
        return interval([] if self.gap is None else [*self.gap.dropna()])

    @property
    def notes(self) -> list[str]:
        """What else a reader should know."""
        return [*filter(None, (self.cut, self.limit, self.detail))]

    @property
    def words(self) -> str:
        """Which way it is."""
        return ", ".join(filter(None, [self.reading.words, self.setting]))


Measure = Callable[[Evidence], Iterable[Way]]
"""What is measured for a claim on the tables of a figure: a way for each setting. Raises Untested if there is
no evidence."""
Readings = tuple[Reading, ...]


def on_figure(figure: str, measures: Mapping[str, Measure]) -> Readings:
    """Readings that all rest on one figure; `measures`: words -> what is measured."""
    return tuple(Reading(words, figure, measure) for words, measure in measures.items())


@dataclass(frozen=True, eq=False)
class Claim:
    """One claim: a sentence of a paper for one method, split and step size.

    `numbers`: the ways to read it. `rounds`, `scale`: below these its setting is cut. `post_hoc`: it was
    added after its result was known. `kind`: `paper`; `peers`, a table of another suite or paper;
    `construction`, true whatever is trained; `ours`, a question of our own. `differs`: what differs from the
    paper's setting.
    """

    name: str
    text: str
    source: str
    numbers: Readings
    rounds: int = 0
    scale: str = "cpu"
    post_hoc: bool = False
    kind: str = "paper"
    differs: str = ""

    @property
    def figures(self) -> list[str]:
        """The figures of its numbers, in order."""
        return list(dict.fromkeys(one.figure for one in self.numbers))


def ways(claim: Claim, evidence: Mapping[str, Evidence]) -> list[Way]:
    """All ways to read a claim, with their numbers; those of figures that are not made come last."""
    ordered = sorted(claim.numbers, key=lambda one: one.figure not in evidence)
    return [replace(way, reading=reading, cut=_cut(claim, reading, evidence.get(reading.figure)))
            for reading in ordered for way in _measured(reading, evidence.get(reading.figure))]  # fmt: skip


def _measured(reading: Reading, data: Evidence | None) -> list[Way]:
    """Its numbers; without any, the reason is their detail."""
    try:
        return [Way(detail="not made yet")] if data is None else list(reading.measure(data))
    except Untested as why:
        return [Way(detail=str(why))]


def _cut(claim: Claim, reading: Reading, data: Evidence | None) -> str:
    if data is None:
        return ""
    scale, rounds = data.made.get("scale", "paper"), float(data.settings.get("rounds", float("inf")))
    if SCALES.index(scale) < SCALES.index(claim.scale):
        return f"scale {scale}, which only tries the code"
    if rounds < claim.rounds:
        return f"{rounds:g} rounds in place of {claim.rounds}"
    if scale != "paper" and (reading.cut or claim.kind == "peers"):
        return reading.cut or "scale cpu: not all that the source ran"
    return ""


def word_of(found: Sequence[Way]) -> str:
    """The word of a claim: that of all ways to read it if they have one, without those of ours. `too few`, if
    any way is, unless the others differ among themselves."""
    words = {way.word for way in found if not way.reading.ours}
    decided = words - {TOO_FEW}
    if MIXED in decided or len(decided) > 1:
        return MIXED
    return TOO_FEW if TOO_FEW in words or not words else words.pop()


def counts(words: Iterable[str]) -> str:
    """How many have each word: `12 agrees, 5 disagrees`; words that nobody has are left out."""
    said = list(words)
    return ", ".join(f"{said.count(one)} {one}" for one in WORDS if one in said)
