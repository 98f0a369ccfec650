"""`fedbench tune` from start to end: the request, the search, the winners' runs, two tables and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import IntervalSweep, Override
from omegaconf import OmegaConf

from fedbench.config.compose import Composer, config_directories
from fedbench.config.config import Config
from fedbench.config.options import read_file
from fedbench.config.overrides import Value
from fedbench.config.register import sweep_dir
from fedbench.errors import ConfigError, UsageError
from fedbench.files import write_text
from fedbench.sweeps.launch import Result, sweep_planned
from fedbench.sweeps.plan import forecast, grids_of, of_file, points
from fedbench.tuning.search import Optuna, Point, Range, Space, Stages, Task, draws, is_grid, search, single
from fedbench.tuning.selection import Selection, Trial, result_row, trials_table

SEARCHES = ("grid", "random", "optuna")
VALIDATION = "dataset.validation"
SHARE = 0.1  # default share of every client's training samples that a search holds out
RULE = (
    "the highest mean final {} over the seeds of the search; a diverged run counts 0 (an R2: minus infinity),"
    " a failed one is left out, the first of equals wins"
)
TO_TARGET = (
    "the fewest mean rounds to the target {} over the seeds of the search; a run that does not get there"
    " counts twice its rounds, a failed one is left out, the more accurate of equals wins"
)


@dataclass(frozen=True)
class TuneOptions:
    """How to search. `trials`: number per task, at random or by Optuna. `seeds`: how many of all seeds, from
    the first on, select the winner. `extend`: how often a search goes on past an edge. `keys`: the keys to
    search, dotted or by their last part (empty: the swept keys of `algorithm.*`, else the method's values in
    conf/grid). `metric`: one of eval.metrics to select by instead of the accuracy."""

    search: str = "grid"
    trials: int = 20
    seeds: int = 1
    extend: int = 2
    keys: Sequence[str] = ()
    config_dir: str | None = None
    metric: str | None = None

    def check(self) -> None:
        """Raise UsageError if a value is not allowed."""
        if self.search not in SEARCHES:
            raise UsageError(f"tune: --search {self.search}: must be one of {', '.join(SEARCHES)}")
        for name, least in (("trials", 1), ("seeds", 1), ("extend", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"tune: --{name} {getattr(self, name)}: must be at least {least}")

    def searches(self, key: str) -> bool:
        """Whether the swept values of a key are searched."""
        return self.names(key) if self.keys else key.startswith("algorithm.")

    def names(self, key: str) -> bool:
        """Whether a key is one of `keys`."""
        return key in self.keys or key.split(".")[-1] in self.keys


@dataclass(frozen=True)
class TuningPlan:
    """What to tune. `words`: overrides of all runs. `seeds`: all that are given. `config`: the first
    run's."""

    words: Sequence[str]
    tasks: Sequence[Task]
    seeds: Sequence[int]
    directory: Path
    config: Config
    options: TuneOptions

    @property
    def selecting(self) -> Sequence[int]:
        """The seeds used for selection."""
        return self.seeds[: self.options.seeds]

    @property
    def final(self) -> Sequence[int]:
        """The seeds of the winners' runs: those not used for selection, or all if there are none."""
        return self.seeds[self.options.seeds :] or self.seeds

    @property
    def rule(self) -> str:
        """How a winner is chosen."""
        whose = "validation" if self.config.dataset.validation else "test"
        measure = self.options.metric or "accuracy"
        return (RULE if self.config.target is None else TO_TARGET).format(f"{whose} {measure}")

    @property
    def announced(self) -> Iterator[str]:
        """Lines that say what will be done."""
        yield f"rule: {self.rule}"
        share = self.config.dataset.validation
        held = f"{VALIDATION}={share:g} of every client's training samples ({VALIDATION}=0: the test set)"
        yield f"selected by: {held if share else 'the test set, which makes the results optimistic'}"
        seeds = ", ".join(map(str, self.final))
        yield f"winners: measured on the test set with seed{'s' * (len(self.final) > 1)} {seeds}"
        for task in self.tasks:
            method, *context = task.named.items()
            name = ", ".join([str(method[1]), *(f"{key}={value}" for key, value in context)])
            if not task.space:
                yield f"{name}: nothing to search"
                continue
            count = self.options.trials if task.asks else len(task.first)
            over = "; ".join(
                f"{key} {', '.join(map(str, values)) if isinstance(values, Sequence) else values}"
                for key, values in task.space.items()
            )
            yield f"{name}: {self.options.search} search, {count} trials over {over}"


@dataclass(frozen=True)
class Tuned:
    """The outcome of a tuning: its directory, its two tables, and one line per failure."""

    directory: Path
    trials: pd.DataFrame
    results: pd.DataFrame
    failures: Sequence[str]

    @property
    def edges(self) -> list[str]:
        """The winners that still lie at an edge of the values tried, in words."""
        return [
            f"{row['algorithm']}: {edge.replace(':', ' is at the ')} end of what was tried"
            for row in self.results.to_dict("records")
            for edge in str(row["edge"]).split()
        ]


# ---- the request -----------------------------------------------------------------------------------------


def read(overrides: Sequence[str], options: TuneOptions) -> TuningPlan:
    """The plan that `fedbench tune OVERRIDES...` asks for. Writes nothing. Raises UserError."""
    options.check()
    composer = Composer(config_dir=options.config_dir)
    words = list(overrides)
    if not any(text.lstrip("+").startswith(f"{VALIDATION}=") for text in words):
        words.append(f"{VALIDATION}={SHARE}")
    composed = composer.read(words)
    cfg, parsed, config, loader = composed.cfg, composed.parsed, composed.config, composer.loader
    if config.checkpoint.until is not None:
        allowed = "must be null: trials are compared at their end"
        raise ConfigError("checkpoint.until", config.checkpoint.until, allowed)
    if options.metric and (options.metric not in config.eval.metrics or config.target is not None):
        allowed = "eval.metrics must name this metric, and target must be null"
        raise UsageError(f"tune: --metric {options.metric}: {allowed}")
    ranges = {item.get_key_element(): _range(item) for item in parsed if item.is_interval_sweep()}
    ours = [item for item in parsed if not item.is_hydra_override() and not item.is_interval_sweep()]
    node = cfg.hydra.sweeper
    params = {key: value for key, value in (node.get("params") or {}).items() if key not in ranges}
    with composer.one_line(overrides):
        plain = [str(item.input_line) for item in ours]
        fixed, grids = grids_of(params, plain, of_file(node.get("grids") or [], loader), loader)
    given = {text.partition("=")[0].lstrip("+") for text in fixed}
    searchpath = config_directories(cfg.hydra)
    tasks = [
        task for grid in grids for task in _tasks({**grid, **ranges}, given, config, options, searchpath)
    ]
    if options.keys and not any(task.space for task in tasks):
        raise UsageError(f"tune: --keys {','.join(options.keys)}: no method has values to try there")
    seeds = dict.fromkeys(seed for grid in grids for seed in grid.get("seed", [config.seed]))
    hydra = [str(item.input_line) for item in parsed if item.is_hydra_override()]
    place = _place(cfg, parsed)
    words = [text for text in hydra if not text.startswith("hydra.sweep.dir=")] + fixed
    if not any(text.startswith("hydra/launcher=") for text in words):
        words.insert(0, "hydra/launcher=processes")
    return TuningPlan(words, tasks, list(seeds), place, config, options)


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
    grid: Space, given: set[str], config: Config, options: TuneOptions, searchpath: Sequence[Path]
) -> Iterator[Task]:
    """The tasks of a grid: one for each point of the keys that are not searched. If no key of the grid is
    searched, a task searches the values of conf/grid, or of the user's file of that name, for keys that are
    not given."""
    many = {key for key, values in grid.items() if isinstance(values, Range) or len(values) > 1}
    swept = {key for key in many - {"seed"} if options.searches(key)}
    space = {key: values for key, values in grid.items() if key in swept}
    rest = {key: values for key, values in grid.items() if key not in {*swept, "seed"}}
    if not is_grid(rest):
        key = next(key for key, values in rest.items() if isinstance(values, Range))
        raise ConfigError(
            key, rest[key], f"only a searched key may be an interval; search it with --keys {key}"
        )
    for context in points(rest):
        method = str(context.get("algorithm", config.algorithm.name))
        files = [directory / "grid" / f"{method}.yaml" for directory in searchpath]
        file = None if space else next((file for file in files if file.is_file()), None)
        usual = {f"algorithm.{key}": values for key, values in (read_file(file) if file else {}).items()}
        taken = {*given, *context}
        usual = {k: v for k, v in usual.items() if k not in taken and (not options.keys or options.names(k))}
        searched = space or usual
        first, asks = _first(searched, options)
        yield Task(context, searched, single(first), asks=asks, metric=options.metric, algorithm=method)


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


def _place(cfg: Any, parsed: Sequence[Override]) -> Path:
    """The directory that the user gave, or one derived from the configuration and the swept keys."""
    HydraConfig.instance().set_config(cfg)
    if any(item.key_or_group == "hydra.sweep.dir" for item in parsed):
        return Path(str(cfg.hydra.sweep.dir))
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.overrides.task = [item.input_line for item in parsed if not item.is_hydra_override()]
    return Path("outputs/tune") / sweep_dir(cfg)


# ---- the work --------------------------------------------------------------------------------------------


def dry_run(overrides: Sequence[str], options: TuneOptions) -> Iterator[str]:
    """Yield lines that say what `tune` would do, and the disk and memory for the first trials. Writes
    nothing. Raises UserError if a run has invalid input."""
    plan = read(overrides, options)
    yield from plan.announced
    grids = [task.grid(values, plan.selecting) for task in plan.tasks for values in task.first]
    place = plan.directory / "trials"
    yield from forecast(*sweep_planned(plan.words, grids, place, options.config_dir))
    yield f"then {len(plan.tasks) * len(plan.final)} runs of the winners in {plan.directory / 'final'}"


def tune(overrides: Sequence[str], options: TuneOptions | None = None) -> Tuned:
    """Search, then run the winners; write trials.csv, results.csv and tuning.png (and .pdf).

    `overrides`: as on the command line. The keys of `algorithm.*` (or `options.keys`) that they sweep are
    searched, for every method and every point of the other swept keys. The same call goes on where another
    stopped. Raises UserError before anything is written if a run has invalid input; a run that fails does not
    stop the others.
    """
    options = options or TuneOptions()
    plan = read(overrides, options)
    print("\n".join(plan.announced), flush=True)
    stages, place = Stages(plan.words, plan.directory, options.config_dir), plan.directory
    selections = search(
        plan.tasks, plan.selecting, lambda grids: stages.run(place / "trials", grids), options.extend
    )
    found: list[tuple[Mapping[str, Value], Selection]] = []
    chosen = []
    for task, selection in zip(plan.tasks, selections, strict=True):
        method = task.named["algorithm"]
        if selection is None:
            stages.failures.append(f"all runs of {method} failed")
        elif selection.diverged:
            line = f"all {len(selection.trials)} configurations of {method} diverged"
            stages.failures.append(f"{line}: smaller step sizes are needed")
            found.append((task.named, replace(selection, winner={})))
        else:
            found.append((task.named, selection))
            chosen.append((task, selection))
    if not found:
        return Tuned(place, pd.DataFrame(), pd.DataFrame(), stages.failures)
    tried = _written(place / "trials.csv", trials_table(found))
    winners = [task.grid(single([won.winner])[0], plan.final) for task, won in chosen]
    runs = stages.run(place / "final", winners) if winners else []
    results = pd.DataFrame(
        [result_row(task.named, won, _final(task, won.winner, runs)) for task, won in chosen]
    )
    if len(results):
        _written(place / "results.csv", results)
    from fedbench.tuning.picture import draw

    draw(found, f"Winner: {plan.rule}.").save(place / "tuning")
    return Tuned(place, tried, results, stages.failures)


def _final(task: Task, winner: Mapping[str, Value], runs: Sequence[Result]) -> Trial:
    """The winner's runs, measured on the test set."""
    mine = [run for run in runs if task.owns(run) and all(run.choices.get(k) == v for k, v in winner.items())]
    return Trial(winner, mine)


def _written(file: Path, table: pd.DataFrame) -> pd.DataFrame:
    write_text(file, table.to_csv(index=False, lineterminator="\n"))
    return table
