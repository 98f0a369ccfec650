"""One setting for all tasks: every method's accuracy relative to the best one's on each task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedbench.config.grouping import differing, split
from fedbench.errors import DataError
from fedbench.figures import caption, style
from fedbench.papers.evidence import name_of, runs_in
from fedbench.papers.figure import save_table
from fedbench.runs.records import Run
from fedbench.tuning.tune import write_table


def scores(runs: Sequence[Run]) -> pd.DataFrame:
    """Judge every method by one setting: the one that is best on its schedule's first task.

    A row per schedule, task, method and seed: the run (`dir`), its setting, tried (how many settings the
    method has), tuned (whether it has several), accuracy, that of the task's best method with the same seed
    (`best`), their ratio (`relative`). A method is an algorithm with its named variant; its other
    hyper-parameters that vary are its setting. The best method of a task, at its best setting, has the
    highest mean accuracy over seeds. Each seed is compared with the same seed of that method, because the
    seed also determines the partition. If that run diverged or is missing, the comparison is with the
    method's mean. Diverged runs count as accuracy 0; failed ones are left out. Raises DataError if there is
    nothing to compare.
    """
    runs = [run for run in runs if run.status in ("completed", "starved", "diverged")]
    if not runs:
        raise DataError("no finished run to compare")
    keys = [key for key in differing(run.choices for run in runs) if key.split(".")[0] != "algorithm"]
    varied = {}
    for (name,), part in split(runs, ["algorithm"], lambda run: run.choices).items():
        different = differing(run.choices for run in part)
        varied[name] = [key for key in different if key.startswith("algorithm.")]
    frame = pd.DataFrame([_score(run, keys, varied[run.choices.get("algorithm")]) for run in runs])
    parts = [_of_schedule(part) for _, part in frame.groupby("schedule", sort=False)]
    return pd.concat(parts, ignore_index=True)


def _score(run: Run, keys: Sequence[str], varied: Sequence[str]) -> dict[str, object]:
    """The row of one run: its task, its method, its values of the `varied` keys and its accuracy."""
    variant = [key for key in varied if style.is_variant(key, run.choices.get(key))]
    setting = [key for key in varied if key not in variant]
    shown = [key for key in keys if key in run.choices and key not in ("schedule", "delay")]
    return {
        "dir": name_of(run),
        "schedule": str(run.choices.get("schedule") or "sync"),
        "task": style.line(shown, run.choices),
        "method": " ".join(str(run.choices.get(key)) for key in ("algorithm", *variant)),
        "setting": style.line(setting, run.choices) if setting else "",
        "seed": run.seed,
        "accuracy": 0.0 if run.diverged else run.result("final_accuracy") or 0.0,
    }


def _of_schedule(frame: pd.DataFrame) -> pd.DataFrame:
    """The tasks of one schedule, each method at one setting."""
    case = ["task", "method", "setting"]
    mean = frame.groupby(case, sort=False).accuracy.mean()
    chosen = mean[frame.task.iloc[0]].groupby("method", sort=False).idxmax().map(lambda place: place[1])
    kept = frame[frame.setting == frame.method.map(chosen)]
    first = mean.groupby("task", sort=False).idxmax()
    winners = frame[frame.set_index(case).index.isin(first) & (frame.accuracy > 0)]
    kept = kept.join(winners.groupby(["task", "seed"]).accuracy.mean().rename("best"), on=["task", "seed"])
    kept["best"] = kept.best.fillna(kept.task.map(mean.groupby("task").max()))
    kept["tried"] = kept.method.map(frame.groupby("method", sort=False).setting.nunique())
    return kept.assign(tuned=kept.tried > 1, relative=kept.accuracy / kept.best)


def by_task(table: pd.DataFrame) -> pd.Series:
    """The mean over seeds of `relative`, by schedule, method and task, in the order of the table."""
    return table.groupby(["schedule", "method", "task"], sort=False).relative.mean()


def over_tasks(table: pd.DataFrame, how: str) -> pd.Series:
    """`how` (median, min) over tasks of `relative`, by method and seed. `table`: rows of one schedule."""
    return table.groupby(["method", "seed"]).relative.agg(how)


def write_untuned(out: Path) -> list[Path]:
    """Write untuned.csv, a row for each run that counts, and the table tasks: a method's relative accuracy on
    each task, and the mean over seeds of each seed's median and worst over tasks. Returns the files."""
    runs = runs_in(out)
    table = scores(runs)
    means = by_task(table).unstack("method", sort=False)
    ends = pd.concat({
        (kind, how): over_tasks(part, how).groupby("method").mean()
        for kind, part in table.groupby("schedule", sort=False) for how in ("median", "min")
    }).unstack("method")[means.columns]  # fmt: skip
    made = pd.concat([means, ends.rename({"median": "median of tasks", "min": "worst task"}, level=1)])
    made.index.names = ["schedule", "task"]
    shown = ["schedule", "task", "method", "setting", "tuned", "seed", "accuracy", "best", "relative"]
    write_table(out / "untuned.csv", table[shown])
    return [out / "untuned.csv", *save_table(made.reset_index(), out, "tasks", _text(table, runs))]


def _text(table: pd.DataFrame, runs: Sequence[Run]) -> str:
    seeds = sorted({str(seed) for seed in table.seed})
    tuned = table[table.tuned].drop_duplicates(["schedule", "method"])
    kept = "; ".join(f"{style.of_algorithm(str(name)).label} {setting}"
                     for name, setting in zip(tuned.method, tuned.setting, strict=True))  # fmt: skip
    said = (
        f"{caption.settings_line(caption.common(runs))}. Every method has one setting for all tasks: its"
        " theorem's, or else the one with the best final test accuracy of the same seeds on the first task of"
        f" its schedule ({kept}). A cell: final test accuracy relative to the task's best method at its best"
        f" setting, mean over n = {len(seeds)} seeds ({', '.join(seeds)}), diverged runs as 0. Median and"
        " worst task: those of each seed, mean over seeds."
    )
    return " ".join([said.removeprefix(". "), *caption.of_data(runs)])
