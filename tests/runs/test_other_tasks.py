"""Runs beyond images and classes, and the clients' accuracies: their columns recomputed here in NumPy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from run_files import logits, read, summary
from scipy.special import softmax
from sklearn.metrics import r2_score, roc_auc_score

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.data.partitions import held_out
from fedbench.errors import ConfigError
from fedbench.runs.metrics import worst
from fedbench.runs.run import Run

RNG = np.random.default_rng(0)
CLIENTS = 12
BASE = [
    f"clients.total={CLIENTS}", "clients.per_round=3", "rounds=3", "local.steps=2", "progress=none",
    "threads=1", "model=logistic", "algorithm.lr=0.05",
]  # fmt: skip
ASYNC = ["schedule=async", "schedule.concurrency=5", "delay=exponential"]
OWNER = np.arange(96) % (CLIENTS - 1)  # of each test sample of `file`
ADDED = ["client_accuracy_mean", "client_accuracy_worst", "client_accuracy_std", "client_accuracy_weighted"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """240 training and 96 test samples of 3 features and their clients; client 11 has no test sample."""
    x_train, x_test = RNG.normal(size=(240, 3)), RNG.normal(size=(96, 3))
    arrays = {"x_train": x_train, "x_test": x_test}
    arrays |= {"client": np.arange(240) % CLIENTS, "client_test": OWNER}
    slope = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 1.0]]).T
    for part in ("train", "test"):
        arrays[f"y_{part}"] = arrays[f"x_{part}"] @ slope + 0.1
    np.savez(tmp_path / "numbers.npz", **arrays)
    labels = {key: (arrays[key] > 0).astype(int) for key in ("y_train", "y_test")}
    np.savez(tmp_path / "labels.npz", **{**arrays, **labels})
    classes = {key: labels[key][:, 0] + labels[key][:, 1] for key in labels}
    np.savez(tmp_path / "classes.npz", **{**arrays, **classes})
    return tmp_path


def run(directory: Path, *overrides: str) -> tuple[Run, dict[str, str]]:
    """A run, and the last row of its metrics.csv."""
    plan = Run(compose_config([*BASE, *overrides]))
    plan.go(directory)
    return plan, read(directory / "metrics.csv")[-1]


def npz(file: Path, name: str, task: str) -> list[str]:
    return ["dataset=npz", f"dataset.path={file / name}.npz", f"dataset.task={task}", "dtype=float64"]


TESTS = np.bincount(OWNER)  # 9 or 8


def check_clients(last: dict[str, str], each: list[float], weights: np.ndarray = TESTS) -> None:
    """Mean, worst tenth (of 11 or 12: two), standard deviation, and mean by test samples, of the clients that
    have a score."""
    expected = [np.mean(each), np.mean(sorted(each)[:2]), np.std(each), np.average(each, weights=weights)]
    assert [float(last[name]) for name in ADDED] == pytest.approx(expected, rel=1e-9)


def test_regression(file: Path) -> None:
    options = npz(file, "numbers", "regression")
    plan, last = run(file / "run", *options, "partition=natural", "eval.clients=true")
    y, out = plan.problem.dataset.y_test.double().numpy(), logits(plan, file / "run")
    assert float(last["test_loss"]) == pytest.approx(((out - y) ** 2).mean(), rel=1e-9)
    assert float(last["test_accuracy"]) == pytest.approx(r2_score(y, out), rel=1e-9)
    check_clients(last, [r2_score(y[i == OWNER], out[i == OWNER]) for i in range(CLIENTS - 1)])
    assert summary(file / "run")["metric"] == "R2"
    assert summary(file / "run")["final_accuracy"] == float(last["test_accuracy"])


def test_regression_errors_of_each_client(file: Path) -> None:
    """In metrics.csv, where more is worse, and in clients.csv beside each one's number of test samples."""
    options = [*npz(file, "numbers", "regression"), "partition=natural", "eval.clients=true"]
    plan, last = run(file / "run", *options, "eval.metrics=[mae,rmse]")
    error = logits(plan, file / "run") - plan.problem.dataset.y_test.double().numpy()
    mine = [error[i == OWNER] for i in range(CLIENTS - 1)]
    mae, rmse = [abs(one).mean() for one in mine], [(one**2).mean() ** 0.5 for one in mine]
    assert float(last["test_mae"]) == pytest.approx(abs(error).mean(), rel=1e-9)
    assert float(last["test_rmse"]) == pytest.approx((error**2).mean() ** 0.5, rel=1e-9)
    for name, each in (("mae", mae), ("rmse", rmse)):
        expected = [np.mean(each), np.mean(sorted(each)[-2:]), np.std(each), np.average(each, weights=TESTS)]
        found = [float(last[f"client_{name}_{over}"]) for over in ("mean", "worst", "std", "weighted")]
        assert found == pytest.approx(expected, rel=1e-9)
    rows = [row for row in read(file / "run" / "clients.csv") if row["round"] == "3"]
    assert [int(row["test_samples"]) for row in rows] == [*TESTS, 0]
    assert [float(row["mae"]) for row in rows[:-1]] == pytest.approx(mae, rel=1e-9)
    assert rows[-1]["mae"] == rows[-1]["accuracy"] == ""
    said = summary(file / "run")
    assert said["best_client_rmse_worst"] == min(
        float(row["client_rmse_worst"]) for row in read(file / "run" / "metrics.csv")
    )


def test_the_auroc_of_each_client(file: Path) -> None:
    """Means over the classes that a client's test samples have, by scikit-learn. Where it is not known whose
    they are, the columns are empty."""
    options = [*npz(file, "classes", "classification"), "eval.metrics=[auroc]", "eval.clients=true"]
    plan, last = run(file / "run", *options, "partition=natural")
    out, y = logits(plan, file / "run"), plan.problem.dataset.y_test.numpy()
    each = []
    for i in range(CLIENTS - 1):
        mine, score = y[i == OWNER], softmax(out[i == OWNER], 1)
        both = [c for c in range(3) if 0 < (mine == c).sum() < len(mine)]
        each.append(np.mean([roc_auc_score(mine == c, score[:, c]) for c in both]))
    expected = [np.mean(each), np.mean(sorted(each)[:2]), np.std(each), np.average(each, weights=TESTS)]
    found = [float(last[f"client_auroc_{over}"]) for over in ("mean", "worst", "std", "weighted")]
    assert found == pytest.approx(expected, rel=1e-9)
    _, last = run(file / "other", *options, "partition=iid")
    assert last["client_auroc_mean"] == ""
    assert "auroc" not in read(file / "other" / "clients.csv")[0]


def test_several_labels(file: Path) -> None:
    options = npz(file, "labels", "multilabel")
    plan, last = run(file / "run", *options, *ASYNC, "partition=natural", "eval.clients=true")
    y, out = plan.problem.dataset.y_test.double().numpy(), logits(plan, file / "run")
    losses = np.log1p(np.exp(-out)) + (1 - y) * out
    assert float(last["test_loss"]) == pytest.approx(losses.mean(), rel=1e-9)
    right = ((out > 0) == (y > 0.5)).all(1)
    assert float(last["test_accuracy"]) == right.mean()
    check_clients(last, [right[i == OWNER].mean() for i in range(CLIENTS - 1)])


def test_clients_that_share_a_test_set_are_weighed_by_their_labels(file: Path) -> None:
    options = [*npz(file, "classes", "classification"), "partition=dirichlet", "partition.alpha=0.3"]
    plan, last = run(file / "run", *options, "eval.clients=true")
    y, labels = plan.problem.dataset.y_test.numpy(), plan.problem.dataset.y_train.numpy()
    right = logits(plan, file / "run").argmax(1) == y
    each = []
    for i in range(CLIENTS):
        own = labels[plan.problem.division.assignment == i]
        each.append(sum((own == c).mean() * right[y == c].mean() for c in range(3)))
    check_clients(last, each, plan.problem.division.sizes)
    assert float(last["test_accuracy"]) == right.mean()


def test_pooled_data_are_tested_on_each_clients_own(file: Path) -> None:
    options = [*npz(file, "classes", "classification"), "partition=dirichlet", "dataset.pool=0.25"]
    plan, last = run(file / "run", *options, "eval.clients=true")
    right = logits(plan, file / "run").argmax(1) == plan.problem.dataset.y_test.numpy()
    whose = plan.problem.division.test_client
    assert whose is not None
    sizes = np.bincount(plan.problem.division.assignment, minlength=CLIENTS)
    _, test = held_out(np.repeat(np.arange(CLIENTS), sizes), 0.25, np.random.default_rng(0))
    assert abs(len(whose) - len(test) / 0.75) < 2 * CLIENTS
    each = sorted(right[whose == i].mean() for i in np.unique(whose))
    assert float(last["client_accuracy_mean"]) == pytest.approx(np.mean(each), rel=1e-9)


def test_token_sequences(tmp_path: Path) -> None:
    model = ["model=embedding_rnn", "model.embedding=4", "model.hidden=4", "dataset.length=8"]
    plan, last = run(tmp_path, "dataset=reviews", *model, *ASYNC, "eval.clients=true")
    assert (plan.config.partition.name, plan.problem.dataset.vocabulary) == ("natural", 1000)
    assert 0 < float(last["client_accuracy_worst"]) <= float(last["client_accuracy_mean"]) < 1
    assert math.isfinite(float(last["test_loss"]))


def test_a_test_sample_of_a_client_that_is_not_there(file: Path) -> None:
    with np.load(file / "classes.npz") as arrays:
        np.savez(file / "odd.npz", **{**arrays, "client_test": np.full(96, CLIENTS)})
    words = [*npz(file, "odd", "classification"), "partition=natural", "eval.clients=true"]
    with pytest.raises(ConfigError, match=r"eval\.clients=true: must be false: no test sample belongs"):
        Run(compose_config([*BASE, *words]))


def test_a_diverged_run_counts_the_worst_there_is() -> None:
    """What a search is told: R2 has no lower end, so 0 would be better than many runs that end."""
    assert {worst(name) for name in ("accuracy", "subset accuracy", "accuracy over positions")} == {0.0}
    assert worst("R2") == -math.inf


MODULE = """
from pathlib import Path

import numpy as np

from fedbench.data import Dataset, from_arrays, register_dataset


@register_dataset("stations")
def stations(root: Path, clients: int, noise: float = 0.1) -> Dataset:
    rng = np.random.default_rng(0)
    own = np.repeat(np.arange(clients), 20)
    x = rng.normal(size=(20 * clients, 3))
    y = x @ [1.0, 2.0, 3.0] + own + noise * rng.normal(size=len(own))
    return from_arrays("stations", x, y, x, y, task="regression", client=own, test_client=own)
"""
OPTION = """defaults:
  - override /partition@_global_.partition: natural
name: stations
noise: 0.2
normalize: true
"""


def test_a_users_own_data_set_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_data.py").write_text(MODULE)
    Path("conf/dataset").mkdir(parents=True)
    Path("conf/dataset/stations.yaml").write_text(OPTION)
    words = ["--config-dir", "conf", "imports=[my_data.py]", "dataset=stations", *BASE, "eval.clients=true"]
    assert main([*words, "hydra.run.dir=one", "dataset.noise=0.3", "dataset.normalize=false"]) == 0
    config = summary(Path("one"))["config"]
    assert (config["dataset"], config["dataset.noise"], config["partition"]) == ("stations", 0.3, "natural")
    assert "final R2 " in capsys.readouterr().out
    assert main(["replay", "one"]) == 0
    assert main([*words, "dataset.nois=0.3"]) == 2
    assert "dataset.nois=0.3: no such key; dataset=stations has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "engine"),
    [
        *((method, "vmap") for method in ("ifca", "fedproto", "fedntd", "moon")),
        pytest.param("ifca", "compile", marks=pytest.mark.slow),
    ],
)
def test_methods_that_look_at_outputs_see_the_same_of_tokens_in_every_engine(
    method: str, engine: str, tmp_path: Path
) -> None:
    # clients of unequal sizes: a mini-batch is filled up, and what fills it has the weight 0
    words = [
        f"algorithm={method}", "dataset=reviews", "model=embedding_rnn", "model.hidden=6",
        "clients.total=6", "rounds=3", "local.steps=null", "local.epochs=1", "dtype=float64", "eval.every=1",
        "algorithm.lr=0.2", "model.embedding=5",
    ]  # fmt: skip
    losses = []
    for name in ("loop", engine):
        run(tmp_path / name, *words, f"engine={name}")
        losses.append([float(row["test_loss"]) for row in read(tmp_path / name / "metrics.csv")])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert losses[0][0] != losses[0][-1]
