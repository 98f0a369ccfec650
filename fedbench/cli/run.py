"""`fedbench KEY=VALUE...`: one run, or a sweep, with Hydra's flags. Everything is checked before anything is
written, and no torch is imported before a run is known to be needed."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.types import RunMode

from fedbench import __version__, process_group
from fedbench.config.compose import Composer, check_composed, lenient, list_quickly
from fedbench.config.overrides import refuse_sweeps
from fedbench.errors import RunError, UsageError, nearest
from fedbench.sweeps.launch import FinishedSweep, planned, run, run_sweep, run_with_others
from fedbench.sweeps.plan import forecast
from fedbench.sweeps.tables import RUNS, closing_table, collect


def main(argv: Sequence[str]) -> int:
    """Hydra's flags and overrides; without any, the quickstart. The exit code."""
    if argv == ["--version"]:
        print(f"fedbench-runner {__version__}")
        return 0
    flags = parser()
    refuse = flags.error
    args = flags.parse_intermixed_args(argv or ["experiment=quickstart"])
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
        _show(composer, args, flags)
        return 0
    directory = launch(composer, args.overrides, args.multirun, args.dry_run)
    if not argv and directory is not None:
        from fedbench.figures.plot import main as plot

        return plot([str(directory)])
    return 0


def parser() -> argparse.ArgumentParser:
    """Of Hydra's flags and ours; its errors are UsageErrors."""

    def refuse(message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0]
        near = nearest(unknown, made._option_string_actions) if unknown.startswith("-") else None
        raise UsageError(
            f"{message} ({f'did you mean {near}? ' if near else ''}--hydra-help lists the flags)"
        )

    made = get_args_parser()
    made.error = refuse  # type: ignore[method-assign]
    said = "Say what would run and what it takes (disk, memory), and run nothing"
    made.add_argument("--dry-run", action="store_true", help=said)
    return made


def launch(composer: Composer, overrides: Sequence[str], multirun: bool, dry: bool) -> Path | None:
    """Run what the overrides say; the directory of a sweep. `dry`: only say what that would take.

    Raises UserError, with exit code 1 if a job of the sweep failed.
    """
    if process_group.here().size > 1 and not dry:
        run_with_others(composer, overrides, multirun, process_group.here())
        return None
    parsed, composed = composer.read(overrides)
    sweeps = multirun or composed.cfg.hydra.mode == RunMode.MULTIRUN
    if not sweeps:
        refuse_sweeps(parsed)
    if dry:
        config = None if sweeps else composed.config  # first: it names the key that is not valid
        runs = (
            planned(composer, parsed, composed) if config is None else ([(composer.place(composed), config)],)
        )
        for line in forecast(*runs):
            print(line, flush=True)
        return None
    if sweeps:
        return _report(run_sweep(composer, parsed, composed))
    run(composer, composed)
    return None


def _report(ended: FinishedSweep) -> Path:
    """Say how a sweep has ended; its directory. Raises RunError if runs have failed."""
    directory, failed = ended.directory, ended.failures
    if directory.is_dir():
        table, rounds = collect(directory)
        print(f"\n{closing_table(table)}\n\n{table}\n{rounds}")
    if failed:
        raise RunError(
            f"{len(failed)} of {len(ended.results)} runs failed: {failed[0]} (see {directory / RUNS})"
        )
    return directory


def _show(composer: Composer, args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Print what Hydra's flags ask for that show something: --help, --cfg, --info, --hydra-help, -sc."""
    hydra, name, words = composer.hydra, composer.config_name, args.overrides
    with _hydra_raises(), composer.one_line(words):
        if not args.shell_completion:
            composer.check(words)
        if args.help or args.cfg or args.info:
            check_composed(composer.loader.load_configuration(name, words, RunMode.MULTIRUN))
        if args.help:
            list_quickly(composer.loader)
            hydra.app_help(config_name=name, args_parser=parser, args=args)
        elif args.hydra_help:
            hydra.hydra_help(config_name=name, args_parser=parser, args=args)
        elif args.cfg:
            hydra.show_cfg(name, words, args.cfg, args.package, args.resolve)
        elif args.info:
            hydra.show_info(args.info, config_name=name, overrides=words)
        elif "query=" in "".join(words[:1]):  # a shell asks; a line that it cannot complete is no error
            list_quickly(composer.loader)
            with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception, SystemExit):
                hydra.shell_completion(config_name=name, overrides=words)
        else:
            hydra.shell_completion(config_name=name, overrides=words)


@contextlib.contextmanager
def _hydra_raises() -> Iterator[None]:
    """Hydra raises its errors and leaves them to us; afterwards the environment is what it was."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before
