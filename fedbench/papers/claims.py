"""Claims of papers, and what judges them: the kept results of a figure, statistics, findings.

A claim is data: its words, their source, and for each of its readings (a norm, a number of classes, a step
size that the paper does not name) a figure and a test. Verdicts and numbers come from the CSV files.

Accuracies are fractions. A diverged run has no model, so it counts with accuracy 0. A failed run is left out,
which the report states. Methods are paired by seed, which fixes the partition, cohorts and mini-batches.
"Higher" means that a one-sided paired Student test shows it at 95 %. The test needs three seeds: with two its
threshold is 6.3 standard errors, with one there is no test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.errors import counted
from fedbench.figures.results import PARTS, rounds_file
from fedbench.figures.style import of_algorithm
from fedbench.files import read_json
from fedbench.runs.lists import RUNS_CSV

SCALES = ("smoke", "cpu", "paper")
YES, CONSISTENT, UNKNOWN, OPPOSITE = "yes", "consistent", "cannot tell", "opposite here"
MADE = "made.json"
"""What kept results were made from and with: figure, scale, digest, command, files, shared choices, ..."""
AFTER = "we added this test when its result was already known"
ALPHA, FEWEST_SEEDS, FEWEST_TASKS = 0.05, 3, 3
LEVEL = 0.9
"""A method counts as near the best accuracy if it reaches at least this share of it."""
STEPS = {"algorithm.lr", "algorithm.server_lr", "algorithm.beta"}
"""What a theorem gives where no number is chosen."""
Filter = Mapping[str, Any]  # column -> value it must have; "a|b": one of them; "!value": must not have it


# ---- evidence ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What one figure's sweeps produced.

    `runs`: columns of runs.csv (dir, all choices, status, final_accuracy, ...) and the stage, the first part
    of `dir`. `rounds`: columns of rounds.csv (the metrics), and dir and seed of the run. `settings`: choices
    that all runs share, under dotted keys. `tables`:
    the CSV tables that the figure draws, by name. `made`: the content of made.json. `tuned_on_test`: whether
    hyper-parameters were searched by test accuracy. `best_on_test`: whether they are the best of the runs
    shown, by the test accuracy of the same seeds.
    """

    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    rounds: pd.DataFrame = field(default_factory=pd.DataFrame)
    settings: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=lambda: {"scale": "paper"})
    tuned_on_test: bool = False
    best_on_test: bool = False

    def table(self, name: str) -> pd.DataFrame:
        """One of `tables`. Raises Untested if the figure has none of this name, or it is empty."""
        if name not in self.tables or self.tables[name].empty:
            raise Untested(f"no table {name}")
        return self.tables[name]


def made(directory: Path) -> dict[str, Any] | None:
    """The content of made.json; None where there is none."""
    return read_json(directory / MADE)


def read(directory: Path) -> Evidence | None:
    """A figure's kept results as evidence for claims; None if there are none."""
    content = made(directory)
    if content is None:
        return None
    runs, rounds = tables(directory)
    drawn = [file for file in content.get("files", []) if file.endswith(".csv")]
    found = {name.removesuffix(".csv"): directory / name for name in sorted(drawn)}
    settings = {key: value for key, value in content.get("shared", {}).items() if value is not None}
    others = {name: pd.read_csv(file) for name, file in found.items() if file.is_file()}
    on_test = (directory / "tuning.csv").is_file() and not content.get("validation")
    best = any(("chosen" in one and len(one) > 0) or ("tuned" in one and one.tuned.any())
               for one in others.values())  # fmt: skip
    return Evidence(runs, rounds, settings, others, content, on_test, best)


def tables(directory: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A figure's runs.csv with the stage of every run, and its rounds.csv with dir and seed of the run; empty
    without them."""
    if not (directory / RUNS_CSV).is_file():
        return pd.DataFrame(), pd.DataFrame()
    files = directory / RUNS_CSV, rounds_file(directory)
    runs, rounds = (pd.read_csv(file, low_memory=False) for file in files)
    parts = tuple(f"{part}." for part in PARTS)
    runs = runs[[name for name in map(str, runs) if not name.startswith(parts)]]
    runs = pd.concat([runs, runs.dir.str.split("/").str[0].rename("stage")], axis=1)
    return runs, rounds.merge(runs[["run", "dir", "seed"]], on="run")


def rows_of(runs: pd.DataFrame, method: str, where: Filter) -> pd.DataFrame:
    """Return the finished runs of `method` that pass the filter, with accuracies of diverged runs set to 0.

    `method` is an algorithm's name, optionally followed by key=value words: "fedproxvr
    algorithm.estimator=svrg". Raises Untested if no run is left.
    """
    name, *words = method.split()
    wanted = {"algorithm": name, **where, **dict(word.split("=", 1) for word in words)}
    keep = passing(runs, wanted)
    if "status" in runs:
        keep &= runs.status != "failed"
    if not keep.any():
        said = ", ".join(f"{key}={value}" for key, value in where.items())
        raise Untested(f"no runs of {method}{f' with {said}' if said else ''}")
    found = runs[keep]
    if "status" not in found:
        return found
    lost = found.status == "diverged"
    return found.assign(**{
        column: pd.to_numeric(found[column], errors="coerce").where(~lost, 0.0).fillna(0.0)
        for column in ("final_accuracy", "best_accuracy") if column in found
    })  # fmt: skip


def passing(rows: pd.DataFrame, where: Filter) -> pd.Series:
    """Which rows pass a filter; none if they lack one of its columns."""
    keep = pd.Series(set(where) <= set(rows.columns), index=rows.index, dtype=bool)
    for key, value in where.items() if keep.any() else ():
        words = str(value)
        found = rows[key].map(lambda cell: f"{cell:g}" if isinstance(cell, float) else str(cell))
        keep &= found.isin(words.removeprefix("!").split("|")) ^ words.startswith("!")
    return keep


def tuned(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the configuration with the best mean final accuracy over its seeds.

    Configurations differ in `algorithm.*` columns. Rows without any of the `STEPS` take them from the
    theorem. If a method has such rows, they are its configuration and nothing is chosen by accuracy.
    """
    return rows[_of_the_best(rows.final_accuracy, *_configurations(rows))]


def curve(rows: pd.DataFrame, key: str) -> pd.Series:
    """Mean final accuracy against `key` (numbers, ascending), with the best other choices at each value."""
    return pd.Series({value: part.mean() for value, part in _points(rows, key)}, dtype=float).sort_index()


def curves_by_seed(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """The same by seed: a row for each seed that has all values of `key`, a column for each value. The other
    choices at a value are the best of all seeds."""
    points = {value: part.groupby(rows.seed[part.index]).mean() for value, part in _points(rows, key)}
    return pd.DataFrame(points).dropna()


def _points(rows: pd.DataFrame, key: str) -> Iterator[tuple[float, pd.Series]]:
    """Each value of `key`, ascending, and the final accuracies of the runs that count there."""
    place = pd.to_numeric(rows[key], errors="coerce") if key in rows else pd.Series(dtype=float)
    untouched, labels = _configurations(rows.drop(columns=key, errors="ignore"))
    for value, part in rows.final_accuracy.groupby(place):
        yield value, part[_of_the_best(part, untouched[part.index], labels[part.index])]


def _configurations(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """For each row: whether its step sizes come from the theorem, and the index of its configuration."""
    untouched = pd.Series(True, index=rows.index)
    for key in STEPS & set(rows.columns):
        untouched &= pd.to_numeric(rows[key], errors="coerce").isna()
    keys = [
        key for key in map(str, rows) if key.startswith("algorithm.") and rows[key].nunique(dropna=False) > 1
    ]
    if not keys:
        return untouched, pd.Series(0, index=rows.index)
    return untouched, rows.groupby(keys, dropna=False, sort=False).ngroup()


def _of_the_best(accuracy: pd.Series, untouched: pd.Series, labels: pd.Series) -> pd.Series:
    """Which rows belong to the configuration that counts. Each argument has one entry per row."""
    if accuracy.empty or (untouched.any() and not untouched.all()):
        return untouched
    return labels == accuracy.groupby(labels, sort=False).mean().idxmax()


def by_seed(data: Evidence, rows: pd.DataFrame, column: str) -> pd.Series:
    """A quantity of runs by seed: a column of runs.csv; `T`, the round of the best accuracy; or a column of
    rounds.csv such as `train_loss`, as minus its mean over the last five evaluations."""
    if column in rows:
        return rows.groupby("seed")[column].mean()
    mine = data.rounds[data.rounds.dir.isin(rows.dir)].sort_values("round")
    if column == "T":
        best = mine.loc[mine.groupby("dir").test_accuracy.idxmax()]
        return best.set_index("seed")["round"].astype(float)
    return (
        -mine.groupby(["seed", "dir"])[column]
        .agg(lambda values: values.iloc[-5:].mean())
        .groupby("seed")
        .mean()
    )


def until(data: Evidence, rows: pd.DataFrame, level: float, clock: str) -> pd.Series:
    """By seed, the first value of `clock` (round, wall_seconds) at which the test accuracy reaches `level`;
    infinite if it never does."""
    mine = data.rounds[data.rounds.dir.isin(rows.dir)]
    reached = pd.to_numeric(mine.test_accuracy, errors="coerce") >= level
    return mine[clock].astype(float).where(reached, np.inf).groupby(mine.seed).min()


# ---- statistics ----------------------------------------------------------------------------------------


def exceeds(first: pd.Series, second: pd.Series) -> tuple[int, float, float]:
    """Compare two quantities by seed. Returns the number of pairs, their mean difference, and the p-value of
    a one-sided paired Student test that `first` is larger (1 - p: that it is smaller).

    A seed fixes partition, cohorts and mini-batches, so the differences vary less than the quantities.
    """
    from scipy.stats import ttest_rel  # slow to import, and most commands judge nothing

    pairs = pd.concat([first, second], axis=1).dropna().to_numpy(float)
    difference = pairs[:, 0] - pairs[:, 1]
    n, mean = len(pairs), float(difference.mean()) if len(pairs) else 0.0
    if n < 2 or difference.std(ddof=1) < 1e-12 * n**0.5:  # all differences are equal, or there is only one
        return n, mean, 0.5 if mean == 0 else float(mean < 0)
    return n, mean, float(ttest_rel(pairs[:, 0], pairs[:, 1], alternative="greater").pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given."""
    order, adjusted = np.argsort(p), np.empty(len(p))
    times = len(p) - np.arange(len(p))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, times * np.array(p)[order]))
    return adjusted.tolist()


# ---- tests ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """A test's outcome: the verdict, our numbers, the reason in one clause, the rows of runs behind it, the
    numbers that matter most (`brief`), and the p-value if the verdict rests on one."""

    verdict: str
    numbers: str = ""
    reason: str = ""
    rows: tuple[pd.DataFrame, ...] = field(default=(), repr=False, compare=False)
    brief: str = ""
    p: float | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds behind it, in order."""
        return tuple(sorted({int(seed) for part in self.rows if "seed" in part for seed in part.seed}))

    @property
    def runs(self) -> list[str]:
        """The runs behind it (`dir` of runs.csv), each once, in order."""
        return list(dict.fromkeys(name for part in self.rows if "dir" in part for name in part.dir))


class Untested(Exception):
    """Raised with the reason if rows, seeds or grid points are missing."""


class Test(ABC):
    """A predicate on the tables of a figure. Its parameters are fields; the class docstring describes it."""

    def __call__(self, data: Evidence) -> Finding:
        """The finding; "cannot tell" with the reason if the evidence does not suffice."""
        try:
            return self._judge(data)
        except Untested as why:
            return Finding(UNKNOWN, reason=str(why))

    @abstractmethod
    def _judge(self, data: Evidence) -> Finding:
        """The finding. Raises Untested if the evidence does not suffice."""


def describe(test: Test) -> str:
    """A test in words: the first paragraph of its class's docstring, and its parameters."""
    said = (type(test).__doc__ or "").split("\n\n")[0].replace("`", "").rstrip(".")
    values = {one.name: getattr(test, one.name) for one in fields(test)}  # type: ignore[arg-type]
    given = ", ".join(f"{key}={value}" for key, value in values.items() if value not in ({}, "", ()))
    return f"{' '.join(said.split())} [{given}]"


def percent(value: float) -> str:
    """An accuracy as text."""
    return f"{100 * value:.1f}%"


def fewest_seeds(rows: pd.DataFrame, keys: list[str]) -> int:
    """Seeds of the point (values of `keys`) that has fewest: what is said of all points rests on them."""
    return int(rows.groupby(keys).seed.nunique().min())


def diverged(rows: pd.DataFrame) -> str:
    """What follows a number of runs of which some diverged: `, 1 diverged`. They count with accuracy 0."""
    lost = int((rows.status == "diverged").sum()) if "status" in rows else 0
    return f", {lost} diverged" if lost else ""


def said(scores: pd.Series, column: str = "accuracy") -> str:
    """Mean, sample standard deviation and number of seeds: `84.5% +- 0.7% (5)`."""
    many = len(scores) > 1
    if "accuracy" in column:
        return percent(scores.mean()) + (f" +- {percent(scores.std())}" if many else "") + f" ({len(scores)})"
    if column == "T":
        return f"{scores.mean():.0f}" + (f" +- {scores.std():.0f}" if many else "") + f" ({len(scores)})"
    return f"{abs(scores.mean()):.3f}" + (f" +- {scores.std():.3f}" if many else "") + f" ({len(scores)})"


def plainly(holds: bool, seeds: int) -> str:
    """The verdict of a test without a p-value. One seed gives "consistent" at most; two seeds cannot tell."""
    if seeds >= FEWEST_SEEDS:
        return YES if holds else OPPOSITE
    return CONSISTENT if holds and seeds == 1 else UNKNOWN


def by_p(holds: bool, seeds: int, p: float, against: float) -> tuple[str, float | None]:
    """The verdict of a test with p-values, and the one on which it rests. `holds`: whether the means agree
    with the claim; `p`, `against`: the p-values that it holds and that the opposite does. What agrees and is
    not shown is "consistent". Fewer than three seeds count as in `plainly`."""
    if seeds < FEWEST_SEEDS:
        return plainly(holds, seeds), None
    if holds:
        return (YES if p < ALPHA else CONSISTENT), p
    return (OPPOSITE, against) if against < ALPHA else (UNKNOWN, p)


def bonferroni(p: Sequence[float]) -> float:
    """The p-value that any of several is shown, of theirs."""
    return min(1.0, min(p) * len(p))


def few(seeds: int) -> str:
    """The reason that goes with the verdict of `plainly`: too few seeds, or nothing."""
    return "" if seeds >= FEWEST_SEEDS else counted(seeds, "seed")


def short(method: str) -> str:
    """A method's name with its further words, without the norm and the stage, which its reading states."""
    name, *words = method.split()
    further = [
        word.rpartition("=")[2]
        for word in words
        if "norm=" not in word and "stage=" not in word and word not in ("vector", "tensor")
    ]
    return " ".join([of_algorithm(name).label, *further])


# ---- claims --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClaimTest:
    """One way to read a claim: its words, the figure that should show it, and the test. `late`: it was added
    after its result was known. `ours`: it is not the paper's; it is shown and decides nothing."""

    words: str
    figure: str
    test: Test
    late: bool = False
    ours: bool = False

    @property
    def asked(self) -> str:
        """What a reader should know of when it was asked, or nothing."""
        return ("our way to read it, not the paper's; " if self.ours else "") + AFTER if self.late else ""


ClaimTests = tuple[ClaimTest, ...]


def on_figure(figure: str, tests: Mapping[str, Test]) -> ClaimTests:
    """Tests that all rest on one figure; `tests`: words -> test."""
    return tuple(ClaimTest(words, figure, test) for words, test in tests.items())


@dataclass(frozen=True, eq=False)
class Claim:
    """One claim. `rounds`, `scale`: the minimum at which its tests count. `post_hoc`: it was added after its
    result was known. `kind`: `paper`; `peers`, a table of another suite or paper, for which a smaller setting
    proves nothing; `construction`, true whatever is trained; `ours`, a question of our own."""

    name: str
    text: str
    source: str
    tests: ClaimTests
    rounds: int = 0
    scale: str = "cpu"
    post_hoc: bool = False
    kind: str = "paper"

    @property
    def figures(self) -> list[str]:
        """The figures of its tests, in order."""
        return list(dict.fromkeys(one.figure for one in self.tests))


@dataclass(frozen=True)
class FrontPageRow:
    """One row of the first page: a result, the paper's number or order, what the setting shares with the
    paper's, and the claims (`name` or `name/reading`) that give our numbers and the verdict."""

    result: str
    published: str
    setting: str
    claims: tuple[str, ...]


def judge(claim: Claim, tested: ClaimTest, evidence: Evidence) -> Finding:
    """Judge a test of a claim by its figure. The verdict is "cannot tell" if scale or rounds do not suffice;
    the numbers remain. A smaller setting of a claim of kind `peers` gives "consistent" at most."""
    finding, scale = tested.test(evidence), evidence.made.get("scale", "paper")
    rounds = float(evidence.settings.get("rounds", float("inf")))
    if finding.verdict == UNKNOWN:
        return finding
    if SCALES.index(scale) < SCALES.index(claim.scale):
        return replace(finding, verdict=UNKNOWN, reason=f"needs scale {claim.scale}, this is {scale}", p=None)
    if rounds < claim.rounds:
        return replace(
            finding, verdict=UNKNOWN, reason=f"needs {claim.rounds} rounds, has {rounds:g}", p=None
        )
    if claim.kind == "peers" and scale != "paper" and finding.verdict in (YES, OPPOSITE):
        verdict = CONSISTENT if finding.verdict == YES else UNKNOWN
        reason = f"{finding.reason}; a smaller setting".strip("; ")
        return replace(finding, verdict=verdict, reason=reason, p=None)
    return finding


def together(verdicts: Sequence[str]) -> str:
    """The verdict of several tests: theirs if they agree, consistent if only some hold. If none holds, it
    is opposite if any reading is, and else "cannot tell"."""
    if len(set(verdicts)) == 1:
        return verdicts[0]
    if YES in verdicts or CONSISTENT in verdicts:
        return CONSISTENT
    return OPPOSITE if OPPOSITE in verdicts else UNKNOWN
