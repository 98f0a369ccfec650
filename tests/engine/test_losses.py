"""Losses and scores beyond classes: against NumPy written out here, and the same in every engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from tests_support import fixed_trace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.engine.batches import Batch
from fedbench.engine.evaluate import Evaluator
from fedbench.engine.objective import TASKS, DeviceData, Objective, binary_cross_entropy, r2, rows
from fedbench.fields import Choice
from fedbench.models import build

RNG = np.random.default_rng(0)
SIZES = (3, 9, 14, 6, 10, 5)
COHORTS = [[0, 1, 3, 5], [1, 2, 3, 4]]
N = sum(SIZES)
X = RNG.normal(size=(N, 4))
TARGETS = {
    "regression": RNG.normal(size=(N, 2)),
    "multilabel": RNG.integers(0, 2, (N, 3)).astype(np.float64),
    "tokens": RNG.integers(0, 2, N),
}
TOKENS = RNG.integers(0, 7, (N, 5))
WEIGHT_DECAY, SCALE = 0.1, 3.0


def by_hand(task: str, theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Loss and gradient of a linear model under f = scale (mean loss + decay/2 |theta|^2), by formulas."""
    k = y.shape[1]
    weight, bias = theta[: 4 * k].reshape(k, 4), theta[4 * k :]
    out = x @ weight.T + bias
    if task == "regression":
        losses, slope = ((out - y) ** 2).mean(1), 2 * (out - y) / k
    else:
        p = 1 / (1 + np.exp(-out))
        losses, slope = -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean(1), (p - y) / k
    grad = np.concatenate([(slope.T @ x / len(x)).ravel(), slope.mean(0)])
    value = losses.mean() + WEIGHT_DECAY / 2 * (theta**2).sum()
    return SCALE * value, SCALE * (grad + WEIGHT_DECAY * theta)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 4)])
def test_samples_are_gathered_as_numpy_does(kind: type, shape: tuple[int, ...]) -> None:
    values, at = (
        RNG.integers(0, 2 if kind is np.bool_ else 99, (9, *shape)).astype(kind),
        RNG.integers(0, 9, (4, 6)),
    )
    tensor = torch.from_numpy(values)
    for found in (
        rows(tensor, torch.from_numpy(at)),
        torch.func.vmap(lambda i: rows(tensor, i))(torch.from_numpy(at)),
    ):
        assert found.numpy().dtype == kind
        np.testing.assert_array_equal(found, values[at])


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_loss_gradient_and_test_loss_are_those_written_out(task: str) -> None:
    y = TARGETS[task]
    model = nn.Linear(4, y.shape[1]).double()
    data = DeviceData(torch.from_numpy(X), torch.from_numpy(y), lambda v: v)
    objective = Objective(model, data, TASKS[task].losses, WEIGHT_DECAY, SCALE)
    theta = RNG.normal(size=objective.layout.d)
    at = torch.tensor([3, 1, 8, 20])
    loss, grad, _ = objective.loss_and_grad(torch.from_numpy(theta), {}, Batch(at, None, None))
    wanted, wanted_grad = by_hand(task, theta, X[at], y[at])
    assert float(loss) == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(grad, wanted_grad, rtol=1e-11, atol=1e-13)
    evaluator = Evaluator(objective, (data.x, data.y), (7, 7), TASKS[task])
    mean, score = evaluator.test(torch.from_numpy(theta), {})
    plain = by_hand(task, theta, X, y)[0] / SCALE - WEIGHT_DECAY / 2 * (theta**2).sum()
    assert mean == pytest.approx(plain, rel=1e-12)
    k = y.shape[1]
    out = X @ theta[: 4 * k].reshape(k, 4).T + theta[4 * k :]
    expected = r2_score(y, out) if task == "regression" else ((out > 0) == (y > 0.5)).all(1).mean()
    assert score == pytest.approx(expected, rel=1e-12)


def test_the_score_of_a_target_that_never_varies() -> None:
    y = torch.ones(4, 1)
    assert r2(torch.zeros(4, 1), y) == 1.0
    assert r2(torch.tensor([[0.0], [0.0], [0.0], [0.1]]), y) == 0.0
    tenth = torch.full((6, 1), 0.1, dtype=torch.float64)  # whose mean is not 0.1 in floats
    assert r2(torch.full((6, 1), 0.01), tenth) == 0.0


def test_binary_cross_entropy_of_large_logits_is_finite() -> None:
    logits = torch.tensor([[800.0], [-800.0], [800.0]]).requires_grad_()
    losses = binary_cross_entropy(logits, torch.tensor([[1.0], [0.0], [0.0]]))
    assert losses.tolist() == [0.0, 0.0, 800.0]
    assert torch.autograd.grad(losses.sum(), logits)[0].flatten().tolist() == [0.0, 0.0, 1.0]


def final(kind: str, engine: str, name: str = "scaffold", **options: object) -> torch.Tensor:
    assignment = np.repeat(np.arange(len(SIZES)), SIZES)
    y, loss = TARGETS[kind], TASKS["classification" if kind == "tokens" else kind].losses
    if kind == "tokens":
        chosen = Choice("embedding_rnn", {"embedding": 3, "hidden": 4, "cell": "gru", "layers": 2})
        x, model = TOKENS, build(chosen, (5,), 2, seed=0, vocabulary=7)
    else:
        torch.manual_seed(0)
        x, model = X, nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, y.shape[1]))
    walk = make_walk(
        algorithms.get(name).create({}), model, x, y, assignment, fixed_trace(COHORTS, 6),
        per_round=4, steps=3, batch=4, engine=engine, loss=loss, tokens=kind == "tokens", **options,
    )  # fmt: skip
    for _ in COHORTS:
        walk.update()
    return walk.theta


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    assert float((a - b).norm() / b.norm()) < 1e-10


@pytest.mark.parametrize("name", ["scaffold", "padamfed_vr"])
@pytest.mark.parametrize("kind", list(TARGETS))
def test_loop_and_vmap_agree(kind: str, name: str) -> None:
    close(final(kind, "vmap", name), final(kind, "loop", name))
    close(final(kind, "vmap", name, chunk=3), final(kind, "loop", name))


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(TARGETS))
def test_compiled_agrees(kind: str) -> None:
    close(final(kind, "compile"), final(kind, "loop"))
