"""`fedbench list`: what can be chosen, from the files in conf/ and the registry of algorithms.

`fedbench show`: a method's page, made from its code, with where it is checked and its curve.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.imports import execute
from fedbench.config.options import conf_dir, options
from fedbench.config.overrides import parse
from fedbench.errors import Parser, UsageError
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


TASK = """\
On the quickstart's task (digits, 20 clients by Dirichlet(0.5), 5 a round, 10 local steps, mlp{needs}), with
the default, untuned step sizes: shows that it learns, not how it compares. Mean and std of {n} seeds."""


def main(argv: Sequence[str]) -> int:
    """`fedbench list WHAT`."""
    parser = Parser(prog="fedbench list", description="Show what can be chosen.")
    parser.add_argument("what", choices=GROUPS, nargs="?", metavar="WHAT", help=", ".join(GROUPS))
    parser.add_argument("--markdown", action="store_true", help="the table of algorithms as in the README")
    parser.add_argument("--config-dir", type=Path, metavar="DIR", help="also list your own options in DIR")
    args = parser.parse_args(argv)
    if args.what is None:
        for what, group in GROUPS.items():
            every = ", ".join(dict.fromkeys(name.split("/")[0] for name in options(group)))
            print(textwrap.fill(f"{what:<14} {every}", 118, subsequent_indent=" " * 15))
        return 0
    group, own = GROUPS[args.what], args.config_dir
    if own is not None and not own.is_dir():
        raise UsageError(f"list: --config-dir {own}: there is no such directory")
    if group == "algorithm":
        from fedbench import algorithms  # imports torch
        from fedbench.method.table import Entry, markdown, table

        if args.markdown:
            print(markdown(algorithms.every()), end="")
            return 0
        titles = [field.name.replace("_", " ") for field in dataclasses.fields(Entry)]
        rows = [titles, *(list(dataclasses.astuple(entry)) for entry in table(algorithms.every()))]
    else:
        rows = [[name, _description(conf_dir() / group / f"{name}.yaml")] for name in options(group)]
    lines = aligned(rows)
    if own is not None:  # listing executes none of the user's code
        files = sorted((own / group).rglob("*.yaml"))
        names = [file.relative_to(own / group).with_suffix("").as_posix() for file in files]
        found = aligned([[name, _description(file)] for name, file in zip(names, files, strict=True)])
        lines += [f"in {own}:", *found]
    print("\n".join(lines))
    return 0


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
    for item in parse([args.imports] if args.imports else []):
        if item.key_or_group != "imports" or not isinstance(modules := item.value(), list):
            raise UsageError(f"show: {args.imports}: must be imports=[FILE.py]")
        execute("imports", modules)
    from fedbench.algorithms import get  # torch and all methods
    from fedbench.method.curve import NEEDS, curve, drawn
    from fedbench.method.page import page

    print(page(get(name)))
    points = curve(name)
    if points:
        needs = f"; {NEEDS[name]}" if name in NEEDS else ""
        print("\n".join(["", TASK.format(needs=needs, n=points[-1].n), *drawn(points)]))
    return 0
