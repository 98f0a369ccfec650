"""The clients' own models against a plain loop: each alone, over the test set, weighted by its labels."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from run_files import metrics
from run_files import model as saved
from scipy.special import softmax
from torch import nn

from fedbench.api import compose_config
from fedbench.runs.clients import PersonalEvaluator
from fedbench.runs.execution import Execution
from fedbench.runs.run import Run

N = 12
LAYER = ["model=mlp", "model.hidden=[8]", "model.norm=layer"]
BATCH = ["model=cnn", "model.norm=batch"]


@pytest.mark.parametrize("model", [[*LAYER, "partition=shards"], [*BATCH, "partition=dirichlet"]])
def test_equals_a_plain_loop(model: list[str], tmp_path: Path) -> None:
    words = ["dataset=digits", "algorithm=fedbn", "algorithm.lr=0.2", "dataset.test_samples=100"]
    words += [f"clients.total={N}", "clients.per_round=5", "rounds=2", "local.steps=2", "threads=1"]
    plan = Run(compose_config([*words, *model, "engine=vmap", "eval.batch_size=20"]))
    running, problem = plan.prepare(tmp_path), plan.problem
    walk, evaluator = running.loop, running.evaluator
    walk.start()
    walk.update()
    walk.update()  # some clients have not worked yet
    measure = PersonalEvaluator.of_test_set(running)
    loss, score, accuracy = measure.test(walk)

    losses, right = [], []
    y = problem.dataset.y_test
    labels = y.numpy()
    for i, module in enumerate(own_models(running)):
        with torch.no_grad():
            out = module(evaluator.to_input(problem.dataset.x_test)).double()
        mine = problem.dataset.y_train.numpy()[problem.division.assignment == i]
        share = np.array([(mine == label).mean() / (labels == label).sum() for label in labels])
        each = torch.nn.functional.cross_entropy(out, y, reduction="none").numpy()
        losses.append((share * each).sum())
        right.append((share * (out.argmax(1) == y).numpy()).sum())
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)
    np.testing.assert_allclose(accuracy, right, rtol=1e-12)
    assert score == pytest.approx(np.mean(right), rel=1e-12)
    assert len(set(accuracy)) > 1


def own_models(running: Execution) -> list[nn.Module]:
    """Each client's model as a module: theta, with the client's own normalisation and its statistics."""
    walk, made = running.loop, []
    kept = walk.trainer.store.tensors  # type: ignore[attr-defined]
    for i in range(walk.counts.N):
        module = copy.deepcopy(running.evaluator.model)
        theta = walk.theta.clone()
        theta[walk.algorithm._norm] = kept["norm"][i]  # type: ignore[attr-defined]
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
        ["partition=natural", "clients.total=10", *LAYER],
        ["partition=natural", "clients.total=6", *BATCH],  # the test samples of four users are nobody's
        ["partition=dirichlet", "dataset.pool=0.3", "clients.total=7", *LAYER],
    ],
    ids=["natural", "some users", "pool"],
)
def test_a_test_sample_is_scored_by_its_owners_model(words: list[str], users: Path, tmp_path: Path) -> None:
    """In the columns of the run: means over the clients with test samples."""
    common = ["dataset=npz", f"dataset.path={users}", "algorithm=fedbn", "algorithm.lr=0.2", "rounds=2"]
    common += ["clients.per_round=4", "local.steps=3", "threads=1", "engine=vmap", "dtype=float64"]
    common += ["eval.clients=true", "eval.every=2", "progress=none", *words]
    Run(compose_config(common)).go(tmp_path / "run")
    last = metrics(tmp_path / "run")[-1]

    plan = Run(compose_config(common))
    running, data, whose = plan.prepare(tmp_path), plan.problem.dataset, plan.problem.division.test_client
    running.loop.start()
    for _ in range(2):
        running.loop.update()
    x, y = running.evaluator.to_input(data.x_test), data.y_test
    assert whose is not None
    losses, right = [], []
    for i, module in enumerate(own_models(running)):
        if (mine := whose == i).any():
            with torch.no_grad():
                out = module(x[mine])
            losses.append(torch.nn.functional.cross_entropy(out, y[mine]).item())
            right.append((out.argmax(1) == y[mine]).double().mean().item())
    if "partition=natural" in words:
        assert len(right) < plan.problem.counts.N or "clients.total=6" in words
    assert float(last["test_loss"]) == pytest.approx(np.mean(losses), rel=1e-10)
    assert float(last["test_accuracy"]) == pytest.approx(np.mean(right), rel=1e-12)
    worst = np.sort(right)[: -(-len(right) // 10)].mean()
    assert [float(last[f"client_accuracy_{name}"]) for name in ("mean", "worst", "std")] == pytest.approx(
        [np.mean(right), worst, np.std(right)], rel=1e-12
    )
    assert len(set(right)) > 2


@pytest.mark.parametrize("words", [["partition=natural"], ["partition=iid", "dataset.pool=0.3"]])
def test_fine_tuned_models_are_scored_on_their_owners_samples(
    words: list[str], users: Path, tmp_path: Path
) -> None:
    """With six of ten users as clients, too: one step of gradient descent on all of a client's samples."""
    common = ["dataset=npz", f"dataset.path={users}", "model=logistic", "rounds=1", "dtype=float64"]
    common += [
        "clients.total=6",
        "clients.per_round=6",
        "local.steps=2",
        "local.batch_size=null",
        "threads=1",
    ]
    common += ["eval.finetune_steps=1", "eval.finetune_lr=0.5", "progress=none", *words]
    plan = Run(compose_config(common))
    plan.go(tmp_path / "run")
    last, weights = metrics(tmp_path / "run")[-1], saved(tmp_path / "run")
    data, division = plan.problem.dataset, plan.problem.division

    def flat(x: torch.Tensor) -> np.ndarray:
        return ((x - data.mean) / data.std).double().flatten(1).numpy()

    x, y = flat(data.x_train), data.y_train.numpy()
    x_test, y_test, whose = flat(data.x_test), data.y_test.numpy(), division.test_client
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
    words += [
        "rounds=5",
        "eval.every=2",
        "eval.clients=true",
        "eval.finetune_steps=2",
        "local.steps=2",
        "progress=none",
    ]
    words += ["threads=1", "checkpoint.seconds=0"]
    Run(compose_config(words)).go(tmp_path / "whole")
    table = pd.read_csv(tmp_path / "whole/clients.csv")
    assert list(table) == ["round", "client", "samples", "accuracy", "finetuned_accuracy"]
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
