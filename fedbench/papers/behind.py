"""What stands behind a number: what was run, at which step sizes, and how these were chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedbench.errors import counted
from fedbench.figures import caption, style
from fedbench.figures.results import parse
from fedbench.papers.claims import Way
from fedbench.papers.evidence import STEPS, Evidence, as_text, passing, percent
from fedbench.papers.figure import SEARCHED
from fedbench.tuning.request import VALIDATION


def runs_behind(way: Way) -> list[pd.DataFrame]:
    """The rows of the runs behind a way to read a claim, by method: ours first."""
    return [part for part in way.rows if "dir" in part and "seed" in part and len(part)]


def what_was_run(way: Way, data: Evidence | None) -> str:
    """Data, network, partition, N, S, K, T, seeds, step sizes of the runs behind a way to read a claim, and
    how the others were tuned: `EMNIST, RNN, iid, N=100, S=10, K=5, B=32, T=400, seeds 0 1 2, theorem's
    lr=0.01; FedAvg, SCAFFOLD tuned: ...`. Empty without runs."""
    rows = runs_behind(way)
    if data is None or not rows:
        return ""
    ours = rows[0]
    cells = ours.to_numpy(object)
    shared_by_all = (cells == cells[0]).all(axis=0)  # what is missing equals nothing
    same: dict[str, Any] = {str(key): value for key, value, is_same
                            in zip(ours, cells[0], shared_by_all, strict=True) if is_same}  # fmt: skip
    shared = {key: int(value) if isinstance(value, float) and value.is_integer() else value
              for key, value in {**same, **data.settings}.items()}  # fmt: skip
    seeds = sorted({int(seed) for part in rows for seed in part.seed})
    tasks = [" or ".join(dict.fromkeys(word(_set(row)) for row in ours.to_dict("records")))
             for key, word in caption.TASK.items() if key in ours and key not in shared]  # fmt: skip
    left_out = style.PARTITION_KEYS if "partition" not in shared else ()
    keys = [key for key in map(str, ours.select_dtypes("number"))
            if "." in key and "hyper." not in key and key not in left_out]  # fmt: skip
    swept = [key for key in ("rounds", *keys)
             if key in ours and key not in shared and ours[key].nunique() > 1]  # fmt: skip
    said = ", ".join(filter(None, [
        *tasks, caption.settings_line(shared), f"T={shared['rounds']}" if "rounds" in shared else "",
        f"seed{'s' * (len(seeds) > 1)} {' '.join(map(str, seeds))}",
        *(f"{_called(key)}={_listed(ours[key])}" for key in swept), steps(ours),
    ]))  # fmt: skip
    return "; ".join(filter(None, [said, how_tuned(searches(data, rows)), way.chosen]))


def _set(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The cells of a row that have a value."""
    return {str(key): value for key, value in row.items() if not (value is None or value != value)}


def _called(key: str) -> str:
    """What a key is called here: `S`, `lr`, `loss.scale`."""
    return key.removeprefix("algorithm.") if key.startswith("algorithm.") else style.SYMBOLS.get(key, key)


def _said(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


def _listed(values: pd.Series) -> str:
    """The values of a key: all if they are few, else the ends."""
    each = [_said(value) for value in sorted(values.dropna().unique())]
    return " ".join(each) if len(each) < 10 else f"{each[0]} to {each[-1]} ({len(each)} values)"


def steps(rows: pd.DataFrame, swept: bool = False) -> str:
    """The step sizes and further numbers of a method in these runs, those that were chosen and those of a
    theorem: `lr=0.1, theorem's beta=0.3`. `swept`: also those of several values."""
    further = [key for key in map(str, rows.select_dtypes("number")) if key.startswith("algorithm.")]
    chosen, given = [], []
    for key in dict.fromkeys((*STEPS, *further)):
        values, hyper = rows[key].dropna() if key in rows else pd.Series(dtype=float), f"hyper.{_called(key)}"
        if values.nunique() == 1 or (swept and len(values)):
            chosen.append(f"{_called(key)}={_listed(values)}")
        elif values.empty and key in STEPS and hyper in rows and rows[hyper].notna().any():
            given.append(f"{_called(key)}={_listed(rows[hyper])}")
    return ", ".join(filter(None, [" ".join(chosen), f"theorem's {' '.join(given)}" if given else ""]))


def other_work(part: pd.DataFrame, ours: pd.DataFrame) -> str:
    """K, epochs and B of a method's runs where ours have others: `K=20, B=16`."""
    keys = ("local.steps", "local.epochs", "local.batch_size")
    return ", ".join(f"{_called(key)}={_listed(part[key])}" for key in keys
                     if key in ours and {*part[key].dropna()} != {*ours[key].dropna()})  # fmt: skip


def on_test(way: Way, data: Evidence) -> bool:
    """Whether hyper-parameters of these runs were chosen by test samples: in a search, or as the best of
    what is shown."""
    return any(not one.share for one in searches(data, runs_behind(way))) or bool(way.chosen)


# ---- how it was tuned ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tried:
    """The configurations that were tried for a method. `share`: the share of training samples that was held
    out to choose one; 0: the test samples were used."""

    method: str
    trials: pd.DataFrame
    share: float

    @property
    def samples(self) -> str:
        """The samples by which one was chosen, and the seeds: since samples are held out these are others
        than the evaluated ones."""
        first, seeds = SEARCHED if self.share else 0, int(self.trials.seeds.max())
        whose = "held-out" if self.share else "test"
        return f"{whose} samples, seed {' '.join(str(first + seed) for seed in range(seeds))}"

    @property
    def words(self) -> str:
        """What was tried, and what won."""
        trials = self.trials
        keys = [key for key in map(str, trials) if "." in key and trials[key].nunique() > 0
                and (trials[key].nunique() > 1 or key in STEPS)]  # fmt: skip
        tried = ", ".join(f"{_called(key)} {_listed(trials[key])}" for key in keys)
        share = f" ({VALIDATION}={self.share:g})" if self.share else ""
        many = counted(len(trials), "setting")
        said = [f"{self.method}: {many} of {tried}, by the accuracy on {self.samples}{share}"]
        for winner in map(_set, trials[trials.role == "winner"].to_dict("records")):
            best = " ".join(f"{_called(key)}={_said(winner[key])}" for key in keys if key in winner)
            edge = f", at an edge of what was tried: {winner['edge']}" if "edge" in winner else ""
            said.append(f"best {best} ({percent(winner['mean'])}){edge}")
        return "; ".join(said)


def method_of(rows: pd.DataFrame) -> str:
    """The name of the method of these runs."""
    return style.line(["algorithm", "algorithm.estimator"], _set(rows.iloc[0].to_dict()))


def searches(data: Evidence, parts: list[pd.DataFrame]) -> list[Tried]:
    """The searches that chose hyper-parameters of these runs, by method."""
    tuning, share = data.tuning, float(data.made.get("validation") or 0)
    search = tuning.search.fillna("") if "search" in tuning else pd.Series("", tuning.index)
    found = {}
    for part in parts if len(tuning) else ():
        of_stage = search.isin([word for stage in part.stage.unique() for word in stage.split("-")[1:2]])
        mine = of_stage if of_stage.any() else search == ""
        for key in (key for key in map(str, tuning) if key in part and _sets_apart(key, tuning[key])):
            there = part[key].dropna().map(as_text).unique()
            mine = mine & (tuning[key].isna() | passing(tuning, {key: "|".join(there)}))
        if mine.any():
            found[method_of(part)] = Tried(method_of(part), tuning[mine].map(parse), share)
    return list(found.values())


def _sets_apart(key: str, values: pd.Series) -> bool:
    """Whether a column of tuning.csv says what was tuned, and not what was tried: the data, the network, the
    schedule, or a variant of the method."""
    if key in STEPS:
        return False
    tried = key.startswith(("algorithm.", "local."))
    return not tried or any(isinstance(cell, str) for cell in values)


def how_tuned(tried: list[Tried]) -> str:
    """`FedAvg, SCAFFOLD tuned: 3 settings each, held-out samples, seed 100`; empty if nothing was."""
    if not tried:
        return ""
    counts = sorted({len(one.trials) for one in tried})
    many = f"{counts[0]} to {counts[-1]} settings" if len(counts) > 1 else counted(counts[0], "setting")
    names = ", ".join(one.method for one in tried)
    return f"{names} tuned: {many}{' each' * (len(tried) > 1)}, {tried[0].samples}"
