"""One run as requested on the command line: computed, resumed, or reported if it has finished.

No torch is imported to report a run. If several processes (torchrun) compute a run together, the first one
writes its files, log and lines; the others do their share in silence.
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
from fedbench.sweeps.formats import evaluations
from fedbench.sweeps.job import computed, finished_line, session

if TYPE_CHECKING:
    from fedbench.runs.run import Run


def run(composer: Composer, composed: Composed, group: ProcessGroup = ALONE) -> None:
    """Run, resume or report a single run. Its evaluations are printed unless `progress` is none. In a
    `group`, only the first process writes Hydra's own files. If one process fails, the others raise
    SaidElsewhere."""
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
        from fedbench.runs.run import Run

        return Run(config, session(), group)

    made = group.agree(check)
    if group.size > 1:
        from fedbench.runs.refusals import alike

        group.same(alike(made))
    if not first:
        made.take_part()
        return

    def task(cfg: DictConfig) -> float:
        return computed(config, Path(HydraConfig.get().runtime.output_dir), lambda: made)

    with one_line_os_errors(f"write {here.path}"):  # Hydra's own files
        result = run_job(
            hydra_context=composer.context(),
            task_function=task,
            config=cfg,
            job_dir_key="hydra.run.dir",
            job_subdir_key=None,
        )
    if result.status == JobStatus.FAILED:
        raise result._return_value
    if config.progress != "none":
        print(evaluations(here.rows()))


def run_with_others(composer: Composer, overrides: Sequence[str], multirun: bool, here: ProcessGroup) -> None:
    """Compute the run of these overrides together with the other processes; `here` is this one. If it fails,
    one process raises UserError and the others SaidElsewhere."""

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
