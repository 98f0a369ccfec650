"""The command line: subcommands, Hydra's flags, and one line for every error. Imports no torch."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence

from fedbench.errors import SaidElsewhere, UsageError, UserError, nearest, shortened
from fedbench.runs import ranks
from fedbench.runs.signals import Signals

SUBCOMMANDS = {
    "best": "fedbench.cli.best",
    "collect": "fedbench.cli.collect",
    "compare": "fedbench.cli.compare",
    "figures": "fedbench.papers.cli",
    "list": "fedbench.cli.listing",
    "plot": "fedbench.figures.plot",
    "replay": "fedbench.cli.replay",
    "report": "fedbench.cli.report",
    "rerun": "fedbench.cli.rerun",
    "show": "fedbench.cli.method_page",
    "status": "fedbench.cli.status",
    "tune": "fedbench.cli.tune",
}
"""Name -> module with `main(argv) -> exit code`, imported when it is called."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fedbench` with the arguments `argv` (without the program's name); return the exit code."""
    _open_streams()
    logging.raiseExceptions = False  # a log that cannot be written is no reason for a traceback
    wants_traceback = "1" in (os.environ.get("FEDBENCH_TRACEBACK"), os.environ.get("HYDRA_FULL_ERROR"))
    Signals.own_process = argv is None
    try:
        _refuse_namesake()
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt as stop:
        print(f"fedbench: {stop if str(stop) else 'interrupted'}", file=sys.stderr)
        return getattr(stop, "exit_code", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SaidElsewhere as error:
        return error.exit_code
    except Exception as error:
        from fedbench.compose.explain import line_of

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
            raise _unknown(shortened(word))
        ranks.refuse_several(f"fedbench {word}")
        return int(importlib.import_module(SUBCOMMANDS[word]).main(argv[1:]))
    from fedbench.cli import completion

    if completion.asked(argv):
        return completion.answer(SUBCOMMANDS)
    from fedbench.cli.run import main as run

    return run(argv)


def _unknown(word: str) -> UsageError:
    near = nearest(word, SUBCOMMANDS)
    hint = f" (did you mean '{near}'?)" if near else ""
    return UsageError(f"{word}: must be one of {', '.join(sorted(SUBCOMMANDS))}, or key=value{hint}")


def _open_streams() -> None:
    """A process may be started with its standard streams closed: then nobody reads, and nothing is said."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


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
