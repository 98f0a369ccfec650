"""`fedbench list`: what can be chosen, from the files in conf/ and the registry of algorithms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.arguments import Parser
from fedbench.config.options import options
from fedbench.config.paths import conf_dir

GROUPS = {
    "datasets": "dataset",
    "partitions": "partition",
    "models": "model",
    "algorithms": "algorithm",
    "schedules": "schedule",
    "delays": "delay",
    "experiments": "experiment",
}


def main(argv: Sequence[str]) -> int:
    """`fedbench list WHAT`."""
    parser = Parser(prog="fedbench list", description="Show what can be chosen.")
    parser.add_argument("what", choices=GROUPS, metavar="WHAT", help=", ".join(GROUPS))
    parser.add_argument("--markdown", action="store_true", help="the table of algorithms as in the README")
    args = parser.parse_args(argv)
    group = GROUPS[args.what]
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
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _description(file: Path) -> str:
    """The first comment of a configuration file, but for Hydra's own directives."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith("# @"):
            return line.lstrip("# ").rstrip()
    return ""
