"""Which setting of every method is the best, task by task: the content of `fedbench best`.

A task is what methods are compared on: data, partition, model, schedule, rounds, ... Settings of one method
differ in hyper-parameters and in its local work. Numbers of different tasks are never compared.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.config.config import METHOD, RATES, role
from fedbench.config.grouping import differing, in_order, one_per_seed, plain, split
from fedbench.errors import FEW, ConfigError, DataError, counted, word
from fedbench.figures import style
from fedbench.figures.results import TUNING, dotted, read, sweeps_of, without_numbers
from fedbench.files import read_json
from fedbench.report.runs import varied
from fedbench.runs.metrics import ENDS, metric_of, sign
from fedbench.runs.records import Run, number
from fedbench.runs.run_directory import FINISHED
from fedbench.sweeps.formats import table
from fedbench.sweeps.tables import mean_and_spread

RANKS_BY = {name: sign(name) for name in ("final_accuracy", "best_accuracy", "final_test_loss", *ENDS)}
"""What settings can be ranked by, and the sign (-1: smaller is better)."""
TEST, HELD_OUT = "final_accuracy", "final_validation_accuracy"
_OF_METHODS = (METHOD, RATES)
"""The roles of keys that are a method's; every other key in which runs differ sets tasks apart."""
_VALIDATION = "dataset.validation"
_RANKED = ("completed", "starved")
"""Statuses of runs with a final result. That a schedule leaves too few clients is a part of the task."""
_Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class Standing:
    """The best setting of a method on a task: its values of the table's keys, its numbers over seeds, the
    directories of its runs, and its method's title. `numbers`: metric -> value of every seed."""

    choices: Mapping[str, Any]
    numbers: Mapping[str, Sequence[float]]
    directories: Sequence[str]
    title: str

    def mean(self, metric: str) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.numbers[metric])

    def near(self, best: Standing, metric: str) -> bool:
        """Whether the mean is within the sample standard deviation of the best one's."""
        values = best.numbers[metric]
        away = abs(self.mean(metric) - best.mean(metric))
        return self is not best and len(values) > 1 and away <= statistics.stdev(values)


@dataclass(frozen=True)
class Ranking:
    """The best settings. `tasks`: task -> its standings, the best first. `task_keys`, `by`, `keys`: what sets
    tasks apart, what makes a line, and what else a setting has. `shown`: the metrics that have a column, and
    their names in words; the last one ranks. `notes`: what a reader must know, as sentences."""

    tasks: Mapping[_Key, Sequence[Standing]]
    task_keys: Sequence[str]
    by: Sequence[str]
    keys: Sequence[str]
    shown: Mapping[str, str]
    notes: Sequence[str]

    @property
    def ranked(self) -> str:
        """The metric that ranks."""
        return [*self.shown][-1]

    def text(self) -> str:
        """All settings with all their keys, the notes, and the directories of the best of every task."""
        keys = [*self.task_keys, *self.by, *self.keys]
        lines = [[*keys, *self.shown.values(), "n"]]
        for one in (one for standings in self.tasks.values() for one in standings):
            values = [one.choices.get(key, "") for key in keys]  # empty: its options lack the key
            cells = ["null" if value is None else str(value) for value in values]
            numbers = [mean_and_spread(one.numbers[name]) for name in self.shown]
            lines.append([*cells, *numbers, str(len(one.numbers[self.ranked]))])
        places = [place for standings in self.tasks.values() for place in ("", *standings[0].directories)]
        return "\n".join([table(lines), *(f"({note})" for note in self.notes), *places])

    def of_paper(self, form: str) -> str:
        """A table for a paper, in Markdown or LaTeX: a line per method by its title, and a column per task
        with mean and standard deviation. The best of a task is bold; those whose mean is within its standard
        deviation are underlined."""
        metric = self.ranked
        names: dict[str, dict[_Key, Standing]] = {}
        for task, standings in self.tasks.items():
            for one in standings:
                names.setdefault(style.line(self.by, one.choices, one.title), {})[task] = one
        titles = [
            style.line(self.task_keys, standings[0].choices) or self.shown[metric]
            for standings in self.tasks.values()
        ]
        lines = [["method" if "algorithm" in self.by else ", ".join(self.by), *titles, "n"]]
        bold, underlined = set(), set()
        for row, (name, found) in enumerate(names.items(), start=1):
            cells = [mean_and_spread(found[task].numbers[metric]) if task in found else "-"
                     for task in self.tasks]  # fmt: skip
            counts = dict.fromkeys(str(len(one.numbers[metric])) for one in found.values())
            lines.append([name, *cells, "/".join(counts)])
            for column, (task, (best, *_)) in enumerate(self.tasks.items(), start=1):
                if found.get(task) is best:
                    bold.add((row, column))
                elif task in found and found[task].near(best, metric):
                    underlined.add((row, column))
        return table(lines, form, bold, underlined)


def rank(directories: Sequence[str], by: Sequence[str], metric: str | None = None) -> Ranking:
    """Rank the best setting of every value of the keys `by`, task by task.

    `metric`: what selects and ranks settings. By default the accuracy on held-out samples selects, where all
    runs have them, and the test accuracy ranks. A setting of which a run failed, diverged or has not ended is
    left out. Starved runs are ranked. A seed that was run twice counts once. Raises DataError, ConfigError.
    """
    runs, where = read(directories), ", ".join(directories)
    by = [dotted("--by", name, runs, "must be a key of these runs, such as algorithm or lr") for name in by]
    task_keys, keys = _table_keys(runs, directories, by)
    every = [*task_keys, *by, *keys]
    once = one_per_seed(runs, lambda run: run.choices, lambda run: run.status in FINISHED, every)
    repeated, lacking, runs = len(runs) - len(once), without_numbers(directories, runs), once
    groups = split(runs, every, lambda run: run.choices)
    ended = {at: part for at, part in groups.items() if all(run.status in _RANKED for run in part)}
    first = len(task_keys)
    lines = Counter(setting[: first + len(by)] for setting in ended)
    rivals = [part for setting, part in ended.items() if lines[setting[: first + len(by)]] > 1]
    chosen, ranked = (metric, metric) if metric else (_selecting(rivals), TEST)
    if all(run.result(ranked) is None for run in runs if run.status in _RANKED):
        raise DataError(f"{where}: no run has a {ranked} ({_asked_by(ranked)})")
    whole = {
        at: part
        for at, part in ended.items()
        if all(run.result(name) is not None for run in part for name in (chosen, ranked))
    }
    if not whole:
        raise DataError(f"{where}: no setting has completed all its runs with a {ranked}")
    tasks: dict[_Key, dict[_Key, list[Standing]]] = {}
    for setting, part in whole.items():
        numbers = {name: [float(run.summary[name]) for run in part] for name in (chosen, ranked)}
        one = Standing(part[0].choices, numbers, [run.source for run in part], part[0].title)
        methods = tasks.setdefault(setting[:first], {})
        methods.setdefault(setting[first : first + len(by)], []).append(one)

    def best(name: str) -> Callable[[Standing], float]:
        return lambda one: -RANKS_BY[name] * one.mean(name)

    found = {
        task: sorted((min(several, key=best(chosen)) for several in tasks[task].values()), key=best(ranked))
        for task in in_order(tasks)
    }
    notes = _left_out(len(groups) - len(ended), len(ended) - len(whole), chosen)
    if lacking:
        notes.append(f"{counted(len(lacking), 'planned run')} without numbers yet")
    standings = [one.choices for several in found.values() for one in several]
    notes += _absent(by, [*(run.choices for run in runs), *lacking], standings)
    if repeated:
        notes.append(f"{counted(repeated, 'further run')} left out, with a seed that the setting already has")
    kept = [run for part in whole.values() for run in part]
    shown, measured = _in_words([chosen, ranked], kept)
    status = [run.status for run in kept]
    notes += [*measured, _chosen_by(chosen, ranked, shown, bool(rivals)), *_held_out(runs), *_starved(status)]
    return Ranking(found, task_keys, by, keys, shown, notes)


def _table_keys(
    runs: Sequence[Run], directories: Sequence[str], by: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The keys that set tasks apart, and what else a setting has, besides `by`."""
    places = [place for one in directories for place in sweeps_of(Path(one))]
    different, of_methods = differing(run.choices for run in runs), {*by, *_searched(directories)}
    task_keys = [k for k in different if role(k) not in _OF_METHODS and k not in of_methods]
    keys = [key for key in varied(runs, places) if key not in (*by, *task_keys)]
    # a swept key that is the same in all runs (a winner's) is a column all the same, but a method's alone
    values = {key: {plain(run.choices.get(key)) for run in runs} for key in keys}
    keys = [k for k in keys if k in different or role(k) in _OF_METHODS or len(values[k]) > 1]
    return task_keys, keys


def _searched(directories: Sequence[str]) -> list[str]:
    """The keys that the tunings to which these directories belong have searched: a method's own there."""
    places = [place for name in directories for place in (Path(name), Path(name).resolve().parent)]
    return [str(key) for place in places for key in (read_json(place / TUNING) or {}).get("searched", [])]


def _selecting(rivals: Sequence[Sequence[Run]]) -> str:
    """The metric that selects if none is named. Raises ConfigError if only some runs hold out samples."""
    held = [run.result(HELD_OUT) is not None for part in rivals for run in part]
    if any(held) and not all(held):
        allowed = f"must be named, since only some runs hold out samples: {HELD_OUT} or {TEST}"
        raise ConfigError("--metric", None, allowed)
    return HELD_OUT if held and all(held) else TEST


def _asked_by(metric: str) -> str:
    if metric in ("final_accuracy", "best_accuracy", "final_test_loss"):
        return "none has completed"
    name = metric.partition("_")[2]
    asks = "" if name.startswith(("validation_accuracy", "finetuned")) else "eval.metrics"
    asks = "eval.finetune_steps" if name.startswith("finetuned") else asks
    held = _VALIDATION if name.startswith("validation") else ""
    return " and ".join(filter(None, [held, asks]))


def _in_words(names: Sequence[str], runs: Sequence[Run]) -> tuple[dict[str, str], list[str]]:
    """The metrics' names in words, by what accuracies measure; and a sentence if runs differ in that."""

    def words(name: str, of: Sequence[Run]) -> str:
        title = style.axis(name, metric_of(run.summary for run in of))
        return title[0].lower() + title[1:]

    shown, last = {name: words(name, runs) for name in names}, names[-1]
    each = [*dict.fromkeys(words(last, [run]) for run in runs)]
    return shown, [f"{shown[last]}: {' or '.join(each)}, as a task has it"] if len(each) > 1 else []


def _chosen_by(chosen: str, ranked: str, shown: Mapping[str, str], several: bool) -> str:
    """What settings were selected and methods are ranked by, in words. `several`: whether a method has more
    than one setting."""
    means = f"{'lowest' if RANKS_BY[ranked] < 0 else 'highest'} mean {shown[ranked]}"
    if not several:
        return f"ranked by the {means}; one setting each, so nothing was selected"
    if chosen != ranked:
        return f"selected by the highest mean {shown[chosen]}, then ranked by the {means}"
    optimistic = "" if "validation" in chosen else ", on the test set itself, which makes it optimistic"
    return f"selected and ranked by the {means}{optimistic}"


def _left_out(ended_badly: int, lacking: int, metric: str) -> list[str]:
    reasons = {
        "a run failed, diverged or not ended": ended_badly,
        f"no {metric} ({_asked_by(metric)})": lacking,
    }
    return [f"{counted(n, 'setting')} left out: {why}" for why, n in reasons.items() if n]


def _absent(
    by: Sequence[str], known: Iterable[Mapping[str, Any]], ranked: Iterable[Mapping[str, Any]]
) -> list[str]:
    """A sentence if the `known` choices have values of `by`, such as methods, that the `ranked` ones lack."""

    def names(choices: Iterable[Mapping[str, Any]]) -> list[str]:
        whole = (one for one in choices if all(key in one for key in by))
        return [*dict.fromkeys(", ".join(word(one[key]) for key in by) for one in whole)]

    there = names(ranked)
    absent = [name for name in names(known) if name not in there]
    return [f"no result of {', '.join(absent)}"] if 0 < len(absent) <= FEW else []


def _starved(status: Sequence[str]) -> list[str]:
    """A sentence if runs that were ranked had too few clients for all their rounds."""
    text = (
        f"{status.count('starved')} of {counted(len(status), 'run')} starved: too few clients were left, so"
    )
    return [f"{text} they have fewer rounds than asked for"] if "starved" in status else []


def _held_out(runs: Sequence[Run]) -> list[str]:
    """A sentence if runs were trained without a part of their training samples."""
    shares = dict.fromkeys(number(run.choices.get(_VALIDATION)) or 0.0 for run in runs)
    said = " or ".join(f"{share:g}" for share in shares)
    text = f"trained without the share of every client's samples that is held out: {_VALIDATION}={said}"
    return [text] if any(shares) else []
