"""Result directories as a run and a sweep write them, with invented numbers that look like training."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.runs.metrics import ALWAYS, OF_OBJECTIVE

METRICS = [*ALWAYS, *OF_OBJECTIVE]
CONFIG = {
    "rounds": 100, "clients.total": 100, "clients.per_round": 10, "local.steps": 5, "local.epochs": None,
    "local.batch_size": 32, "dtype": "float32", "device": "auto", "engine": "auto", "data.root": "/data",
    "eval.every": 5, "loss.scale": 1.0, "dataset": "fmnist", "dataset.normalize": True,
    "partition": "dirichlet", "partition.alpha": 0.5, "model": "cnn", "model.init": "default",
    "schedule": "sync", "delay": "none", "hydra": None,
}  # fmt: skip


def rows(
    top: float,
    speed: float,
    seed: int,
    *,
    last: int = 100,
    every: int = 5,
    jitter: float = 0.0,
    stop: int | None = None,
) -> list[dict[str, Any]]:
    """Rows of metrics.csv: accuracy rises to `top`; `stop`: the round at which the run diverges."""
    rng = np.random.default_rng(1000 * seed + int(1e4 * top))
    made = []
    for t in range(0, last + 1, every):
        accuracy = float(
            np.clip(0.1 + (top - 0.1) * (1 - np.exp(-speed * t / 10)) + rng.normal(0, 0.012), 0, 1)
        )
        if stop is not None and t > stop:
            break
        if stop is not None and t > stop - 3 * every:
            accuracy *= 0.6
        made.append(
            {
                "round": t,
                "virtual_time": t * (1.0 + jitter * rng.random()),
                "train_loss": "",
                "test_loss": 2.3 * (1 - accuracy) if stop is None else 10.0**t,
                "test_accuracy": accuracy,
                "grad_norm": "",
                "uplink_bytes": t * 10 * 87_360,
                "downlink_bytes": t * 10 * 87_360,
                "gradient_evaluations": t * 50,
                "staleness_mean": 0.0,
                "staleness_max": 0,
                "wall_seconds": 0.1 * t,
            }
        )
    return made


def exact(accuracies: list[float], every: int = 5, **more: list[float]) -> list[dict[str, Any]]:
    """Rows of metrics.csv with these accuracies; `more`: further columns."""
    made = rows(0.5, 0.6, 0, last=every * (len(accuracies) - 1), every=every)
    for rank, row in enumerate(made):
        row.update(test_accuracy=accuracies[rank], test_loss=1 - accuracies[rank])
        row.update({name: values[rank] for name, values in more.items()})
    return made


def write_csv(path: Path, columns: list[str], records: list[dict[str, Any]]) -> None:
    """A CSV file with exact floats."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def write_run(
    path: Path,
    metrics: list[dict[str, Any]],
    *,
    algorithm: str = "fedavg",
    seed: int = 0,
    status: str = "completed",
    hyper: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A run directory; returns its summary."""
    write_csv(path / "metrics.csv", METRICS, metrics)
    accuracy = [row["test_accuracy"] for row in metrics]
    summary = {
        "status": status,
        "rounds": metrics[-1]["round"],
        "final_accuracy": None if status == "diverged" else accuracy[-1],
        "final_k": 1,
        "best_accuracy": max(accuracy),
        "best_round": metrics[int(np.argmax(accuracy))]["round"],
        "wall_seconds": 1.0,
        "hyper": hyper or {},
        "config": {**CONFIG, "algorithm": algorithm, "seed": seed, **(config or {})},
    }
    (path / "summary.json").write_text(json.dumps(summary))
    return summary


def write_sweep(path: Path, runs: list[dict[str, Any]], swept: list[str], *, summaries: bool = True) -> Path:
    """A sweep directory: runs.csv, rounds.csv and the run directories.

    `runs`: dicts with `metrics` and the keyword arguments of write_run.
    """
    identity = ["dataset", "partition", "model", "algorithm", "schedule", "seed"]
    columns = ["dir", *identity, *[key for key in swept if key not in identity]]
    table, long = [], []
    for index, run in enumerate(runs):
        name = f"{run.get('algorithm', 'fedavg')}-{index}"
        summary = write_run(path / name, **run)
        said = {"dir": name, **{key: summary["config"].get(key) for key in columns[1:]}}
        outcome = {key: summary[key] for key in ("status", "final_accuracy", "best_accuracy")}
        table.append({**said, **outcome, "error": ""})
        long += [{**said, **row} for row in run["metrics"]]
        if not summaries:
            (path / name / "summary.json").unlink()
            (path / name / "metrics.csv").unlink()
    write_csv(path / "runs.csv", [*columns, "status", "final_accuracy", "best_accuracy", "error"], table)
    write_csv(path / "rounds.csv", [*columns, *METRICS], long)
    return path


def comparison(path: Path, algorithms: list[str], seeds: int = 3, **more: Any) -> Path:
    """A sweep over algorithms and seeds."""
    runs = [
        {
            "metrics": rows(0.72 + 0.2 * ((7 * rank) % 11) / 11, 0.6 + 0.1 * rank, seed, **more),
            "algorithm": name,
            "seed": seed,
        }
        for rank, name in enumerate(algorithms)
        for seed in range(seeds)
    ]
    return write_sweep(path, runs, ["algorithm", "seed"])
