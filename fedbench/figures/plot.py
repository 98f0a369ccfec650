"""`fedbench plot`: figures of run and sweep directories from the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.errors import Parser, UsageError
from fedbench.figures.style import AUTO, SPREADS, WIDTHS

if TYPE_CHECKING:
    from fedbench.figures.options import PlotOptions

_EXAMPLES = """examples:
  fedbench plot outputs/sweep                                   accuracy against rounds
  fedbench plot DIR1 DIR2 --x virtual_time --by algorithm,schedule
  fedbench plot outputs/sweep --x algorithm.lr                  final accuracy against the learning rate
  fedbench plot --partition outputs/run                         clients and classes
  fedbench plot --trace outputs/run                             who worked when (needs trace=true)
Each figure is written as PNG and PDF, with its points (CSV) and its caption (Markdown, JSON) beside it."""


def main(argv: Sequence[str]) -> int:
    """Draw what the arguments ask for and print the files; the exit code. Raises UserError."""
    args = _parser().parse_args(list(argv))
    if not args.dirs and not args.partition and not args.trace:
        raise UsageError("plot: at least one directory is needed (fedbench plot --help)")
    if args.dirs and (args.partition or args.trace):
        raise UsageError(
            f"plot: {args.dirs[0]}: --partition and --trace take one directory and no further ones"
        )
    from fedbench.figures import drawing, pictures
    from fedbench.figures.options import ALIASES
    from fedbench.figures.page import stem_of

    options = _options(args)
    name = f"{args.y}_vs_{ALIASES.get(args.x, args.x)}"
    name = "partition" if args.partition else "trace" if args.trace else name
    out = stem_of(args.out or Path(args.partition or args.trace or args.dirs[0]) / name)
    if args.partition:
        made = pictures.partition(args.partition, options)
    elif args.trace:
        made = pictures.trace(args.trace, options)
    else:
        made = drawing.draw(args.dirs, options)
    for file in made.save(out):
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
    add("--spread", choices=[AUTO, *SPREADS], default=AUTO, help=bands)
    add("--rows", metavar="KEY", help="a picture for each value of KEY, with shared axes")
    add("--log", choices=["x", "y", "xy"], default="", help="logarithmic axes")
    add("--xlim", metavar="LOW,HIGH", help="ends of the x axis")
    add("--ylim", metavar="LOW,HIGH", help="ends of the y axis")
    add("--order", default="", metavar="LINE[,LINE]", help="lines that come first, by algorithm or name")
    add("--label", action="append", default=[], metavar="WHAT=TEXT", help="name of a line, or of x or y")
    add("--colour", action="append", default=[], metavar="LINE=COLOUR", help="a name, or #RRGGBB")
    add("--svg", action="store_true", help="write SVG too")
    add("--style", type=Path, metavar="FILE", help="matplotlib settings, on top of those of a matplotlibrc")
    below = "draw the settings, seeds and n below too (they are in the .md and .json beside the picture)"
    add("--caption", action=argparse.BooleanOptionalAction, default=False, help=below)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--partition", metavar="RUN_DIR", help="picture of a partition: clients and classes")
    kind.add_argument(
        "--trace", metavar="RUN_DIR", help="picture of a schedule: jobs on a time line, staleness"
    )
    return parser


def _options(args: argparse.Namespace) -> PlotOptions:
    from fedbench.figures.options import PlotOptions

    ends = {axis: text for axis, text in (("x", args.xlim), ("y", args.ylim)) if text is not None}
    return PlotOptions(
        x=args.x,
        y=args.y,
        by=_listed(args.by) or ["algorithm"],
        where={key: values.split(",") for key, values in _pairs("where", args.where).items()},
        spread=args.spread,
        rows=args.rows,
        width=args.width or ("two" if args.trace else "one"),
        caption=args.caption,
        log=tuple(args.log),
        limits={axis: _ends(axis, text) for axis, text in ends.items()},
        labels=_pairs("label", args.label),
        order=_listed(args.order),
        colours=_pairs("colour", args.colour),
        svg=args.svg,
        style=args.style,
    )


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _ends(axis: str, text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise UsageError(f"plot: --{axis}lim {text}: must be two numbers, such as 0,1") from None
    return low, high


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"plot: --{option} {text}: must be KEY=VALUE")
        pairs[key] = value
    return pairs
