"""What `fedbench tune KEY=VALUE...` asks for: tasks, their spaces, seeds, and lines that say so."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override
from omegaconf import OmegaConf, open_dict

from fedbench.config.compose import Composed, Composer, validate
from fedbench.config.config import EVAL_METRICS, Config
from fedbench.config.identity import digest
from fedbench.config.overrides import Grid, Value
from fedbench.config.places import SWEEPS, TUNINGS
from fedbench.errors import ConfigError, UsageError, word
from fedbench.figures.results import FINAL, TRIALS, TUNING
from fedbench.files import read_json, write_json
from fedbench.runs.metrics import SCORES, asked_by, columns, is_users, judging, sign, worst
from fedbench.sweeps.launch import Sweep
from fedbench.sweeps.plan import points
from fedbench.tuning.methods import defaults_of, smaller, usual_values
from fedbench.tuning.search import Optuna, Point, Range, Space, Task, draws, is_grid, single
from fedbench.tuning.tuning import Chosen, Stage, Tuning, TuningRuns

SEARCHES = ("grid", "random", "optuna")
VALIDATION = "dataset.validation"
SHARE = 0.1  # default share of every client's training samples that a search holds out
RULE = (
    "the {} mean final {} over the seeds of the search; a diverged run counts {}, a failed one is left out,"
    " the first of equals wins"
)
TO_TARGET = (
    "the fewest mean rounds to the target {} over the seeds of the search; a run that does not get there"
    " counts twice its rounds, a failed one is left out, the more accurate of equals wins"
)
_COUNTS_AS = {0.0: "0", -math.inf: "as minus infinity", math.inf: "as infinity"}


@dataclass(frozen=True)
class TuneOptions:
    """How to search. `trials`: number per task, at random or by Optuna. `seeds`: how many of all seeds, from
    the first on, select the winner. `extend`: how often a search goes on past an edge. `keys`: the keys to
    search, dotted or by their last part (empty: the swept keys of `algorithm.*`, else the method's values in
    conf/grid). `metric`: one of eval.metrics, or a column of metrics.csv, to select by, not by the accuracy.
    `small`: of the values in conf/grid, at most 20 points, nearest to the defaults."""

    search: str = "grid"
    trials: int = 20
    seeds: int = 1
    extend: int = 2
    keys: Sequence[str] = ()
    config_dir: str | None = None
    metric: str | None = None
    small: bool = False

    def check(self) -> None:
        """Raise UsageError if a value is not allowed."""
        for name, least in (("trials", 1), ("seeds", 1), ("extend", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"tune: --{name} {getattr(self, name)}: must be at least {least}")

    @property
    def chosen(self) -> dict[str, Any]:
        """The options that differ from their defaults; `keys` in alphabetical order."""
        usual = asdict(TuneOptions())
        own = {**asdict(self), "keys": tuple(sorted(set(self.keys)))}
        return {name: value for name, value in own.items() if value != usual[name]}

    def searches(self, key: str) -> bool:
        """Whether the swept values of a key are searched."""
        return self.names(key) if self.keys else key.startswith("algorithm.")

    def names(self, key: str) -> bool:
        """Whether a key is one of `keys`."""
        return key in self.keys or key.split(".")[-1] in self.keys


@dataclass(frozen=True)
class TuningPlan:
    """What to tune. `words`: overrides of all runs. `seeds`: all that are given. `runs`: where the runs lie
    (None: below `directory`, which the user has given). `config`: the first run's."""

    words: Sequence[str]
    tasks: Sequence[Task]
    seeds: Sequence[int]
    directory: Path
    runs: Path | None
    config: Config
    options: TuneOptions
    left_alone: Sequence[str] = ()  # what is not searched, in lines

    @property
    def selecting(self) -> Sequence[int]:
        """The seeds used for selection."""
        return self.seeds[: self.options.seeds]

    @property
    def final(self) -> Sequence[int]:
        """The seeds of the winners' runs: those not used for selection, or all if there are none."""
        return self.seeds[self.options.seeds :] or self.seeds

    @property
    def measure(self) -> str:
        """What selects: `validation accuracy`, `test perplexity`, `client_accuracy_worst`."""
        return judging(self.options.metric, self.config.dataset.validation > 0)

    @property
    def rule(self) -> str:
        """How a winner is chosen."""
        if self.config.target is not None:
            return TO_TARGET.format(self.measure)
        best = "lowest" if sign(self.measure) < 0 else "highest"
        counts = _COUNTS_AS[worst(self.measure)]
        counts += "" if self.options.metric else " (an R2: as minus infinity)"
        return RULE.format(best, self.measure, counts)

    @property
    def of_winners(self) -> str:
        """How the winners are measured: with which seeds, and trained on what."""
        chose, n = _counted_seeds(self.selecting), len(self.final)
        said = f"measured on the test set with {_counted_seeds(self.final)}: n = {n}, "
        independent = not set(self.final) & set(self.selecting)
        said += f"since {chose} selected" if independent else f"though {chose} selected too"
        share = self.config.dataset.validation
        if share:
            said += f"; trained without the held-out {share:g} of the training samples"
            said += f" (on everything: fedbench tune {self.directory} {VALIDATION}=0)"
        return said

    def tuning(self, finals: Callable[[Chosen], Mapping[Path, Sequence[Grid]]]) -> Tuning:
        """What computes it. `finals`: see `Tuning`. A finished trial keeps what its tables need, unless the
        user says otherwise."""
        trials = TuningRuns(
            ["checkpoint.keep=false", *self.words], self.runs, self.options.config_dir, begun=self.begin
        )
        winners = TuningRuns(self.words, self.runs, self.options.config_dir)
        stage = Stage(self.directory / TRIALS, self.tasks, trials)
        return Tuning([stage], self.selecting, finals, winners, self.options.extend)

    def begin(self) -> None:
        """Write tune.json, by which the directory is a tuning's."""
        write_json(self.directory / TUNING, self.said)

    @property
    def said(self) -> dict[str, Any]:
        """The content of tune.json before the search has ended. Then `tasks` are those that have a winner."""
        return {
            "rule": self.rule,
            "options": self.options.chosen,
            "metric": self.options.metric,
            "held_out": self.config.dataset.validation,
            "seeds": {"select": list(self.selecting), "measure": list(self.final)},
            "searched": list(dict.fromkeys(key for task in self.tasks for key in task.space)),
            "tasks": [task.named for task in self.tasks],
            "words": list(self.words),
            "config_dir": self.options.config_dir,
            "runs": None if self.runs is None else str(self.runs),
            "winners": None,
        }

    @property
    def announced(self) -> Iterator[str]:
        """Lines that say what will be done."""
        yield f"rule: {self.rule}"
        share = self.config.dataset.validation
        held = f"{VALIDATION}={share:g} of every client's training samples ({VALIDATION}=0: the test set)"
        yield f"selected by: {held if share else 'the test set, which makes the results optimistic'}"
        yield f"winners: {self.of_winners}"
        for task in self.tasks:
            if not task.space:
                yield f"{task.words}: nothing to search"
                continue
            count = self.options.trials if task.asks else len(task.first)
            over = "; ".join(
                f"{key} {', '.join(map(str, values)) if isinstance(values, Sequence) else values}"
                for key, values in task.space.items()
            )
            yield f"{task.words}: {self.options.search} search, {count} trials over {over}"
        yield from self.left_alone


def _counted_seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def read(overrides: Sequence[str], options: TuneOptions) -> TuningPlan:
    """The plan that `fedbench tune OVERRIDES...` asks for. Writes nothing. Raises UserError."""
    options.check()
    composer = Composer(config_dir=options.config_dir)
    words = list(overrides)
    if not any(text.lstrip("+").startswith(f"{VALIDATION}=") for text in words):
        words.append(f"{VALIDATION}={SHARE}")
    composed = composer.read(words)
    parsed = composed.parsed
    ranges = {item.get_key_element(): _range(item) for item in parsed if item.is_interval_sweep()}
    asked = Sweep(composer, composed)
    with composer.one_line(overrides):
        wanted = asked.wanted(ranges)
    fixed, grids, searchpath = wanted.fixed, wanted.grids, wanted.searchpath
    spaces: list[Space] = [{**grid, **ranges} for grid in grids]
    first = str(OmegaConf.select(composed.cfg, "algorithm.name"))
    names = dict.fromkeys(str(name) for grid in grids for name in grid.get("algorithm", [first]))
    keys = {method: defaults_of(method, searchpath) for method in [*names, first]}
    config = _of_first(composed, keys, searchpath)
    if config.checkpoint.until is not None:
        allowed = "must be null: trials are compared at their end"
        raise ConfigError("checkpoint.until", config.checkpoint.until, allowed)
    if options.metric and (lacking := _not_measured(options.metric, config)):
        raise UsageError(f"tune: --metric {options.metric}: {lacking}")
    given = {text.partition("=")[0].lstrip("+") for text in fixed}
    tasks = [task for grid in spaces for task in _tasks(grid, given, first, options, keys, searchpath)]
    if options.keys and not any(task.space for task in tasks):
        raise UsageError(f"tune: --keys {','.join(options.keys)}: no method has values to try there")
    seeds = dict.fromkeys(seed for grid in grids for seed in grid.get("seed", [config.seed]))
    hydra = [str(item.input_line) for item in parsed if item.is_hydra_override()]
    place = asked.directory
    if asked.runs is None:  # the user has named the directory
        _refuse_another(place, options)
    else:
        place = Path(TUNINGS) / place.relative_to(SWEEPS)
        place = place.with_name(digest([place.name, options.chosen])) if options.chosen else place
    words = [text for text in hydra if not text.startswith("hydra.sweep.dir=")] + [*fixed]
    left_alone = list(_left_alone(spaces, given, tasks, keys, searchpath))
    return TuningPlan(words, tasks, list(seeds), place, asked.runs, config, options, left_alone)


def _not_measured(metric: str, config: Config) -> str:
    """Why a tuning cannot select by a metric; empty if it can."""
    if config.target is not None:
        return "target must be null"
    known = (*EVAL_METRICS, *config.eval.metrics, *SCORES)
    if metric not in known and not (is_users(metric) and metric in columns(config.eval, True)):
        allowed = f"must be one of {', '.join(EVAL_METRICS)}, or a measured column of metrics.csv"
        raise ConfigError("--metric", metric, allowed, known)
    if metric in EVAL_METRICS or metric in config.eval.metrics:
        return "" if metric in config.eval.metrics else "eval.metrics must name this metric"
    asked, there = asked_by(metric), columns(config.eval, config.dataset.validation > 0)
    measured = metric in there and all(config.choices.get(key) for key in asked)
    return "" if measured else f"asks for {' and '.join(asked)}"


def _refuse_another(place: Path, options: TuneOptions) -> None:
    """Raise UsageError if `place` holds the winners of a tuning with other options: both tunings' winners
    would be in its list."""
    said = read_json(place / TUNING)
    if said is None or not (place / FINAL).is_dir():
        return
    before, now = said["options"], options.chosen
    for name, usual in asdict(TuneOptions()).items():
        old, new = (_argument(name, chosen.get(name, usual)) for chosen in (before, now))
        if old != new:
            raise UsageError(f"tune: {new}: must be {old} in {place}, which holds that tuning's winners")


def _argument(name: str, value: Any) -> str:
    """An option as on the command line."""
    option = f"--{name.replace('_', '-')}"
    if value in (None, ()) or value is False:
        return f"no {option}"
    return option if value is True else f"{option} {','.join(value) if name == 'keys' else value}"


_Keys = Mapping[str, Mapping[str, Value]]
"""Method -> its keys, with their defaults."""


def _has(keys: Mapping[str, Value], key: str) -> bool:
    """Whether a run of a method with these keys has a dotted key."""
    group, _, last = key.lstrip("+").partition(".")
    return group != "algorithm" or not last or last.split(".")[0] in keys


def _of_first(composed: Composed, keys: _Keys, searchpath: Sequence[Path]) -> Config:
    """The first run's configuration. What is said of a key that only other methods have does not count."""
    job = copy.deepcopy(composed.job)
    own = keys[str(job.algorithm.name)]
    for key in dict.fromkeys(item.get_key_element().lstrip("+") for item in composed.parsed):
        if not _has(own, key):
            if not any(_has(others, key) for others in keys.values()):
                known = [f"algorithm.{name}" for others in keys.values() for name in others]
                value = OmegaConf.select(job, key)
                raise ConfigError(key, value, f"must be a key of {' or '.join(keys)}", known)
            with open_dict(job.algorithm):
                job.algorithm.pop(key.split(".")[1], None)
    return validate(job, searchpath) if job != composed.job else composed.config


def _range(item: Override) -> Range:
    sweep = item.value()
    assert isinstance(sweep, IntervalSweep)
    low, high, log = sweep.start, sweep.end, "log" in sweep.tags
    if low is None or high is None or not low < high or (log and low <= 0):
        text = str(item.input_line).partition("=")[2]
        above = " above 0" if log else ""
        raise ConfigError(item.get_key_element(), text, f"must be interval(low, high), low < high{above}")
    return Range(low, high, log)


def _tasks(
    grid: Space, given: set[str], first: str, options: TuneOptions, keys: _Keys, searchpath: Sequence[Path]
) -> Iterator[Task]:
    """The tasks of a grid: one for each point of the keys that are not searched. If no key of the grid is
    searched, a task searches the method's usual values, for keys that are not given. A method is not asked
    for a key that it does not have. `first`: the method, if the grid has none."""
    many = {key for key, values in grid.items() if isinstance(values, Range) or len(values) > 1}
    swept = {key for key in many - {"seed"} if options.searches(key)}
    space = {key: values for key, values in grid.items() if key in swept}
    rest = {key: values for key, values in grid.items() if key not in {*swept, "seed"}}
    if not is_grid(rest):
        key = next(key for key, values in rest.items() if isinstance(values, Range))
        raise ConfigError(
            key, rest[key], f"only a searched key may be an interval; search it with --keys {key}"
        )
    done: list[Mapping[str, Value]] = []
    for point in points(rest):
        method = str(point.get("algorithm", first))
        own = keys[method]
        context = {key: value for key, value in point.items() if _has(own, key)}
        if context in done:  # they differ in a key of another method
            continue
        done.append(context)
        searched: Space = {key: values for key, values in space.items() if _has(own, key)}
        if not space:
            usual = usual_values(method, searchpath)
            free = {k: v for k, v in usual.items() if k not in given and k not in context}
            free = {k: v for k, v in free.items() if not options.keys or options.names(k)}
            searched = smaller(free, own) if options.small else free
        start, asks = _first(searched, options)
        called = {"algorithm": method, **context}
        yield Task(context, searched, single(start), asks=asks, metric=options.metric, called=called)


def _left_alone(
    grids: Sequence[Space], given: set[str], tasks: Sequence[Task], keys: _Keys, searchpath: Sequence[Path]
) -> Iterator[str]:
    """For every method a line on the keys of the command that it does not have, and one on those with usual
    values that stay at their defaults."""
    asked = dict.fromkeys([*(key for grid in grids for key in grid), *sorted(given)])
    for method in dict.fromkeys(str(task.named["algorithm"]) for task in tasks):
        if idle := [key for key in asked if not _has(keys[method], key)]:
            yield f"{method} has no {' nor '.join(idle)}, which is for the other methods alone"
        mine = [task for task in tasks if task.named["algorithm"] == method]
        taken = {*given, *(key for task in mine for key in (*task.space, *task.fixed))}
        kept = [f"{key}={word(keys[method].get(key.removeprefix('algorithm.')))}"
                for key in usual_values(method, searchpath) if key not in taken]  # fmt: skip
        if kept:
            yield f"{method} keeps untuned: {', '.join(kept)} (conf/grid has values; --keys searches them)"


def _first(space: Space, options: TuneOptions) -> tuple[Iterable[Point], Optuna | None]:
    """The points to try first, and what proposes the next ones. Raises ConfigError for a range in a grid."""
    if space and options.search == "optuna":
        asks = Optuna(space, options.trials)
        return asks.more(None), asks
    if space and options.search == "random":
        return draws(space, options.trials), None
    if not is_grid(space):
        key, values = next((k, v) for k, v in space.items() if isinstance(v, Range))
        allowed = "is an interval, which a grid cannot list; use --search random or optuna"
        raise ConfigError(key, values, allowed)
    return points(space), None
