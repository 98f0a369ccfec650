"""Sweeps requested by a command line, a script or another package of fedbench: their runs are planned, those
that are missing are launched, and how all of them ended is read from their directories."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from fedbench import process_group
from fedbench.config.checks import parsed_words
from fedbench.config.compose import Composed, Composer, composing, config_directories, validate
from fedbench.config.config import Config, flat
from fedbench.config.identity import counts, run_hash, run_name
from fedbench.config.overrides import Grid, recorded, written
from fedbench.config.places import RUNS
from fedbench.config.register import JOB_DIR, SWEEP_DIR, job_name
from fedbench.errors import ConfigError, UsageError
from fedbench.runs.lists import RUNS_CSV
from fedbench.runs.records import Run
from fedbench.runs.run_directory import FAILED, MISSING, STOPPED
from fedbench.runs.signals import Interrupted
from fedbench.sweeps.jobs import described, given
from fedbench.sweeps.launching import compute
from fedbench.sweeps.plan import (
    PlannedRun,
    Wanted,
    grids_of,
    naming_the_run,
    of_file,
    of_point,
    points,
)

log = logging.getLogger(__name__)


class Sweep:
    """A sweep as it was asked for: a full grid or, with grids, their union."""

    def __init__(
        self, composer: Composer, composed: Composed, grids: Sequence[Grid] = (), runs: Path | None = None
    ) -> None:
        """`grids`: used instead of those of a file; each adds its own keys to the sweeper's `params`, or
        replaces them there. `runs`: where the runs lie, each under a name that follows from its identity;
        None: in the directory that the user gave, under names that say what is swept, else where all runs
        lie. Raises ConfigError for another package's sweeper."""
        cfg = composed.cfg
        if (name := cfg.hydra.runtime.choices.get("hydra/sweeper")) != "fedbench":
            allowed = "must be fedbench; `fedbench tune --search optuna` searches"
            raise ConfigError("hydra/sweeper", name, allowed)
        OmegaConf.set_readonly(cfg.hydra, False)
        cfg.hydra.mode = RunMode.MULTIRUN
        cfg.hydra.overrides.task = [
            item.input_line for item in composed.parsed if not item.is_hydra_override()
        ]
        HydraConfig.instance().set_config(cfg)
        self.cfg, self.composer, self.composed, self.grids = cfg, composer, composed, grids
        self.words = recorded(cfg, "task")
        places = cfg.hydra.sweep
        given, subdir = (places._get_node(name)._value() for name in ("dir", "subdir"))
        self.subdir = None if subdir == JOB_DIR else str(subdir)
        self.runs = runs or (Path(RUNS) if (given, subdir) == (SWEEP_DIR, JOB_DIR) else None)
        with composer.one_line(self.words):
            self.directory = Path(str(places.dir))
        OmegaConf.set_readonly(cfg.hydra, False)
        places.dir = str(self.directory)
        cfg.hydra.overrides.hydra += ["hydra.mode=MULTIRUN", f"hydra.sweep.dir={written(places.dir)}"]
        self.context = composer.context()

    # ---- what is asked for ---------------------------------------------------------------------------

    def plan(self) -> list[PlannedRun]:
        """The runs of the grids, in order and without repeats, none of them started; `examined` makes the
        checks that need torch and the data. The words override `params`; they pick among the grids of a file,
        or override them. Raises a UserError that names the run if any has invalid input."""
        runs: dict[str, PlannedRun] = {}
        there = {path.name.rpartition("-")[2]: path.name for path in sorted(self.directory.glob("*-*"))}
        places: set[str] = set()
        with self.composer.one_line(self.words):
            wanted = self.wanted()
            if self.runs is not None:
                _refuse_equal(wanted.grids)
            for point in wanted.points:
                choices = {key.lstrip("+"): value for key, value in point.items()}
                with naming_the_run(choices, len(wanted.points)):
                    overrides, cfg = of_point(point, wanted, self._job)
                    config = validate(cfg, wanted.searchpath)
                name = self._name(config, {key: written(value) for key, value in choices.items()}, there)
                if name in runs:
                    log.info("twice the same run, done once: %s", " ".join(overrides))
                    continue
                place = name if self.subdir is None else _subdir(cfg, len(runs))
                if place in places:
                    allowed = "must be another directory for every run, such as ${hydra.job.num}"
                    raise ConfigError(
                        "hydra.sweep.subdir", self.subdir, f"{allowed}; two would be in {place}"
                    )
                places.add(place)
                where = Path(os.path.normpath(self.directory / place))
                runs[name] = PlannedRun(len(runs), place, where, overrides, choices, config)
        return [*runs.values()]

    def first(self) -> tuple[Composed, list[Grid]]:
        """The first run by itself, and all grids. Reads no data. Raises UserError."""
        with self.composer.one_line(self.words):
            wanted = self.wanted()
            overrides, _ = of_point(wanted.points[0], wanted, self._job)  # which may be invalid
        ours = [str(item.input_line) for item in self.composed.parsed if item.is_hydra_override()]
        return self.composer.read([*ours, *overrides]), [*wanted.grids]

    def wanted(self, left_out: Collection[str] = ()) -> Wanted:
        """What words, file and caller sweep over, but for the keys `left_out`. Raises UsageError."""
        sweeper, loader = self.cfg.hydra.sweeper, self.composer.loader
        params: dict[str, Any] = OmegaConf.to_container(sweeper.params)  # type: ignore[assignment]
        grids: list[dict[str, Any]] = OmegaConf.to_container(sweeper.grids)  # type: ignore[assignment]
        params = {key: value for key, value in params.items() if key not in left_out}
        words = [text for text in self.words if text.partition("=")[0] not in left_out]
        given = self.grids
        fixed, wanted = grids_of(params, words, given or of_file(grids, loader), loader, picks=not given)
        every = [point for grid in wanted for point in points(grid)]
        if not every:
            raise UsageError("nothing to run: a sweep over no values")
        file = [{"algorithm": params["algorithm"]}] if "algorithm" in params else []
        named = [grid.get("algorithm", ()) for grid in (*wanted, *of_file(file, loader))]
        methods = list(dict.fromkeys(str(name) for names in named for name in names))
        return Wanted(fixed, wanted, every, methods, config_directories(self.cfg.hydra))

    def _job(self, overrides: Sequence[str]) -> DictConfig:
        """The configuration of a run; with Hydra's node where a user's directory or options have to do with
        it. Refuses a swept option (an experiment) whose file has a different grid from the sweep's: it would
        be ignored. Raises UserError."""
        loader: Any = self.context.config_loader
        chosen = [text for text in overrides if text.startswith("experiment=")]
        whole = self.subdir is not None or bool(chosen) or not loader.only_ours
        with self.composer.one_line(overrides):
            parsed_words(overrides)
            cfg: DictConfig = loader.load_sweep_config(self.cfg, [*overrides], whole)
        sweeper = self.cfg.hydra.sweeper
        if whole and any(sweeper[name] != cfg.hydra.sweeper[name] for name in ("params", "grids")):
            key, _, value = (chosen or overrides)[0].partition("=")
            allowed = "has a different grid (hydra.sweeper) from the first one, and a sweep has one grid"
            raise ConfigError(key, value, f"{allowed}; give each a sweep")
        return cfg

    def _name(self, config: Config, axes: Mapping[str, str], there: Mapping[str, str]) -> str:
        """The directory of a run, relative to the sweep's. `there`: by the hash that they end in, directories
        that the sweep's has already. The run lies in one of them if it was asked for by other swept keys."""
        if self.runs is not None:
            return os.path.relpath(self.runs / run_name(config, self.runs), self.directory)
        name = job_name(config, axes)
        if not all(map(counts, axes)) or (self.directory / name).exists():
            return name
        return there.get(run_hash(config), name)

    # ---- launching it --------------------------------------------------------------------------------

    def run(self) -> list[Run]:
        """Compute what is missing, with our launcher or any of Hydra's; return all runs in their order. A
        failed run does not stop the others. Raises a UserError before anything is written if any run has
        invalid input."""
        process_group.refuse_several("a sweep")
        configure_log(self.cfg.hydra.hydra_logging, self.cfg.hydra.verbose)
        runs = self.plan()
        try:
            with self.composer.one_line(self.words):
                compute(self.cfg, self.context, self.directory, runs)
        except KeyboardInterrupt as stop:
            how = str(stop).partition(";")[0] or "stopped"
            line = f"{how}; the same command goes on with what is missing in {self.directory}"
            if under_way := given(run.place for run in runs):
                jobs = described(under_way, self.directory)
                line = f"the jobs go on, and the same command waits for them: {jobs}"
            raise Interrupted(line, getattr(stop, "exit_code", 130)) from stop
        return [Run(run.outcome.path, {**flat(run.config), **run.choices}) for run in runs]


def _subdir(cfg: DictConfig, number: int) -> str:
    """The directory that the user's `hydra.sweep.subdir` gives the job of this number."""
    with open_dict(cfg):
        cfg.hydra.job.id, cfg.hydra.job.num = str(number), number
    return str(cfg.hydra.sweep.subdir)


def failures(runs: Sequence[Run], directory: Path) -> str | None:
    """A line about the runs of a sweep that failed, or stopped with their jobs; None if none has."""
    errors = [run.error or FAILED for run in runs if run.status == FAILED]
    if errors:
        return f"{len(errors)} of {len(runs)} runs failed: {errors[0]} (see {directory / RUNS_CSV})"
    stopped = [run for run in runs if run.status in (STOPPED, MISSING)]
    more = "the same command goes on; with hydra.launcher.max_num_timeout=N the cluster begins a job whose "
    more += "time is over again, N times"
    return f"{len(stopped)} of {len(runs)} runs have stopped: {more}" if stopped else None


def _refuse_equal(grids: Sequence[Grid]) -> None:
    """Raise ConfigError for several values of a key that is no part of a run's identity."""
    for key, values in (item for grid in grids for item in grid.items()):
        if len(values) > 1 and not counts(key):
            allowed = "runs that differ in it alone are the same run; hydra.sweep.dir=DIR computes each"
            raise ConfigError(key, ",".join(map(written, values)), allowed)


# ---- from Python -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def asked(
    overrides: Sequence[str],
    grids: Sequence[Grid],
    directory: Path,
    runs: Path | None = None,
    config_dir: str | None = None,
) -> Iterator[Sweep]:
    """A sweep over the union of typed `grids` below `directory`. Leaves Hydra as it was. Raises UserError.

    `overrides`: those of all runs, as on the command line (`hydra/launcher=processes` among them). `grids`:
    applied over the `params` of an experiment's file; if empty, that file's. `runs`: where the runs lie that
    the sweep lists, and where those of other sweeps are found (None: below `directory`). `config_dir`: the
    user's own options.
    """
    with composing(config_dir) as composer:
        composed = composer.read([*overrides, f"hydra.sweep.dir={written(str(directory))}"])
        yield Sweep(composer, composed, grids, runs)
