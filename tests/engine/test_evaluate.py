"""The test set in one piece, by index, and kept as the model's input or not: the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedbench.engine import evaluate
from fedbench.engine.batches import Batch
from fedbench.engine.evaluate import Evaluator
from fedbench.engine.objective import DeviceData, Objective


@pytest.mark.parametrize("n", [1, 7, 20, 23])
def test_whole_is_every_sample_by_index(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, y = torch.randint(256, (n, 1, 3, 3), dtype=torch.uint8), torch.randint(4, (n,))

    def to_input(x: torch.Tensor) -> torch.Tensor:
        asked.append(len(x))
        return (x.float() / 255 - 0.3) / 0.7

    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 4))
    objective = Objective(model, DeviceData(x, y, to_input))
    theta = objective.layout.flatten(dict(model.named_parameters())).detach()
    with torch.no_grad():
        out = model((x.float() / 255 - 0.3) / 0.7)
    found = []
    for small in (evaluate.SMALL, 0):
        monkeypatch.setattr(evaluate, "SMALL", small)
        asked: list[int] = []
        evaluator = Evaluator(objective, (x, y), (5, 5))
        index = torch.arange(n).flip(0)
        whole = [evaluator.whole(theta, {}) for _ in range(2)]
        losses, marks = evaluator.per_sample(theta, {}, index)
        torch.testing.assert_close(losses.flip(0), whole[0][0])
        assert torch.equal(marks.flip(0), out.argmax(1) == y)
        backwards = evaluator.ordered(index)
        torch.testing.assert_close(backwards.whole(theta, {})[0], losses)
        assert torch.equal(backwards.per_sample(theta, {}, slice(n // 3, n))[1], marks[n // 3 :])
        del asked[1 if small else 3 * len(range(0, n, 5)) :]  # what was made for them
        torch.testing.assert_close(whole[1][0], nn.functional.cross_entropy(out, y, reduction="none"))
        assert sum(asked) == (n if small else 3 * n)  # made once where they are kept
        found.append(whole[1][0])
    torch.testing.assert_close(*found)  # where rows lie in memory may choose another kernel


@pytest.mark.parametrize("batch", [3, 5, 100])
def test_what_is_recorded_of_a_model_is_the_objective_written_out(batch: int) -> None:
    """Losses sum_i w_i loss_i, f = scale (that + decay/2 |theta|^2), and the gradients of both; the test loss
    is the plain mean of all samples, none of them weighted by the batch it happens to be in."""
    rng = np.random.default_rng(0)
    n, scale, decay = 11, 2.5, 0.3
    x, y, w = rng.normal(size=(n, 4)), rng.integers(0, 3, n), rng.uniform(0.1, 1, n)
    w, theta = w / w.sum(), rng.normal(size=15)
    logits = x @ theta[:12].reshape(3, 4).T + theta[12:]
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    losses = -np.log(p[np.arange(n), y])
    slope = w[:, None] * (p - np.eye(3)[y])
    gradient, loss = np.concatenate([(slope.T @ x).ravel(), slope.sum(0)]), (w * losses).sum()
    value = scale * (loss + decay / 2 * (theta**2).sum())

    data = DeviceData(torch.from_numpy(x), torch.from_numpy(y), lambda v: v)
    objective = Objective(nn.Linear(4, 3).double(), data, weight_decay=decay, scale=scale)
    evaluator = Evaluator(objective, (data.x, data.y), (batch, batch))
    at, weights = torch.from_numpy(theta), torch.from_numpy(w)
    assert evaluator.train_loss(at, {}, weights) == pytest.approx(loss, rel=1e-12)
    found, slopes = evaluator.gradient(at, {}, weights)
    assert found == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(slopes, gradient, rtol=1e-11, atol=1e-13)
    assert evaluator.minimised(found, at) == pytest.approx(value, rel=1e-12)
    whole = scale * (gradient + decay * theta)
    np.testing.assert_allclose(evaluator.minimised_gradient(slopes, at), whole, rtol=1e-11, atol=1e-13)
    loss, accuracy = evaluator.test(at, {})
    assert loss == pytest.approx(losses.mean(), rel=1e-12)
    assert accuracy == (logits.argmax(1) == y).mean()


@pytest.mark.parametrize("real", [None, 3])
def test_a_clients_gradient_is_that_of_the_objective_on_its_mini_batch(real: int | None) -> None:
    """scale (mean of the batch's losses + decay/2 |theta|^2), padding left out, by central differences."""
    rng = np.random.default_rng(1)
    x, y, theta = rng.normal(size=(9, 4)), rng.integers(0, 3, 9), rng.normal(size=15)
    scale, decay, samples = 2.5, 0.3, np.array([7, 1, 4, 4, 0])
    own = samples[:real]

    def value(at: np.ndarray) -> float:
        logits = x[own] @ at[:12].reshape(3, 4).T + at[12:]
        losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(own)), y[own]]
        return scale * float(losses.mean() + decay / 2 * (at**2).sum())

    shift = 1e-6 * np.eye(15)
    gradient = [(value(theta + e) - value(theta - e)) / 2e-6 for e in shift]
    data = DeviceData(torch.from_numpy(x), torch.from_numpy(y), lambda v: v)
    objective = Objective(nn.Linear(4, 3).double(), data, weight_decay=decay, scale=scale)
    count = None if real is None else torch.tensor(real)
    batch = Batch(torch.from_numpy(samples), count, None)
    loss, grad, _ = objective.loss_and_grad(torch.from_numpy(theta), {}, batch)
    assert float(loss) == pytest.approx(value(theta), rel=1e-12)
    np.testing.assert_allclose(grad, gradient, rtol=1e-6, atol=1e-8)
