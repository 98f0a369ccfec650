"""The command `fedbench plot`: its options, and the figures that it draws from run and sweep directories."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbench.errors import Lines, Parser, UsageError
from fedbench.figures.drawing import draw
from fedbench.figures.lines import ALIASES, PlotOptions, listed
from fedbench.figures.page import stem_of
from fedbench.figures.partition import draw_partition
from fedbench.figures.style import AUTO, POINTS, SPREADS, WIDTHS
from fedbench.figures.trace import draw_trace

_EXAMPLES = """examples:
  fedbench plot outputs/sweep                                   accuracy against rounds
  fedbench plot DIR1 DIR2 --x virtual_time --by algorithm,schedule
  fedbench plot outputs/sweep --x algorithm.lr                  final accuracy against the learning rate
  fedbench plot --partition outputs/run                         clients and classes
  fedbench plot --trace outputs/run                             who worked when (needs trace=true)
  fedbench plot --trace outputs/run --where client=3,7          of these clients
Each figure is written as PNG and PDF, with its points (CSV) and its caption (Markdown, JSON) beside it."""


def main(argv: Sequence[str]) -> int:
    """Draw what the arguments ask for, print the files and return the exit code. Raises UserError."""
    given = vars(_parser().parse_args(list(argv)))
    dirs, out = given.pop("dirs"), given.pop("out", None)
    of_one = next(((name, given.pop(name)) for name in ("partition", "trace") if name in given), None)
    if not dirs and not of_one:
        raise UsageError("plot: at least one directory is needed (fedbench plot --help)")
    if dirs and of_one:
        words = "--partition and --trace take one directory and no further ones"
        raise UsageError(f"plot: {dirs[0]}: {words}")
    if of_one and of_one[0] == "trace":
        given.setdefault("width", "two")
    options = PlotOptions(**given)
    name, first = of_one or (f"{options.y}_vs_{ALIASES.get(options.x, options.x)}", dirs[0])
    stem = stem_of(out or Path(first) / name)
    if of_one:
        made = {"partition": draw_partition, "trace": draw_trace}[name](first, options)
    else:
        made = draw(dirs, options)
    for file in made.save(stem):
        print(file)
    if out is None and len(dirs) > 1:
        print(f"written to {first}, the first of {len(dirs)} directories; see --out", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    """The parser. It leaves out options that are not given, so that the defaults of PlotOptions apply."""
    parser = Parser(
        prog="fedbench plot",
        description="Draw runs and sweeps.",
        epilog=_EXAMPLES,
        formatter_class=Lines,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    columns = "a column of metrics.csv (round, updates, virtual_time, uplink_bytes, ...)"
    bands = "what is shown of the seeds: a band (default: minmax of two, else std), or a point each"
    below = "draw the settings, seeds and n below too (they are in the .md and .json beside the picture)"
    add(
        "dirs",
        nargs="*",
        metavar="DIR",
        default=[],
        help="run directories, sweep directories, or directories of these",
    )
    add("--x", help=f"{columns} or a swept key (algorithm.lr); default: round")
    add("--y", help="a column of metrics.csv; against a key also best_accuracy; default: test_accuracy")
    add("--by", type=listed, metavar="KEY[,KEY]", help="keys that make a line (default: algorithm)")
    add("--where", action=_Pairs, metavar="KEY=VALUE[,VALUE]", help="only these runs")
    add("--out", help="file name (default: in DIR, or in the first of several)")
    add("--width", choices=list(WIDTHS), help="print width: one or two columns (default: one; traces: two)")
    add("--spread", choices=[AUTO, *SPREADS, POINTS], help=bands)
    add("--rows", metavar="KEY[,KEY]", help="a picture for each value of KEY, with shared axes")
    add("--log", choices=["x", "y", "xy"], help="logarithmic axes")
    add("--caption", action=argparse.BooleanOptionalAction, help=below)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--partition", metavar="RUN_DIR", help="picture of a partition: clients and classes")
    kind.add_argument(
        "--trace", metavar="RUN_DIR", help="picture of a schedule: jobs on a time line, staleness"
    )
    return parser


class _Pairs(argparse.Action):
    """Collects repeated KEY=VALUE,VALUE options in a dict of lists."""

    def __call__(self, parser: Any, namespace: Any, text: Any, option: str | None = None) -> None:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"plot: {option} {text}: must be KEY=VALUE")
        given = {key: value.split(",")}
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), **given})
