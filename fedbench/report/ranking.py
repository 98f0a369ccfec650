"""Which setting of every method is the best, task by task: the content of `fedbench best`.

A task is what methods are compared on: data, partition, model, schedule, rounds, ... Settings of one method
differ in hyper-parameters and in its local work. Numbers of different tasks are never compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.config.config import METHOD, RATES, role
from fedbench.config.grouping import differing, in_order, one_per_seed, plain, split
from fedbench.errors import FEW, ConfigError, DataError, counted, word
from fedbench.figures import style
from fedbench.figures.results import FINAL, TUNING, dotted, read, sweeps_of, without_numbers
from fedbench.files import read_json
from fedbench.report.columns import Column, Columns, Shown, Standing
from fedbench.report.runs import varied
from fedbench.runs.metrics import asked_by, column_of, outcome_of, sign
from fedbench.runs.records import Run, number
from fedbench.runs.run_directory import FINISHED
from fedbench.sweeps.formats import table

TEST, HELD_OUT = "final_accuracy", "final_validation_accuracy"
_OF_METHODS = (METHOD, RATES)
"""The roles of keys that are a method's; every other key in which runs differ sets tasks apart."""
_VALIDATION = "dataset.validation"
_RANKED = ("completed", "starved")
"""Statuses of runs with a final result. That a schedule leaves too few clients is a part of the task."""
_Key = tuple[Hashable, ...]
_USUAL = Shown()


@dataclass(frozen=True)
class Ranking:
    """The best settings. `tasks`: task -> its standings, the best first. `task_keys`, `by`, `keys`: what sets
    tasks apart, what makes a line, and what else a setting has. `columns`: those of numbers; `for_paper`:
    those of a paper's table. `notes`: what a reader must know, as sentences."""

    tasks: Mapping[_Key, Sequence[Standing]]
    task_keys: Sequence[str]
    by: Sequence[str]
    keys: Sequence[str]
    columns: Sequence[Column]
    for_paper: Sequence[Column]
    notes: Sequence[str]

    def text(self) -> str:
        """All settings with all their keys, the notes, and the directories of the best of every task."""
        keys = [*self.task_keys, *self.by, *self.keys]
        lines = [[*keys, *(column.title for column in self.columns), "n"]]
        for one in (one for standings in self.tasks.values() for one in standings):
            values = [one.choices.get(key, "") for key in keys]  # empty: its options lack the key
            cells = ["null" if value is None else str(value) for value in values]
            lines.append([*cells, *(column.cell(one) for column in self.columns), str(len(one.runs))])
        best = [standings[0] for standings in self.tasks.values()]
        places = [place for one in best for place in ("", *(run.source for run in one.runs))]
        return "\n".join([table(lines), *(f"({note})" for note in self.notes), *places])

    def of_paper(self, form: str) -> str:
        """A table for a paper, in Markdown or LaTeX: a line per method by its title, and for each task its
        columns, by default one with mean and standard deviation. The best of a task is bold; those whose mean
        is within its standard deviation are underlined."""
        lines: dict[str, dict[_Key, Standing]] = {}
        for task, standings in self.tasks.items():
            for one in standings:
                lines.setdefault(style.line(self.by, one.choices, one.runs[0].title), {})[task] = one
        titles, cells, bold, underlined = [], [], set(), set()
        for task, standings in self.tasks.items():
            called = style.line(self.task_keys, standings[0].choices)
            for column in self.for_paper:
                titles.append(": ".join(filter(None, [called, column.title * (self._is_wide or not called)])))
                best, near = column.best(standings)
                for row, found in enumerate(lines.values(), start=1):
                    if found.get(task) is best is not None:
                        bold.add((row, len(titles)))
                    elif any(found.get(task) is one for one in near):
                        underlined.add((row, len(titles)))
                cells.append([column.cell(one[task]) if task in one else "-" for one in lines.values()])
        rows = [["method" if "algorithm" in self.by else ", ".join(self.by), *titles, "n"]]
        for name, found, *numbers in zip(lines, lines.values(), *cells, strict=True):
            counts = dict.fromkeys(str(len(one.runs)) for one in found.values())
            rows.append([name, *numbers, "/".join(counts)])
        return table(rows, form, bold, underlined)

    @property
    def _is_wide(self) -> bool:
        return len(self.for_paper) > 1


def rank(
    directories: Sequence[str], by: Sequence[str], metric: str | None = None, shown: Shown = _USUAL
) -> Ranking:
    """Rank the best setting of every value of the keys `by`, task by task.

    `metric`: what selects and ranks settings. By default the accuracy on held-out samples selects, where all
    runs have them, and the test accuracy ranks. `shown`: what is shown of them. A setting of which a run
    failed, diverged or has not ended is left out. Starved runs are ranked. A seed that was run twice counts
    once. Raises DataError, ConfigError.
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
    chosen, ranked = (outcome_of(metric),) * 2 if metric else (_selecting(rivals), TEST)
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
        methods = tasks.setdefault(setting[:first], {})
        methods.setdefault(setting[first : first + len(by)], []).append(Standing(part))

    def best(name: str) -> Callable[[Standing], float]:
        return lambda one: -sign(name) * one.mean(name)

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
    columns = Columns(shown, ranked, by, found.values())
    places = {place for one in directories for place in sweeps_of(Path(one))}
    places |= {place for run in runs for place in run.directory.parents}
    of_tuning = any(place.name.startswith(FINAL) and (place.parent / TUNING).is_file() for place in places)
    how = _chosen_by(chosen, ranked, columns, bool(rivals), of_tuning)
    notes += [*_measured(ranked, columns, whole.values()), how]
    notes += [*_held_out(runs), *_starved([run.status for part in whole.values() for run in part])]
    of_text, of_paper = columns.of([*dict.fromkeys([chosen, ranked])]), columns.of([ranked])
    keys = keys if not shown.names else []
    return Ranking(found, task_keys, by, keys, of_text, of_paper, [*notes, *columns.notes()])


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
    """Which keys ask for a metric."""
    if metric in ("final_accuracy", "best_accuracy", "final_test_loss"):
        return "none has completed"
    return " and ".join(asked_by(column_of(metric))) or "none has completed"


def _measured(ranked: str, columns: Columns, parts: Iterable[Sequence[Run]]) -> list[str]:
    """Sentences if runs differ in what is measured, or in whose models are."""
    runs = [run for part in parts for run in part]
    each = [*dict.fromkeys(columns.words(ranked, [run]) for run in runs)]
    said = [f"{columns.words(ranked)}: {' or '.join(each)}, as a task has it"] if len(each) > 1 else []
    whose = {str(run.choices.get("algorithm")): bool(run.summary.get("own_models")) for run in runs}
    if len({*whose.values()}) > 1 and column_of(ranked).startswith(("test_", "validation_")):
        own = ", ".join(name for name, is_own in whose.items() if is_own)
        said.append(
            f"of {own} a mean over clients, each with a model of its own, of the others one model's over all "
            "samples: final_client_accuracy_mean (eval.clients=true) is a mean over clients of all"
        )
    return said


def _chosen_by(chosen: str, ranked: str, columns: Columns, several: bool, of_tuning: bool) -> str:
    """What settings were selected and methods are ranked by, in words. `several`: whether a method has more
    than one setting; `of_tuning`: whether they are the winners of a tuning."""
    means = f"{'lowest' if sign(ranked) < 0 else 'highest'} mean {columns.words(ranked)}"
    if not several:
        how = "the winner of a tuning" if of_tuning else "one setting"
        return f"ranked by the {means}; {how} each{', so nothing was selected' * (not of_tuning)}"
    if chosen != ranked:
        return f"selected by the highest mean {columns.words(chosen)}, then ranked by the {means}"
    on_test = any(word in chosen for word in ("test", "accuracy")) and "validation" not in chosen
    optimistic = ", on the test set itself, which makes it optimistic" if on_test else ""
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
