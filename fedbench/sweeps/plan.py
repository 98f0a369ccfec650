"""Planning a sweep: from what a command line, a file and a caller sweep over to runs, every one composed,
checked and named before the first one starts."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader

from fedbench.config.compose import JobComposer, validate
from fedbench.config.config import Config
from fedbench.config.identity import digest, flat
from fedbench.config.overrides import Grid, Value, parse, typed, written
from fedbench.config.register import job_name
from fedbench.errors import UsageError, UserError, word

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep."""

    name: str  # its directory below the sweep's
    overrides: list[str]  # as Hydra's launchers want them
    choices: dict[str, Value]  # swept key -> its value
    config: Config


def grids_of(
    params: Mapping[str, Any], arguments: Sequence[str], grids: Sequence[Grid], loader: ConfigLoader
) -> tuple[list[str], list[Grid]]:
    """The overrides that all runs have in common, and the grids of the union.

    `params`: a file's; `arguments` count more than `params` and `grids`, a grid's keys more than `params`.
    """
    given = {item.key_or_group for item in parse(arguments)}
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
    wanted = [{key: values for key, values in grid.items() if key not in given} for grid in grids]
    merged: list[Grid] = []
    for grid in wanted or [{}]:  # the order of keys is the order of runs
        keys = dict.fromkeys([*(key for key in params if key in base or key in grid), *grid, *base])
        merged.append({key: grid[key] if key in grid else base[key] for key in keys})
    return list(fixed.values()), merged


def of_file(grids: Sequence[Mapping[str, Any]], loader: ConfigLoader | None = None) -> list[Grid]:
    """The grids that a file writes with texts such as `0.1,0.2`."""
    return [
        {key: typed(parse([f"{key}={word(value)}"], loader)[0]) for key, value in grid.items()}
        for grid in grids
    ]


def points(grid: Grid) -> Iterator[dict[str, Value]]:
    """The points of a grid, the last key fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def plan(
    fixed: Sequence[str],
    grids: Sequence[Grid],
    composer: JobComposer,
    check: Callable[[Config], object],
    searchpath: Sequence[Path] = (),
) -> list[PlannedRun]:
    """The runs of the grids, in order, each once. Raises a UserError, which names the run, if any of them is
    bad input.

    `fixed`: overrides of all runs; a grid's keys count more. `check`: what needs torch and the data, once for
    all seeds. `searchpath`: the user's own directories of options.
    """
    every = [point for grid in grids for point in points(grid)]
    if not every:
        raise UsageError("nothing to run: a sweep over no values")
    runs: dict[str, PlannedRun] = {}
    for point in every:
        choices = {key.lstrip("+"): value for key, value in point.items()}
        rest = [text for text in fixed if text.partition("=")[0].lstrip("+") not in choices]
        overrides = [*rest, *(f"{key}={written(value)}" for key, value in point.items())]
        with _naming_the_run(choices, len(every)):
            config = validate(composer.compose(overrides), searchpath)
        name = job_name(config, {key: written(value) for key, value in choices.items()})
        if name in runs:
            log.info("twice the same run, done once: %s", " ".join(overrides))
        runs.setdefault(name, PlannedRun(name, overrides, choices, config))
    composer.check_places([run.overrides for run in runs.values()])
    checked: set[str] = set()
    for run in runs.values():
        kind = digest({key: value for key, value in flat(run.config).items() if key != "seed"})
        if kind not in checked:
            with _naming_the_run(run.choices, len(every)):
                check(run.config)
            checked.add(kind)
    return list(runs.values())


@contextlib.contextmanager
def _naming_the_run(choices: Mapping[str, Value], runs: int) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        if runs == 1:
            raise
        words = " ".join(f"{key}={written(value)}" for key, value in choices.items())
        refusal = UsageError(f"{error} (in the run {words}; none of the {runs} was started)")
        refusal.exit_code = error.exit_code
        raise refusal from error
