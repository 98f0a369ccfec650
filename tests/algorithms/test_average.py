"""`server_lr=average`: the server's model is the mean of the clients' models, whatever the method.

The references have their clients' local steps and records from their papers, and a server that only takes
the (weighted) mean of the models that the clients end with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import adaptive_references as adaptive
import async_oracle as asynchronous
import numpy as np
import pytest
import references as plain
from async_runs import HALF_NORMAL, make_async_walk, make_trace, problem, staleness
from oracle import Batches, case, know
from problem import Problem, engine_path, models, relative_error
from run_files import summary
from test_equations import BIAS, BIAS_STAYS
from test_equations import CASES as equations

from fedbench import algorithms
from fedbench.cli import main
from fedbench.fields import AVERAGE

T, S, K, ETA = 8, 3, 4, 0.12
Vector = np.ndarray

BETA = {"beta": 0.4}
MIME = {"weighting": "samples", "base": "momentum", "momentum": 0.7, "beta2": 0.9}
ADAM = {"alpha": 0.3, "beta1": 0.7, "beta2": 0.8, "epsilon": 0.05}
CASES: dict[str, tuple[str, type[plain.Reference], dict[str, Any]]] = {
    "fedavg": ("fedavg", plain.Reference, {"weighting": "samples"}),
    "fedavg-uniform": ("fedavg", plain.Reference, {"weighting": "uniform"}),
    "fedavgm": ("fedavgm", plain.Reference, {"weighting": "samples", "momentum": 0.0}),
    "slowmo": ("slowmo", plain.Reference, {"weighting": "samples", "momentum": 0.0}),
    "fedprox": ("fedprox", plain.FedProx, {"weighting": "samples", "mu": 0.7}),
    "fednova": ("fednova", plain.FedNova, {"weighting": "samples", "momentum": 0.6, "mu": 0.5}),
    "fedbn": ("fedbn", plain.FedBN, {"weighting": "samples"}),
    "scaffold": ("scaffold", plain.Scaffold, {}),
    "mime": ("mime", plain.Mime, MIME),
    "mimelite": ("mimelite", plain.MimeLite, MIME),
    "fedlada": ("fedlada", adaptive.FedLADA, ADAM),
    "fedavg_m": ("fedavg_m", plain.FedCM, BETA),
    "fedcm": ("fedcm", plain.FedCM, BETA),
    "scaffold_m": ("scaffold_m", plain.ScaffoldM, BETA),
    "scaffold_m_vr": ("scaffold_m_vr", plain.ScaffoldMVR, BETA),
    "masfl": ("masfl", plain.MasFL, BETA),
    "adamasfl": ("adamasfl", plain.PAdaMFed, BETA),
    "padamfed": ("padamfed", plain.PAdaMFed, BETA),
    "padamfed-tensor": ("padamfed", plain.PAdaMFed, {**BETA, "norm": "tensor"}),
    "padamfed_vr": ("padamfed_vr", plain.PAdaMFedVR, BETA),
    "fedbuff": ("fedbuff", plain.Reference, {}),
    "defedavg_iid": ("defedavg_iid", plain.Reference, {}),
    "defedavg_niid": ("defedavg_niid", plain.Reference, {}),
}
OURS = [cls for cls in algorithms.every() if cls.__module__.startswith("fedbench.")]
ALLOW = {cls.name: cls for cls in OURS if AVERAGE in getattr(cls.options().get("server_lr"), "options", ())}
for one in equations.values():  # a method without a row above is tested with its first case there
    if one.name in ALLOW:
        given = {key: value for key, value in one.values.items() if key not in ("lr", "server_lr")}
        shared = {"weighting": "samples"} if "weighting" in ALLOW[one.name].options() else {}
        CASES.setdefault(one.name, (one.name, one.reference, {**shared, **given}))


@pytest.mark.parametrize("name", CASES)
def test_the_server_takes_the_mean_of_the_clients_models(name: str) -> None:
    """With another eta in every round; eta is constant in `test_late_clients...` and the summaries' test."""
    method, reference, more = CASES[name]
    p = Problem()
    cohorts = p.cohorts(T, S)
    options, batches, factor = case(p, cohorts, "rates", K)
    algorithm = algorithms.get(method).create({"lr": ETA, "server_lr": AVERAGE, **more})
    if name in BIAS_STAYS:
        algorithm = know(algorithm, **BIAS)
    path = engine_path(p, algorithm, cohorts, **options)
    expected = plain.averaging(reference)(batches, factor, lr=ETA, **more).path(cohorts)
    assert relative_error(path, expected) < 1e-9
    assert np.linalg.norm(path[-1] - path[0]) > 0.1


def test_ca2fl_takes_the_mean_of_all_clients_if_all_send() -> None:
    p, everyone = problem(), make_trace(T, problem().N, HALF_NORMAL)  # synchronous
    found = models(make_async_walk(p, "ca2fl", everyone, {"lr": ETA, "server_lr": AVERAGE}, steps=K))
    cohorts = [list(range(p.N))] * T
    expected = plain.Reference(Batches(p, cohorts, K), lr=ETA).path(cohorts)
    assert relative_error(found, expected) < 1e-9


class MeanDisplacement(asynchronous.FedBuff):
    """theta moves by the mean of x_j - theta^v."""

    def update(self) -> None:
        self.theta, self.buffer = self.theta + self.buffer / self.S, np.zeros_like(self.theta)


class CalibratedMean(asynchronous.CA2FL):
    def update(self) -> None:
        self.theta = self.theta + self.mean + self.news / self.S
        self.mean, self.news = self.cache.mean(0), np.zeros_like(self.theta)


class MeanOfUnitSteps(asynchronous.AdaMasFL):
    """The same for AdaMasFL: what counts is how far each client's model went."""

    def work(self, i: int, theta: Vector, p: Vector) -> tuple[Vector, Vector]:  # type: ignore[override]
        G, direction = super().work(i, theta, p)
        return G, -self.h["lr"] * self.K * direction  # its displacement

    def update(self) -> None:
        new = self.theta + self.directions / self.S
        self.h["server_lr"] = 0.0  # only the records
        super().update()
        self.theta = new


class ServersOwnMean(asynchronous.MasFL):
    """MasFL's server moves by K of its own steps eta g, with its present c and g."""

    def update(self) -> None:
        self.h["server_lr"] = sum(self.h["lr"] for _ in range(self.K))
        super().update()


@pytest.mark.parametrize(
    ("name", "reference", "values"),
    [
        ("fedbuff", MeanDisplacement, {}),
        ("fedbuff", MeanDisplacement, {"staleness_power": 0.5}),
        ("defedavg_iid", MeanDisplacement, {}),
        ("defedavg_niid", MeanDisplacement, {}),
        ("ca2fl", CalibratedMean, {}),
        ("adamasfl", MeanOfUnitSteps, BETA),
        ("masfl", ServersOwnMean, BETA),
    ],
)
def test_late_clients_move_the_server_by_their_mean_displacement(
    name: str, reference: type[asynchronous.Method], values: dict[str, Any]
) -> None:
    dispatch = algorithms.get(name).dispatch
    concurrency = {} if "concurrency" in dispatch else {"concurrency": 5}
    trace, p = make_trace(T, 2, HALF_NORMAL, dispatch, pool=None, **concurrency), problem()
    assert staleness(trace).max() > 1
    expected = asynchronous.follow(reference(p, 2, K, lr=ETA, **values), trace, T)
    given = {"lr": ETA, "server_lr": AVERAGE, **values}
    assert relative_error(models(make_async_walk(p, name, trace, given, steps=K)), expected) < 1e-9


TASK = [
    "rounds=2", "clients.total=6", "clients.per_round=3", "local.steps=5", "local.batch_size=8",
    "progress=none", "threads=1",
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "gamma"),
    [
        (["algorithm=scaffold_m", "algorithm.lr=0.07"], 0.35),
        (["algorithm=adamasfl", "algorithm.lr=0.02", "schedule=async", "delay=exponential"], 0.1),
        (
            ["algorithm=padamfed", "algorithm.lr=0.1", "lr_schedule=exponential", "lr_schedule.factor=0.5"],
            0.5,
        ),
    ],
)
def test_the_summary_has_both_rates(words: list[str], gamma: float, tmp_path: Path) -> None:
    assert main([*TASK, *words, "algorithm.server_lr=average", f"hydra.run.dir={tmp_path}/run"]) == 0
    ended = summary(tmp_path / "run")
    lr = next(float(w.split("=")[1]) for w in words if "algorithm.lr=" in w)
    assert (ended["hyper"]["lr"], ended["hyper"]["server_lr"]) == pytest.approx((lr, gamma))
    assert ended["config"]["algorithm.server_lr"] == AVERAGE


def test_every_method_that_allows_it_is_tested() -> None:
    named = {"ca2fl", *(name for name, _, _ in CASES.values())}
    assert set(ALLOW) == named, "enter a case in test_equations.py, or in CASES above"
