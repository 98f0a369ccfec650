"""The clients' own models and scores against a plain loop over the clients."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from run_files import inputs, metrics
from run_files import model as saved
from scipy.special import softmax
from torch import nn

from fedbench.api import compose_config
from fedbench.runs.execution import Execution
from fedbench.runs.run import Run

LAYER = ["model=mlp", "model.hidden=[8]", "model.norm=layer"]
BATCH = ["model=cnn", "model.norm=batch"]


def own_models(running: Execution) -> list[nn.Module]:
    """Each client's model as a module: theta, with the client's own normalisation and its statistics."""
    walk, made = running.loop, []
    kept = walk.trainer.store.tensors  # type: ignore[attr-defined]
    for i in range(walk.counts.N):
        module = copy.deepcopy(running.evaluator.model)
        shared = walk.algorithm.shared(walk.theta)  # type: ignore[attr-defined]
        theta = walk.algorithm.join(shared, kept["own"][i])  # type: ignore[attr-defined]
        statistics = {name: kept[f"statistics:{name}"][i] for name in walk.statistics}
        module.load_state_dict({**running.evaluator.layout.unflatten(theta), **statistics}, strict=False)
        made.append(module)
    return made


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """Ten users of 8 x 8 images in three classes; their test sets differ in size, and user 3 has none."""
    rng = np.random.default_rng(1)
    whose = rng.choice([0, 1, 2, 4, 5, 6, 7, 8, 9], 150, p=[0.3, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05])
    y, y_test, client = rng.integers(0, 3, 300), rng.integers(0, 3, 150), np.arange(300) % 10
    x, x_test = rng.normal(size=(300, 8, 8)), rng.normal(size=(150, 8, 8))
    for images, labels, owner in ((x, y, client), (x_test, y_test, whose)):
        images[:, :, :3] += 2 * np.eye(3)[(labels + owner) % 3][:, None]  # each user has classes of its own
    file = tmp_path / "users.npz"
    np.savez(file, x_train=x, y_train=y, x_test=x_test, y_test=y_test, client=client, client_test=whose)
    return file


@pytest.mark.parametrize(
    "words",
    [
        ["USERS", "partition=natural", "clients.total=10", *LAYER],
        ["USERS", "partition=natural", "clients.total=6", *BATCH],  # the test samples of four are nobody's
        ["USERS", "partition=dirichlet", "dataset.pool=0.3", "clients.total=7", *LAYER],
        ["dataset.test_samples=100", "partition=shards", "clients.total=12", *LAYER],
        ["dataset.test_samples=100", "partition=dirichlet", "clients.total=12", *BATCH],
    ],
    ids=["natural", "some users", "pool", "shards", "dirichlet"],
)
def test_a_client_is_scored_by_its_model_on_its_own_samples(
    words: list[str], users: Path, tmp_path: Path
) -> None:
    """Or, where the data do not say whose a test sample is, on all of them, weighted by the client's labels.
    The columns of the run are means over the clients with test samples."""
    common = ["algorithm=fedbn", "algorithm.lr=0.2", "rounds=2", "clients.per_round=4", "local.steps=3"]
    common += ["threads=1", "engine=vmap", "dtype=float64", "eval.clients=true", "eval.every=2"]
    common += ["eval.batch_size=20", "progress=none", "eval.global_model=true"]
    common += [f"dataset=npz dataset.path={users}" if word == "USERS" else word for word in words]
    plan = Run(compose_config(" ".join(common).split()))
    plan.go(tmp_path / "run")
    last = metrics(tmp_path / "run")[-1]

    running, data, division = plan.prepare(tmp_path), plan.problem.dataset, plan.problem.division
    running.loop.start()
    for _ in range(2):  # some clients have not worked yet
        running.loop.update()
    x, y = running.evaluator.to_input(data.x_test), data.y_test
    losses, right = [], []
    for i, module in enumerate(own_models(running)):
        if division.test_client is not None:
            share = (division.test_client == i) / max((division.test_client == i).sum(), 1)
        else:
            mine, labels = data.y_train.numpy()[division.assignment == i], y.numpy()
            share = np.array([(mine == label).mean() / (labels == label).sum() for label in labels])
        if share.any():
            with torch.no_grad():
                out = module(x)
            losses.append(share @ torch.nn.functional.cross_entropy(out, y, reduction="none").numpy())
            right.append(share @ (out.argmax(1) == y).double().numpy())
    module = copy.deepcopy(running.evaluator.model)
    parameters = running.evaluator.layout.unflatten(running.loop.theta)
    module.load_state_dict({**parameters, **running.loop.statistics}, strict=False)
    with torch.no_grad():
        out = module(x)
    loss, hits = torch.nn.functional.cross_entropy(out, y).item(), (out.argmax(1) == y).double().mean().item()
    assert [float(last[f"global_{name}"]) for name in ("loss", "accuracy")] == pytest.approx([loss, hits])
    if "clients.total=10" in words:
        assert len(right) == 9  # user 3 has no test sample
    assert float(last["test_loss"]) == pytest.approx(np.mean(losses), rel=1e-10)
    assert float(last["test_accuracy"]) == pytest.approx(np.mean(right), rel=1e-12)
    worst = np.sort(right)[: -(-len(right) // 10)].mean()
    assert [float(last[f"client_accuracy_{name}"]) for name in ("mean", "worst", "std")] == pytest.approx(
        [np.mean(right), worst, np.std(right)], rel=1e-10
    )
    assert len(set(right)) > 2


@pytest.mark.parametrize("words", [["partition=natural"], ["partition=iid", "dataset.pool=0.3"]])
def test_fine_tuned_models_are_scored_on_their_owners_samples(
    words: list[str], users: Path, tmp_path: Path
) -> None:
    """With six of ten users as clients, too: one step of gradient descent on all of a client's samples."""
    common = (
        f"dataset=npz dataset.path={users} model=logistic rounds=1 dtype=float64 clients.total=6 "
        "clients.per_round=6 local.steps=2 local.batch_size=null threads=1"
    ).split()
    common += ["eval.finetune_steps=1", "eval.finetune_lr=0.5", "progress=none", *words]
    plan = Run(compose_config(common))
    plan.go(tmp_path / "run")
    last, weights = metrics(tmp_path / "run")[-1], saved(tmp_path / "run")
    data, division = plan.problem.dataset, plan.problem.division

    x, y = inputs(plan, "train"), data.y_train.numpy()
    x_test, y_test, whose = inputs(plan, "test"), data.y_test.numpy(), division.test_client
    assert whose is not None
    assert ((whose < 0).any()) == ("partition=natural" in words)
    w, b = (weights[f"1.{name}"].double().numpy() for name in ("weight", "bias"))
    scores = []
    for i in range(6):
        mine, test = division.assignment == i, whose == i
        if test.any():
            error = (softmax(x[mine] @ w.T + b, 1) - np.eye(len(b))[y[mine]]) / mine.sum()
            own_w, own_b = w - 0.5 * error.T @ x[mine], b - 0.5 * error.sum(0)
            scores.append(((x_test[test] @ own_w.T + own_b).argmax(1) == y_test[test]).mean())
    assert float(last["finetuned_accuracy_mean"]) == pytest.approx(np.mean(scores), rel=1e-12)
    assert float(last["finetuned_accuracy_std"]) == pytest.approx(np.std(scores), rel=1e-9)


def test_a_client_without_test_samples_of_its_classes_has_no_score(tmp_path: Path) -> None:
    """Nor does it count as 0 in the means: client 0 trains on class 3, of which there is no test sample."""
    rng = np.random.default_rng(2)
    y, y_test = np.repeat([3, 0, 1, 2], 30), np.arange(60) % 3
    x, x_test = (rng.normal(size=(len(labels), 6)) + 4 * np.eye(6)[labels] for labels in (y, y_test))
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    np.savez(tmp_path / "parts.npz", client=np.repeat(np.arange(4), 30))
    words = ["dataset=npz", f"dataset.path={tmp_path / 'data.npz'}", "partition=file", "algorithm=fedbn"]
    words += [f"partition.path={tmp_path / 'parts.npz'}", "clients.total=4", "clients.per_round=4"]
    words += ["threads=1", "model=mlp", "model.norm=layer", "rounds=2", "eval.clients=true", "progress=none"]
    Run(compose_config(words)).go(tmp_path / "run")
    last = metrics(tmp_path / "run")[-1]
    assert float(last["test_accuracy"]) == float(last["client_accuracy_mean"])
    assert float(last["client_accuracy_worst"]) > 0.9


def test_every_client_has_a_row(tmp_path: Path) -> None:
    """clients.csv at each evaluation: what metrics.csv says follows from it, before and after local steps,
    and the samples are those of the partition. A run that was stopped goes on with it, byte by byte."""
    words = ["algorithm=scaffold", "partition=dirichlet", "clients.total=7", "clients.per_round=3"]
    words += ["rounds=5", "eval.every=2", "eval.clients=true", "eval.finetune_steps=2", "local.steps=2"]
    words += ["threads=1", "checkpoint.seconds=0", "progress=none"]
    Run(compose_config(words)).go(tmp_path / "whole")
    shares = ["accuracy", "finetuned_accuracy"]  # a text as a float reads back exactly what was written
    table = pd.read_csv(tmp_path / "whole/clients.csv", dtype=dict.fromkeys(shares, str))
    table = table.astype(dict.fromkeys(shares, float))
    assert list(table) == ["round", "client", "samples", *shares]
    assert list(table["round"].unique()) == [0, 2, 4, 5]
    held = np.bincount(np.load(tmp_path / "whole/partition.npz")["client"], minlength=7)
    rows = {row["round"]: row for row in metrics(tmp_path / "whole")}
    for at, part in table.groupby("round"):
        assert list(part.client) == list(range(7))
        assert list(part.samples) == list(held)
        for column, name in (("accuracy", "client_accuracy"), ("finetuned_accuracy", "finetuned_accuracy")):
            values = part[column].dropna().to_numpy()
            assert float(rows[str(at)][f"{name}_mean"]) == pytest.approx(values.mean(), rel=1e-12)
            assert float(rows[str(at)][f"{name}_std"]) == pytest.approx(values.std(), rel=1e-9)
            assert float(rows[str(at)][f"{name}_worst"]) == values.min()  # a tenth of 7 is one
    assert (table.accuracy != table.finetuned_accuracy).any()
    whole = (tmp_path / "whole/clients.csv").read_bytes()
    Run(compose_config([*words, "checkpoint.until=2"])).go(tmp_path / "torn")
    with open(tmp_path / "torn/clients.csv", "a") as stream:  # rows of a round whose checkpoint was not saved
        stream.write("4,0,9,0.5,0.5\n4,1,9")
    Run(compose_config(words)).go(tmp_path / "torn")
    assert (tmp_path / "torn/clients.csv").read_bytes() == whole
