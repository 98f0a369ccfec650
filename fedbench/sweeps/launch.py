"""A sweep as a command line or a script asks for it, by the sweeper and the launcher that it names."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from fedbench.compose import inside
from fedbench.compose.composer import Composed, Composer
from fedbench.compose.overrides import first_values, parse, recorded, written
from fedbench.errors import UsageError
from fedbench.runs import ranks
from fedbench.sweeps.execute import Result
from fedbench.sweeps.forecast import Side, Wanted
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.plugins import Sweeper, register
from fedbench.sweeps.processes import Launcher


@dataclass(frozen=True)
class Ended:
    """A sweep that has been worked through: where it is, and what its sweeper returned."""

    directory: Path
    results: Sequence[Any]

    @property
    def failures(self) -> list[str]:
        """Why runs failed, whichever sweeper ran them."""
        return [error for error in map(_failure, self.results) if error]


def read(composer: Composer, overrides: Sequence[str]) -> tuple[list[Override], Composed]:
    """What overrides say, which may sweep: parsed, and composed with the first value of every sweep.

    Raises UserError.
    """
    with composer.one_line(overrides):
        parsed = parse(overrides, composer.loader)
        inside.refuse_sweeps(parsed, RunMode.MULTIRUN)
        first = first_values(overrides, composer.loader)
    return parsed, composer.compose(first, overrides)


def launch(composer: Composer, parsed: Sequence[Override], composed: Composed) -> Ended:
    """Run the sweep that was `read`; a failed run does not stop the others.

    Raises UserError before anything is written if any run is bad input.
    """
    ranks.refuse_several("a sweep")
    cfg, words = _prepare(composer, parsed, composed)
    directory = str(cfg.hydra.sweep.dir)
    configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
    context = inside.context(composer.loader, cfg)
    context.callbacks.on_multirun_start(config=cfg, config_name=composer.config_name)
    chosen = Plugins.instance().instantiate_sweeper(config=cfg, hydra_context=context, task_function=RunJob())
    try:
        with composer.one_line(words):
            results = chosen.sweep(arguments=words)
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on with what is missing in {directory}", file=sys.stderr)
        raise
    context.callbacks.on_multirun_end(config=cfg, config_name=composer.config_name)
    return Ended(Path(directory), results or [])


def planned(composer: Composer, parsed: Sequence[Override], composed: Composed) -> tuple[list[Wanted], Side]:
    """The runs of the sweep that was `read`, checked, none of them run, and how they would be launched.

    Raises UserError, also where another sweeper than ours would decide as it goes.
    """
    cfg, words = _prepare(composer, parsed, composed)
    context = inside.context(composer.loader, cfg)
    chosen = Plugins.instance().instantiate_sweeper(config=cfg, hydra_context=context, task_function=RunJob())
    if not isinstance(chosen, Sweeper):
        name = cfg.hydra.runtime.choices.get("hydra/sweeper")
        raise UsageError(f"--dry-run: hydra/sweeper={name} decides while it runs what it runs")
    with composer.one_line(words):
        jobs = chosen.jobs(words)
    directory, launcher = Path(str(cfg.hydra.sweep.dir)), chosen.launcher
    side = Side()
    if isinstance(launcher, Launcher):
        slots = launcher.slots(len(jobs))
        side = Side(len(slots), launcher.threads, max(Counter(slots).values()))
    return [Wanted(directory / job.name, job.config) for job in jobs], side


def _prepare(
    composer: Composer, parsed: Sequence[Override], composed: Composed
) -> tuple[DictConfig, list[str]]:
    """The sweep's own configuration with its place, and the overrides of its task."""
    cfg = composed.cfg
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.mode = RunMode.MULTIRUN
    cfg.hydra.overrides.task = [item.input_line for item in parsed if not item.is_hydra_override()]
    HydraConfig.instance().set_config(cfg)
    words = recorded(cfg, "task")
    with composer.one_line(words):
        directory = str(cfg.hydra.sweep.dir)
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.sweep.dir = directory
    cfg.hydra.overrides.hydra += ["hydra.mode=MULTIRUN", f"hydra.sweep.dir={written(directory)}"]
    register()
    return cfg, words


def _failure(result: object) -> str | None:
    if isinstance(result, Result):
        return result.error or "failed" if result.status == "failed" else None
    failed = isinstance(result, JobReturn) and result.status == JobStatus.FAILED
    return str(result._return_value) if failed else None  # type: ignore[attr-defined]
