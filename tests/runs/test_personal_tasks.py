"""Clients' own models on every task, with further metrics and after steps of their own: recomputed in NumPy
and scikit-learn from what a checkpoint keeps of each client."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from option_helpers import needs_torchmetrics
from run_files import inputs, metrics, read, runs, same_model
from scipy.special import expit, log_softmax, softmax
from sklearn.metrics import average_precision_score, f1_score, r2_score, roc_auc_score
from torch.func import functional_call

from fedbench.runs.run import Run

pytestmark = needs_torchmetrics
N, HIDDEN, FEATURES = 5, 4, 3
OWNER = np.array([0, 1, 2, 3, 1, 2, 2, 9] * 12)  # of each test sample; client 4 has none, and 9 is no client
OVER = ("mean", "worst", "std", "weighted")
go = runs(
    f"partition=natural clients.total={N} clients.per_round=2 rounds=3 local.steps=2 local.batch_size=8 "
    "dtype=float64 threads=1 progress=none dataset.validation=0.2 eval.clients=true eval.global_model=true "
    "algorithm.lr=0.1 dataset=npz"
)
TASKS = {
    "regression": "eval.metrics=[mae,rmse]",
    "multilabel": "eval.metrics=[auroc,average_precision,macro_f1]",
    "classification": "eval.metrics=[auroc,average_precision,perplexity,macro_f1,recall_at_2,"
    "confusion_matrix]",
}
Fields = dict[str, np.ndarray]
OWN: dict[str, Callable[[Fields, Fields, int], np.ndarray]] = {
    "local": lambda kept, server, i: kept["model"][i],
    "ditto": lambda kept, server, i: kept["v"][i],
    "pfedme": lambda kept, server, i: kept["v"][i],
    "apfl": lambda kept, server, i: (
        kept["alpha"][i] * kept["v"][i] + (1 - kept["alpha"][i]) * server["theta"]
    ),
    "ifca": lambda kept, server, i: server["models"][kept["cluster"][i]],
    "fedper": lambda kept, server, i: np.r_[server["theta"][: -kept["own"].shape[1]], kept["own"][i]],
    "fedrep": lambda kept, server, i: np.r_[server["theta"][: -kept["own"].shape[1]], kept["own"][i]],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Five users' numbers, labels and classes: each user has a slope of its own."""
    rng = np.random.default_rng(3)
    client = np.arange(300) % N
    for name in TASKS:
        arrays: dict[str, Any] = {"client": client, "client_test": OWNER}
        slopes = rng.normal(size=(10, FEATURES, 2))
        for part, whose in (("train", client), ("test", OWNER)):
            x = rng.normal(size=(len(whose), FEATURES))
            y = np.einsum("nf,nfk->nk", x, slopes[whose]) + 0.3 * rng.normal(size=(len(whose), 2))
            if name != "regression":
                y = (y > 0).astype(int)
            arrays |= {f"x_{part}": x, f"y_{part}": y.sum(1) if name == "classification" else y}
        np.savez(tmp_path / f"{name}.npz", **arrays)
    return tmp_path


def saved(directory: Path) -> tuple[Fields, Fields]:
    """What each client keeps, and the server."""
    state = torch.load(directory / "checkpoint.pt", weights_only=True)["loop_state"]
    both = ({name: value.numpy() for name, value in state[part].items()} for part in ("clients", "server"))
    return next(both), next(both)


def forward(theta: np.ndarray, x: np.ndarray, outputs: int) -> np.ndarray:
    ends = np.cumsum([HIDDEN * FEATURES, HIDDEN, outputs * HIDDEN])
    first, bias, second, last = np.split(theta, ends)
    hidden = np.maximum(x @ first.reshape(HIDDEN, FEATURES).T + bias, 0)
    return hidden @ second.reshape(outputs, HIDDEN).T + last


def _ranks(y: np.ndarray, scores: np.ndarray, rank: Callable[..., float], both: bool) -> float:
    columns = [(mine, score) for mine, score in zip(y.T, scores.T, strict=True) if mine.any()]
    found = [rank(mine, score) for mine, score in columns if not both or not mine.all()]
    return float(np.mean(found)) if found else math.nan


def scored(task: str, out: np.ndarray, y: np.ndarray) -> dict[str, float]:
    if task == "regression":
        error = out - y
        return {
            "loss": (error**2).mean(),
            "accuracy": r2_score(y, out),
            "mae": abs(error).mean(),
            "rmse": (error**2).mean() ** 0.5,
        }
    if task == "multilabel":
        own, scores, hard = y, expit(out), (out > 0).astype(int)
        found = {
            "loss": (np.log1p(np.exp(-out)) + (1 - y) * out).mean(),
            "accuracy": (hard == y).all(1).mean(),
        }
    else:
        own, scores, hard = np.eye(3)[y], softmax(out, 1), out.argmax(1)
        loss = -log_softmax(out, 1)[np.arange(len(y)), y].mean()
        two = (np.argsort(-out, 1)[:, :2] == y[:, None]).any(1).mean()
        found = {"loss": loss, "accuracy": (hard == y).mean(), "perplexity": np.exp(loss), "recall_at_2": two}
    found["auroc"] = _ranks(own, scores, roc_auc_score, True)
    found["average_precision"] = _ranks(own, scores, average_precision_score, False)
    return found | {"macro_f1": f1_score(y, hard, average="macro", zero_division=0.0)}


def expected(run: Run, directory: Path, task: str) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """A row's numbers, and each client's, from the owners' models on their own samples."""
    kept, server = saved(directory)
    dataset, division = run.problem.dataset, run.problem.division
    parts = {
        "test": (inputs(run, "test"), dataset.y_test.numpy(), division.test_client),
        "validation": (
            inputs(run, "train")[division.validation],
            dataset.y_train.numpy()[division.validation],
            division.partition[division.validation],
        ),
    }
    row: dict[str, float] = {}
    for part, (x, y, whose) in parts.items():
        assert whose is not None
        each = []
        for i in range(N):
            mine = whose == i
            theta = OWN[run.config.algorithm.name](kept, server, i)
            found = scored(task, forward(theta, x[mine], dataset.classes), y[mine]) if mine.any() else {}
            each.append(found)
        names = each[0]
        table = {name: np.array([one.get(name, math.nan) for one in each]) for name in names}
        row |= {f"{part}_{name}": np.nanmean(values) for name, values in table.items()}
        if part == "test":
            clients, weight = table, np.bincount(whose[whose >= 0], minlength=N)
    for name, values in clients.items():
        known = ~np.isnan(values)
        less = name in ("mae", "rmse", "perplexity")
        least = np.nanmax(values) if less else np.nanmin(values)  # a tenth of four is one
        over = np.nanmean(values), least, np.nanstd(values), np.average(values[known], weights=weight[known])
        row |= (
            {f"client_{name}_{how}": one for how, one in zip(OVER, over, strict=True)}
            if name != "loss"
            else {}
        )
    return row, clients


def check(run: Run, directory: Path, task: str) -> None:
    row, clients = expected(run, directory, task)
    last, rows = metrics(directory)[-1], read(directory / "clients.csv")[-N:]
    for name, value in row.items():
        close = 1e-6 if "f1" in name or "recall" in name else 1e-9  # torchmetrics has float32
        assert float(last[name]) == pytest.approx(value, rel=close, abs=1e-12), name
    assert not {name for name in last if name.startswith(("test_", "validation_", "client_"))} - {*row}
    for name in set(clients) - {"loss"}:
        found = [float(one[name] or "nan") for one in rows]
        assert found == pytest.approx(clients[name].tolist(), rel=1e-6, nan_ok=True), name
    assert len(set(clients["accuracy"][:4])) > 1


@pytest.mark.parametrize(
    ("method", "engine"), [*((method, "vmap") for method in OWN), ("ditto", "loop"), ("fedper", "loop")]
)
@pytest.mark.parametrize("task", TASKS)
def test_each_sample_goes_through_its_owners_model(
    task: str, method: str, engine: str, data: Path, tmp_path: Path
) -> None:
    where = [f"dataset.path={data / task}.npz", f"dataset.task={task}", TASKS[task], f"engine={engine}"]
    run = go(tmp_path / "run", *where, f"algorithm={method}", "model=mlp", f"model.hidden=[{HIDDEN}]")
    check(run, tmp_path / "run", task)
    if task == "classification":
        kept, server = saved(tmp_path / "run")
        x, y, whose = inputs(run, "test"), run.problem.dataset.y_test.numpy(), OWNER
        counts = np.zeros((3, 3))
        for i in range(N):
            out = forward(OWN[method](kept, server, i), x[whose == i], 3)
            np.add.at(counts, (y[whose == i], out.argmax(1)), 1)
        np.testing.assert_array_equal(
            np.loadtxt(tmp_path / "run/confusion_matrix.csv", delimiter=","), counts
        )


def test_a_run_that_was_stopped_goes_on_with_the_same_numbers(data: Path, tmp_path: Path) -> None:
    words = [f"dataset.path={data}/classification.npz", TASKS["classification"], "algorithm=ditto"]
    words += ["model=logistic", "engine=vmap", "eval.finetune_steps=2", "checkpoint.seconds=0"]
    go(tmp_path / "whole", *words)
    go(tmp_path / "torn", *words, "checkpoint.until=2")
    go(tmp_path / "torn", *words)
    assert metrics(tmp_path / "torn") == metrics(tmp_path / "whole")
    for name in ("clients.csv", "confusion_matrix.csv"):
        assert (tmp_path / "torn" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    go(tmp_path / "plain", *[word for word in words if not word.startswith("eval.")])
    assert same_model(tmp_path / "whole", tmp_path / "plain")  # evaluating changes nothing


@pytest.mark.parametrize(
    ("method", "engine"), [("ditto", "loop"), ("apfl", "vmap"), ("ifca", "vmap"), ("fedavg", "vmap")]
)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_fine_tuning_begins_with_a_clients_own_model(
    task: str, method: str, engine: str, data: Path, tmp_path: Path
) -> None:
    """Two steps of gradient descent on all of a client's samples; of the global model where there is one."""
    where = [f"dataset.path={data / task}.npz", f"dataset.task={task}", f"engine={engine}", "model=logistic"]
    where += ["eval.finetune_steps=2", "eval.finetune_lr=0.3", "local.batch_size=null"]
    where += ["eval.global_model=false"] if method == "fedavg" else []
    run = go(tmp_path / "run", *where, f"algorithm={method}")
    kept, server = saved(tmp_path / "run")
    dataset, division = run.problem.dataset, run.problem.division
    x, y, k = inputs(run, "train"), dataset.y_train.numpy(), dataset.classes
    each = []
    for i in range(N):
        mine, test = division.assignment == i, i == OWNER
        theta = OWN[method](kept, server, i) if method in OWN else server["theta"]
        w, b = theta[: k * FEATURES].reshape(k, FEATURES), theta[k * FEATURES :]
        for _ in range(2):
            out = x[mine] @ w.T + b
            error = (
                softmax(out, 1) - np.eye(k)[y[mine]] if task == "classification" else 2 * (out - y[mine]) / k
            )
            w, b = w - 0.3 * error.T @ x[mine] / mine.sum(), b - 0.3 * error.mean(0)
        if test.any():
            out = inputs(run, "test")[test] @ w.T + b
            each.append(scored(task, out, dataset.y_test.numpy()[test])["accuracy"])
    last = metrics(tmp_path / "run")[-1]
    assert float(last["finetuned_accuracy_mean"]) == pytest.approx(np.mean(each), rel=1e-9)
    assert float(last["finetuned_accuracy_worst"]) == pytest.approx(min(each), rel=1e-9)
    found = [row["finetuned_accuracy"] for row in read(tmp_path / "run/clients.csv")[-N:]]
    assert [float(one) for one in found[:4]] == pytest.approx(each, rel=1e-9)
    assert found[4] == ""


@pytest.mark.parametrize("method", ["local", "fedper"])
def test_a_label_at_every_position(method: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    arrays = {"client": np.arange(60) % N, "client_test": OWNER[:40]}
    for part, n in (("train", 60), ("test", 40)):
        x = rng.integers(1, 8, (n, 6))
        arrays |= {f"x_{part}": x, f"y_{part}": (x % 4) * (rng.random((n, 6)) < 0.8)}  # 0 is padding
    np.savez(tmp_path / "data.npz", **arrays)
    words = [f"dataset.path={tmp_path}/data.npz", "dataset.task=sequence", "dataset.vocabulary=8"]
    words += ["model=char_lstm", "model.hidden=4", "model.embedding=3", "eval.metrics=[perplexity]"]
    run = go(tmp_path / "run", *words, f"algorithm={method}", "dataset.validation=0")
    kept, server = saved(tmp_path / "run")
    layout, model = run.problem.layout, run.problem.model.eval()
    each = []
    for i in range(4):
        x, y = (part[OWNER[:40] == i] for part in (run.problem.dataset.x_test, run.problem.dataset.y_test))
        values = layout.unflatten(torch.from_numpy(OWN[method](kept, server, i)))
        with torch.no_grad():
            out = functional_call(model, values, (x,)).numpy()
        there = y.numpy() != 0
        lost = -np.take_along_axis(log_softmax(out, -1), y.numpy()[..., None], -1)[..., 0]
        loss = ((lost * there).sum(1) / there.sum(1)).mean()
        each.append((loss, (out.argmax(-1) == y.numpy())[there].mean(), np.exp(lost[there].mean())))
    last = metrics(tmp_path / "run")[-1]
    found = [float(last[name]) for name in ("test_loss", "test_accuracy", "test_perplexity")]
    assert found == pytest.approx(np.mean(each, axis=0), rel=1e-9)
