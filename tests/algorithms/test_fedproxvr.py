"""FedProxVR against a NumPy re-derivation, proximal gradient descent, and its estimators' properties."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracle import Batches, cost, weights
from problem import Problem, engine_path, relative_error, started

from fedbench import algorithms
from fedbench.api import compose_config
from fedbench.data import to_input
from fedbench.errors import ConfigError
from fedbench.method import Counts
from fedbench.runs.costs import spent
from fedbench.runs.run import Run
from fedbench.schedule.trace import APPLIED
from fedbench.theory.curvature import largest_curvature

T, S, K = 10, 3, 4
ETA, MU = 0.2, 0.7


def reference(
    b: Batches, cohorts: list[list[int]], estimator: str, output: str = "last", mu: float = MU
) -> list[np.ndarray]:
    p = b.p
    theta, path = p.theta0, [p.theta0]
    for t, cohort in enumerate(cohorts):
        new = np.zeros_like(theta)
        for i, weight in zip(cohort, weights(p, cohort), strict=True):
            w = [theta]
            v = p.grad(i, theta)
            for j in range(b.steps):
                if j > 0:
                    g = b.grad(i, t, j, w[j])
                    if estimator == "svrg":
                        v = g - b.grad(i, t, j, w[0]) + p.grad(i, theta)
                    elif estimator == "sarah":
                        v = g - b.grad(i, t, j, w[j - 1]) + v
                    else:
                        v = g
                x = w[j] - ETA * v
                w.append((x + ETA * mu * theta) / (1 + ETA * mu))
            chosen = b.steps if output == "last" else 1 + int(b.uniform(i, t) * b.steps)
            new = new + weight * w[chosen]
        theta = new
        path.append(theta)
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize(("estimator", "output"), [("svrg", "last"), ("sarah", "random"), ("sgd", "last")])
def test_follows_the_pseudo_code(estimator: str, output: str, batch: int | None, engine: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"lr": ETA, "mu": MU, "estimator": estimator, "output": output}
    path = engine_path(p, "fedproxvr", cohorts, steps=K, batch=batch, engine=engine, values=values)
    assert relative_error(path, reference(Batches(p, cohorts, K, batch), cohorts, estimator, output)) < 1e-9


def test_full_batches_make_all_estimators_proximal_gradient_descent() -> None:
    p = Problem()
    everyone = [list(range(p.N))] * T
    theta, path = p.theta0, [p.theta0]
    for cohort in everyone:
        ends = []
        for i in cohort:
            w = theta
            for _ in range(K):  # w <- argmin <grad, w'> + ||w' - w||^2/(2 eta) + (mu/2) ||w' - theta||^2
                w = (w / ETA - p.grad(i, w) + MU * theta) / (1 / ETA + MU)
            ends.append(w)
        theta = weights(p, cohort) @ np.array(ends)
        path.append(theta)
    for estimator in ("svrg", "sarah", "sgd"):
        values = {"lr": ETA, "mu": MU, "estimator": estimator}
        assert relative_error(engine_path(p, "fedproxvr", everyone, steps=K, values=values), path) < 1e-12


def test_without_mu_and_variance_reduction_it_is_fedavg() -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"lr": ETA, "mu": 0.0, "estimator": "sgd"}
    path = engine_path(p, "fedproxvr", cohorts, steps=K, values=values)
    assert relative_error(path, engine_path(p, "fedavg", cohorts, steps=K, values={"lr": ETA})) < 1e-12


def test_one_step_makes_the_estimators_agree() -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    paths = [
        engine_path(p, "fedproxvr", cohorts, steps=1, batch=2, values={"lr": ETA, "estimator": estimator})
        for estimator in ("svrg", "sarah", "sgd")
    ]
    assert relative_error(paths[1], paths[0]) == 0
    assert relative_error(paths[2], paths[0]) == 0


def test_large_mu_keeps_the_clients_at_the_server() -> None:
    p = Problem()
    path = engine_path(p, "fedproxvr", p.cohorts(T, S), steps=K, batch=2, values={"lr": ETA, "mu": 1e9})
    assert relative_error(path, [p.theta0] * (T + 1)) < 1e-6


def test_prox_satisfies_its_optimality_condition() -> None:
    rng = np.random.default_rng(0)
    x, theta = torch.from_numpy(rng.normal(size=9)), torch.from_numpy(rng.normal(size=9))
    h = SimpleNamespace(lr=torch.tensor(0.3, dtype=torch.float64), mu=torch.tensor(1.7, dtype=torch.float64))
    w = algorithms.get("fedproxvr").prox(x, theta, h)
    assert torch.abs(1.7 * (w - theta) + (w - x) / 0.3).max() < 1e-14


@pytest.mark.parametrize("estimator", ["svrg", "sarah"])
def test_estimators_expectation(estimator: str) -> None:
    """Over single samples: E v_j = grad f_i(w_j) for SVRG; E (v_j - v_{j-1}) is the gradients' difference
    for SARAH."""
    rng = np.random.default_rng(2)
    a, hessians = torch.from_numpy(rng.normal(size=(6, 3))), torch.from_numpy(1 + rng.random((6, 3)))
    theta, w, old, v = (torch.from_numpy(rng.normal(size=3)) for _ in range(4))

    def full(at: torch.Tensor) -> torch.Tensor:
        return (hessians * (at - a)).mean(0)

    algorithm = algorithms.get("fedproxvr").create({"lr": 0.5, "mu": 0.0, "estimator": estimator})
    h = SimpleNamespace(lr=torch.tensor(0.5, dtype=torch.float64), mu=torch.tensor(0.0))
    directions = []
    for sample in range(6):
        client = SimpleNamespace(
            grad=lambda at, s=sample: hessians[s] * (at - a[s]),
            full_grad=full(theta),
            k=torch.tensor(1),
            down=SimpleNamespace(theta=theta),
        )
        local = SimpleNamespace(w=w, w_old=old, v=v)
        new = algorithm.local_step(local, client, h)
        directions.append((w - new["w"]) / 0.5)
    expected = full(w) if estimator == "svrg" else full(w) - full(old) + v
    torch.testing.assert_close(torch.stack(directions).mean(0), expected, rtol=1e-12, atol=1e-13)
    assert torch.stack(directions).std(0).min() > 0.01


def test_random_output_is_uniform_over_the_iterates() -> None:
    p = Problem(sizes=(6,))
    rounds = 120
    values = {"lr": 0.1, "mu": 0.5, "output": "random"}
    path = engine_path(p, "fedproxvr", [[0]] * rounds, steps=K, engine="loop", values=values)
    picked = []
    for theta, after in zip(path, path[1:], strict=False):
        w, iterates = theta, []
        for _ in range(K):
            w = (w - 0.1 * p.grad(0, w) + 0.05 * theta) / 1.05
            iterates.append(w)
        distance = [np.linalg.norm(after - w) for w in iterates]
        assert min(distance) < 1e-12
        picked.append(int(np.argmin(distance)))
    counts = np.bincount(picked, minlength=K)  # mean 30, standard deviation 4.75
    assert counts.min() > 30 - 4 * 4.75
    assert counts.max() < 30 + 4 * 4.75


def test_step_from_beta_and_smoothness() -> None:
    n = Counts(S=2, N=2, K=4, T=4)
    create = algorithms.get("fedproxvr").create
    assert create({"lr": None, "beta": 5.0, "L": 4.0}).resolve(n)["lr"] == 0.05
    assert "beta" not in create({"lr": 0.3}).resolve(n)
    for values in ({"lr": 0.1, "beta": 5.0, "L": 4.0}, {"lr": 0.1, "L": 4.0}):
        with pytest.raises(ConfigError, match=r"either algorithm\.lr or algorithm\.beta"):
            create(values)
    for values in ({"lr": None}, {"lr": None, "L": 2.0}):
        with pytest.raises(ConfigError, match=r"give algorithm\.lr, or algorithm\.beta"):
            create(values)


def hessian(p: Problem, theta: np.ndarray) -> np.ndarray:
    """Of the mean loss over all samples, by hand: mean of (diag(q) - q q^T) (x) z z^T, z = (x, 1)."""
    q, z = p.probabilities(theta, p.x), np.hstack([p.x, np.ones((len(p.x), 1))])
    return sum(np.kron(np.diag(a) - np.outer(a, a), np.outer(b, b)) for a, b in zip(q, z, strict=True)) / len(
        z
    )


def test_measured_smoothness_is_the_largest_curvature() -> None:
    p = Problem()
    algorithm = algorithms.get("fedproxvr").create({"lr": None, "beta": 5.0})
    n = Counts(S=2, N=2, K=4, T=4)
    assert algorithm.resolve(n) == {"beta": 5.0, "mu": 0.1}
    walk = started(p, algorithm, [[0, 1]], hyper=algorithm.resolve(n))
    everyone, share = np.arange(p.N), p.sizes / p.sizes.sum()

    def gradient(theta: torch.Tensor) -> torch.Tensor:
        first_jobs = np.zeros_like(everyone)
        return walk.trainer.survey_cohort(theta, walk.statistics, everyone, first_jobs, share)["grad"]

    exact = np.linalg.eigvalsh(hessian(p, p.theta0))[-1]
    given = algorithm.measured(gradient, torch.from_numpy(p.theta0))
    assert given["L"] == pytest.approx(exact, rel=0.02)
    assert given["lr"] == pytest.approx(1 / (5 * given["L"]), rel=1e-15)
    z = np.hstack([p.x, np.ones((len(p.x), 1))])
    assert given["L"] < 0.5 * np.linalg.eigvalsh(z.T @ z / len(z))[-1]
    q = p.probabilities(p.theta0, p.x)  # a sample's Hessian is (diag q - q q^T) (x) z z^T
    each = [np.linalg.eigvalsh(np.diag(a) - np.outer(a, a))[-1] * b @ b for a, b in zip(q, z, strict=True)]
    assert given["L"] < max(each)  # the paper's L bounds these
    assert algorithms.get("fedproxvr").create({"lr": 0.1}).measured(gradient, torch.zeros(1)) == {}
    with pytest.raises(ConfigError, match="estimate"):
        algorithm.measured(torch.zeros_like, torch.zeros(3))


def test_a_run_measures_the_smoothness(tmp_path: Path) -> None:
    """Softmax regression at 0: the Hessian is (I - 11^T/10)/10 (x) the mean of z z^T, z = (x, 1)."""
    cfg = compose_config(
        ["algorithm=fedproxvr", "algorithm.lr=null", "algorithm.beta=5", "model=logistic", "model.init=zeros",
         "rounds=1", "clients.total=4", "clients.per_round=2", "partition=iid", "progress=none"]
    )  # fmt: skip
    data = Run(cfg).problem.dataset
    x = to_input(data.x_train, data.mean, data.std, torch.float64).flatten(1).numpy()
    z = np.hstack([x, np.ones((len(x), 1))])
    Run(cfg).go(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert any("mean training loss at theta^0" in note for note in summary["notes"])
    hyper = summary["hyper"]
    assert hyper["L"] == pytest.approx(np.linalg.eigvalsh(z.T @ z / len(z))[-1] / 10, rel=0.02)
    assert hyper["lr"] == pytest.approx(1 / (5 * hyper["L"]), rel=1e-12)


def test_curvature_is_absolute() -> None:
    scale = torch.tensor([1.0, -5.0, 3.0], dtype=torch.float64)
    theta = torch.ones(3, dtype=torch.float64)
    assert largest_curvature(lambda at: scale * at, theta) == pytest.approx(5, rel=1e-2)


@pytest.mark.parametrize(("estimator", "calls"), [("svrg", 2), ("sarah", 2), ("sgd", 1)])
def test_gradients_of_a_job(estimator: str, calls: int) -> None:
    c = cost("fedproxvr", lr=0.1, estimator=estimator, output="random")
    one = np.zeros(1, dtype=np.int64)
    trace = SimpleNamespace(
        updates=1, clients=1, client=one, start_version=one, arrival_version=one,
        status=np.array([APPLIED]), work=np.ones(1),
    )  # fmt: skip
    tau, passes = 10, 3  # full pass + 2 (tau - 1), or + (tau - 1)
    sums = spent(trace, c, 4, np.array([tau]), np.array([passes]), algorithms.get("fedproxvr").first_step)
    assert sums.gradient_evaluations.tolist() == [0, passes + calls * (tau - 1)]
    assert sums.uplink_bytes.tolist() == [0, 4000]
