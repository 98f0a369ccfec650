"""Which drawings make up a figure: (directory of its sweeps, directory to draw into) -> files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Multiples of each algorithm's own learning rate in `lr_relative`."""
_POWERS = {"padamfed": -1 / 4, "padamfed_vr": -1 / 3, "masfl": -1 / 4, "adamasfl": -1 / 4}


def _curves(runs: Path, out: Path, name: str, **more: Any) -> list[Path]:
    from fedbench.figures.curves import plot_runs

    return plot_runs([runs / "final"], out / name, **more)


def _sweep(directories: Sequence[Path], out: Path, name: str, x: str, **more: Any) -> list[Path]:
    from fedbench.figures.sensitivity import plot_sweep

    return plot_sweep([place for place in directories if place.is_dir()], out / name, x=x, **more)


def _only(**choices: object) -> Mapping[str, Sequence[object]]:
    return {key: [value] for key, value in choices.items()}


def by_split(runs: Path, out: Path) -> list[Path]:
    """Accuracy against rounds, iid and Dirichlet."""
    files = _curves(runs, out, "iid", where=_only(partition="iid"))
    return files + _curves(runs, out, "dirichlet", where=_only(partition="dirichlet"))


def by_rounds(runs: Path, out: Path) -> list[Path]:
    """Accuracy against rounds."""
    return _curves(runs, out, "accuracy")


def by_step_size(runs: Path, out: Path) -> list[Path]:
    """Accuracy against eta and gamma, iid and Dirichlet."""
    files = []
    for split in ("iid", "dirichlet"):
        for key in ("lr", "server_lr"):
            where = _only(partition=split)
            places = [runs / f"final-{key}", runs / "final"]
            files += _sweep(places, out, f"{split}_{key}", f"algorithm.{key}", where=where)
    return files


def by_lr(runs: Path, out: Path) -> list[Path]:
    """Accuracy against the learning rate."""
    return _sweep([runs / "final-lr", runs / "final"], out, "lr", "algorithm.lr")


def by_updates(runs: Path, out: Path) -> list[Path]:
    """Accuracy against server updates, and against virtual time."""
    return _curves(runs, out, "updates") + _curves(runs, out, "virtual_time", x="virtual_time")


def by_concurrency(runs: Path, out: Path) -> list[Path]:
    """Final accuracy, and the virtual time it took, against M_c."""
    key, places = "schedule.concurrency", [runs / "final-concurrency"]
    files = _sweep(places, out, "concurrency", key)
    return files + _sweep(places, out, "concurrency_time", key, y="virtual_time")


def by_beta_tau(runs: Path, out: Path) -> list[Path]:
    """Final accuracy against beta, and against tau, for each task."""
    files = []
    for stage, key in (("final-beta-estimator", "algorithm.beta"), ("final-estimator-steps", "local.steps")):
        table = pd.read_csv(runs / stage / "runs.csv")
        labels = sorted(table["partition.labels"].unique())
        for labels_per_user in labels:
            task = "convex" if labels_per_user == labels[0] else "nonconvex"
            where = {"partition.labels": [int(labels_per_user)]}
            by = ("algorithm", "algorithm.estimator")
            name = f"{task}_{key.split('.')[-1].replace('steps', 'tau')}"
            files += _sweep([runs / stage], out, name, key, where=where, by=by)
    return files


def by_mu(runs: Path, out: Path) -> list[Path]:
    """Training loss and accuracy against rounds for each mu."""
    from fedbench.figures.curves import plot_runs

    files = []
    for y in ("train_loss", "test_accuracy"):
        for estimator in ("svrg", "sarah"):
            where = {"algorithm.estimator": [estimator]}
            place, by = [runs / "final-estimator-mu"], ("algorithm.mu",)
            files += plot_runs(place, out / f"{estimator}_{y}", y=y, where=where, by=by)
    return files


def best_table(runs: Path, out: Path) -> list[Path]:
    """The table of best hyper-parameters: one row per method, as CSV, Markdown and JSON."""
    table = pd.read_csv(runs / "final" / "runs.csv")
    label = "algorithm.estimator"
    table["method"] = table.algorithm.where(
        table[label].isna(), table.algorithm + " " + table[label].map(str)
    )
    rows = []
    for method, part in table.groupby("method", sort=False):
        found = [
            json.loads((runs / "final" / place / "summary.json").read_text(encoding="utf-8"))
            for place in part.dir
        ]
        config = found[0].get("config", {})
        best = [content["best_accuracy"] for content in found if content.get("best_accuracy") is not None]
        spread = pd.Series(best, dtype=float).std(ddof=1)
        rows.append(
            {
                "method": method,
                "tau": config.get("local.steps"),
                "lr": found[0].get("hyper", {}).get("lr"),
                "beta": config.get("algorithm.beta"),
                "mu": config.get("algorithm.mu"),
                "B": config.get("local.batch_size"),
                "T": int(pd.Series([content.get("best_round", 0) for content in found]).median()),
                "best accuracy": pd.Series(best, dtype=float).mean(),
                "std": spread,
                "final accuracy": pd.to_numeric(part.final_accuracy, errors="coerce").mean(),
                "seeds": len(found),
            }
        )
    made = pd.DataFrame(rows)
    text = (
        "T: median round of the best accuracy. Accuracies: mean over seeds, of the best and the last round."
    )
    files = [out / "table.csv", out / "table.md", out / "table.json"]
    made.to_csv(files[0], index=False, lineterminator="\n")
    files[1].write_text(markdown(made) + f"\n{text}\n", encoding="utf-8")
    files[2].write_text(json.dumps({"text": [text], "n": len(table)}, indent=1) + "\n", encoding="utf-8")
    return files


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown, numbers with four digits."""
    lines = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    lines += [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def by_work(runs: Path, out: Path) -> list[Path]:
    """The mean gradient norm against S K T."""
    from fedbench.figures.speedup import draw_speedup

    places = {"S": runs / "final-per_round", "K": runs / "final-steps"}
    return draw_speedup(places, out / "speedup", _POWERS)


def by_loss_scale(runs: Path, out: Path) -> list[Path]:
    """Final accuracy against the factor on the loss, synchronous and asynchronous algorithms."""
    files = []
    for schedule in ("sync", "async"):
        where = _only(schedule=schedule)
        files += _sweep([runs / "final-scale"], out, schedule, "loss.scale", where=where)
    return files


def by_relative_lr(runs: Path, out: Path) -> list[Path]:
    """Final accuracy against the learning rate over its reference."""
    from fedbench.figures.relative import draw_relative

    return draw_relative(runs / "final", out / "lr_relative", FACTORS)


def optimum(_: Path, out: Path) -> list[Path]:
    """FedProxVR's optimal parameters."""
    return _theory(out, "optimum", "optimum_full", "optimum_svrg", "optimum_cost")


def stepsizes(_: Path, out: Path) -> list[Path]:
    """Prescribed step sizes."""
    return _theory(out, "stepsizes_sync", "stepsizes_async")


def _theory(out: Path, *names: str) -> list[Path]:
    from fedbench.figures.theory import FIGURES

    return [file for name in names for file in FIGURES[name](out / name)]


def comparison(_: Path, out: Path) -> list[Path]:
    """The papers' comparison tables."""
    from fedbench.figures.theory import write_comparison

    return write_comparison(out)
