"""Learning rates over rounds: the formulas, and the paths of methods whose equations are given each round's
rate in NumPy; an asynchronous job has the rates of the version that it starts from."""

from __future__ import annotations

from functools import partial
from typing import Any

import async_oracle as oracle
import numpy as np
import pytest
import references as plain
from async_runs import HALF_NORMAL, make_async_walk, make_trace, problem, staleness
from oracle import Batches
from problem import Problem, engine_path, models, relative_error

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


def scheduled(rounds: int, **of_names: RateSchedule) -> Any:
    return {name: partial(schedule.factor_at, rounds=rounds) for name, schedule in of_names.items()}


class BothRates(plain.Reference):
    """FedAvg whose server's rate is halved from round 3 on."""

    def server(self, theta: np.ndarray, ys: np.ndarray, w: np.ndarray) -> np.ndarray:
        return theta + GAMMA * (1 if self.t < 3 else 0.5) * (w @ ys - theta)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_fedavg_with_both_rates_changing(engine: str) -> None:
    """With clients' rates alone, every method: `test_equations`."""
    p = Problem()
    cohorts = p.cohorts(T, S)
    lr, server = rate(name="cosine", min=0.1, warmup=2), rate(name="step", milestones=[3], factor=0.5)
    values = {"lr": ETA, "server_lr": GAMMA, "weighting": "samples"}
    rates = scheduled(T, lr=lr, server_lr=server)
    path = engine_path(p, "fedavg", cohorts, steps=K, engine=engine, values=values, rates=rates)
    t = np.arange(T)
    eta = np.where(t < 2, (t + 1) / 2, 0.1 + 0.9 * (1 + np.cos(np.pi * (t - 2) / (T - 2))) / 2)
    expected = BothRates(Batches(p, cohorts, K), lambda t: eta[t], **values).path(cohorts)
    assert relative_error(path, expected) < 1e-12


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
