"""One run as a command line asks for it: computed, gone on with, or reported where it is finished.

No torch is imported to report a run. What several processes (torchrun) compute together has its files, log
and lines from the first of them; the others do their share in silence.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobStatus, configure_log, run_job
from omegaconf import DictConfig

from fedbench import process_group
from fedbench.config.compose import Composed, Composer
from fedbench.config.explain import line_of
from fedbench.errors import SaidElsewhere, UserError
from fedbench.files import one_line_os_errors
from fedbench.process_group import ALONE, ProcessGroup
from fedbench.runs.run_directory import RunDirectory
from fedbench.sweeps.job import computed, finished_line, session

if TYPE_CHECKING:
    from fedbench.runs.run import Run


def run(composer: Composer, composed: Composed, group: ProcessGroup = ALONE) -> None:
    """Run, resume or report a single run. Of the processes of a `group`, the first one has Hydra's own files
    and callbacks; SaidElsewhere in the others where it was stopped."""
    cfg, config, first = composed.cfg, composed.config, group.rank == 0
    here = RunDirectory(group.agree(lambda: composer.place(composed)))

    def before() -> dict[str, object] | None:
        if first:
            here.refuse_other(config)
        return here.reported(config) if first else None

    done = group.agree(before)
    if group.first(done is not None):
        if done is not None:
            print(finished_line(done, here.path))
        return
    if first:
        configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)

    def check() -> Run:
        from fedbench.runs.checkpoint import own_checkpoint
        from fedbench.runs.run import Run

        made = Run(config, session(), group)
        if first and (config.resume == "same" or here.earlier(config)):
            own_checkpoint(made, here)  # refused before anything is written, where it cannot go on
        return made

    made = group.agree(check)
    if group.size > 1:
        from fedbench.runs.refusals import alike

        group.same(alike(made))
    if not first:
        made.take_part()
        return

    def task(cfg: DictConfig) -> float:
        return computed(config, Path(HydraConfig.get().runtime.output_dir), lambda: made)

    context = composer.context(cfg)
    context.callbacks.on_run_start(config=cfg, config_name=composer.config_name)
    with one_line_os_errors(f"write {here.path}"):  # Hydra's own files
        result = run_job(
            hydra_context=context,
            task_function=task,
            config=cfg,
            job_dir_key="hydra.run.dir",
            job_subdir_key=None,
        )
    context.callbacks.on_run_end(config=cfg, config_name=composer.config_name, job_return=result)
    if result.status == JobStatus.FAILED:
        raise result._return_value


def run_with_others(composer: Composer, overrides: Sequence[str], multirun: bool, here: ProcessGroup) -> None:
    """Run what the overrides say together with the other processes, of which `here` is this one. Raises
    UserError; SaidElsewhere in all but one."""

    def composed_here() -> Composed:
        composed = composer.read(overrides)
        if multirun or composed.sweeps:
            process_group.refuse_several("a sweep")
        return composed.one_run()

    if here.rank:
        logging.disable()
    with process_group.connected(here) as group:
        try:
            run(composer, group.agree(composed_here), group)
        except SaidElsewhere:
            raise
        except KeyboardInterrupt as stop:
            if here.rank == 0:
                raise
            raise SaidElsewhere("stopped", getattr(stop, "exit_code", 130)) from stop
        except Exception as error:
            if here.rank == 0:
                raise
            refusal = UserError(f"process {here.rank}: {line_of(error)}")
            refusal.exit_code = getattr(error, "exit_code", 1)
            raise refusal from error
