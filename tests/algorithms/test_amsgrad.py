"""FedAMS, Local AMSGrad and FedADT against NumPy re-derivations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import Batches, refusal, weights
from problem import Problem, engine_path, relative_error, started

from fedbench import algorithms
from fedbench.method import Counts, Record

T, S, K = 10, 3, 4
ETA, GAMMA, B1, B2, B3, KD, EPS = 0.05, 0.3, 0.7, 0.8, 0.6, 0.4, 0.02


def fedams(b: Batches, cohorts: list[list[int]], correct: bool) -> list[np.ndarray]:
    theta, path = b.p.theta0, [b.p.theta0]
    m = v = vhat = np.zeros_like(theta)
    for t, cohort in enumerate(cohorts):
        D = np.zeros_like(theta)
        for weight, i in zip(weights(b.p, cohort), cohort, strict=True):
            y = theta
            for k in range(K):
                y = y - ETA * b.grad(i, t, k, y)
            D = D + weight * (y - theta)
        m, v = B1 * m + (1 - B1) * D, B2 * v + (1 - B2) * D**2
        vhat = np.maximum(vhat, v)
        c1, c2 = (1 - B1 ** (t + 1), 1 - B2 ** (t + 1)) if correct else (1, 1)
        theta = theta + GAMMA * (m / c1) / (np.sqrt(vhat / c2) + EPS)
        path.append(theta)
    return path


def local_amsgrad(b: Batches, cohorts: list[list[int]], correct: bool) -> list[np.ndarray]:
    N, theta, path = b.p.N, b.p.theta0, [b.p.theta0]
    zero = np.zeros_like(theta)
    m, v, made, vhat = [zero] * N, [zero] * N, [0] * N, EPS + zero
    for t, cohort in enumerate(cohorts):
        ys, vs = [], []
        for i in cohort:
            y = theta
            for k in range(K):
                f = b.grad(i, t, k, y)
                m[i], v[i] = B1 * m[i] + (1 - B1) * f, B2 * v[i] + (1 - B2) * f**2
                made[i] += 1
                top = m[i] / (1 - B1 ** made[i]) if correct else m[i]
                y = y - ETA * top / np.sqrt(vhat)
            ys.append(y)
            vs.append(v[i] / (1 - B2 ** made[i]) if correct else v[i])
        theta, vhat = sum(ys) / S, np.maximum(vhat, sum(vs) / S)
        path.append(theta)
    return path


def fedadt(b: Batches, cohorts: list[list[int]], _: bool) -> list[np.ndarray]:
    N, theta, path = b.p.N, b.p.theta0, [b.p.theta0]
    zero = np.zeros_like(theta)
    v, e, last = [zero] * N, [zero] * N, [None] * N
    m, vhat = zero, zero
    for t, cohort in enumerate(cohorts):
        ends = []
        for i in cohort:
            y, mi, hat = theta, m, vhat
            for k in range(K):
                f = b.grad(i, t, k, y)
                mi, v[i] = B1 * mi + (1 - B1) * f, B2 * v[i] + (1 - B2) * f**2
                hat = np.maximum(hat, v[i])
                difference = zero if last[i] is None else f - last[i]
                e[i], last[i] = B3 * e[i] + (1 - B3) * difference, f
                y = y - ETA * (mi + KD * e[i]) / (np.sqrt(hat) + EPS)
            ends.append((y, mi, hat))
        theta, m, vhat = (sum(part) / S for part in zip(*ends, strict=True))
        path.append(theta)
    return path


REFERENCES = {"fedams": fedams, "local_amsgrad": local_amsgrad, "fedadt": fedadt}
VALUES = {"lr": ETA, "beta1": B1, "beta2": B2, "epsilon": EPS}
EXTRA = {
    "fedams": {"server_lr": GAMMA},
    "local_amsgrad": {},
    "fedadt": {"beta3": B3, "derivative": KD},
}


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(
    ("name", "correct"),
    [
        ("fedams", False),
        ("fedams", True),
        ("local_amsgrad", False),
        ("local_amsgrad", True),
        ("fedadt", False),
    ],
)
def test_follows_the_pseudo_code(name: str, correct: bool, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    batch = None if engine == "loop" else 2
    values = {**VALUES, **EXTRA[name]} | ({"bias_correction": True} if correct else {})
    path = engine_path(p, name, cohorts, steps=K, batch=batch, engine=engine, values=values)
    assert relative_error(path, REFERENCES[name](Batches(p, cohorts, K, batch), cohorts, correct)) < 1e-9


def test_fedams_moves_nothing_when_nothing_arrives() -> None:
    algorithm = algorithms.get("fedams").create({})
    h = Record({k: torch.tensor(v) for k, v in algorithm.resolve(Counts(S=1, N=1, K=1, T=1)).items()})
    theta = torch.tensor([1.0, -2.0])
    server = Record(algorithm.server_init(theta, None, h))
    new = algorithm.server_step(server, Record({"delta": torch.zeros(2)}), Counts(S=1, N=1, K=1, T=1), h)
    assert torch.equal(new["theta"], theta)


@pytest.mark.parametrize("correct", [False, True])
def test_fedams_is_fadas_without_delays(correct: bool) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {**VALUES, "server_lr": GAMMA, "bias_correction": correct}
    fadas = engine_path(p, "fadas", cohorts, steps=K, values=values)
    path = engine_path(p, "fedams", cohorts, steps=K, values={**values, "weighting": "uniform"})
    assert relative_error(path, fadas) < 1e-13


def test_one_client_and_one_step_is_amsgrad_with_vhat_one_step_late() -> None:
    p = Problem(sizes=(8,))
    theta, path = p.theta0, [p.theta0]
    m = v = np.zeros_like(theta)
    late = EPS + v
    for _ in range(15):
        g = p.grad(0, theta)
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
        theta = theta - ETA * m / np.sqrt(late)
        late = np.maximum(late, v)
        path.append(theta)
    assert relative_error(engine_path(p, "local_amsgrad", [[0]] * 15, steps=1, values=VALUES), path) < 1e-12


@pytest.mark.parametrize("name", ["fedams", "local_amsgrad"])
def test_vhat_never_decreases(name: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {**VALUES, **EXTRA[name], "beta2": 0.3, "epsilon": 1e-4}
    walk = started(p, name, cohorts, values, steps=K, batch=2)
    grown = 0
    for _ in cohorts:
        before = walk.server["vhat"]
        walk.update()
        assert (walk.server["vhat"] >= before).all()
        grown += int((walk.server["vhat"] > before).sum())
    assert 0 < grown < T * len(walk.theta)  # the maximum is attained by the old and by the new


def test_local_amsgrad_keeps_momenta_of_absent_clients() -> None:
    walk = started(Problem(), "local_amsgrad", [[0, 1, 2], [2, 3, 4]], VALUES, steps=K)
    walk.update()
    first = {name: value.clone() for name, value in walk.trainer.store.tensors.items()}
    walk.update()
    now = walk.trainer.store.tensors
    for name in ("m", "v", "s"):
        assert torch.equal(now[name][[0, 1, 5]], first[name][[0, 1, 5]])
    assert now["s"].tolist() == [4, 4, 8, 4, 4, 0]


def test_schedules() -> None:
    assert refusal("fedams", schedule="async") is None
    for name in ("local_amsgrad", "fedadt"):
        assert refusal(name) is None
        assert "schedule=async" in str(refusal(name, schedule="async"))
