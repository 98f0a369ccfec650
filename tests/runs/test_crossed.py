"""Features beside their neighbours, each through a run: its numbers computed here in another way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from run_files import model, summary
from scipy.special import softmax

from fedbench.api import compose_config
from fedbench.runs.run import Run

SMALL = [
    "clients.total=8", "clients.per_round=3", "local.steps=2", "local.batch_size=16", "threads=1",
    "progress=none", "dataset.train_samples=200",
]  # fmt: skip
ASYNC = ["schedule=async", "schedule.concurrency=5", "delay=bands"]


def go(directory: Path, *words: str) -> pd.DataFrame:
    """The rows of metrics.csv of a run."""
    Run(compose_config([*SMALL, *words])).go(directory)
    return pd.read_csv(directory / "metrics.csv")


@pytest.mark.parametrize(
    ("words", "surveys"),
    [(["algorithm=adamasfl", *ASYNC], True), (["algorithm=scaffold", "delay=exponential"], False)],
)
def test_jobs_and_metrics_have_one_clock(tmp_path: Path, words: list[str], surveys: bool) -> None:
    """A version is there when the last of its jobs has come; the first jobs start when version 0 is there,
    which is after the survey."""
    rows = go(tmp_path, "rounds=6", "trace=true", *words)
    jobs = pd.read_csv(tmp_path / "jobs.csv")
    made = jobs.groupby("applied_update").finish_time.max().cummax()
    assert rows.virtual_time[1:].tolist() == pytest.approx(made.tolist(), rel=1e-12)
    assert jobs.dispatch_time.min() == rows.virtual_time[0]
    assert (rows.virtual_time[0] > 0) == surveys
    assert summary(tmp_path)["schedule"]["virtual_time"] == rows.virtual_time.iloc[-1]
    started = [jobs[jobs.start_version == v].dispatch_time.min() for v in range(6)]
    assert started == pytest.approx(rows.virtual_time[:6].tolist(), rel=1e-12)


def test_further_metrics_are_those_of_the_model_that_is_evaluated(tmp_path: Path) -> None:
    """With eval.model=mean_of_two: of the mean of the last two models, which runs of two and of three rounds
    leave."""
    rng = np.random.default_rng(4)
    y, y_test = rng.integers(0, 4, 240), rng.choice([0, 1, 3], 80)
    x, x_test = (rng.normal(size=(len(labels), 5)) + np.eye(5)[labels] for labels in (y, y_test))
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    words = ["dataset=npz", f"dataset.path={tmp_path / 'data.npz'}", "dataset.normalize=false"]
    words += ["model=logistic", "eval.metrics=[perplexity,confusion_matrix]", "dtype=float64"]
    words += ["dataset.train_samples=null", "dataset.validation=0.1", "algorithm.lr=0.5"]
    for rounds in (2, 3):
        go(tmp_path / str(rounds), *words, f"rounds={rounds}")
    thetas = [model(tmp_path / name) for name in ("2", "3")]
    last = go(tmp_path / "mean", *words, "rounds=3", "eval.model=mean_of_two").iloc[-1]
    weight, bias = (sum(theta[f"1.{part}"].numpy() for theta in thetas) / 2 for part in ("weight", "bias"))
    out = x_test @ weight.T + bias
    loss = -np.log(softmax(out, 1)[np.arange(80), y_test]).mean()
    assert last.test_perplexity == pytest.approx(np.exp(loss), rel=1e-9)
    counts = np.zeros((4, 4), dtype=int)
    np.add.at(counts, (y_test, out.argmax(1)), 1)
    assert (np.loadtxt(tmp_path / "mean/confusion_matrix.csv", delimiter=",") == counts).all()


@pytest.mark.parametrize(("optimizer", "place"), [("adam", "memory"), ("sgd", "disk")])
def test_one_client_that_keeps_its_optimizer_makes_one_long_job(
    tmp_path: Path, optimizer: str, place: str
) -> None:
    """Full gradients: three jobs of two steps, with a stop after each, are one job of six, which keeps
    nothing."""
    words = ["clients.total=1", "clients.per_round=1", "partition=iid", "local.batch_size=null"]
    words += ["model=logistic", "dtype=float64", f"optimizer={optimizer}", "algorithm.lr=0.05"]
    words += ["optimizer.momentum=0.9"] * (optimizer == "sgd")
    go(tmp_path / "one", *words, "rounds=1", "local.steps=6")
    kept = ["rounds=3", "optimizer.keep=true", "checkpoint.seconds=0", f"state.place={place}"]
    for more in (["checkpoint.until=1"], ["checkpoint.until=2"], []):
        go(tmp_path / "three", *words, *kept, *more)
    one, three = model(tmp_path / "one"), model(tmp_path / "three")
    for name, value in one.items():
        np.testing.assert_allclose(three[name].numpy(), value.numpy(), rtol=1e-10, atol=1e-12)


def test_a_run_that_goes_on_counts_the_seconds_before(tmp_path: Path) -> None:
    """Of a checkpoint that says 1000 seconds: later rows, the next checkpoint and the summary have more,
    however little this process has taken. Earlier rows stay."""
    file = tmp_path / "checkpoint.pt"
    earlier = go(tmp_path, "rounds=4", "checkpoint.until=2")
    saved = torch.load(file, weights_only=True)
    torch.save({**saved, "wall_seconds": 1000.0}, file)
    rows = go(tmp_path, "rounds=4")
    assert rows.wall_seconds[:3].tolist() == earlier.wall_seconds.tolist()
    later = *rows.wall_seconds[3:], torch.load(file, weights_only=True)["wall_seconds"]
    assert min(*later, summary(tmp_path)["wall_seconds"]) > 1000
    assert len(rows) == 5


def test_of_equal_best_rounds_the_first_counts(tmp_path: Path) -> None:
    """20 held-out samples tell few rounds apart, and the test accuracy differs between those."""
    words = ["rounds=12", "dataset.validation=0.1", "algorithm.lr=0.3", "dataset.test_samples=40"]
    rows, said = go(tmp_path, *words), summary(tmp_path)
    held, test = (rows[f"{part}_accuracy"].to_numpy() for part in ("validation", "test"))
    best, chosen = np.flatnonzero(test == test.max()), np.flatnonzero(held == held.max())
    assert len(best) > 1
    assert test[chosen[0]] != test[chosen[-1]]
    assert said["best_round"] == best[0]
    assert said["best_validation_round"] == chosen[0]
    assert said["accuracy_at_best_validation"] == test[chosen[0]]
