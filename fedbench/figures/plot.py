"""`fedbench plot`: figures of run and sweep directories from the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.arguments import Parser
from fedbench.errors import UsageError
from fedbench.figures.style import WIDTHS

_EXAMPLES = """examples:
  fedbench plot outputs/sweep                                   accuracy against rounds
  fedbench plot DIR1 DIR2 --x virtual_time --by algorithm,schedule
  fedbench plot outputs/sweep --x algorithm.lr                  final accuracy against the learning rate
  fedbench plot --partition outputs/run                         clients and classes
  fedbench plot --trace outputs/run                             who worked when (needs trace=true)
Each figure is written as PNG and PDF, with its points (CSV) and its caption (Markdown, JSON) beside it."""


def main(argv: Sequence[str]) -> int:
    """Draw what the arguments ask for and print the files; the exit code. Raises UserError."""
    parser = _parser()
    args = parser.parse_args(list(argv))
    files = _special(args) if args.partition or args.trace else _runs(args)
    for file in files:
        print(file)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="fedbench plot",
        description="Draw runs and sweeps.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("dirs", nargs="*", metavar="DIR", help="run directories, sweep directories, or directories of these")
    columns = "a column of metrics.csv (round, updates, virtual_time, uplink_bytes, ...)"
    add("--x", default="round", help=f"{columns} or a swept key (algorithm.lr)")
    add("--y", default="test_accuracy", help="a column of metrics.csv; against a key also best_accuracy")
    add("--by", default="algorithm", help="keys that make a line, with commas between them")
    add("--where", action="append", default=[], metavar="KEY=VALUE[,VALUE]", help="only these runs")
    add("--out", help="file name (default: in the first DIR)")
    add("--width", choices=list(WIDTHS), help="print width: one or two columns (default: one; traces: two)")
    bands = "what the band over seeds shows (default: minmax of two seeds, else std)"
    add("--spread", choices=["auto", "std", "sem", "minmax"], default="auto", help=bands)
    add("--log", choices=["x", "y", "xy"], default="", help="logarithmic axes")
    below = "draw the settings, seeds and n below too (they are in the .md and .json beside the picture)"
    add("--caption", dest="captioned", action=argparse.BooleanOptionalAction, default=False, help=below)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--partition", metavar="RUN_DIR", help="picture of a partition: clients and classes")
    kind.add_argument(
        "--trace", metavar="RUN_DIR", help="picture of a schedule: jobs on a time line, staleness"
    )
    return parser


def _special(args: argparse.Namespace) -> list[Path]:
    from fedbench.figures.partition import plot_partition
    from fedbench.figures.trace import plot_trace

    if args.dirs:
        raise UsageError(
            f"plot: {args.dirs[0]}: --partition and --trace take one directory and no further ones"
        )
    if args.partition:
        out = args.out or Path(args.partition) / "partition"
        return plot_partition(args.partition, out, width=args.width or "one", captioned=args.captioned)
    out = args.out or Path(args.trace) / "trace"
    return plot_trace(args.trace, out, width=args.width or "two", captioned=args.captioned)


def _runs(args: argparse.Namespace) -> list[Path]:
    from fedbench.figures.curves import plot_runs
    from fedbench.figures.draw.axes import ALIASES
    from fedbench.figures.read.tables import METRICS
    from fedbench.figures.sensitivity import plot_sweep

    if not args.dirs:
        raise UsageError("plot: at least one directory is needed (fedbench plot --help)")
    x = ALIASES.get(args.x, args.x)
    draw = plot_runs if x in METRICS else plot_sweep
    return draw(
        args.dirs,
        args.out or Path(args.dirs[0]) / f"{args.y}_vs_{args.x}",
        x=x,
        y=args.y,
        by=[key.strip() for key in args.by.split(",") if key.strip()] or ["algorithm"],
        where=dict(_condition(text) for text in args.where),
        width=args.width or "one",
        spread=args.spread,
        captioned=args.captioned,
        log=tuple(args.log),
    )


def _condition(text: str) -> tuple[str, list[str]]:
    key, equals, values = text.partition("=")
    if not key or not equals:
        raise UsageError(f"plot: --where {text}: must be KEY=VALUE or KEY=VALUE,VALUE")
    return key, values.split(",")
