"""`fedbench figures`: make the papers' figures and tables, list them, or say which are stale."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.identity import NOT_IDENTITY
from fedbench.errors import ConfigError, Parser, RunError, UsageError, UserError
from fedbench.papers import FIGURES
from fedbench.papers.claims import SCALES

_EXAMPLES = """examples:
  fedbench figures --list                          what there is
  fedbench figures padamfed/fig1 --scale smoke     tune, run what is missing, draw; the same again goes on
  fedbench figures --all --scale cpu data.root=DIR
  fedbench figures --check                         which kept results were made from other configurations
  fedbench figures --report                        outputs/README.md anew
  fedbench figures loss_scale --scale cpu --redraw   the pictures anew from what is kept: no runs, no data
Results: outputs/figures/<figure>/<scale>/ (small, to be committed), of scale smoke in outputs/smoke/;
the runs behind them: outputs/runs/."""


def main(argv: Sequence[str]) -> int:
    """Run the subcommand; the exit code. Raises UserError; RunError where runs failed."""
    args = _parse(argv)
    if args.list:
        width = max(map(len, FIGURES))
        for name, item in FIGURES.items():
            print(f"{name.ljust(width)}  {item.about}")
        return 0
    if args.check:
        return _check()
    if not args.names and not args.all and not args.report:
        raise UsageError(
            "figures: a figure's name, --all, --list, --check or --report is needed (see --help)"
        )
    failures = _figures(list(FIGURES) if args.all else args.names, args)
    from fedbench.papers.report import write_report

    for file in write_report(Path(), smoke=args.scale == "smoke" and not args.report):
        print(file)
    if failures:
        more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
        raise RunError(f"{failures[0]}{more}")
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="fedbench figures",
        description="Make the papers' figures and tables.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words = "figures, and overrides of how they are computed (data.root, device, ...)"
    parser.add_argument("words", nargs="*", metavar="NAME | KEY=VALUE", help=words)
    parser.add_argument("--scale", choices=SCALES, default="smoke", help="how large (default: smoke)")
    parser.add_argument("--all", action="store_true", help="every figure")
    parser.add_argument("--list", action="store_true", help="show the figures")
    parser.add_argument("--check", action="store_true", help="which kept results are stale; exit 1 if any is")
    again = "draw again from what is kept, without runs and data (with --all: what is kept at the scale)"
    parser.add_argument("--redraw", action="store_true", help=again)
    parser.add_argument("--report", action="store_true", help="write the report only")
    args = parser.parse_intermixed_args(list(argv))
    args.names = [word for word in args.words if "=" not in word]
    args.overrides = [word for word in args.words if "=" in word]
    for name in args.names:
        if name not in FIGURES:
            raise ConfigError("figure", name, f"must be one of {', '.join(FIGURES)}", FIGURES)
    for text in args.overrides:
        key, _, value = text.partition("=")
        if key not in NOT_IDENTITY and not key.startswith(("checkpoint.seconds", "hydra.launcher.")):
            keys = ", ".join([*NOT_IDENTITY, "checkpoint.seconds", "hydra.launcher.*"])
            allowed = f"would make another figure; only {keys}"
            raise ConfigError(key, value, allowed)
    return args


def _figures(names: Sequence[str], args: argparse.Namespace) -> list[str]:
    """Make these figures, or draw them again; the lines of what failed."""
    from fedbench.papers.claims import made
    from fedbench.papers.figure import shown
    from fedbench.papers.make import make, redraw
    from fedbench.runs.provenance import commit
    from fedbench.sweeps.tables import duration

    if args.redraw and args.overrides:
        raise UsageError(f"figures --redraw {args.overrides[0]}: nothing is computed, so nothing can be set")
    if names and not args.redraw and args.scale != "smoke" and (commit() or "").endswith("+dirty"):
        raise UsageError(
            f"figures --scale {args.scale}: fedbench/, conf/ or pyproject.toml differ from the commit that"
            " results are published with; commit first (--scale smoke needs no commit)"
        )
    failures: list[str] = []
    for name in names:
        figure, begin = FIGURES[name], time.monotonic()
        scale = args.scale if args.scale in figure.scales else "paper"
        if args.redraw and args.all and made(shown(name, scale)) is None:
            continue
        try:
            failures += redraw(figure, scale) if args.redraw else make(figure, scale, args.overrides)
        except UserError as error:  # data that are not there, say: the other figures may not need them
            if len(names) == 1:
                raise
            failures.append(f"{name}: {error}")
            print(failures[-1], flush=True)
            continue
        print(f"{name}: {shown(name, scale)} ({duration(time.monotonic() - begin)})", flush=True)
    return failures


def _check() -> int:
    from fedbench.papers.make import states

    found = states()
    for name, scale, state in found:
        if state != "absent":
            print(f"{state:<10}  {name} --scale {scale}")
    missing = [name for name in FIGURES if all(s == "absent" for n, _, s in found if n == name)]
    if missing:
        print(f"no results of: {', '.join(missing)}")
    return 1 if any(state in ("stale", "incomplete") for _, _, state in found) else 0
