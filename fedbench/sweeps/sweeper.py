"""The runs of a sweep: a grid, the launcher that runs it, and how each run ended.

Runs that have already finished are not run again.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.sweeper import Sweeper as HydraSweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from fedbench.config.compose import JobComposer, config_directories
from fedbench.config.config import Config, flat
from fedbench.config.identity import NOT_IDENTITY, NOT_IDENTITY_GROUPS, run_name
from fedbench.config.overrides import Grid, Value, recorded, written
from fedbench.config.register import JOB_DIR, job_name
from fedbench.errors import ConfigError, UserError
from fedbench.files import one_line_os_errors
from fedbench.runs.metrics import ENDS, worst
from fedbench.runs.run_directory import RunDirectory
from fedbench.runs.stored import reported
from fedbench.sweeps.job import JobFailed, RunJob, held
from fedbench.sweeps.launcher import Launcher
from fedbench.sweeps.plan import PlannedRun, first_of, grids_of, of_file, plan
from fedbench.sweeps.tables import collect, write_manifest
from fedbench.sweeps.together import Kind, groups

LOOK_SECONDS = 1.0  # between two checks of runs that another process computes
WORTH = 20.0  # seconds that worker processes must save to be started unasked

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """How one run of a sweep ended."""

    directory: Path
    choices: Mapping[str, Value]  # every dotted key of the run -> its value
    status: str  # completed, diverged, failed, ...
    final_accuracy: float | None
    best_accuracy: float | None = None
    error: str | None = None
    metric: str = "accuracy"  # what the accuracies measure
    rounds_to_target: float | None = None  # infinite: never reached; None: no target
    rounds: int = 0  # planned
    validation: float | None = None  # final accuracy on the held-out samples, if any
    further: Mapping[str, float | None] = field(default_factory=dict)  # final values of further metrics

    @classmethod
    def of(cls, run: PlannedRun, directory: Path, found: Mapping[str, Any]) -> Result:
        """The result of a run, read from its summary `found`."""
        target = run.config.target
        reached = found.get("rounds_to_validation_accuracy") or found.get("rounds_to_accuracy") or {}
        at = None if target is None else reached.get(f"{target:g}")
        return cls(
            directory,
            {**flat(run.config), **run.choices},
            str(found.get("status", "completed")),
            found.get("final_accuracy"),
            found.get("best_accuracy"),
            found.get("error"),
            str(found.get("metric", "accuracy")),
            None if target is None else math.inf if at is None else float(at),
            run.config.rounds,
            validation=found.get("final_validation_accuracy"),
            further={name: found[name] for name in ENDS if name in found},
        )

    def judged(self, by: str | None = None) -> Result:
        """The same run, judged on the samples held out for validation, if any. `by`: a metric of eval.metrics
        to use instead of the accuracy, on the samples that it was measured on."""
        if by is None:
            if self.validation is None:
                return self
            return replace(self, final_accuracy=self.validation, metric=f"validation {self.metric}")
        part = "test" if f"final_validation_{by}" not in self.further else "validation"
        value = self.further.get(f"final_{part}_{by}")
        return replace(self, final_accuracy=value, metric=f"{part} {by}")

    @property
    def score(self) -> float:
        """The final accuracy, or the worst possible value if the run diverged."""
        diverged = self.status == "diverged" or self.final_accuracy is None
        return worst(self.metric) if diverged else self.final_accuracy or 0.0

    @property
    def cost(self) -> float | None:
        """Rounds to the target, or twice the planned rounds if it was not reached; None: no target."""
        return None if self.rounds_to_target is None else min(self.rounds_to_target, 2.0 * self.rounds)


class Sweeper(HydraSweeper):
    """Runs a full grid, like Hydra's basic sweeper, with any launcher; its directory can be used again.

    With `grids` it runs a union of grids. Each of them adds its own keys to `params`, or replaces them there.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        params: Mapping[str, Any] | None = None,
        grids: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`max_batch_size`: runs that the launcher gets at once. `params`: overrides from a file. `grids`:
        the same, a dict per grid of the union."""
        self.max_batch_size = max_batch_size
        self.params, self.grids = dict(params or {}), [dict(grid) for grid in grids]

    chooses = False
    """Whether to use worker processes if no launcher is asked for and they are worth it."""
    typed: Sequence[Grid] = ()
    """Grids of the caller, used instead of those of a file."""
    runs: Path | None = None
    """Where the runs lie, each under a name that follows from its identity; None: in the sweep's directory,
    under names that say what is swept."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra: create the launcher."""
        assert isinstance(task_function, RunJob)
        self.hydra_context, self.config, self.task = hydra_context, config, task_function
        self.directory = Path(str(config.hydra.sweep.dir))
        self.ours = config.hydra.sweep._get_node("subdir")._value() == JOB_DIR  # directories' names
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def planned(self, arguments: list[str]) -> list[PlannedRun]:
        """The checked runs of the grids, none of them started. `arguments` override `params`; they pick among
        the `grids` of a file, or override them."""
        fixed, wanted, composer, where, others = self._asked(arguments)
        if self.runs is not None:
            _refuse_equal(wanted)
        return plan(fixed, wanted, composer, self.task.plan, where, others, self._name)

    def first(self, arguments: list[str]) -> tuple[list[str], list[Grid]]:
        """The overrides of the first run, which is not checked, and all grids."""
        fixed, wanted, composer, where, others = self._asked(arguments)
        return first_of(fixed, wanted, composer, where, others), wanted

    def _asked(
        self, arguments: list[str]
    ) -> tuple[list[str], list[Grid], JobComposer, Sequence[Path], list[str]]:
        """What `plan` takes: overrides of all runs, grids, composer, search path, and a file's methods."""
        assert self.config is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        grids = self.typed or of_file(self.grids, loader)
        fixed, wanted = grids_of(self.params, arguments, grids, loader, picks=not self.typed)
        file = {"algorithm": self.params["algorithm"]} if "algorithm" in self.params else {}
        others = [str(name) for grid in of_file([file], loader) for name in grid.get("algorithm", ())]
        return fixed, wanted, JobComposer(self.config, loader), config_directories(self.config.hydra), others

    def _name(self, config: Config, axes: Mapping[str, str]) -> str:
        """The directory of a run, relative to the sweep's."""
        if self.runs is None:
            return job_name(config, axes)
        return os.path.relpath(self.runs / run_name(config), self.directory)

    def _place(self, name: str) -> Path:
        return Path(os.path.normpath(self.directory / name))

    def _choose_launcher(self, runs: Sequence[PlannedRun]) -> str:
        """Choose worker processes when the user named no launcher and there are cores (or GPUs) and work
        for them. Two calls of the same command choose alike. Returns the line to log if runs follow one
        another instead.

        A user's callbacks may rely on a single process, so they rule out worker processes.
        """
        assert self.config is not None
        assert self.hydra_context is not None
        cfg, asked = self.config, recorded(self.config, "hydra")
        if (
            not self.chooses
            or _launcher_of(cfg) != "basic"
            or any(text.startswith("hydra/launcher=") for text in asked)
        ):
            return ""
        launcher = Launcher()
        launcher.setup(hydra_context=self.hydra_context, task_function=self.task, config=cfg)
        slots = launcher.slots(len(runs))
        count = len(slots)
        if slots[0] is None:  # on the CPU
            count //= cfg.threads or 1
        saved = sum(run.seconds for run in runs) * (1 - 1 / max(count, 1))
        if saved < WORTH or cfg.hydra.callbacks:
            line = "one after another in this process (hydra/launcher=processes: side by side)"
            kinds = self._kinds(runs)
            if any(len(group.jobs) > 1 for group in groups(kinds, launcher.together, 1)):
                launcher.here, self.launcher = True, launcher
                line = (
                    "in this process, runs of one method together (hydra/launcher=basic: one after another)"
                )
            return line
        launcher.processes, self.launcher = count, launcher
        launcher.note = " (hydra/launcher=basic: one run after another, in this process)"
        return ""

    def _kinds(self, runs: Sequence[PlannedRun]) -> list[Kind | None]:
        """Which runs can be computed together. None can if a job changes something of its whole process."""
        assert self.config is not None
        hydra = self.config.hydra
        if hydra.job.chdir or hydra.job.env_set or hydra.callbacks:
            return [None] * len(runs)
        return [self.task.kind(run.config) for run in runs]

    def planned_places(self, arguments: list[str]) -> list[tuple[Path, Config]]:
        """Directory and configuration of every run."""
        return [(self._place(run.name), run.config) for run in self.planned(arguments)]

    def sweep(self, arguments: list[str]) -> list[Result]:
        """Run the `planned` runs that are missing; return all results in the order of the runs.

        Raises a UserError with exit code 2 before anything is written if any run has invalid input.
        """
        runs, directory = self.planned(arguments), self.directory
        self.places = {run.name: self._place(run.name) for run in runs} if self.ours else {}
        self.results: dict[str, Result] = {}
        pending = [run for run in runs if not self._is_done(run)]
        how = self._choose_launcher(runs)
        self.task.expect(run.config for run in pending)
        before = f", {len(self.results)} of them finished before" if self.results else ""
        log.info("%d run%s%s, in %s", len(runs), "s" if len(runs) != 1 else "", before, directory)
        if how and len(pending) > 1:
            log.info(how)
        with one_line_os_errors(f"write {directory}"):
            directory.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(self.config, directory / "multirun.yaml")
        swept = list(dict.fromkeys(key for run in runs for key in run.choices))
        targets = [run.config.target for run in runs if run.config.target is not None]
        jobs = {run.name: run.choices for run in runs} if self.ours else {}
        write_manifest(directory, swept, jobs, targets)
        collect(directory)
        alone = not isinstance(self.launcher, Launcher) and _launcher_of(self.config) == "basic"
        size = self.max_batch_size or (1 if alone else max(len(runs), 1))
        while pending:
            elsewhere: list[PlannedRun] = []
            for start in range(0, len(pending), size):
                batch = [run for run in pending[start : start + size] if not self._is_done(run)]
                if batch:
                    elsewhere += self._launch(batch, runs.index(batch[0]))
            pending, size = self._waited_for(elsewhere), size if self.ours else 1
        collect(directory)
        return [self.results[run.name] for run in runs]

    def _is_done(self, run: PlannedRun) -> bool:
        """Whether a run has ended, here or in another process. Where directories may depend on a run's
        number, this is unknown until the run is launched."""
        place = self.places.get(run.name)
        if run.name not in self.results and place is not None:
            found = reported(RunDirectory(place), run.config)
            if found is not None:
                self.results[run.name] = Result.of(run, place, found)
        return run.name in self.results

    def _launch(self, runs: Sequence[PlannedRun], number: int) -> list[PlannedRun]:
        """Launch runs and record their results; return the runs that another process has. If another
        package's launcher gives up, all runs count as failed for its reason; the next sweep finds those that
        have ended nevertheless."""
        assert self.launcher is not None
        if isinstance(self.launcher, Launcher):
            self.launcher.ended = lambda job: self._is_done(runs[job])
            self.launcher.kinds = self._kinds(runs)
            self.launcher.names = [run.name for run in runs] if self.ours else []
        named = [[*run.overrides, f"hydra.sweep.subdir={written(run.name)}"] for run in runs]
        jobs = named if self.ours else [run.overrides for run in runs]
        try:
            with one_line_os_errors(f"write {self.directory}"):  # Hydra's own files
                returned = self.launcher.launch(jobs, initial_job_idx=number)
        except UserError:
            raise
        except Exception as error:
            name = _launcher_of(self.config)
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            why = JobFailed(f"hydra/launcher={name}: {'; '.join(dict.fromkeys([lines[0], lines[-1]]))}")
            returned = [JobReturn(overrides=job, status=JobStatus.FAILED, _return_value=why) for job in jobs]
        elsewhere = []
        for run, job in zip(runs, returned, strict=True):
            place = self.places.get(run.name, self._place(run.name))
            if job.hydra_cfg is not None:  # wherever the user wanted it
                where = os.path.normpath(job.hydra_cfg.hydra.runtime.output_dir)
                place = self.places[run.name] = Path(where)
            found = RunDirectory(place).summary or {}
            if held(job):
                elsewhere.append(run)
                continue
            if job.status == JobStatus.FAILED:
                found = {**found, "status": "failed", "error": str(job._return_value)}
            self.results[run.name] = Result.of(run, place, found)
        return elsewhere

    def _waited_for(self, elsewhere: list[PlannedRun]) -> list[PlannedRun]:
        """Wait until another process no longer holds at least one of these runs: it has ended there, or must
        be run here. Returns the runs that have not ended."""
        if elsewhere:
            names = ", ".join(Path(run.name).name for run in elsewhere)
            them = "it" if len(elsewhere) == 1 else "them"
            line = "%d left to another process that computes %s, waiting for it: %s"
            log.info(line, len(elsewhere), them, names)
        while elsewhere and all(RunDirectory(self.places[run.name]).in_use for run in elsewhere):
            time.sleep(LOOK_SECONDS)
        return [run for run in elsewhere if not self._is_done(run)]


def _refuse_equal(grids: Sequence[Grid]) -> None:
    """Raise ConfigError for several values of a key that is no part of a run's identity."""
    for key, values in (item for grid in grids for item in grid.items()):
        if len(values) > 1 and (key in NOT_IDENTITY or key.split(".")[0] in NOT_IDENTITY_GROUPS):
            allowed = "runs that differ in it alone are the same run; hydra.sweep.dir=DIR computes each"
            raise ConfigError(key, ",".join(map(written, values)), allowed)


def _launcher_of(cfg: DictConfig | None) -> str | None:
    assert cfg is not None
    return cfg.hydra.runtime.choices.get("hydra/launcher")  # type: ignore[no-any-return]
