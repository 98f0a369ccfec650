"""`fedbench tune` from start to end: what is asked for, the search, the winners over all seeds, two tables
and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import IntervalSweep, Override
from omegaconf import OmegaConf

from fedbench.config.compose import Composer, config_directories
from fedbench.config.config import Config
from fedbench.config.options import read_file
from fedbench.config.overrides import Grid, Value
from fedbench.config.register import sweep_dir
from fedbench.errors import ConfigError, UsageError
from fedbench.files import write_text
from fedbench.sweeps.launch import Result, sweep
from fedbench.sweeps.plan import grids_of, of_file, points
from fedbench.tuning.search import RULES, Rungs, Task, search, single
from fedbench.tuning.selection import Trial, result_row, select, trials_table
from fedbench.tuning.space import Optuna, Range, Space, draws, is_grid

SEARCHES = ("grid", "random", "optuna")
RULE = (
    "the highest mean final test accuracy over the seeds of the search; a diverged run counts 0 (an R2: minus"
    " infinity), a failed one is left out, the first of equals wins"
)
TO_TARGET = (
    "the fewest mean rounds to the target over the seeds of the search; a run that does not get there counts"
    " twice its rounds, a failed one is left out, the more accurate of equals wins"
)


@dataclass(frozen=True)
class TuneOptions:
    """How to search. `trials`: of each task, at random or by Optuna; `seeds`: of all seeds, the first so many
    are selected by; `extend`: how often a search goes on past an edge; `keys`: what is searched, by its last
    part or dotted (empty: what is swept of `algorithm.*`, else the method's values in conf/grid)."""

    search: str = "grid"
    trials: int = 20
    prune: str = "none"
    seeds: int = 1
    extend: int = 2
    keys: Sequence[str] = ()
    config_dir: str | None = None

    def check(self) -> None:
        """Refuse what cannot be meant. Raises UsageError."""
        for name, value, allowed in (("search", self.search, SEARCHES), ("prune", self.prune, tuple(RULES))):
            if value not in allowed:
                raise UsageError(f"tune: --{name} {value}: must be one of {', '.join(allowed)}")
        for name, count, least in (
            ("trials", self.trials, 1),
            ("seeds", self.seeds, 1),
            ("extend", self.extend, 0),
        ):
            if count < least:
                raise UsageError(f"tune: --{name} {count}: must be at least {least}")

    def searches(self, key: str) -> bool:
        """Whether what is swept of a key is searched."""
        return self.names(key) if self.keys else key.startswith("algorithm.")

    def names(self, key: str) -> bool:
        """Whether a key is one of `keys`."""
        return key in self.keys or key.split(".")[-1] in self.keys


@dataclass(frozen=True)
class TuningPlan:
    """What is to be tuned. `words`: overrides of all runs; `methods`: the algorithm of every task; `seeds`:
    of the winners' runs; `config`: of the first run."""

    words: Sequence[str]
    tasks: Sequence[Task]
    methods: Sequence[str]
    seeds: Sequence[int]
    directory: Path
    config: Config


@dataclass(frozen=True)
class Tuned:
    """What came of a tuning: its directory, its two tables, and the lines of what failed."""

    directory: Path
    trials: pd.DataFrame
    results: pd.DataFrame
    failures: Sequence[str]

    @property
    def edges(self) -> list[str]:
        """The winners that still lie at an edge of what was tried, in words."""
        return [
            f"{row['algorithm']}: {edge.replace(':', ' is at the ')} end of what was tried"
            for row in self.results.to_dict("records")
            for edge in str(row["edge"]).split()
        ]


# ---- what is asked for -----------------------------------------------------------------------------------


def read(overrides: Sequence[str], options: TuneOptions) -> TuningPlan:
    """What `fedbench tune OVERRIDES...` asks for, nothing written. Raises UserError."""
    composer = Composer(config_dir=options.config_dir)
    parsed, composed = composer.read(overrides)
    cfg, config, loader = composed.cfg, composed.config, composer.loader
    if config.checkpoint.until is not None:
        allowed = "must be null: where trials pause is for --prune to say"
        raise ConfigError("checkpoint.until", config.checkpoint.until, allowed)
    ranges = {item.get_key_element(): _range(item) for item in parsed if item.is_interval_sweep()}
    ours = [item for item in parsed if not item.is_hydra_override() and not item.is_interval_sweep()]
    node = cfg.hydra.sweeper
    params = {key: value for key, value in (node.get("params") or {}).items() if key not in ranges}
    with composer.one_line(overrides):
        plain = [str(item.input_line) for item in ours]
        fixed, grids = grids_of(params, plain, of_file(node.get("grids") or [], loader), loader)
    given = {text.partition("=")[0].lstrip("+") for text in fixed}
    searchpath = config_directories(cfg.hydra)
    made = [
        (task, method)
        for grid in grids
        for task, method in _tasks({**grid, **ranges}, given, config, options, searchpath)
    ]
    tasks, methods = [task for task, _ in made], [method for _, method in made]
    if options.keys and not any(task.space for task in tasks):
        raise UsageError(f"tune: --keys {','.join(options.keys)}: no method has values to try there")
    if options.prune != "none" and any("rounds" in task.fixed for task in tasks):
        why = "rounds has several values, and rungs are shares of it"
        raise UsageError(f"tune: --prune {options.prune}: {why}")
    seeds = dict.fromkeys(seed for grid in grids for seed in grid.get("seed", [config.seed]))
    hydra = [str(item.input_line) for item in parsed if item.is_hydra_override()]
    place = _place(cfg, parsed)
    words = [text for text in hydra if not text.startswith("hydra.sweep.dir=")] + fixed
    if not any(text.startswith("hydra/launcher=") for text in words):
        words.insert(0, "hydra/launcher=processes")
    return TuningPlan(words, tasks, methods, list(seeds), place, config)


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
) -> list[tuple[Task, str]]:
    """The tasks of a grid: a search over what is searched, for each point of the rest; where nothing is, over
    the values of conf/grid, or of the user's file of that name, for keys that are not given."""
    many = {key for key, values in grid.items() if isinstance(values, Range) or len(values) > 1}
    swept = {key for key in many - {"seed"} if options.searches(key)}
    space = {key: values for key, values in grid.items() if key in swept}
    rest = {key: values for key, values in grid.items() if key not in {*swept, "seed"}}
    if not is_grid(rest):
        key = next(key for key, values in rest.items() if isinstance(values, Range))
        raise ConfigError(key, rest[key], f"an interval is for what is searched; name it: --keys {key}")
    made = []
    for context in points(rest):
        method = str(context.get("algorithm", config.algorithm.name))
        files = [directory / "grid" / f"{method}.yaml" for directory in searchpath]
        file = None if space else next((file for file in files if file.is_file()), None)
        usual = {f"algorithm.{key}": values for key, values in (read_file(file) if file else {}).items()}
        taken = {*given, *context}
        usual = {k: v for k, v in usual.items() if k not in taken and (not options.keys or options.names(k))}
        made.append((_task(context, space or usual, options), method))
    return made


def _task(context: Mapping[str, Value], space: Space, options: TuneOptions) -> Task:
    if not space or options.search == "grid":
        if not is_grid(space):
            key, values = next((k, v) for k, v in space.items() if isinstance(v, Range))
            allowed = "has no end of values for a grid; --search random or optuna draws from it"
            raise ConfigError(key, values, allowed)
        return Task(context, space, single(points(space)))
    if options.search == "random":
        return Task(context, space, single(draws(space, options.trials)))
    asks = Optuna(space, options.trials)
    return Task(context, space, single(asks.more(None)), asks=asks)


def _place(cfg: Any, parsed: Sequence[Override]) -> Path:
    """Where the user wants it, or a directory that follows from the configuration and what is swept."""
    HydraConfig.instance().set_config(cfg)
    if any(item.key_or_group == "hydra.sweep.dir" for item in parsed):
        return Path(str(cfg.hydra.sweep.dir))
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.overrides.task = [item.input_line for item in parsed if not item.is_hydra_override()]
    return Path("outputs/tune") / sweep_dir(cfg)


# ---- what is done ----------------------------------------------------------------------------------------


def tune(overrides: Sequence[str], options: TuneOptions | None = None) -> Tuned:
    """Search, then run the winners over all seeds; write trials.csv, results.csv and tuning.png (and .pdf).

    `overrides`: as on the command line; what they sweep of `algorithm.*` (or `options.keys`) is searched, for
    every method and every point of what else they sweep. The same call goes on where another stopped. Raises
    UserError before anything is written where a run is bad input; a run that fails does not stop the others.
    """
    options = options or TuneOptions()
    options.check()
    plan = read(overrides, options)
    stages = _Stages(plan, options.config_dir)
    rule = RULE if plan.config.target is None else TO_TARGET
    print("\n".join([f"rule: {rule}", *_announced(plan, options)]), flush=True)
    rungs = Rungs(stages.trials, plan.tasks, options.prune, plan.config.rounds, plan.config.eval.final_k)
    found = search(plan.tasks, plan.seeds[: options.seeds], rungs, options.extend)
    lost = [method for method, selection in zip(plan.methods, found, strict=True) if selection is None]
    stages.failures += [f"all runs of {method} failed" for method in lost]
    chosen = [
        (task, {"algorithm": method, **task.fixed}, selection)
        for task, method, selection in zip(plan.tasks, plan.methods, found, strict=True)
        if selection is not None
    ]
    if not chosen:
        return Tuned(plan.directory, pd.DataFrame(), pd.DataFrame(), stages.failures)
    searches = [(fixed, selection) for _, fixed, selection in chosen]
    tried = _written(plan.directory / "trials.csv", trials_table(searches))
    winners = [task.grid({k: [v] for k, v in won.winner.items()}, plan.seeds) for task, _, won in chosen]
    runs = stages.run("final", winners)
    rows = [result_row(fixed, won, _final(task, won.winner, runs)) for task, fixed, won in chosen]
    results = _written(plan.directory / "results.csv", pd.DataFrame(rows))
    from fedbench.tuning.picture import draw

    draw(searches, f"Winner: {rule}.").save(plan.directory / "tuning")
    return Tuned(plan.directory, tried, results, stages.failures)


def _announced(plan: TuningPlan, options: TuneOptions) -> list[str]:
    """What is going to be done, as a line for each task."""
    lines = []
    for task, method in zip(plan.tasks, plan.methods, strict=True):
        name = ", ".join([method, *(f"{k}={v}" for k, v in task.fixed.items() if k != "algorithm")])
        if not task.space:
            lines.append(f"{name}: nothing to search")
            continue
        count = options.trials if task.asks else len(task.first)
        over = "; ".join(
            f"{key} {', '.join(map(str, values)) if isinstance(values, Sequence) else values}"
            for key, values in task.space.items()
        )
        lines.append(f"{name}: {options.search} search, {count} trials over {over}")
    return lines


def _final(task: Task, winner: Mapping[str, Value], runs: Sequence[Result]) -> Trial:
    """The winner's runs over all seeds."""
    mine = [run for run in runs if task.owns(run) and all(run.choices.get(k) == v for k, v in winner.items())]
    found = select(mine, list(winner))
    return found.trials[0] if found else Trial(winner, mine)


def _written(file: Path, table: pd.DataFrame) -> pd.DataFrame:
    write_text(file, table.to_csv(index=False, lineterminator="\n"))
    return table


@dataclass
class _Stages:
    """The sweeps of a tuning, `trials` and `final`. Failed runs are noted, and the others go on."""

    plan: TuningPlan
    config_dir: str | None
    failures: list[str] = field(default_factory=list)

    def trials(self, grids: Sequence[Grid], until: int | None) -> list[Result]:
        """Run trials as far as a round (None: to the end)."""
        return self.run("trials", grids, [f"checkpoint.until={until}"] if until is not None else [])

    def run(self, stage: str, grids: Sequence[Grid], more: Sequence[str] = ()) -> list[Result]:
        """Run what is missing of a stage."""
        place = self.plan.directory / stage
        results = sweep([*self.plan.words, *more], grids, place, self.plan.directory, self.config_dir)
        failed = [result for result in results if result.status == "failed"]
        if failed:
            count = f"{len(failed)} of {len(results)} runs failed"
            self.failures.append(f"{stage}: {count}: {failed[0].error} (see {place / 'runs.csv'})")
        return results
