"""Delta-SGD against a NumPy re-derivation, golden paths and its special cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import quadratics
from oracle import Batches, refusal, weights
from problem import Problem, engine_path, relative_error

T, S, K = 6, 3, 4
LR, AMPLIFIER, GROWTH = 0.4, 1.5, 0.6
VALUES = {"lr": LR, "amplifier": AMPLIFIER, "growth": GROWTH}


def delta_sgd(
    b: Batches,
    cohorts: list[list[int]],
    same_batch: bool,
    grown: bool,
    weighting: str,
    clip: float = np.inf,
) -> list[np.ndarray]:
    theta, path = b.p.theta0, [b.p.theta0]
    allowed = capped = 0
    norms = []  # of gradients in the second place

    def grad(i: int, t: int, k: int, y: np.ndarray, second: bool = False) -> np.ndarray:
        g = b.grad(i, t, k, y)
        norms.extend([np.linalg.norm(g)] * second)
        return g * min(1.0, clip / np.linalg.norm(g))

    for t, cohort in enumerate(cohorts):
        new = np.zeros_like(theta)
        for weight, i in zip(weights(b.p, cohort, weighting), cohort, strict=True):
            ratio = np.sqrt(1 + GROWTH) if grown else 1.0
            eta, g = LR * ratio, grad(i, t, 0, theta)
            x, y = theta, theta - eta * g
            for k in range(1, K):
                now = grad(i, t, k, y)
                old = grad(i, t, k, x, True) if same_batch else g
                smooth = AMPLIFIER * np.linalg.norm(y - x) / (2 * np.linalg.norm(now - old))
                cap = np.sqrt(1 + GROWTH * ratio) * eta
                allowed, capped = allowed + (smooth < cap), capped + (smooth >= cap)
                ratio, eta = min(smooth, cap) / eta, min(smooth, cap)
                x, y, g = y, y - eta * now, now
            new = new + weight * y
        theta = new
        path.append(theta)
    assert allowed > 0
    assert capped > 0
    assert clip == np.inf or not same_batch or min(norms) < clip < max(norms)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(
    ("same_batch", "grown", "weighting"),
    [(True, False, "uniform"), (True, True, "samples"), (False, False, "samples"), (False, True, "uniform")],
)
def test_follows_the_pseudo_code(same_batch: bool, grown: bool, weighting: str, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    own = {"same_batch": same_batch, "first_rate": "grown" if grown else "initial", "weighting": weighting}
    path = engine_path(p, "delta_sgd", cohorts, steps=K, batch=2, engine=engine, values={**VALUES, **own})
    expected = delta_sgd(Batches(p, cohorts, K, 2), cohorts, same_batch, grown, weighting)
    assert relative_error(path, expected) < 1e-9


@pytest.mark.parametrize("same_batch", [True, False])
def test_both_gradients_of_a_step_are_clipped(same_batch: bool) -> None:
    p, clip = Problem(), 0.5
    cohorts = p.cohorts(T, S)
    options = {"steps": K, "batch": 2, "values": {**VALUES, "same_batch": same_batch}, "clip_norm": clip}
    expected = delta_sgd(Batches(p, cohorts, K, 2), cohorts, same_batch, False, "uniform", clip)
    assert relative_error(engine_path(p, "delta_sgd", cohorts, **options), expected) < 1e-9


GOLDEN: list[tuple[dict[str, Any], list[tuple[float, float]]]] = [
    (
        {},
        [
            (0.538450933872, 0.191803295896),
            (0.0360427767966, -0.118137850306),
            (-0.136660255996, -0.236999401734),
        ],
    ),
    (
        {"first_rate": "grown"},
        [
            (0.497716903443, 0.186164660532),
            (0.0115094626894, -0.115918375361),
            (-0.14584947717, -0.228046905727),
        ],
    ),
    (
        {"lr": 0.5},
        [
            (0.109756060004, 0.292894458412),
            (-0.0966527858016, 0.157690465562),
            (-0.116678196424, 0.130231208352),
        ],
    ),
]


@pytest.mark.parametrize(("values", "expected"), GOLDEN)
@pytest.mark.parametrize("same_batch", [True, False])  # with full gradients they are the same
def test_the_golden_paths(
    values: dict[str, Any], expected: list[tuple[float, float]], same_batch: bool
) -> None:
    path = quadratics.path("delta_sgd", {**values, "same_batch": same_batch}, 3)
    np.testing.assert_allclose(path, expected, rtol=1e-9)


def test_one_step_is_fedavgs() -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    path = engine_path(p, "delta_sgd", cohorts, steps=1, batch=2, values={"lr": LR})
    fedavg = engine_path(p, "fedavg", cohorts, steps=1, batch=2, values={"lr": LR, "weighting": "uniform"})
    assert relative_error(path, fedavg) < 1e-14


def test_without_growth_a_small_rate_stays_as_it_is() -> None:
    """amplifier / (2 h) is at least 1/3 on these clients."""
    path = quadratics.path("delta_sgd", {"lr": 0.3, "growth": 0.0}, steps=5)
    np.testing.assert_allclose(path, quadratics.path("fedavg", {"lr": 0.3}, steps=5), rtol=1e-13)


def test_where_the_curvature_is_one_number_the_second_step_is_newtons() -> None:
    """With Hessian h and amplifier 2 the smoothness allows 1/h, which ends at the client's minimiser."""
    h = np.array([[2.0, 2.0], [0.3, 0.3]])
    path = quadratics.path("delta_sgd", {"lr": 0.01, "growth": 1e6}, 1, h=h, steps=2)
    np.testing.assert_allclose(path[0], quadratics.A.mean(0), atol=1e-12)


def test_where_gradients_do_not_change_steps_grow() -> None:
    """eta_k = sqrt(1 + 0.1 r_{k-1}) eta_{k-1}: the specification's rates of the growth-limited path."""
    rates = [0.2, 0.209761769634, 0.220487548247]
    walk = quadratics.linear("delta_sgd", {}, np.eye(2), steps=3)
    walk.update()
    np.testing.assert_allclose(walk.theta.numpy(), sum(rates) / 2, rtol=1e-11)


def test_without_a_gradient_nothing_moves() -> None:
    path = quadratics.path("delta_sgd", {}, 2, h=np.zeros((2, 2)))
    np.testing.assert_array_equal(path, [quadratics.START] * 2)


def test_schedules() -> None:
    assert refusal("delta_sgd") is None
    assert refusal("delta_sgd", schedule="async") is None
