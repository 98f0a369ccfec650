"""`server_lr=average`: the server's model is the mean of the clients' models, whatever the method.

The references know no server step: each has its clients' local steps, written from its paper, and its server
takes the (weighted) mean of the models that the clients end with. Only records such as c and g are the
method's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import async_oracle as asynchronous
import numpy as np
import pytest
from async_runs import HALF_NORMAL, make_async_walk, make_trace, models, problem, staleness
from oracle import know_norm_layers
from problem import CLASSES, FEATURES, Problem, engine_path, relative_error
from torch import nn

from fedbench import algorithms
from fedbench.cli import main
from fedbench.fields import AVERAGE

T, S, K, ETA = 8, 3, 4, 0.12
Vector = np.ndarray


class Clients:
    """FedAvg: plain SGD, weighted by samples. Others replace what is theirs."""

    weighted = True

    def __init__(self, p: Problem, **h: Any) -> None:
        self.p, self.h = p, h
        self.start(p.theta0)

    def start(self, theta: Vector) -> None:
        """The records before round 0."""

    def grad(self, i: int, y: Vector) -> Vector:
        return self.p.grad(i, y)

    def direction(self, i: int, y: Vector, theta: Vector) -> Vector:
        return self.grad(i, y)

    def model(self, i: int, theta: Vector, eta: float) -> Vector:
        """The model that client i ends with."""
        y = theta
        for _ in range(K):
            y = y - eta * self.direction(i, y, theta)
        return y

    def before(self, cohort: list[int], theta: Vector) -> None:
        """What the cohort reports before a round."""

    def after(self, cohort: list[int], theta: Vector, ys: Vector, eta: float) -> None:
        """The records after a round that started from `theta`."""

    def path(self, cohorts: list[list[int]], eta: Callable[[int], float]) -> list[Vector]:
        path = [self.p.theta0]
        for t, cohort in enumerate(cohorts):
            self.before(cohort, path[-1])
            ys = np.array([self.model(i, path[-1], eta(t)) for i in cohort])
            n = self.p.sizes[cohort] if self.weighted else np.ones(len(cohort))
            new = n @ ys / n.sum()
            self.after(cohort, path[-1], ys, eta(t))
            path.append(new)
        return path


class Uniform(Clients):
    weighted = False


class FedProx(Clients):
    def direction(self, i: int, y: Vector, theta: Vector) -> Vector:
        return self.grad(i, y) + self.h["mu"] * (y - theta)


class FedNova(Clients):
    def model(self, i: int, theta: Vector, eta: float) -> Vector:
        y, v = theta, np.zeros_like(theta)
        for _ in range(K):
            v = self.h["momentum"] * v + self.grad(i, y)
            y = y - eta * (v + self.h["mu"] * (y - theta))
        return y


class FedBN(Clients):
    """The bias stays at its client."""

    own = slice(CLASSES * FEATURES, None)

    def start(self, theta: Vector) -> None:
        self.kept = np.tile(theta[self.own], (self.p.N, 1))

    def model(self, i: int, theta: Vector, eta: float) -> Vector:
        y = super().model(i, np.concatenate([theta[: self.own.start], self.kept[i]]), eta)
        self.kept[i] = y[self.own]
        return np.concatenate([y[: self.own.start], theta[self.own]])


class Scaffold(Uniform):
    def start(self, theta: Vector) -> None:
        self.ci = np.zeros((self.p.N, len(theta)))

    def direction(self, i: int, y: Vector, theta: Vector) -> Vector:
        return self.grad(i, y) - self.ci[i] + self.c

    @property
    def c(self) -> Vector:
        return self.ci.mean(0)

    def after(self, cohort: list[int], theta: Vector, ys: Vector, eta: float) -> None:
        self.ci[cohort] = self.ci[cohort] - self.c + (theta - ys) / (K * eta)


class Mime(Clients):
    corrected = True

    def start(self, theta: Vector) -> None:
        self.m = np.zeros_like(theta)

    def before(self, cohort: list[int], theta: Vector) -> None:
        n = self.p.sizes[cohort]
        self.c = n @ np.array([self.grad(i, theta) for i in cohort]) / n.sum()

    def direction(self, i: int, y: Vector, theta: Vector) -> Vector:
        b, g = self.h["momentum"], self.grad(i, y)
        if self.corrected:
            g = g - self.grad(i, theta) + self.c
        return (1 - b) * g + b * self.m

    def after(self, cohort: list[int], theta: Vector, ys: Vector, eta: float) -> None:
        self.m = (1 - self.h["momentum"]) * self.c + self.h["momentum"] * self.m


class MimeLite(Mime):
    corrected = False


class FedLADA(Uniform):
    def start(self, theta: Vector) -> None:
        self.g, self.v, self.made = np.zeros_like(theta), np.full_like(theta, self.h["epsilon"] ** 2), []

    def model(self, i: int, theta: Vector, eta: float) -> Vector:
        a, b1, b2 = self.h["alpha"], self.h["beta1"], self.h["beta2"]
        y, m, v, hat = theta, np.zeros_like(theta), self.v, self.v
        for _ in range(K):
            q = self.grad(i, y)
            m, v = b1 * m + (1 - b1) * q, b2 * v + (1 - b2) * q * q
            hat = np.maximum(hat, v)
            y = y - eta * (a * m / np.sqrt(hat) + (1 - a) * self.g)
        self.made.append(hat)
        return y

    def after(self, cohort: list[int], theta: Vector, ys: Vector, eta: float) -> None:
        self.g, self.v, self.made = (theta - ys.mean(0)) / (K * eta), np.mean(self.made, 0), []


class Momentum(Uniform):
    """FedAvg-M and FedCM: g is the mean direction, whatever the server does with it."""

    def start(self, theta: Vector) -> None:
        self.g = np.zeros_like(theta)

    def direction(self, i: int, y: Vector, theta: Vector) -> Vector:
        return self.h["beta"] * self.grad(i, y) + (1 - self.h["beta"]) * self.g

    def after(self, cohort: list[int], theta: Vector, ys: Vector, eta: float) -> None:
        self.g = (theta - ys.mean(0)) / (K * eta)


class ScaffoldM(Uniform):
    """Also PAdaMFed, MasFL and AdaMasFL: records of gradients; `unit` is the identity, or q / ||q||."""

    survey, unit, vr = False, False, False

    def start(self, theta: Vector) -> None:
        self.ci = np.array([self.grad(i, theta) * self.survey for i in range(self.p.N)])
        self.c = self.g = self.ci.mean(0)
        self.previous, self.news, self.moved = theta, {}, {}

    def model(self, i: int, theta: Vector, eta: float) -> Vector:
        beta, y, seen, older = self.h["beta"], theta, [], []
        for _ in range(K):
            seen.append(self.grad(i, y))
            older.append(self.grad(i, self.previous))
            q = beta * (seen[-1] - self.ci[i] + self.c) + (1 - beta) * self.g
            if self.vr:
                q = seen[-1] + beta * (self.c - self.ci[i]) + (1 - beta) * (self.g - older[-1])
            if self.unit:
                parts = np.split(q, [CLASSES * FEATURES]) if self.h.get("norm") == "tensor" else [q]
                q = np.concatenate([part / np.sqrt(part @ part) for part in parts])
            y = y - eta * q
        self.news[i], self.moved[i] = np.mean(seen, 0), np.mean(older, 0)
        return y

    def after(self, cohort: list[int], theta: Vector, ys: Vector, eta: float) -> None:
        beta, new = self.h["beta"], np.array([self.news[i] for i in cohort])
        change = (new - self.ci[cohort]).mean(0)
        if not self.survey or (self.vr and not self.unit):  # SCAFFOLD-M(-VR): the mean direction
            self.g = (theta - ys.mean(0)) / (K * eta)
        elif self.vr:
            recent = (new - np.array([self.moved[i] for i in cohort])).mean(0)
            self.g = beta * (change + self.c) + (1 - beta) * (recent + self.g)
        else:
            self.g = beta * (change + self.c) + (1 - beta) * self.g
        self.ci[cohort] = new
        self.c, self.previous = self.ci.mean(0), theta


class ScaffoldMVR(ScaffoldM):
    survey = vr = True


class MasFL(ScaffoldM):
    survey = True


class PAdaMFed(MasFL):
    unit = True


class PAdaMFedVR(PAdaMFed):
    vr = True


BETA = {"beta": 0.4}
CASES: dict[str, tuple[str, type[Clients], dict[str, Any]]] = {
    "fedavg": ("fedavg", Clients, {}),
    "fedavg-uniform": ("fedavg", Uniform, {"weighting": "uniform"}),
    "fedavgm": ("fedavgm", Clients, {"momentum": 0.0}),
    "slowmo": ("slowmo", Clients, {"momentum": 0.0}),
    "fedprox": ("fedprox", FedProx, {"mu": 0.7}),
    "fednova": ("fednova", FedNova, {"momentum": 0.6, "mu": 0.5}),
    "fedbn": ("fedbn", FedBN, {}),
    "scaffold": ("scaffold", Scaffold, {}),
    "mime": ("mime", Mime, {"momentum": 0.7}),
    "mimelite": ("mimelite", MimeLite, {"momentum": 0.7}),
    "fedlada": ("fedlada", FedLADA, {"alpha": 0.3, "beta1": 0.7, "beta2": 0.8, "epsilon": 0.05}),
    "fedavg_m": ("fedavg_m", Momentum, BETA),
    "fedcm": ("fedcm", Momentum, BETA),
    "scaffold_m": ("scaffold_m", ScaffoldM, BETA),
    "scaffold_m_vr": ("scaffold_m_vr", ScaffoldMVR, BETA),
    "masfl": ("masfl", MasFL, BETA),
    "adamasfl": ("adamasfl", PAdaMFed, BETA),
    "padamfed": ("padamfed", PAdaMFed, BETA),
    "padamfed-tensor": ("padamfed", PAdaMFed, {**BETA, "norm": "tensor"}),
    "padamfed_vr": ("padamfed_vr", PAdaMFedVR, BETA),
    "fedbuff": ("fedbuff", Uniform, {}),
    "defedavg_iid": ("defedavg_iid", Uniform, {}),
    "defedavg_niid": ("defedavg_niid", Uniform, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_server_takes_the_mean_of_the_clients_models(case: str) -> None:
    """With another eta in every round; eta is constant in `test_late_clients...` and the summaries' test."""
    name, reference, more = CASES[case]
    p, decay = Problem(), 0.8
    cohorts, options = p.cohorts(T, S), {"rates": {"lr": lambda t: decay**t}}
    algorithm = algorithms.get(name).create({"lr": ETA, "server_lr": AVERAGE, **more})
    if name == "fedbn":
        algorithm = know_norm_layers(algorithm, nn.Linear(FEATURES, CLASSES), {"bias"})
    path = engine_path(p, algorithm, cohorts, steps=K, **options)
    expected = reference(p, **more).path(cohorts, lambda t: ETA * decay**t)
    assert relative_error(path, expected) < 1e-9
    assert np.linalg.norm(path[-1] - path[0]) > 0.1


def test_ca2fl_takes_the_mean_of_all_clients_if_all_send() -> None:
    p, everyone = problem(), make_trace(T, problem().N, HALF_NORMAL)  # synchronous
    found = models(make_async_walk(p, "ca2fl", everyone, {"lr": ETA, "server_lr": AVERAGE}, steps=K))
    expected = Uniform(p).path([list(range(p.N))] * T, lambda t: ETA)
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
        (["algorithm=fedavg", "algorithm.lr=0.07"], 1.0),
        (["algorithm=scaffold_m", "algorithm.lr=0.07"], 0.35),
        (["algorithm=padamfed"], 0.7071067811865476),  # 5 times the theorem's 1 / (5 sqrt(2))
        (["algorithm=adamasfl", "algorithm.lr=0.02", "schedule=async", "delay=exponential"], 0.1),
        (
            ["algorithm=padamfed", "algorithm.lr=0.1", "lr_schedule=exponential", "lr_schedule.factor=0.5"],
            0.5,
        ),
    ],
)
def test_the_summary_has_both_rates(words: list[str], gamma: float, tmp_path: Path) -> None:
    assert main([*TASK, *words, "algorithm.server_lr=average", f"hydra.run.dir={tmp_path}/run"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    lr = next((float(w.split("=")[1]) for w in words if "algorithm.lr=" in w), 1 / (5 * 2**0.5))
    assert summary["hyper"]["lr"] == pytest.approx(lr)
    assert summary["hyper"]["server_lr"] == pytest.approx(gamma)
    assert summary["config"]["algorithm.server_lr"] == AVERAGE


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["algorithm=fedadam"], "a number > 0: its server divides every coordinate by a second moment"),
        (["algorithm=fedams"], "a number > 0: its server divides every coordinate by a second moment"),
        (["algorithm=fadas", "schedule=async"], "divides every coordinate by a second moment"),
        (["algorithm=asyncfeded", "schedule=async"], "it weighs every arrival by its distance"),
        (["algorithm=ringmaster_asgd", "schedule=async"], "its clients send gradients, not models"),
        (["algorithm=ace", "schedule=async"], "its clients send gradients, not models"),
        (["algorithm=feddyn"], "algorithm.server_lr"),
        (["algorithm=fedavgm"], "algorithm.momentum=0 would not"),
        (["algorithm=slowmo"], "algorithm.momentum=0 would not"),
        (["algorithm=fedbuff", "algorithm.momentum=0.5", "schedule=async"], "algorithm.momentum=0 would not"),
        (["algorithm=fednova", "local.steps=null", "local.epochs=1"], "unequal local steps are normalised"),
        (["algorithm=padamfed", "algorithm.lr=1", "algorithm.beta=1", "local.steps=null", "local.epochs=1"],
         "clients make unequal steps"),
        (["algorithm=padamfed", "algorithm.scale=2"], "it needs algorithm.server_lr=null, not average"),
        (["algorithm=fedavg", "server_lr_schedule=exponential"], "=exponential: must be constant"),
        (["algorithm=adamasfl", "algorithm.lr=1", "schedule=async", "lr_schedule=exponential"],
         "lr_schedule gives an update's jobs different rates"),
        (["algorithm=fedavg", "algorithm.server_lr=avrage"], "> 0, or average (did you mean 'average'?)"),
    ],
)  # fmt: skip
def test_refused_in_one_line_where_it_means_nothing(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["algorithm.server_lr=average", *words, "partition=dirichlet", "partition.alpha=0.3"]
    assert main([*TASK, *given, f"hydra.run.dir={tmp_path}/run"]) == 2
    said = [text for text in capsys.readouterr().err.splitlines() if "=" in text]
    assert line in said[-1]
    assert not (tmp_path / "run").exists()


def test_every_method_that_allows_it_is_tested() -> None:
    ours = [cls for cls in algorithms.every() if cls.__module__.startswith("fedbench.")]
    rules = {cls.name: cls.options()["server_lr"] for cls in ours if "server_lr" in cls.options()}
    allow = {name for name, rule in rules.items() if AVERAGE in rule.options}
    assert allow == {"ca2fl", *(name for name, _, _ in CASES.values())}
