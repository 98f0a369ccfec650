"""The command `fedbench figures`: which figures are made, drawn again, checked or looked behind."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from fedbench import provenance
from fedbench.config.config import HOW, Settings, role
from fedbench.errors import ConfigError, Parser, RunError, UsageError, UserError
from fedbench.fields import rules
from fedbench.papers import FIGURES
from fedbench.papers.claims import SCALES, made
from fedbench.papers.figure import Figure, experiment, shown
from fedbench.papers.kept import redraw, states
from fedbench.papers.make import Maker, make
from fedbench.sweeps.tables import duration

_EXAMPLES = """examples:
  fedbench figures --list                          what there is
  fedbench figures padamfed/fig1 --scale smoke     tune, run what is missing, draw; the same command resumes
  fedbench figures --all --scale cpu data.root=DIR
  fedbench figures --check                         which kept results were made from other configurations
  fedbench figures --report                        outputs/README.md anew
  fedbench figures --behind padamfed-accuracy-iid  the runs behind a claim's numbers, and their commands
  fedbench figures loss_scale --scale cpu --redraw   redraws from the kept results: no runs, no data
Results: outputs/figures/<figure>/<scale>/ (small, to be committed), of scale smoke in outputs/smoke/;
the runs behind them: outputs/runs/, and lists of them: outputs/sweeps/."""


def main(argv: Sequence[str]) -> int:
    """Run the subcommand and return the exit code. Raises UserError, among them RunError if runs failed."""
    args = _parse(argv)
    if args.list:
        width = max(map(len, FIGURES))
        for name, item in FIGURES.items():
            print(f"{name.ljust(width)}  {item.about}")
        return 0
    if args.check:
        return _check()
    if args.behind:
        from fedbench.papers.behind import behind

        print("\n".join(behind(args.behind, Path())))
        return 0
    if not args.names and not args.all and not args.report:
        raise UsageError(
            "figures: a figure's name, --all, --list, --check, --behind or --report is needed (see --help)"
        )
    named = [name for one in args.names for name in (*FIGURES[one].panels, one)]
    figures = [FIGURES[name] for name in (FIGURES if args.all else dict.fromkeys(named))]
    asked = [(one, args.scale if args.scale in one.scales else "paper") for one in figures]
    if args.dry_run:
        return _forecasts(asked, args.overrides)
    failures, judge = _figures(asked, args)
    if judge:
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
    words = "print the runs behind the numbers of a claim of outputs/ledger.md, and the command of each run"
    parser.add_argument("--behind", metavar="CLAIM", help=words)
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and run nothing")
    again = "draw again from what is kept, without runs and data (with --all: what is kept at the scale)"
    parser.add_argument("--redraw", action="store_true", help=again)
    parser.add_argument("--report", action="store_true", help="write the report only")
    args = parser.parse_intermixed_args(list(argv))
    args.names = [word for word in args.words if "=" not in word]
    args.overrides = [word for word in args.words if "=" in word]
    for name in args.names:
        if name not in FIGURES:
            raise ConfigError("figure", name, "must be one that `fedbench figures --list` shows", FIGURES)
    for text in args.overrides:
        key, _, value = text.partition("=")
        if role(key) != HOW and not key.startswith("hydra.launcher."):
            keys = [name for name, _ in rules(Settings) if role(name) == HOW]
            allowed = f"would make another figure; only {', '.join([*keys, 'hydra.launcher.*'])}"
            raise ConfigError(key, value, allowed)
    return args


def _figures(asked: Sequence[tuple[Figure, str]], args: argparse.Namespace) -> tuple[list[str], bool]:
    """Make these figures at these scales, or draw them again. Returns a line for each failure, and whether
    what is kept may say something else of claims."""
    if args.redraw and args.overrides:
        raise UsageError(f"figures --redraw {args.overrides[0]}: nothing is computed, so nothing can be set")
    if asked and not args.redraw and args.scale != "smoke" and (provenance.commit() or "").endswith("+dirty"):
        raise UsageError(
            f"figures --scale {args.scale}: fedbench/, conf/ or pyproject.toml differ from the commit that"
            " results are published with; commit first (--scale smoke needs no commit)"
        )
    failures: list[str] = []
    judge = not args.redraw or args.report
    for figure, scale in asked:
        name, begin = figure.name, time.monotonic()
        unasked = args.all or name not in args.names
        if args.redraw and unasked and made(shown(name, scale)) is None:
            continue
        try:
            if args.redraw:
                judge |= redraw(figure, scale)
            else:
                failures += make(figure, scale, args.overrides)
        except UserError as error:  # such as missing data, which the other figures may not need
            if len(args.names) == 1:
                raise
            failures.append(f"{name}: {error}")
            print(failures[-1], flush=True)
            continue
        print(f"{name}: {shown(name, scale)} ({duration(time.monotonic() - begin)})", flush=True)
    return failures, judge


def _forecasts(asked: Sequence[tuple[Figure, str]], overrides: Sequence[str]) -> int:
    """Print what would run for these figures at these scales."""
    for figure, scale in asked:
        if not figure.runs:
            print(f"{figure.name}: runs nothing of its own; it is drawn from what there is")
            continue
        for line in Maker(experiment(figure, scale), overrides, Path(), Path()).forecast():
            print(line, flush=True)
    return 0


def _check() -> int:
    found = states()
    for name, scale, state in found:
        if state != "absent":
            print(f"{state:<10}  {name} --scale {scale}")
    missing = [name for name in FIGURES if all(s == "absent" for n, _, s in found if n == name)]
    if missing:
        print(f"no results of: {', '.join(missing)}")
    return 1 if any(state in ("stale", "incomplete") for _, _, state in found) else 0
