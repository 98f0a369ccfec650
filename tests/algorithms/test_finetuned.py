"""Fine-tuned models: SGD from the global model on each client's own mini-batches, in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from problem import Problem, started

from fedbench.engine.batches import Jobs
from fedbench.rng import Stream

STEPS, LR, B, VERSION = 5, 0.2, 4, 3


@pytest.mark.parametrize("chunk", [1, 4])
def test_every_client_descends_on_its_own_samples(chunk: int) -> None:
    p = Problem()
    walk = started(p, "fedavg", [[0, 1]], {"lr": 0.1}, steps=2, batch=B, chunk=chunk)
    before, planner = walk.theta.clone(), walk.trainer.planner
    found = {}
    for ids, models in walk.trainer.finetuned(lambda client: (walk.theta, {}), LR, STEPS, VERSION):
        found.update(zip(ids.tolist(), (theta.numpy() for theta, _ in models), strict=True))
    assert sorted(found) == list(range(p.N))
    for i in range(p.N):
        one = Jobs(np.array([i]), np.array([VERSION]), p.sizes[[i]], np.array([STEPS]))
        drawn, theta = planner.draw(Stream.FINETUNE, one), p.theta0
        for k in range(STEPS):
            count = B if drawn.count is None else int(drawn.count[k, 0])
            samples = drawn.index[k, 0, :count].numpy()
            assert (p.assignment[samples] == i).all()
            x, error = p.x[samples], p.probabilities(theta, p.x[samples]) - np.eye(3)[p.y[samples]]
            theta = theta - LR * np.concatenate([(error.T @ x / count).ravel(), error.mean(0)])
        np.testing.assert_allclose(found[i], theta, rtol=0, atol=1e-12)
    assert walk.theta.equal(before)
