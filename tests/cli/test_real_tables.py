"""Three public tables as a researcher would use them: users by a column, metrics of every user, users held
out, methods compared. Numbers are recomputed by scikit-learn from the models that runs leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from run_files import Call
from scipy.special import softmax
from sklearn import datasets
from sklearn.metrics import mean_absolute_error, r2_score, roc_auc_score

from fedbench.api import Run

TEST = np.arange(600) % 4 == 0
SWEEP = [
    "-m",
    "algorithm=fedavg,ditto",
    "algorithm.lr=0.05",
    "rounds=4",
    "seed=0,1",
    "model=logistic",
    "dtype=float64",
]
EVERY = ["eval.clients=true", "partition=natural", "hydra.sweep.dir=s", "threads=1"]


def table(name: str) -> tuple[pd.DataFrame, list[str]]:
    """A table with the columns `who` and `part`, and the words that read it."""
    frame: Any = getattr(datasets, f"load_{name}")(as_frame=True).frame
    words = ["dataset=table", f"dataset.path={name}.csv", "dataset.target=target", "dataset.user=who"]
    words += ["dataset.split_column=part", "clients.per_round=2"]
    if name == "diabetes":  # by sex and age
        halves = pd.cut(frame.age, [-1, 0, 1], labels=["<48", ">=48"]).astype(str)
        frame["who"] = np.where(frame.sex > 0, "f ", "m ") + halves
        words += ["dataset.drop=[age,sex]", "dataset.task=regression", "eval.metrics=[mae]"]
    elif name == "wine":  # by strength
        frame["who"] = pd.qcut(frame.alcohol, 3, labels=["light", "middle", "strong"]).astype(str)
        frame["target"] = frame.target.map(dict(enumerate(datasets.load_wine().target_names)))
        words += ["eval.metrics=[auroc]"]
    else:  # by texture, as wards with patients of their own
        frame["who"] = pd.qcut(frame["mean texture"], 5, labels=list("abcde")).astype(str)
        words += ["eval.metrics=[auroc]"]
    frame["part"] = np.where(TEST[: len(frame)], "test", "train")
    frame.to_csv(f"{name}.csv", index=False)
    return frame[frame.part == "test"], [*words, f"clients.total={frame.who.nunique()}", *EVERY]


def auroc(y: np.ndarray, out: np.ndarray) -> float:
    share = softmax(out, 1)
    each = [roc_auc_score(y == c, share[:, c]) for c in range(out.shape[1]) if 0 < (y == c).sum() < len(y)]
    return float(np.mean(each)) if each else np.nan


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes", "wine"])
def test_every_users_metric(name: str, fedbench: Call) -> None:
    rows, words = table(name)
    assert fedbench(*SWEEP, *words)[0] == 0
    table_of_runs = pd.read_csv("s/runs.csv")
    place = Path(
        "s", table_of_runs.dir[(table_of_runs.algorithm == "fedavg") & (table_of_runs.seed == 1)].item()
    )
    run = Run(place)
    out = run.model(run.inputs(rows)).detach().numpy()
    clients = pd.read_csv(place / "clients.csv").tail(rows.who.nunique()).set_index("name")
    last = pd.read_csv(place / "metrics.csv").iloc[-1]
    expected, counts, metric = {}, {}, "mae" if name == "diabetes" else "auroc"
    for who in clients.index:
        mine = (rows.who == who).to_numpy()
        y = rows.target.to_numpy()[mine]
        if name == "diabetes":
            expected[who] = (mean_absolute_error(y, out[mine, 0]), r2_score(y, out[mine, 0]))
        else:
            labels = np.searchsorted(np.unique(rows.target), y)
            expected[who] = (auroc(labels, out[mine]), (out[mine].argmax(1) == labels).mean())
        counts[who] = mine.sum()
    assert clients.test_samples.to_dict() == counts
    for column, at in ((metric, 0), ("accuracy", 1)):
        each = np.array([expected[who][at] for who in clients.index])
        np.testing.assert_allclose(clients[column], each, rtol=1e-9)
        there = ~np.isnan(each)
        assert last[f"client_{column}_mean"] == pytest.approx(each[there].mean(), rel=1e-9)
        weighted = np.average(each[there], weights=clients.test_samples[there])
        assert last[f"client_{column}_weighted"] == pytest.approx(weighted, rel=1e-9)
    if name == "wine":  # nearly all strong wines are of one class
        assert len(set(rows.target[rows.who == "light"])) == 2


def test_a_mean_over_clients_is_not_compared_with_one_models_score_without_a_word(fedbench: Call) -> None:
    _, words = table("diabetes")
    assert fedbench(*SWEEP, *words)[0] == 0
    said = "of ditto a mean over clients, each with a model of its own, of the others one model's over all"
    code, out, _ = fedbench("best", "s", "--against", "fedavg")
    assert (code, said in out) == (0, True)
    code, out, _ = fedbench("best", "s", "--against", "fedavg", "--metric", "final_client_accuracy_mean")
    assert (code, said in out, "difference from FedAvg" in out) == (0, False, True)


def test_one_user_after_the_other_is_held_out(fedbench: Call) -> None:
    """The table for a paper shows names that LaTeX would read as something else."""
    _, words = table("diabetes")
    words = [
        word for word in words if not word.startswith(("dataset.split", "clients.total", "eval.clients"))
    ]
    words += ["dataset.drop=[age,sex,part]", "clients.total=3", "dataset.hold_out=each"]
    swept = [word for word in SWEEP if not word.startswith(("algorithm=", "seed="))]
    assert fedbench(*swept, "algorithm=fedavg", *words)[0] == 0
    code, out, err = fedbench("best", "s", "--format", "latex")
    assert (code, out.count(r"\textless{}48"), out.count(r"\textgreater{}=48")) == (0, 2, 2), err
    frame = pd.read_csv("diabetes.csv")
    runs = pd.read_csv("s/runs.csv")
    for place, held in zip(runs.dir, runs["dataset.hold_out"], strict=True):
        mine = frame[frame.who == held.strip("[]'")]
        run = Run(Path("s", place))
        out_of = run.model(run.inputs(mine.drop(columns="who"))).detach().numpy()
        score = pd.read_csv(Path("s", place, "metrics.csv")).test_accuracy.iloc[-1]
        assert score == pytest.approx(r2_score(mine.target, out_of[:, 0]), rel=1e-9)
