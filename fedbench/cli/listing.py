"""`fedbench list`: what can be chosen, from the files in conf/ and the registry of algorithms.

`fedbench show`: a method's page, made from its code, with where it is checked.
"""

from __future__ import annotations

import contextlib
import inspect
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbench import fields
from fedbench.config.explain import HYDRA_ERRORS
from fedbench.config.imports import execute
from fedbench.config.options import conf_dir, generated, options
from fedbench.config.overrides import parse
from fedbench.errors import OWN_CODE, Parser, UsageError, columns, unknown_option
from fedbench.fields import REGISTERED, is_own, registered
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
    parser.add_argument(
        "imports", nargs="?", metavar="imports=[FILE.py]", help="your own code, whose options are listed too"
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
    if args.imports is not None:
        execute("imports", _modules("list", args.imports))
        found = {name: cls for name, cls in registered(group).items() if not is_own(cls)}
        lines += [
            f"in {args.imports}:",
            *(f"{name}  {_about(cls)[0]}".rstrip() for name, cls in found.items()),
        ]
    print("\n".join(lines))
    return 0


def _about(cls: Any) -> list[str]:
    """The lines of the docstring of what a user registered."""
    return (inspect.getdoc(getattr(cls, "function", cls)) or "").splitlines() or [""]


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
        execute("imports", _modules("show", args.imports))
        functions = {group: cls for (group, of), cls in REGISTERED.items() if of == name}
        for group, cls in functions.items():
            if hasattr(cls, "function"):
                print("\n".join([f"{group}={name}", "", *_about(cls), *_keys(group, cls)]))
                return 0
    if args.imports is None and name not in (names := options("algorithm")):  # before torch is imported
        raise unknown_option("algorithm", name, names, OWN_CODE)
    from fedbench.algorithms import get  # torch and all methods
    from fedbench.method.page import page

    print(page(get(name)))
    return 0


def _keys(group: str, cls: Any) -> list[str]:
    """The keys of an option that a user's function declares, with their defaults and what is allowed."""
    keys = [(f"{group}.{name}={rule.default}", rule.allowed) for name, rule in fields.rules(cls)]
    return ["", *(f"{key:<30} {allowed}" for key, allowed in keys)] if keys else []


def _modules(command: str, word: str) -> list[str]:
    """The modules that the word imports=[FILE.py] names. Raises UsageError for any other word."""
    with contextlib.suppress(*HYDRA_ERRORS):
        (item,) = parse([word])
        if item.key_or_group == "imports" and isinstance(modules := item.value(), list):
            return modules
    raise UsageError(f"{command}: {word}: must be imports=[FILE.py]")
