"""The command line: subcommands, Hydra's flags, and one line for every error. Imports no torch."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from fedbench import __version__
from fedbench.errors import UserError, nearest

SUBCOMMANDS = {
    "collect": "fedbench.sweeps.collect",
    "figures": "fedbench.papers.cli",
    "list": "fedbench.listing",
    "plot": "fedbench.figures.plot",
}
"""Name -> module with `main(argv) -> exit code`, imported when it is called."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fedbench` with the arguments `argv` (without the program's name); return the exit code."""
    logging.raiseExceptions = False  # a log that cannot be written is no reason for a traceback
    wants_traceback = "1" in (os.environ.get("FEDBENCH_TRACEBACK"), os.environ.get("HYDRA_FULL_ERROR"))
    try:
        _refuse_namesake()
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt as stop:
        print(f"fedbench: {stop if str(stop) else 'interrupted'}", file=sys.stderr)
        return getattr(stop, "exit_code", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from fedbench.config.explain import line_of

        line = line_of(error)
        if wants_traceback:
            traceback.print_exc()
        elif "internal error" in line:
            line += " (FEDBENCH_TRACEBACK=1 shows where)"
        print(f"fedbench: {line}", file=sys.stderr)
        return getattr(error, "exit_code", 1)


def _dispatch(argv: list[str]) -> int:
    word = argv[0] if argv else ""
    if word[:1].isidentifier() and "=" not in word:
        if word not in SUBCOMMANDS:
            raise _unknown(word)
        return int(importlib.import_module(SUBCOMMANDS[word]).main(argv[1:]))
    return _hydra(argv)


def _unknown(word: str) -> UserError:
    near = nearest(word, SUBCOMMANDS)
    hint = f" (did you mean '{near}'?)" if near else ""
    error = UserError(f"{word}: must be one of {', '.join(sorted(SUBCOMMANDS))}, or key=value{hint}")
    error.exit_code = 2
    return error


def _hydra(argv: list[str]) -> int:
    """Hydra's flags and overrides; without any, the quickstart."""
    from hydra._internal.utils import get_args_parser

    from fedbench.app import App
    from fedbench.config.explain import UsageError

    def refuse(message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0]
        near = nearest(unknown, parser._option_string_actions) if unknown.startswith("-") else None
        raise UsageError(
            f"{message} ({f'did you mean {near}? ' if near else ''}--hydra-help lists the flags)"
        )

    if argv == ["--version"]:
        print(f"fedbench-runner {__version__}")
        return 0
    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    args = parser.parse_intermixed_args(argv or ["experiment=quickstart"])
    if args.experimental_rerun:
        refuse("--experimental-rerun is refused, because it would execute what a pickle says")
    shown = [args.help, args.hydra_help, args.cfg, args.info, args.shell_completion]
    if sum(map(bool, [*shown, args.run, args.multirun])) > 1:
        refuse("only one of --run, --multirun, --cfg, --info, --help, --hydra-help and -sc can be given")
    if args.resolve and not (args.cfg or args.help):
        refuse("--resolve goes with --cfg or --help")
    app = App(args)
    if any(shown):
        app.show(args, parser)
        return 0
    directory = app.launch(args.multirun)
    if not argv and directory is not None:
        from fedbench.figures.plot import main as plot

        return plot([str(directory)])
    return 0


def _refuse_namesake() -> None:
    """Another distribution with an import package `fedbench` may have overwritten files of this one."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        other = version("fedbench")
    except PackageNotFoundError:
        return
    raise UserError(
        f"the unrelated distribution 'fedbench' {other} is installed beside 'fedbench-runner', and both "
        "bring a package of that name: uninstall it, then install fedbench-runner again"
    )
