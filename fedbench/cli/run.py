"""`fedbench KEY=VALUE...`: one run, or a sweep, with Hydra's flags. Everything is checked before anything is
written, and no torch is imported before a run is known to be needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.core.utils import run_job as hydra_run_job
from hydra.types import RunMode
from omegaconf import OmegaConf

from fedbench import __version__
from fedbench.compose import inside
from fedbench.compose.composer import Composed, Composer, lenient
from fedbench.compose.overrides import first_values, parse, recorded, written
from fedbench.errors import RunError, UsageError, nearest
from fedbench.files import one_line_os_errors
from fedbench.runs.stored import finished, refuse_other
from fedbench.sweeps.collect import collect
from fedbench.sweeps.execute import Result
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.plugins import register
from fedbench.sweeps.results import report
from fedbench.sweeps.table import outcome


def main(argv: Sequence[str]) -> int:
    """Hydra's flags and overrides; without any, the quickstart. The exit code."""

    def refuse(message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0]
        near = nearest(unknown, parser._option_string_actions) if unknown.startswith("-") else None
        raise UsageError(
            f"{message} ({f'did you mean {near}? ' if near else ''}--hydra-help lists the flags)"
        )

    if argv == ["--version"]:
        print(f"fedbench-runner {__version__}")
        return 0
    parser = inside.flags()
    parser.error = refuse  # type: ignore[method-assign]
    args = parser.parse_intermixed_args(argv or ["experiment=quickstart"])
    if args.experimental_rerun:
        refuse("--experimental-rerun is refused, because it would execute what a pickle says")
    shown = [args.help, args.hydra_help, args.cfg, args.info, args.shell_completion]
    if sum(map(bool, [*shown, args.run, args.multirun])) > 1:
        refuse("only one of --run, --multirun, --cfg, --info, --help, --hydra-help and -sc can be given")
    if args.resolve and not (args.cfg or args.help):
        refuse("--resolve goes with --cfg or --help")
    composer = Composer(args.config_name, args.config_path, args.config_dir)
    args.overrides = [lenient(text) for text in args.overrides]
    if any(shown):
        from fedbench.cli.show import show

        show(composer, args, parser)
        return 0
    directory = launch(composer, args.overrides, args.multirun)
    if not argv and directory is not None:
        from fedbench.figures.plot import main as plot

        return plot([str(directory)])
    return 0


def launch(composer: Composer, overrides: Sequence[str], multirun: bool) -> Path | None:
    """Run what the overrides say; the directory of the sweep if it was one.

    Raises UserError, with exit code 1 if a job of the sweep failed.
    """
    with composer.one_line(overrides):
        parsed = parse(overrides, composer.loader)
        inside.refuse_sweeps(parsed, RunMode.MULTIRUN)
        first = first_values(overrides, composer.loader)
    composed = composer.compose(first, overrides)
    if multirun or composed.cfg.hydra.mode == RunMode.MULTIRUN:
        return _sweep(composer, composed, parsed)
    with composer.one_line(overrides):
        inside.refuse_sweeps(parsed, RunMode.RUN)
    _run(composer, composed)
    return None


def _run(composer: Composer, composed: Composed) -> None:
    """Run, resume or report a single run."""
    cfg = composed.cfg
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.mode = RunMode.RUN
    HydraConfig.instance().set_config(cfg)
    config = composed.config
    with composer.one_line(recorded(cfg, "task")):
        directory = Path(str(cfg.hydra.run.dir))
    refuse_other(directory, config)
    done = finished(directory, config)
    if done is not None:
        print(report(done, directory))
        return
    configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
    task = RunJob()
    task.check(config)
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


def _sweep(composer: Composer, composed: Composed, parsed: Sequence[Override]) -> Path:
    """Run the sweep of which `composed` is the first job."""
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
    configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
    context = inside.context(composer.loader, cfg)
    context.callbacks.on_multirun_start(config=cfg, config_name=composer.config_name)
    register()
    chosen = Plugins.instance().instantiate_sweeper(config=cfg, hydra_context=context, task_function=RunJob())
    try:
        with composer.one_line(words):
            results = chosen.sweep(arguments=words)
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on with what is missing in {directory}", file=sys.stderr)
        raise
    context.callbacks.on_multirun_end(config=cfg, config_name=composer.config_name)
    if Path(directory).is_dir():
        table, rounds = collect(Path(directory))
        print(f"\n{outcome(table)}\n\n{table}\n{rounds}")
    failed = [error for error in map(_failure, results or []) if error]
    if failed:
        raise RunError(f"{len(failed)} of {len(results)} runs failed: {failed[0]} (see {table})")
    return Path(directory)


def _failure(result: object) -> str | None:
    """Why a job failed, whichever sweeper ran it."""
    if isinstance(result, Result):
        return result.error or "failed" if result.status == "failed" else None
    failed = isinstance(result, JobReturn) and result.status == JobStatus.FAILED
    return str(result._return_value) if failed else None  # type: ignore[attr-defined]
