"""Every number of metrics.csv and of summary.json against one computed another way, with NumPy from the
run's own files: model.pt, partition.npz and jobs.csv."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_files import inputs, model, read, summary
from scipy.special import log_softmax

from fedbench.api import compose_config
from fedbench.runs.clients import mixture
from fedbench.runs.records import records
from fedbench.runs.run import Run
from fedbench.runs.run_directory import RunDirectory

BASE = [
    "rounds=5", "clients.total=7", "clients.per_round=3", "local.steps=2", "local.batch_size=16",
    "partition=dirichlet", "partition.alpha=0.3", "dtype=float64", "progress=none", "engine=vmap",
]  # fmt: skip
ASYNC = ["schedule=async", "schedule.concurrency=4", "delay=exponential"]
D = 650  # parameters of logistic regression on digits


def run(directory: Path, *words: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of metrics.csv with numbers, and summary.json."""
    Run(compose_config([*BASE, *words])).go(directory)
    table = read(directory / "metrics.csv")
    return [{k: float(v) if v else None for k, v in row.items()} for row in table], summary(directory)


class Logistic:
    """Softmax regression on digits in NumPy, at the parameters that a run has left."""

    def __init__(self, directory: Path) -> None:
        run = Run(compose_config(BASE))
        data = run.problem.dataset
        self.x, self.y = inputs(run, "train"), data.y_train.numpy()
        self.x_test, self.y_test = inputs(run, "test"), data.y_test.numpy()
        self.W, self.b = (value.numpy() for value in model(directory).values())
        self.client = np.load(directory / "partition.npz")["client"]

    def logs(self, x: np.ndarray) -> np.ndarray:
        """The logarithms of the classes' probabilities."""
        found: np.ndarray = log_softmax(x @ self.W.T + self.b, 1)
        return found

    def losses(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found: np.ndarray = -self.logs(x)[np.arange(len(y)), y]
        return found

    def weights(self, uniform: bool) -> np.ndarray:
        """Of every training sample: the mean over clients of their means, or over all samples."""
        n_i = np.bincount(self.client, minlength=7)
        each: np.ndarray = 1 / (7 * n_i[self.client]) if uniform else np.full(len(self.y), 1 / len(self.y))
        return each

    def objective(self, uniform: bool, decay: float = 0.0, scale: float = 1.0) -> tuple[float, float]:
        """f and |grad f|; without decay and scale those of the training loss."""
        w = self.weights(uniform)
        residual = (np.exp(self.logs(self.x)) - np.eye(10)[self.y]) * w[:, None]
        gradient = [residual.T @ self.x + decay * self.W, residual.sum(0) + decay * self.b]
        loss = w @ self.losses(self.x, self.y) + decay / 2 * ((self.W**2).sum() + (self.b**2).sum())
        return scale * loss, scale * math.sqrt(sum((part**2).sum() for part in gradient))


@pytest.mark.parametrize(
    ("weighting", "decay", "scale"), [("uniform", 0.0, 1.0), ("samples", 0.05, 1.0), ("uniform", 0.05, 3.0)]
)
def test_training_loss_is_one_for_all_methods_and_the_objective_is_what_is_minimised(
    tmp_path: Path, weighting: str, decay: float, scale: float
) -> None:
    """Unequal clients: under uniform weights a sample of a small client counts more in the objective; the
    weight decay is a part of it and of its gradient. The training loss is the mean over all samples."""
    words = [f"algorithm.weighting={weighting}", f"loss.weight_decay={decay}", f"loss.scale={scale}"]
    norm, objective = "eval.grad_norm=true", "eval.objective=true"
    rows, _ = run(tmp_path / "both", *words, "eval.train=true", norm, objective, "eval.batch_size=100")
    alone, _ = run(tmp_path / "alone", *words, norm)
    without, _ = run(tmp_path / "without", *words, objective)
    found = Logistic(tmp_path / "both")
    assert len(set(np.bincount(found.client))) > 1
    last, losses, of_f = rows[-1], ("train_loss", "grad_norm"), ("objective", "objective_grad_norm")
    assert [last[name] for name in losses] == pytest.approx(found.objective(uniform=False), rel=1e-9)
    f = found.objective(weighting == "uniform", decay, scale)
    assert [last[name] for name in of_f] == pytest.approx(f, rel=1e-9)
    assert alone[-1]["grad_norm"] == pytest.approx(last["grad_norm"], rel=1e-12)
    assert alone[-1]["train_loss"] is None
    assert not {*of_f} & {*alone[-1]}
    assert without[-1]["objective"] == pytest.approx(last["objective"], rel=1e-12)
    assert "objective_grad_norm" not in without[-1]
    assert abs(f[0] - found.objective(weighting != "uniform", decay, scale)[0]) > 1e-3 * f[0]


@pytest.mark.parametrize("batch", ["100", "null"])
def test_test_loss_and_accuracy_are_means_over_samples(tmp_path: Path, batch: str) -> None:
    """360 samples: batches of 100 leave a smaller one, which does not count as much as the others.
    Weight decay and scale are the objective's alone."""
    rows, ended = run(tmp_path, f"eval.batch_size={batch}", "loss.weight_decay=0.1", "loss.scale=2")
    found = Logistic(tmp_path)
    losses = found.losses(found.x_test, found.y_test)
    right = found.logs(found.x_test).argmax(1) == found.y_test
    assert rows[-1]["test_loss"] == pytest.approx(losses.mean(), rel=1e-9)
    assert rows[-1]["test_accuracy"] == right.mean()
    assert ended["final_test_loss"] == rows[-1]["test_loss"]
    parts = [losses[at : at + 100].mean() for at in range(0, 360, 100)]
    assert abs(np.mean(parts) - losses.mean()) > 1e-3  # means of batch means would be another number


@pytest.mark.parametrize(
    ("words", "up", "down"),
    [
        (["algorithm=scaffold", *ASYNC, "schedule.pool=idle", "schedule.p_fail=0.3"], 2, 2),
        (["algorithm=fedbuff", *ASYNC, "schedule.p_fail=0.3", "eval.every=2"], 1, 1),
        (["algorithm=scaffold"], 2, 2),
    ],
)
def test_bytes_and_gradients_follow_from_the_jobs(
    tmp_path: Path, words: list[str], up: int, down: int
) -> None:
    """From jobs.csv: every job that was begun has its download, also one that fails; one that arrives has its
    upload and K gradients. A failed one has computed a part of its steps: at most K - 1 of them."""
    rows, ended = run(tmp_path, *words, "trace=true", "rounds=12")
    jobs = read(tmp_path / "jobs.csv")
    failed = [job for job in jobs if job["status"] == "failed"]
    assert bool(failed) == any("p_fail" in word for word in words)
    for row in rows:
        t, now = row["round"], row["virtual_time"]
        begun = sum(int(job["start_version"]) < t for job in jobs)
        arrived = [job for job in jobs if job["status"] == "applied" and int(job["applied_update"]) < t]
        assert row["downlink_bytes"] == begun * down * D * 8, f"round {t}"
        assert row["uplink_bytes"] == len(arrived) * up * D * 8, f"round {t}"
        broken = sum(float(job["finish_time"]) <= now for job in failed)
        least = 2 * len(arrived)
        assert least <= row["gradient_evaluations"] <= least + broken
        if arrived:
            assert now == max(float(job["finish_time"]) for job in arrived)
    assert ended["schedule"]["jobs"]["failed"] == len(failed)


def test_staleness_is_that_of_the_jobs_since_the_row_before(tmp_path: Path) -> None:
    rows, _ = run(tmp_path, "algorithm=fedbuff", *ASYNC, "trace=true", "rounds=11", "eval.every=4")
    jobs = [job for job in read(tmp_path / "jobs.csv") if job["applied_update"]]
    assert [row["round"] for row in rows] == [0, 4, 8, 11]
    for before, row in zip(rows, rows[1:], strict=False):
        inside = [job for job in jobs if before["round"] <= int(job["applied_update"]) < row["round"]]
        late = [int(job["applied_update"]) - int(job["start_version"]) for job in inside]
        assert row["staleness_mean"] == pytest.approx(sum(late) / len(late), rel=1e-12)
        assert row["staleness_max"] == max(late)


def test_the_numbers_of_summary_json_are_those_of_the_rows(tmp_path: Path) -> None:
    rows, ended = run(tmp_path, "rounds=9", "eval.every=2", "eval.final_k=3", "algorithm.lr=0.3")
    accuracy = [row["test_accuracy"] for row in rows]
    assert [row["round"] for row in rows] == [0, 2, 4, 6, 8, 9]
    assert ended["final_accuracy"] == pytest.approx(sum(accuracy[-3:]) / 3, rel=1e-12)
    assert ended["final_k"] == 3
    assert ended["best_accuracy"] == max(accuracy)
    assert ended["best_round"] == rows[accuracy.index(max(accuracy))]["round"]
    assert ended["rounds"] == 9
    assert ended["parameters"] == D
    for level, reached in ended["rounds_to_accuracy"].items():
        at = [row["round"] for row in rows if row["test_accuracy"] >= float(level)]
        assert reached == (min(at) if at else None)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_jobs_of_an_update_are_weighted_by_their_clients_alone(weighting: str) -> None:
    """The shares of an update's jobs sum to 1, whatever the sizes of the clients of other updates."""
    words = ["algorithm=fedavg", f"algorithm.weighting={weighting}", *ASYNC, "rounds=6"]
    run = Run(compose_config([*BASE, *words]))
    loop, trace, assignment = run.prepare().loop, run.problem.trace, run.problem.division.assignment
    applied = trace.applied_update
    totals = set()
    for update in range(6):
        jobs = np.flatnonzero(applied == update)
        sizes = np.bincount(assignment, minlength=7)[trace.client[jobs]].astype(float)
        raw = sizes if weighting == "samples" else np.ones(len(jobs))
        np.testing.assert_allclose(loop.base_weight[jobs], raw / raw.sum(), rtol=1e-12)
        totals.add(raw.sum())
    assert (len(totals) > 1) == (weighting == "samples")
    assert not loop.base_weight[applied < 0].any()


def test_clients_drawn_by_their_samples_minimise_the_mean_over_samples() -> None:
    """p_i by the draw, so the equal mean of an update is that of f = sum p_i f_i, whatever the weighting."""
    for participation, equal in (("weighted", True), ("uniform", False)):
        words = ["algorithm=fedavg", "algorithm.weighting=uniform", f"participation={participation}"]
        problem = Run(compose_config([*BASE, *words])).problem
        weights = problem.sample_weights[problem.division.trained]
        assert weights.sum() == pytest.approx(1)
        assert (np.ptp(weights) < 1e-15) == equal


def test_a_label_that_is_not_in_the_test_set_does_not_count_against_a_client() -> None:
    """Client 0 has labels 0, 0, 1, 2 and the test set 0, 0, 0, 1: its share of label 2 goes to the others.
    Client 1 has label 2 alone: nothing can be said of it."""
    labels, y_test = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 0, 0, 1])
    weight = mixture(labels, y_test, np.array([0, 0, 0, 0, 1]), 2).numpy()
    np.testing.assert_allclose(weight[0], [2 / 3 / 3, 1 / 3, 0], rtol=1e-12)
    assert weight[0][y_test.numpy()].sum() == pytest.approx(1)
    assert not weight[1].any()


def test_what_a_run_did_not_measure_is_known_without_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of hundreds of runs asks each for outcomes that most lack."""
    run(tmp_path, "rounds=1")
    ended = records(tmp_path)[0]

    def rows(here: RunDirectory) -> list[dict[str, str]]:
        raise AssertionError(here.path)

    monkeypatch.setattr(RunDirectory, "rows", rows)
    names = ["final_validation_accuracy", "final_client_accuracy_worst", "final_test_gini", "best_test_auroc"]
    assert [ended.result(name) for name in names] == [None] * 4
    assert ended.result("final_accuracy") is not None
