"""Making a figure: tune, run what is missing, draw, and keep small results with their provenance.

`<outputs/figures>/<figure>/<scale>/` keeps runs.csv, rounds.csv and tuning.csv, the drawings, each with its
points (CSV) and its caption (JSON), and two files about them: made.json says what the results were made from
and with; kept.json has what pictures say of every run (where it was, its configuration, its hyper-parameters
after theorems, what it was computed with), so that a figure can be drawn again without its runs and its data.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config.compose import load_config
from fedbench.config.identity import NOT_IDENTITY, digest
from fedbench.config.overrides import Grid, Value, written
from fedbench.errors import ConfigError, DataError, Parser, RunError, UsageError, UserError
from fedbench.figures.caption import distinct
from fedbench.files import read_json, write_text
from fedbench.papers import FIGURES
from fedbench.papers.claims import MADE, SCALES, made
from fedbench.papers.figure import (
    RUNS,
    SEARCHED,
    TUNING,
    Branch,
    Experiment,
    Figure,
    algorithm_file,
    command,
    experiment,
    runs_of,
    shown,
)
from fedbench.runs import provenance
from fedbench.runs.run_directory import RunDirectory
from fedbench.sweeps.launch import Result, sweep
from fedbench.sweeps.tables import duration
from fedbench.tuning.search import Task, decide, first_values, search, single
from fedbench.tuning.selection import Selection, trials_table
from fedbench.tuning.tune import SHARE, VALIDATION

KEPT = "kept.json"
_OF_A_RUN = ("status", "rounds", "final_k", "best_accuracy", "best_round", "hyper", "config", "hardware",
             "versions", "commit", "data_note")  # fmt: skip
"""What is kept of a run's summary."""
_PROVENANCE = ("commit", "hardware", "versions", "data", "notes")
_TABLES = ("runs", "rounds")
Chosen = list[tuple[Branch, Selection]]


def make(figure: Figure, scale: str, extra: Sequence[str] = (), root: Path = Path()) -> list[str]:
    """Make a figure at a scale below `root`; return the lines of what failed (empty: nothing did).

    Finished runs are not repeated, so the same call goes on where another stopped. `extra`: overrides of how
    it is computed (`data.root=...`, `device=cpu`).
    """
    out = shown(figure.name, scale, root)
    out.mkdir(parents=True, exist_ok=True)
    if figure.runs:
        return Maker(experiment(figure, scale), extra, root, out).go()
    write_made(out, figure, scale, "", figure.draw(root, out))
    return []


class Maker:
    """The stages of one figure at one scale."""

    def __init__(self, made: Experiment, extra: Sequence[str], root: Path, out: Path) -> None:
        self.made, self.figure, self.how = made, made.figure, TUNING[made.scale]
        self.root, self.out = root, out
        self.words = [f"experiment={made.figure.name}", f"scale={made.scale}", *extra]
        self.words.append("hydra/launcher=processes")
        self.failures: list[str] = []

    def go(self) -> list[str]:
        """All stages, in order."""
        if self.made.stand_ins:
            words = "in place of the paper's: this shows that the figure can be made, nothing else"
            print(f"{self.figure.name}, smoke: {self.made.stand_ins} {words}", flush=True)
        place = runs_of(self.figure.name, self.made.scale, self.root)
        chosen = self.tune(place / self.made.digest / "tuning")
        _write_tuning(self.out, chosen)
        stages: dict[str, list[Grid]] = {}
        for branch in self.made.branches:
            selection = next((found for task, found in chosen if task.is_same_task(branch)), None)
            stages.setdefault(branch.stage, []).append(self.final(branch, selection))
        place /= digest([self.made.digest, stages])  # other winners run in another directory
        results = [result for stage, grids in stages.items() for result in self.sweep(place / stage, grids)]
        _write_tables(self.out, [place / stage for stage in stages])
        write_kept(self.out, [place / stage for stage in stages], self.root)
        files, places = self.figure.draw(place, self.out), [result.directory for result in results]
        say_how_it_was_tuned(self.out, files, self.validation)
        write_made(
            self.out, self.figure, self.made.scale, self.made.digest, files, places, chosen, self.validation
        )
        return self.failures

    def tune(self, place: Path) -> Chosen:
        """Search every tuned branch once, extending the search where a winner lies at an edge."""
        branches: list[Branch] = []
        for branch in self.made.branches:
            searched = branch.search or self.made.tuned_keys(branch)
            if searched and not any(branch.is_same_task(other) for other in branches):
                branches.append(branch)
        tasks = [self.task(branch) for branch in branches]
        held_out = [f"{VALIDATION}={self.validation:g}"]
        seeds = [SEARCHED + seed for seed in self.how.seeds]
        found = search(tasks, seeds, lambda grids: self.sweep(place, grids, held_out), self.how.extensions)
        last = place.with_name("finalists")
        found = decide(tasks, found, seeds, lambda grids: self.sweep(last, grids, held_out))
        chosen = list(zip(branches, found, strict=True))
        lost = [branch.method for branch, selection in chosen if selection is None]
        self.failures += [f"{self.figure.name}: all tuning runs of {method} failed" for method in lost]
        return [(branch, selection) for branch, selection in chosen if selection is not None]

    def task(self, branch: Branch) -> Task:
        """The search of a branch: its algorithm's grid, or draws of its random search."""
        fixed = {**self.made.pinned(), **branch.context, "algorithm": branch.algorithm}
        if branch.search is None:
            grid = self.made.tuned_keys(branch)
            usual = first_values(grid, algorithm_file(branch.algorithm), self.how)
            return Task(fixed, grid, [self.made.start.get(branch.method, usual)])
        rounds = branch.search.rounds.get(self.made.scale)
        less, last = ({"rounds": rounds}, branch.search.finalists) if rounds else ({}, 0)
        tried = branch.search.points(self.how.samples)
        space = {key: values for key, values in branch.search.space.items() if key in tried[0]}
        return Task({**fixed, **less}, space, single(tried), extends=False, finalists=last)

    def final(self, branch: Branch, selection: Selection | None) -> Grid:
        """The grid of a branch's final runs: its winner's values, below what is swept."""
        winner = selection.winner if selection else {}
        fixed = {**branch.context, "algorithm": branch.algorithm, **winner}
        grid: Grid = {**{key: [value] for key, value in fixed.items()}, **branch.along}
        if self.figure.factors:
            lr = float(winner.get("algorithm.lr") or self.theorem_lr(branch))
            grid = {**grid, "algorithm.lr": [float(f"{lr * factor:.6g}") for factor in self.figure.factors]}
        return {key: values for key, values in grid.items() if self.made.params.get(key) != values}

    def theorem_lr(self, branch: Branch) -> float:
        """The learning rate that a branch's theorem gives."""
        from fedbench.runs.run import Run

        params = {key: values[0] for key, values in self.made.params.items() if key != "seed"}
        given = {**params, **self.made.pinned(), **branch.context, "algorithm": branch.algorithm}
        words = [f"{key}={written(value)}" for key, value in given.items()]
        return Run(load_config([*self.words, *words])).hyper["lr"]

    @property
    def validation(self) -> float:
        """The share of training samples that is held out where hyper-parameters are chosen; the chosen ones
        are run as the experiment says."""
        return float(str(self.made.base.get(VALIDATION) or SHARE))

    def sweep(self, place: Path, grids: Sequence[Grid], further: Sequence[str] = ()) -> list[Result]:
        """Run what is missing of a stage, with `further` overrides. Failed runs are noted, and the others go
        on."""
        print(f"{self.figure.name}, {self.made.scale}: {place.name}", flush=True)
        results = sweep([*self.words, *further], grids, place, self.root / RUNS)  # other figures' runs serve
        failed = [result for result in results if result.status == "failed"]
        if failed:
            count = f"{len(failed)} of {len(results)} runs failed"
            line = f"{self.figure.name}, {place.name}: {count}: {failed[0].error} (see {place / 'runs.csv'})"
            self.failures.append(line)
        return results


# ---- what is kept ----------------------------------------------------------------------------------------


def state(name: str, scale: str, root: Path = Path()) -> str:
    """`absent`, `incomplete` (a file is gone), `stale` (made from other configurations), or `current`."""
    out, figure = shown(name, scale, root), FIGURES[name]
    if (content := made(out)) is None:
        return "absent"
    if content.get("digest") != (experiment(figure, scale).digest if figure.runs else ""):
        return "stale"
    kept = [file for file in content.get("files", []) if not file.endswith(".pdf")]
    kept += [f"{table}.csv" for table in _TABLES] if figure.runs else []
    return "current" if all((out / file).is_file() for file in kept) else "incomplete"


def states(root: Path = Path()) -> list[tuple[str, str, str]]:
    """(figure, scale, state) of all figures at all scales."""
    return [
        (name, scale, state(name, scale, root)) for name, figure in FIGURES.items() for scale in figure.scales
    ]


def _write_tuning(out: Path, chosen: Chosen) -> None:
    """tuning.csv: every configuration tried, the winners and their neighbours marked, edges flagged; under
    "pruned" the rounds of those that had fewer than the figure."""
    parts: list[tuple[dict[str, Value], Selection]] = []
    for branch, selection in chosen:
        own: dict[str, Value] = {"search": branch.search.name} if branch.search else {}
        parts.append(({**own, "algorithm": branch.algorithm, **branch.context}, selection))
    if parts:
        _write_csv(out / "tuning.csv", trials_table(parts))


def _write_tables(out: Path, stages: Sequence[Path]) -> None:
    """runs.csv and rounds.csv of all final stages; `dir` says the stage too."""
    for name in _TABLES:
        parts = []
        for stage in stages:
            table = _read_csv(stage / f"{name}.csv")
            parts.append(table.assign(dir=f"{stage.name}/" + table.dir))
        _write_csv(out / f"{name}.csv", pd.concat(parts, ignore_index=True).fillna(""))


def write_made(
    out: Path,
    figure: Figure,
    scale: str,
    digest: str,
    files: Sequence[Path],
    places: Sequence[Path] = (),
    chosen: Chosen | None = None,
    validation: float | None = None,
) -> None:
    """made.json: what the results were made from and with. `places`: the directories of the final runs;
    `validation`: the share of training samples that hyper-parameters were chosen by."""
    found = [content for place in places if (content := RunDirectory(place).summary) is not None]
    for content in found:  # where the data lay is of this machine; what they were stays
        for file in content.get("data") or []:
            file["path"] = Path(file["path"]).name
    configs = [content.get("config", {}) for content in found]
    status = [str(content.get("status")) for content in found]
    content = {
        "figure": figure.name,
        "about": figure.about,
        "scale": scale,
        "digest": digest,
        "command": command(figure.name, scale),
        "files": sorted(file.name for file in files),
        "runs": {name: status.count(name) for name in sorted(set(status))},
        "seeds": sorted({config["seed"] for config in configs if "seed" in config}),
        "shared": {key: value for key, value in _shared(configs).items() if key not in NOT_IDENTITY},
        "edges": [
            f"{_name(branch)}: {key} {side}"
            for branch, selection in chosen or []
            for key, side in selection.edges.items()
        ],
        **({"validation": validation} if chosen else {}),
        "run_seconds": round(sum(content.get("wall_seconds") or 0.0 for content in found), 1),
        **{key: distinct(content.get(key) for content in found) for key in _PROVENANCE},
    }
    _write_json(out / MADE, content)


def write_kept(out: Path, stages: Sequence[Path], root: Path) -> None:
    """kept.json of the runs in these sweep directories; what all runs have alike is written once."""
    found = {}
    for stage in stages:
        for place in sorted(stage.iterdir()):
            if RunDirectory(place).has_summary:
                found[f"{stage.name}/{place.name}"] = _flat(RunDirectory(place).summary or {})
    common = _shared(list(found.values()))
    own = {run: {key: said[key] for key in said if key not in common} for run, said in found.items()}
    places = {stage.parent.relative_to(root).as_posix() for stage in stages}
    content = {"place": " ".join(sorted(places)), "common": common, "runs": own}
    write_text(out / KEPT, json.dumps(content, separators=(",", ":")) + "\n")


def redraw(figure: Figure, scale: str, root: Path = Path()) -> list[str]:
    """Draw a figure anew from what is kept; nothing fails. Raises DataError where that is not enough."""
    out = shown(figure.name, scale, root).resolve()
    if (content := made(out)) is None:
        raise DataError(f"{figure.name} --scale {scale}: nothing is kept of it")
    if not figure.runs:
        files = figure.draw(root, out)
    elif (kept := read_json(out / KEPT)) is None:
        raise DataError(f"{out / KEPT}: is not there; what was kept without it cannot be drawn again")
    else:
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
            _restore(out, kept)  # under the names that captions say, which are relative to here
            files = figure.draw(Path(kept["place"]), out)
        say_how_it_was_tuned(out, files, content.get("validation"))
    _write_json(out / MADE, {**content, "files": sorted(file.name for file in files)})
    return []


def say_how_it_was_tuned(out: Path, files: Sequence[Path], share: float | None) -> None:
    """Add to the captions of a tuned figure which samples its hyper-parameters were chosen by. `share`: of
    the training samples, which were held out for it; None: the test set."""
    if not (out / "tuning.csv").is_file():
        return
    if share:
        whose = f"held-out training samples ({VALIDATION}={share:g}), with seeds that are not evaluated"
    else:
        whose = "the test set"
    line = f" Hyper-parameters were chosen by the accuracy on {whose}."
    for file in files:
        if file.suffix == ".json" and (said := read_json(file)) and said.get("text"):
            said["text"][-1] += line
            write_text(file, json.dumps(said, indent=1, ensure_ascii=False) + "\n")
            caption = file.with_suffix(".md")
            write_text(caption, caption.read_text(encoding="utf-8").rstrip("\n") + line + "\n")


def _restore(out: Path, kept: Mapping[str, Any]) -> None:
    """The sweep directories as far as pictures read them, below the current directory."""
    for run, own in kept["runs"].items():
        content: dict[str, Any] = {}
        for key, value in {**kept["common"], **own}.items():
            group, nested, name = key.partition("/")
            if nested:
                content.setdefault(group, {})[name] = value
            else:
                content[key] = value
        place = Path(kept["place"], run)
        place.mkdir(parents=True, exist_ok=True)
        RunDirectory(place).write_summary(content)
    for name in _TABLES:
        table = _read_csv(out / f"{name}.csv")
        where = table.dir.str.partition("/")
        for stage, part in table.assign(dir=where[2]).groupby(where[0], sort=False):
            place = Path(kept["place"], str(stage))
            place.mkdir(parents=True, exist_ok=True)
            used = (part != "").any()  # an empty column is another stage's
            _write_csv(place / f"{name}.csv", part.loc[:, used])


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What pictures read of a summary, flat: `config/local.steps`. Of the configuration, what is computed."""
    flat: dict[str, Any] = {}
    for key in _OF_A_RUN:
        value = summary.get(key)
        if isinstance(value, dict):
            without = NOT_IDENTITY if key == "config" else ()
            flat |= {f"{key}/{name}": part for name, part in value.items() if name not in without}
        elif value is not None:
            flat[key] = value
    return flat


def _shared(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all of them have alike."""
    first, absent = found[0] if found else {}, object()
    return {key: value for key, value in first.items() if all(one.get(key, absent) == value for one in found)}


def _name(branch: Branch) -> str:
    if branch.search:
        return f"{branch.method} ({branch.search.name})"
    return " ".join([branch.method, *map(str, filter(None, branch.context.values()))])


def _read_csv(file: Path) -> pd.DataFrame:
    """A table whose cells stay the texts that they are."""
    return pd.read_csv(file, dtype=str, keep_default_na=False)


def _write_csv(file: Path, table: pd.DataFrame) -> None:
    write_text(file, table.to_csv(index=False, lineterminator="\n"))


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    write_text(file, json.dumps(content, indent=1, default=str) + "\n")


# ---- the command -----------------------------------------------------------------------------------------

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
    if args.redraw and args.overrides:
        raise UsageError(f"figures --redraw {args.overrides[0]}: nothing is computed, so nothing can be set")
    if names and not args.redraw and args.scale != "smoke" and (provenance.commit() or "").endswith("+dirty"):
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
    found = states()
    for name, scale, state in found:
        if state != "absent":
            print(f"{state:<10}  {name} --scale {scale}")
    missing = [name for name in FIGURES if all(s == "absent" for n, _, s in found if n == name)]
    if missing:
        print(f"no results of: {', '.join(missing)}")
    return 1 if any(state in ("stale", "incomplete") for _, _, state in found) else 0
