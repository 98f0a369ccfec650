"""Planning a sweep: the values that a command line, a file and a caller sweep over become points of grids,
and points become runs, checked before the first one starts. Also `--dry-run`: what would run."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from fedbench.config.config import SEED, Config, role
from fedbench.config.identity import digest
from fedbench.config.options import option_keys
from fedbench.config.overrides import Grid, Value, listed, parse, typed, written
from fedbench.errors import UsageError, UserError, counted, word
from fedbench.machine import memory
from fedbench.runs import stored
from fedbench.runs.run_directory import CHECKPOINT, RunDirectory


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep."""

    number: int
    name: str  # its directory, relative to the sweep's
    place: Path  # the same, relative to the current one
    overrides: Sequence[str]
    choices: Mapping[str, Value]  # swept key -> its value
    config: Config
    seconds: float = 0.0
    """What it takes, compared with the other runs."""
    memory: int = 0
    """Bytes of memory that it takes, of a GPU where it is computed on one."""

    @property
    def has_ended(self) -> bool:
        """Whether it has finished in its directory. Raises ConfigError if a file below data.root has changed
        since."""
        return stored.finished(RunDirectory(self.place), self.config) is not None

    def refuse_other(self) -> None:
        """Raise a UserError if another run lies in its directory, or if it would go on there with other files
        below data.root."""
        stored.refuse_other(RunDirectory(self.place), self.config)
        if self.config.resume:
            stored.refuse_other_data(self.place, self.config)

    @property
    def outcome(self) -> RunDirectory:
        """Where it is said how it ended: in its directory, or where a failed attempt was staged."""
        return RunDirectory(self.place).attempt(self.config.resume)

    @property
    def launched(self) -> list[str]:
        """The overrides for a launcher, with the run's directory."""
        return [*self.overrides, f"hydra.sweep.subdir={written(self.name)}"]


def grids_of(
    params: Mapping[str, Any],
    arguments: Sequence[str],
    grids: Sequence[Grid],
    loader: ConfigLoader,
    picks: bool = False,
) -> tuple[list[str], list[Grid]]:
    """The overrides of all runs, and the grids of the union.

    `params`: a file's. `arguments` take precedence over `params` and `grids`, a grid's keys over `params`.
    `picks`: an argument whose values stand in the grids picks among them instead (`_picked`).
    """
    given = {item.key_or_group for item in parse(arguments)}
    grids, kept = _picked(parse(arguments, loader), grids) if picks else (grids, set[str]())
    words = [f"{key}={word(value)}" for key, value in params.items() if key not in given]
    fixed: dict[str, str] = {}
    base: dict[str, list[Value]] = {}
    for item in parse([*words, *arguments], loader):
        key = item.get_key_element()
        fixed.pop(key, None)
        base.pop(key, None)
        if item.is_sweep_override():
            base[key] = typed(item)
        else:
            fixed[key] = str(item.input_line)
    wanted = [{key: values for key, values in grid.items() if key not in given - kept} for grid in grids]
    merged: list[Grid] = []
    for grid in wanted or [{}]:  # the order of keys is the order of runs
        keys = dict.fromkeys([*(key for key in params if key in base or key in grid), *grid, *base])
        merged.append({key: grid[key] if key in grid else base[key] for key in keys})
    used = [text for key, text in fixed.items() if not all(key in grid for grid in merged)]
    return used, merged


def _picked(parsed: Sequence[Override], grids: Sequence[Grid]) -> tuple[list[Grid], set[str]]:
    """The grids, narrowed to the words whose values all stand in them, and the keys of these words.

    A grid that has the key with none of the values is left out; one that lacks the key stays. Raises
    UsageError if the words leave nothing.
    """
    left, keys, words = list(grids), set(), []
    for item in parsed:
        key, wanted = item.key_or_group, listed(item)
        if not wanted or not all(any(value in grid.get(key, ()) for grid in grids) for value in wanted):
            continue
        keys.add(key)
        words.append(str(item.input_line))
        narrowed = [
            {**grid, key: [value for value in wanted if value in grid[key]]} if key in grid else grid
            for grid in left
        ]
        left = [grid for grid in narrowed if grid.get(key, wanted)]
    if words and not left:
        raise UsageError(
            f"{' '.join(words)}: the sweep has runs with each of these, and none with all of them"
        )
    return left, keys


def of_file(grids: Sequence[Mapping[str, Any]], loader: ConfigLoader | None = None) -> list[Grid]:
    """The grids of a file, which may write values as text such as `0.1,0.2`."""
    return [
        {key: typed(parse([f"{key}={word(value)}"], loader)[0]) for key, value in grid.items()}
        for grid in grids
    ]


def points(grid: Grid) -> Iterator[dict[str, Value]]:
    """The points of a grid, the last key varying fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


@dataclass(frozen=True)
class Wanted:
    """What a sweep is over. `fixed`: overrides of all runs; a grid's keys take precedence. `points`: of all
    grids, one at least. `methods`: those of the sweep, and those that a file sweeps and the user may have
    replaced; overrides with their keys are no mistake. `searchpath`: the user's own directories of options.
    """

    fixed: Sequence[str]
    grids: Sequence[Grid]
    points: Sequence[Mapping[str, Value]]
    methods: Sequence[str]
    searchpath: Sequence[Path]


def examined(runs: Sequence[PlannedRun], of: int) -> list[PlannedRun]:
    """Make the checks that need the user's code, torch and the data: hyper-parameters, model, device; once
    for all seeds. Returns the runs with their `seconds` and `memory`. `of`: how many runs the sweep has.
    Raises a UserError that names the run."""
    if not runs:  # and torch is not needed
        return []
    from fedbench.sweeps.job import run_here

    known: dict[str, tuple[float, int]] = {}
    found = []
    for run in runs:
        but_for_the_seed = digest(
            {key: value for key, value in run.config.choices.items() if role(key) != SEED}
        )
        if but_for_the_seed not in known:
            with naming_the_run(run.choices, of):
                made = run_here(run.config)
                made.refuse_full_disk(run.place)
                known[but_for_the_seed] = made.seconds, made.memory
        seconds, memory = known[but_for_the_seed]
        found.append(replace(run, seconds=seconds, memory=memory))
    return found


def of_point(
    point: Mapping[str, Value], wanted: Wanted, compose: Callable[[Sequence[str]], DictConfig]
) -> tuple[list[str], DictConfig]:
    """The overrides of one run, and its configuration, as `compose` makes it of overrides.
    What is said of keys that only other methods have does not count."""
    choices = {key.lstrip("+") for key in point}
    rest = [text for text in wanted.fixed if text.partition("=")[0].lstrip("+") not in choices]
    overrides = [*rest, *(f"{key}={written(value)}" for key, value in point.items())]
    cfg = compose(overrides)
    method = str(OmegaConf.select(cfg, "algorithm.name"))
    if foreign := [text for text in rest if _of_others(text, method, wanted)]:
        overrides = [text for text in overrides if text not in foreign]
        cfg = compose(overrides)
    return overrides, cfg


def _of_others(text: str, method: str, wanted: Wanted) -> bool:
    """Whether an override of all runs is for other methods of the sweep, and `method` has no such key."""
    group, _, key = text.partition("=")[0].lstrip("+").partition(".")
    if group != "algorithm" or not key or key in option_keys(group, method, wanted.searchpath):
        return False
    return any(key in option_keys(group, name, wanted.searchpath) for name in wanted.methods)


@contextlib.contextmanager
def naming_the_run(choices: Mapping[str, Value], runs: int) -> Iterator[None]:
    """Say which of so many runs an error is of."""
    try:
        yield
    except UserError as error:
        if runs == 1:
            raise
        words = " ".join(f"{key}={written(value)}" for key, value in choices.items())
        refusal = UsageError(f"{error} (in the run {words}; none of the {runs} was started)")
        refusal.exit_code = error.exit_code
        raise refusal from error


# ---- what would run --------------------------------------------------------------------------------------


def preview(runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield lines that say which of these runs are finished, and which would be computed. Nothing is written.
    Raises ConfigError if a run that would be computed has invalid input, or if another run is in its
    directory."""
    said, missing = {}, []
    for run in runs:
        here = RunDirectory(run.place)
        if run.has_ended:
            said[run.place] = "finished"
        else:
            run.refuse_other()
            missing.append(run)
            begun = run.config.resume and here.has(CHECKPOINT)
            said[run.place] = f"goes on from round {here.last_round}" if begun else "to run"
    places = ", ".join(dict.fromkeys(str(place.parent) for place in said))
    yield f"{counted(len(said), 'run')} in {places}, {len(said) - len(missing)} finished"
    if found := examined(missing, len(runs)):
        from fedbench.engine.memory import gib  # torch is loaded now

        most = "at most " if len(found) > 1 else ""
        left = gib(memory().available)
        yield f"  {most}about {gib(max(run.memory for run in found))} of memory a run; {left} are left here"
    for place, what in said.items():
        yield f"  {place.name}: {what}"
