"""Learning rates over rounds: the formulas, and the paths of methods whose equations are given each round's
rate in NumPy; an asynchronous job has the rates of the version that it starts from."""

from __future__ import annotations

from functools import partial
from typing import Any

import async_oracle as oracle
import numpy as np
import pytest
from async_runs import HALF_NORMAL, make_async_walk, make_trace, models, problem, staleness
from problem import Problem, engine_path, relative_error

from fedbench.errors import ConfigError
from fedbench.fields import read_named
from fedbench.schedule.rates import RATES, RateSchedule

T, K, S = 8, 3, 3
ETA, GAMMA = 0.3, 1.2


def rate(**options: Any) -> RateSchedule:
    return read_named(RATES, options, "lr_schedule")


def factors(rounds: int, **options: Any) -> np.ndarray:
    return np.array([rate(**options).factor_at(t, rounds) for t in range(rounds)])


def test_the_formulas() -> None:
    np.testing.assert_array_equal(factors(4, name="constant"), np.ones(4))
    np.testing.assert_allclose(factors(5, name="exponential", factor=0.9), 0.9 ** np.arange(5), rtol=1e-15)
    found = factors(8, name="step", milestones=[5, 2], factor=0.1)
    np.testing.assert_allclose(found, [1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01], rtol=1e-15)
    found = factors(6, name="cosine", min=0.2)
    expected = 0.2 + 0.8 * np.cos(np.pi * np.arange(6) / 12) ** 2  # (1 + cos x)/2 = cos(x/2)^2
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_the_formulas_after_a_warm_up() -> None:
    rising = [1 / 4, 2 / 4, 3 / 4, 1]
    np.testing.assert_allclose(factors(6, name="constant", warmup=4), [*rising, 1, 1])
    found = factors(7, name="exponential", factor=0.5, warmup=4)
    np.testing.assert_allclose(found, [*rising, 1, 0.5, 0.25])
    found = factors(7, name="step", milestones=[2, 5], factor=0.1, warmup=4)  # of the run's rounds
    np.testing.assert_allclose(found, [*rising, 0.1, 0.01, 0.01])
    found = factors(8, name="cosine", warmup=4)
    np.testing.assert_allclose(found, [*rising, 1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2])
    np.testing.assert_allclose(factors(3, name="cosine", warmup=4), rising[:3])  # never at its end


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"name": "step"}, "milestones"),
        ({"name": "step", "milestones": [3, 3]}, "milestones"),
        ({"name": "step", "milestones": 3}, "milestones"),
        ({"name": "exponential", "factor": 0}, "factor"),
        ({"name": "cosine", "min": 1.5}, "min"),
        ({"name": "constant", "warmup": -1}, "warmup"),
        ({"name": "constant", "factor": 0.5}, "factor"),
    ],
)
def test_bad_options(options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f"lr_schedule.{key}"):
        rate(**options)


def scheduled(rounds: int, **of_names: RateSchedule) -> Any:
    return {name: partial(schedule.factor_at, rounds=rounds) for name, schedule in of_names.items()}


def fedavg(p: Problem, cohorts: list[list[int]], eta: np.ndarray, gamma: np.ndarray) -> list[np.ndarray]:
    path = [p.theta0]
    for t, cohort in enumerate(cohorts):
        n, move = p.sizes[cohort], np.zeros_like(p.theta0)
        for i, weight in zip(cohort, n / n.sum(), strict=True):
            y = path[-1]
            for _ in range(K):
                y = y - eta[t] * p.grad(i, y)
            move = move + weight * (y - path[-1])
        path.append(path[-1] + gamma[t] * move)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_fedavg_with_both_rates_changing(engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    lr, server = rate(name="cosine", min=0.1, warmup=2), rate(name="step", milestones=[3], factor=0.5)
    values = {"lr": ETA, "server_lr": GAMMA}
    rates = scheduled(T, lr=lr, server_lr=server)
    path = engine_path(p, "fedavg", cohorts, steps=K, engine=engine, values=values, rates=rates)
    t = np.arange(T)
    eta = np.where(t < 2, (t + 1) / 2, 0.1 + 0.9 * (1 + np.cos(np.pi * (t - 2) / (T - 2))) / 2)
    expected = fedavg(p, cohorts, ETA * eta, GAMMA * np.where(t < 3, 1, 0.5))
    assert relative_error(path, expected) < 1e-12


def scaffold(p: Problem, cohorts: list[list[int]], eta: np.ndarray) -> list[np.ndarray]:
    """Option 2: c_i+ = c_i - c + (theta - y) / (K eta_t), with the rate of the round."""
    path, c, own = [p.theta0], np.zeros_like(p.theta0), np.zeros((p.N, len(p.theta0)))
    for t, cohort in enumerate(cohorts):
        moves, news = [], []
        for i in cohort:
            y = path[-1]
            for _ in range(K):
                y = y - eta[t] * (p.grad(i, y) - own[i] + c)
            new = own[i] - c + (path[-1] - y) / (K * eta[t])
            moves.append(y - path[-1])
            news.append(new - own[i])
            own[i] = new
        path.append(path[-1] + np.mean(moves, 0))
        c = c + np.sum(news, 0) / p.N
    return path


def vrl_sgd(p: Problem, rounds: int, eta: np.ndarray) -> list[np.ndarray]:
    """Delta_i is completed in the next round, with the rate of the one in which y_i was made."""
    path, delta = [p.theta0], np.zeros((p.N, len(p.theta0)))
    for t in range(rounds):
        ys = []
        for i in range(p.N):
            y = path[-1]
            for _ in range(K):
                y = y - eta[t] * (p.grad(i, y) - delta[i])
            ys.append(y)
        path.append(np.mean(ys, 0))
        delta = delta + (path[-1] - np.array(ys)) / (K * eta[t])
    return path


def test_control_variates_are_divided_by_the_rate_that_made_them() -> None:
    p = Problem()
    cohorts, everyone = p.cohorts(T, S), [list(range(p.N))] * T
    rates, eta = scheduled(T, lr=rate(name="exponential", factor=0.7)), 0.1 * 0.7 ** np.arange(T)
    path = engine_path(p, "scaffold", cohorts, steps=K, values={"lr": 0.1}, rates=rates)
    assert relative_error(path, scaffold(p, cohorts, eta)) < 1e-12
    path = engine_path(p, "vrl_sgd", everyone, steps=K, values={"lr": 0.1}, rates=rates)
    assert relative_error(path, vrl_sgd(p, T, eta)) < 1e-12


class ScheduledFedBuff(oracle.FedBuff):
    """FedBuff whose jobs are sent the rate of their version, and whose server's is that of the update."""

    t = -1

    def down(self) -> tuple[Any, ...]:
        self.t += 1
        return self.theta, self.h["lr"] * 0.8**self.t

    def work(self, i: int, theta: np.ndarray, eta: float) -> np.ndarray:
        x = theta
        for _ in range(self.K):
            x = x - eta * self.p.grad(i, x)
        return x - theta

    def update(self) -> None:
        constant = self.h["server_lr"]
        self.h["server_lr"] = constant * (0.5 if self.t >= 4 else 1)
        super().update()
        self.h["server_lr"] = constant


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_an_asynchronous_job_has_the_rate_of_the_version_it_starts_from(engine: str) -> None:
    p, values, updates = problem(), {"lr": 0.3, "server_lr": 0.7}, 12
    trace = make_trace(updates, 2, HALF_NORMAL, concurrency=4)
    assert staleness(trace).max() > 1
    lr, server = rate(name="exponential", factor=0.8), rate(name="step", milestones=[4], factor=0.5)
    rates = scheduled(updates, lr=lr, server_lr=server)
    found = models(make_async_walk(p, "fedbuff", trace, values, steps=K, rates=rates, engine=engine))
    expected = oracle.follow(ScheduledFedBuff(p, 2, K, **values), trace, updates)
    assert relative_error(found, expected) < 1e-12
