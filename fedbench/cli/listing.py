"""`fedbench list`: what can be chosen, from the files in conf/ and the registry of algorithms.

`fedbench show`: a method's page, made from its code, with where it is checked.
"""

from __future__ import annotations

import contextlib
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.explain import HYDRA_ERRORS
from fedbench.config.imports import execute
from fedbench.config.options import conf_dir, generated, options
from fedbench.config.overrides import parse
from fedbench.errors import OWN_CODE, Parser, UsageError, columns, unknown_option
from fedbench.sweeps.formats import aligned

GROUPS = {
    "datasets": "dataset",
    "partitions": "partition",
    "models": "model",
    "algorithms": "algorithm",
    "schedules": "schedule",
    "delays": "delay",
    "optimizers": "optimizer",
    "lr_schedules": "lr_schedule",
    "participations": "participation",
    "loggers": "logger",
    "experiments": "experiment",
}


FIRST = ("name", "paper", "schedules", "tuned", "gradients", "uplink", "downlink")
"""The columns of the table of methods that a narrow terminal shows first."""


def main(argv: Sequence[str]) -> int:
    """`fedbench list WHAT`."""
    parser = Parser(prog="fedbench list", description="Show what can be chosen.")
    parser.add_argument(
        "what", type=_plural, choices=GROUPS, nargs="?", metavar="WHAT", help=", ".join(GROUPS)
    )
    parser.add_argument("--markdown", action="store_true", help="the table of algorithms as in the README")
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="also list your own options in DIR")
    args = parser.parse_args(argv)
    width = shutil.get_terminal_size((0, 0)).columns  # 0: not a terminal
    if args.what is None:
        for what, group in GROUPS.items():
            every = ", ".join(options(group))
            print(textwrap.fill(f"{what:<14} {every}", columns(), subsequent_indent=" " * 15))
        return 0
    group, own = GROUPS[args.what], args.config_dir
    if own is not None and not own.is_dir():
        raise UsageError(f"list: --config-dir {own}: there is no such directory")
    if group == "algorithm" and args.markdown:
        from fedbench import algorithms  # imports torch
        from fedbench.method.table import markdown

        print(markdown(algorithms.every()), end="")
        return 0
    if group == "algorithm":
        lines = _fitting(_methods(), width)
    else:
        lines = _described([(name, conf_dir() / group / f"{name}.yaml") for name in options(group)], width)
    if own is not None:  # listing executes none of the user's code
        files = sorted((own / group).rglob("*.yaml"))
        names = [file.relative_to(own / group).with_suffix("").as_posix() for file in files]
        lines += [f"in {own}:", *_described(list(zip(names, files, strict=True)), width)]
    print("\n".join(lines))
    return 0


def _plural(word: str) -> str:
    """`algorithms` also where the group's own name, `algorithm`, is given."""
    return next((what for what, group in GROUPS.items() if group == word), word)


def _methods() -> list[list[str]]:
    """The titles and rows of the table of methods. One that is newer than the table has its name alone."""
    titles, *rows = generated()["methods"]
    lacking = {*options("algorithm")} - {row[0] for row in rows}
    return [titles, *rows, *([name, *[""] * (len(titles) - 1)] for name in sorted(lacking))]


def _fitting(rows: list[list[str]], width: int) -> list[str]:
    """A table's lines, with as many columns as a terminal of that width shows; 0: all of them."""
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    kept: set[int] = set()
    for title in (*FIRST, *rows[0]):
        more = kept | {rows[0].index(title)}
        if not width or sum(widths[column] for column in more) - 2 <= width:
            kept = more
    lines = aligned([[cell for column, cell in enumerate(row) if column in kept] for row in rows])
    missing = ", ".join(title for column, title in enumerate(rows[0]) if column not in kept)
    note = (
        f"Not shown here: {missing}. A wider terminal or --markdown has all, `fedbench show NAME` a method's."
    )
    return [*lines, *(textwrap.wrap(note, width) if missing else ())]


def _described(named: Sequence[tuple[str, Path]], width: int) -> list[str]:
    """Lines of names and descriptions; those that are too wide for the terminal go on below."""
    lines, indent = [], max([len(name) for name, _ in named], default=0) + 2
    for name, file in named:
        line = f"{name:<{indent}}{_description(file)}".rstrip()
        narrow = width and width > indent + 20
        lines += textwrap.wrap(line, width, subsequent_indent=" " * indent) if narrow else [line]
    return lines


def _description(file: Path) -> str:
    """The first comment of a configuration file, but for Hydra's own directives."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith("# @"):
            return line.lstrip("# ").rstrip()
    return ""


def show(argv: Sequence[str]) -> int:
    """`fedbench show METHOD`. Raises ConfigError for a name that no method has."""
    parser = Parser(prog="fedbench show", description="Show a method's page.")
    parser.add_argument("method", metavar="METHOD", help="a name of `fedbench list algorithms`")
    parser.add_argument(
        "imports", nargs="?", metavar="imports=[FILE.py]", help="your own code, executed first"
    )
    args = parser.parse_args(argv)
    name = args.method
    if args.imports is not None:
        execute("imports", _modules(args.imports))
    if args.imports is None and name not in (names := options("algorithm")):  # before torch is imported
        raise unknown_option("algorithm", name, names, OWN_CODE)
    from fedbench.algorithms import get  # torch and all methods
    from fedbench.method.page import page

    print(page(get(name)))
    return 0


def _modules(word: str) -> list[str]:
    """The modules that the word imports=[FILE.py] names. Raises UsageError for any other word."""
    with contextlib.suppress(*HYDRA_ERRORS):
        (item,) = parse([word])
        if item.key_or_group == "imports" and isinstance(modules := item.value(), list):
            return modules
    raise UsageError(f"show: {word}: must be imports=[FILE.py]")
