"""The command line: subcommands, Hydra's flags, and one line for every error. Imports no torch."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

from fedbench.errors import SaidElsewhere, UsageError, UserError, chain, coloured, nearest, shortened
from fedbench.files import one_line_os_errors
from fedbench.machine import Loading
from fedbench.process_group import refuse_several
from fedbench.runs.signals import ignore_saves

SUBCOMMANDS = {
    "best": "fedbench.cli.results:best",
    "cancel": "fedbench.cli.cancel:main",
    "collect": "fedbench.cli.results:collect",
    "compare": "fedbench.cli.results:compare",
    "figures": "fedbench.papers.command:main",
    "list": "fedbench.cli.listing:main",
    "plot": "fedbench.figures.plot:main",
    "replay": "fedbench.cli.replay:main",
    "report": "fedbench.cli.results:report",
    "show": "fedbench.cli.listing:show",
    "status": "fedbench.cli.results:status",
    "tune": "fedbench.cli.tune:main",
}
"""Name -> function `(argv) -> exit code`, whose module is imported when it is called."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fedbench` with the arguments `argv` (without the program's name); return the exit code."""
    Loading.keeps = True
    ignore_saves()
    _open_streams()
    logging.raiseExceptions = False  # a log that cannot be written is no reason for a traceback
    wants_traceback = "1" in (os.environ.get("FEDBENCH_TRACEBACK"), os.environ.get("HYDRA_FULL_ERROR"))
    try:
        _refuse_namesake()
        with one_line_os_errors("use the current directory"):
            os.getcwd()
        words = list(sys.argv[1:] if argv is None else argv)
        with _offline() if "--dry-run" in words else contextlib.nullcontext():
            return _dispatch(words)
    except KeyboardInterrupt as stop:
        return _stopped(stop)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SaidElsewhere as error:
        return error.exit_code
    except Exception as error:
        from fedbench.config.explain import line_of

        for cause in chain(error):  # what Ctrl-C has left half done may fail on its way out
            if isinstance(cause, KeyboardInterrupt):
                return _stopped(cause)
        line = line_of(error)
        if wants_traceback:
            traceback.print_exc()
        elif "internal error" in line:
            line += " (FEDBENCH_TRACEBACK=1 shows where)"
        print(f"{coloured('fedbench:', 'error', sys.stderr)} {line}", file=sys.stderr)
        return getattr(error, "exit_code", 1)


def _stopped(stop: KeyboardInterrupt) -> int:
    """Say that a signal has stopped the command; return the exit code."""
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(f"fedbench: {stop if str(stop) else 'interrupted'}", file=sys.stderr)
    return getattr(stop, "exit_code", 130)


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Nothing is downloaded meanwhile, by us or by Hugging Face's libraries."""
    names = ("FEDBENCH_OFFLINE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name)
        os.environ.update(before)


def _dispatch(argv: list[str]) -> int:
    word = argv[0] if argv else ""
    if word == "help":  # help, or help COMMAND
        return _dispatch([*argv[1:], "--help"])
    if word[:1].isidentifier() and "=" not in word:
        if word not in SUBCOMMANDS:
            known = sorted([*SUBCOMMANDS, "help"])
            hint = f" (did you mean '{near}'?)" if (near := nearest(word, known)) else ""
            allowed = f"must be one of {', '.join(known)}, or key=value{hint}"
            raise UsageError(f"{shortened(word)}: {allowed}")
        refuse_several(f"fedbench {word}")
        module, function = SUBCOMMANDS[word].split(":")
        return int(getattr(importlib.import_module(module), function)(argv[1:]))
    from fedbench.cli.run import main as run

    return run(argv)


def _open_streams() -> None:
    """Replace standard streams that were closed at the start of the process by the null device. A character
    that the terminal cannot show becomes a question mark."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _refuse_namesake() -> None:
    """Raise UserError if an unrelated distribution `fedbench` is installed: it may have overwritten files."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        other = version("fedbench")
    except PackageNotFoundError:
        return
    raise UserError(
        f"the unrelated distribution 'fedbench' {other} is installed beside 'fedbench-runner', and both "
        "bring a package of that name: uninstall it, then install fedbench-runner again"
    )
