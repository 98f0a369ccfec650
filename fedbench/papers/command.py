"""The command `fedbench figures`: which figures are made, drawn again, checked or looked behind."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedbench import provenance
from fedbench.config.options import conf_dir
from fedbench.config.places import SHOWN
from fedbench.errors import ConfigError, DataError, Lines, Parser, RunError, UsageError, UserError
from fedbench.papers import FIGURES
from fedbench.papers.evidence import SCALES, made
from fedbench.papers.figure import Figure, experiment, shown
from fedbench.papers.figure_page import beside
from fedbench.papers.kept import redraw, states
from fedbench.papers.make import Maker, changes, make
from fedbench.sweeps.tables import duration

_EXAMPLES = """examples:
  fedbench figures --list                          what there is
  fedbench figures padamfed/fig1 --scale smoke     tune, run what is missing, draw; the same command resumes
  fedbench figures --all --scale cpu data.root=DIR
  fedbench figures --check                         which kept results were made from other configurations
  fedbench figures --report                        outputs/README.md anew
  fedbench figures --why padamfed-accuracy-iid     how a claim has its word: numbers by seed, runs, commands
  fedbench figures padamfed/fig1 local.steps=20    the figure with another setting, beside the published one
  fedbench figures loss_scale --scale cpu --redraw   redraws from the kept results: no runs, no data
Results: outputs/figures/<figure>/<scale>/ (small, to be committed), of scale smoke in outputs/smoke/; \
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
    if args.why:
        from fedbench.papers.why import why

        print("\n".join(why(args.why, _kept_results())))
        return 0
    if not args.names and not args.all and not args.report:
        raise UsageError(
            "figures: a figure's name, --all, --list, --check, --why or --report is needed (see --help)"
        )
    changed = changes(args.overrides)
    panels = {} if changed else {one: FIGURES[one].panels for one in args.names}
    named = [name for one in args.names for name in (one, *panels.get(one, ()))]
    figures = [FIGURES[name] for name in (FIGURES if args.all else dict.fromkeys(named))]
    asked = [(one, args.scale if args.scale in one.scales else "paper") for one in figures]
    if args.dry_run:
        for figure, scale in asked:
            for line in _forecast(figure, scale, args.overrides, changed):
                print(line, flush=True)
        return 0
    failures, judge = _figures(asked, args, changed)
    if judge or args.report:
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
        formatter_class=Lines,
    )
    words = (
        "figures, and overrides: of how they are computed (data.root, device, ...), or of what: such a figure"
    )
    words += " is drawn in outputs/changed, beside the published one"
    parser.add_argument("words", nargs="*", metavar="NAME | KEY=VALUE", help=words)
    parser.add_argument("--scale", choices=SCALES, default="smoke", help="how large (default: smoke)")
    parser.add_argument("--all", action="store_true", help="every figure")
    parser.add_argument("--list", action="store_true", help="show the figures")
    parser.add_argument("--check", action="store_true", help="which kept results are stale; exit 1 if any is")
    words = "how a claim has its word: its numbers by seed, with the runs behind them and the command of each"
    parser.add_argument("--why", "--behind", metavar="CLAIM", help=words)
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
    return args


def _kept_results() -> Path:
    """Where results are kept: here, or else in the checkout that this package is from. Raises DataError."""
    for root in (Path(), conf_dir().parent):
        if (root / SHOWN).is_dir():
            return root
    raise DataError(
        f"no results here ({SHOWN}): call it where figures were made, or in a checkout of fedbench"
    )


def _figures(
    asked: Sequence[tuple[Figure, str]], args: argparse.Namespace, changed: Sequence[str]
) -> tuple[list[str], bool]:
    """Make these figures at these scales, or draw them again. Returns a line for each failure, and whether
    what is kept may say something else of claims."""
    if args.redraw and args.overrides:
        raise UsageError(f"figures --redraw {args.overrides[0]}: nothing is computed, so nothing can be set")
    published = bool(asked) and args.scale != "smoke" and not (args.redraw or changed)
    if published and (provenance.commit() or "").endswith("+dirty"):
        raise UsageError(
            f"figures --scale {args.scale}: fedbench/, conf/ or pyproject.toml differ from the commit that"
            " results are published with; commit first (--scale smoke needs no commit)"
        )
    failures: list[str] = []
    judge = not (args.redraw or changed)
    for figure, scale in asked:
        name, begin, out = figure.name, time.monotonic(), shown(figure.name, scale, changed=changed)
        if args.redraw and made(out) is None and (args.all or name not in args.names):
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
        where = f", {beside(figure, scale, Path())}" if changed else ""
        print(f"{name}: {out} ({duration(time.monotonic() - begin)}){where}", flush=True)
    return failures, judge


def _forecast(figure: Figure, scale: str, overrides: Sequence[str], changed: Sequence[str]) -> Iterator[str]:
    """Lines that say what would run for this figure at this scale."""
    if figure.runs:
        yield from Maker(experiment(figure, scale, changed), overrides, Path(), Path()).forecast()
    else:
        yield f"{figure.name}: runs nothing of its own; it is drawn from what there is"


def _check() -> int:
    found = states()
    for name, scale, state in found:
        if state != "absent":
            print(f"{state:<10}  {name} --scale {scale}")
    missing = [name for name in FIGURES if all(s == "absent" for n, _, s in found if n == name)]
    if missing:
        print(f"no results of: {', '.join(missing)}")
    return 1 if any(state in ("stale", "incomplete") for _, _, state in found) else 0
