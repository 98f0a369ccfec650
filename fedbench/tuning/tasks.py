"""What a command line asks to tune: from overrides that sweep to a task for every method in every context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import IntervalSweep, Override
from omegaconf import OmegaConf

from fedbench.compose.composer import Composer, config_directories, lenient
from fedbench.compose.names import sweep_dir
from fedbench.compose.overrides import Value
from fedbench.config.config import Config
from fedbench.config.options import read_file
from fedbench.errors import ConfigError, UsageError
from fedbench.sweeps.grids import of_file, points, said
from fedbench.sweeps.launch import read as read_sweep
from fedbench.tuning.optuna_search import Optuna
from fedbench.tuning.pruning import RULES
from fedbench.tuning.search import Task, single
from fedbench.tuning.space import Range, Space, draws, is_grid

SEARCHES = ("grid", "random", "optuna")


@dataclass(frozen=True)
class How:
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

    def names(self, key: str) -> bool:
        """Whether a key is one of `keys`."""
        return key in self.keys or key.split(".")[-1] in self.keys


@dataclass(frozen=True)
class Asked:
    """A tuning. `words`: overrides of all runs; `seeds`: of the winners' runs; `config`: of the first run."""

    words: Sequence[str]
    tasks: Sequence[Task]
    methods: Sequence[str]  # the algorithm of every task
    seeds: Sequence[int]
    directory: Path
    config: Config


def read(overrides: Sequence[str], how: How) -> Asked:
    """What `fedbench tune OVERRIDES...` asks for, nothing written. Raises UserError."""
    composer = Composer(config_dir=how.config_dir)
    parsed, composed = read_sweep(composer, [lenient(text) for text in overrides])
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
        fixed, grids = said(params, plain, of_file(node.get("grids") or [], loader), loader)
    given = {text.partition("=")[0].lstrip("+") for text in fixed}
    searchpath = config_directories(cfg.hydra)
    made = [
        (task, method)
        for grid in grids
        for task, method in _tasks({**grid, **ranges}, given, config, how, searchpath)
    ]
    tasks, methods = [task for task, _ in made], [method for _, method in made]
    if how.keys and not any(task.space for task in tasks):
        raise UsageError(f"tune: --keys {','.join(how.keys)}: no method has values to try there")
    if how.prune != "none" and any("rounds" in task.fixed for task in tasks):
        raise UsageError(f"tune: --prune {how.prune}: rounds has several values, and rungs are shares of it")
    seeds = dict.fromkeys(seed for grid in grids for seed in grid.get("seed", [config.seed]))
    hydra = [str(item.input_line) for item in parsed if item.is_hydra_override()]
    place = _place(cfg, parsed)
    words = [text for text in hydra if not text.startswith("hydra.sweep.dir=")] + fixed
    if not any(text.startswith("hydra/launcher=") for text in words):
        words.insert(0, "hydra/launcher=processes")
    return Asked(words, tasks, methods, list(seeds), place, config)


def _tasks(
    grid: Space, given: set[str], config: Config, how: How, searchpath: Sequence[Path]
) -> list[tuple[Task, str]]:
    """The tasks of a grid: a search over what is searched, for each point of the rest."""
    many = {key for key, values in grid.items() if isinstance(values, Range) or len(values) > 1}
    swept = {key for key in many - {"seed"} if how.names(key) or (not how.keys and _tunes(key))}
    space = {key: values for key, values in grid.items() if key in swept}
    rest = {key: values for key, values in grid.items() if key not in {*swept, "seed"}}
    if not is_grid(rest):
        key = next(key for key, values in rest.items() if isinstance(values, Range))
        raise ConfigError(key, rest[key], f"an interval is for what is searched; name it: --keys {key}")
    made = []
    for context in points(rest):
        method = str(context.get("algorithm", config.algorithm.name))
        usual = {} if space else _usual(method, {*given, *context}, how, searchpath)
        made.append((_task(context, space or usual, how), method))
    return made


def _tunes(key: str) -> bool:
    return key.startswith("algorithm.")


def _usual(method: str, taken: set[str], how: How, searchpath: Sequence[Path]) -> dict[str, Sequence[Value]]:
    """The values of conf/grid, or of the user's file of that name, for keys that are not given."""
    files = [directory / "grid" / f"{method}.yaml" for directory in searchpath]
    file = next((file for file in files if file.is_file()), None)
    found = {f"algorithm.{key}": values for key, values in (read_file(file) if file else {}).items()}
    return {k: v for k, v in found.items() if k not in taken and (not how.keys or how.names(k))}


def _task(context: Mapping[str, Value], space: Space, how: How) -> Task:
    if not space or how.search == "grid":
        if not is_grid(space):
            key, values = next((k, v) for k, v in space.items() if isinstance(v, Range))
            allowed = "has no end of values for a grid; --search random or optuna draws from it"
            raise ConfigError(key, values, allowed)
        return Task(context, space, single(points(space)))
    if how.search == "random":
        return Task(context, space, single(draws(space, how.trials)))
    asks = Optuna(space, how.trials)
    return Task(context, space, single(asks.more(None)), asks=asks)


def _range(item: Override) -> Range:
    sweep = item.value()
    assert isinstance(sweep, IntervalSweep)
    low, high, log = sweep.start, sweep.end, "log" in sweep.tags
    if low is None or high is None or not low < high or (log and low <= 0):
        text = str(item.input_line).partition("=")[2]
        above = " above 0" if log else ""
        raise ConfigError(item.get_key_element(), text, f"must be interval(low, high), low < high{above}")
    return Range(low, high, log)


def _place(cfg: Any, parsed: Sequence[Override]) -> Path:
    """Where the user wants it, or a directory that follows from the configuration and what is swept."""
    HydraConfig.instance().set_config(cfg)
    if any(item.key_or_group == "hydra.sweep.dir" for item in parsed):
        return Path(str(cfg.hydra.sweep.dir))
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.overrides.task = [item.input_line for item in parsed if not item.is_hydra_override()]
    return Path("outputs/tune") / sweep_dir(cfg)


def check(how: How) -> None:
    """Refuse what cannot be meant. Raises UsageError."""
    for name, value, allowed in (("search", how.search, SEARCHES), ("prune", how.prune, tuple(RULES))):
        if value not in allowed:
            raise UsageError(f"tune: --{name} {value}: must be one of {', '.join(allowed)}")
    for name, count, least in (
        ("trials", how.trials, 1), ("seeds", how.seeds, 1), ("extend", how.extend, 0),
    ):  # fmt: skip
        if count < least:
            raise UsageError(f"tune: --{name} {count}: must be at least {least}")
