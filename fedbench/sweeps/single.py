"""A single run with Hydra's files and callbacks. No torch is imported to report a finished one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.utils import JobStatus, configure_log
from hydra.core.utils import run_job as hydra_run_job

from fedbench.compose import inside
from fedbench.compose.composer import Composed, Composer
from fedbench.files import one_line_os_errors
from fedbench.runs.logged import catch_up
from fedbench.runs.stored import finished, refuse_other
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.results import report


def run(composer: Composer, composed: Composed) -> None:
    """Run, resume or report a single run."""
    config = composed.config  # first: it names the key that cannot be meant
    cfg, directory = composed.cfg, composer.place(composed)
    done = ended(composed, directory)
    if done is not None:
        catch_up(config, directory, done)
        print(report(done, directory))
        return
    configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
    task = RunJob()
    task.check(config, directory)
    run_checked(composer, composed, task, directory)


def ended(composed: Composed, directory: Path) -> dict[str, Any] | None:
    """The summary of a run that `directory` holds, finished. Raises UserError where it holds another."""
    refuse_other(directory, composed.config)
    return finished(directory, composed.config)


def run_checked(composer: Composer, composed: Composed, task: RunJob, directory: Path) -> None:
    """Run what `task` has checked, with Hydra's own files and callbacks."""
    cfg = composed.cfg
    context = inside.context(composer.loader, cfg)
    context.callbacks.on_run_start(config=cfg, config_name=composer.config_name)
    with one_line_os_errors(f"write {directory}"):  # Hydra's own files
        result = hydra_run_job(
            hydra_context=context,
            task_function=task,
            config=cfg,
            job_dir_key="hydra.run.dir",
            job_subdir_key=None,
        )
    context.callbacks.on_run_end(config=cfg, config_name=composer.config_name, job_return=result)
    if result.status == JobStatus.FAILED:
        raise result._return_value
