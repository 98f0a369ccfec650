"""`fedbench tune KEY=VALUE...`: search hyper-parameters method by method, then run the winners."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fedbench.errors import Parser, RunError

_EXAMPLES = """examples:
  fedbench tune algorithm=fedavg,scaffold,padamfed algorithm.lr=0.01,0.03,0.1,0.3 seed=0,1,2
  fedbench tune algorithm=fedavg,fedadam seed=range(6) --seeds 3              values of conf/grid
  fedbench tune algorithm=fedavg,fedadam --keys lr partition=iid,dirichlet    each split by itself
  fedbench tune 'algorithm.lr=tag(log,interval(0.001,1))' --search optuna --trials 30
  fedbench tune algorithm=fedavg,fedadam target=0.9                           the fewest rounds to 0.9
  fedbench tune 'eval.metrics=[macro_f1]' --metric macro_f1 algorithm.lr=0.1,1  by another metric
  fedbench tune experiment=quickstart --keys lr rounds=30 dataset=fmnist
Swept keys of algorithm.* are searched (or the keys of --keys); if none is swept, the method's values in
conf/grid. Every combination of the other swept keys is a task, which is tuned separately.
A tenth of every client's training samples is held out (dataset.validation=0.1; another share where it is
given, and with 0 the test set decides). The winner has the highest mean final validation accuracy over the
first --seeds seeds (a diverged run counts 0). It is run again with the other seeds, or with the same where
there are no others, and measured on the test set: results.csv has these numbers.
With target=ACCURACY, runs stop at that accuracy, and the fewest mean rounds to reach it win. A run that does
not reach it counts twice its rounds; a tie goes to the more accurate setting.
A winner at the edge of a grid is flagged, and the search goes on past it. The same command goes on where it
stopped. Below outputs/tune/ (or hydra.sweep.dir=DIR): trials.csv, results.csv, tuning.png, and the runs in
trials/ and final/, which are sweeps (fedbench plot DIR/final)."""


def main(argv: Sequence[str]) -> int:
    """`fedbench tune`. Returns the exit code. Raises UserError (RunError if runs failed, or all diverged)."""
    from fedbench.config.config import METRICS
    from fedbench.tuning.tune import SEARCHES, TuneOptions, dry_run, tune

    default = TuneOptions()
    parser = Parser(
        prog="fedbench tune",
        description="Search hyper-parameters method by method, then run every winner over further seeds.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("overrides", nargs="*", metavar="KEY=VALUE", help="as for a sweep")
    add("--search", choices=SEARCHES, default=default.search, help="how points are chosen (default: grid)")
    count = f"points of a random or Optuna search, for each task (default: {default.trials})"
    add("--trials", type=int, default=default.trials, metavar="N", help=count)
    add("--seeds", type=int, default=1, metavar="N", help="seeds to select by, the first N (default: 1)")
    past = f"how many times a search continues past an edge (default: {default.extend})"
    add("--extend", type=int, default=default.extend, metavar="N", help=past)
    add("--keys", default="", metavar="KEY[,KEY]", help="what is searched (lr, or algorithm.lr)")
    further = f"select by one of eval.metrics, not by accuracy: {', '.join(METRICS)} (the smallest)"
    add("--metric", choices=METRICS, metavar="NAME", help=further)
    add("--config-dir", metavar="DIR", help="your own options, and grid/METHOD.yaml")
    add("--dry-run", action="store_true", help="say what would run and what it takes, and run nothing")
    args = parser.parse_intermixed_args(list(argv))
    keys = tuple(key.strip() for key in args.keys.split(",") if key.strip())
    options = TuneOptions(
        args.search, args.trials, args.seeds, args.extend, keys, args.config_dir, args.metric
    )
    if args.dry_run:
        for line in dry_run(args.overrides, options):
            print(line, flush=True)
        return 0
    tuned = tune(args.overrides, options)
    if len(tuned.results):
        print(f"\n{tuned.results.dropna(axis='columns', how='all').to_string(index=False)}\n")
    for line in tuned.edges:
        print(f"{line}; a wider grid or --extend may find better")
    for name in ("trials.csv", "results.csv", "tuning.png"):
        if (tuned.directory / name).is_file():
            print(tuned.directory / name)
    if tuned.failures:
        more = f" and {len(tuned.failures) - 1} more" if len(tuned.failures) > 1 else ""
        raise RunError(f"{tuned.failures[0]}{more}")
    return 0
