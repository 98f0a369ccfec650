"""Local optimizers and clipping: against torch.optim stepped by hand, and inside of methods against NumPy
re-derivations, with fresh and with kept state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import adaptive_references as adaptive
import async_oracle as oracle
import numpy as np
import pytest
import quadratics
import references as plain
import torch
from async_runs import HALF_NORMAL, make_async_walk, make_trace, problem
from oracle import Batches, know
from problem import (
    CLASSES,
    FEATURES,
    Problem,
    engine_path,
    models,
    models_of_clients,
    relative_error,
    started,
)

from fedbench import algorithms
from fedbench.engine.compiled import compiler_missing
from fedbench.engine.vectorised import step_depends
from fedbench.fields import read_named
from fedbench.optimizer import OPTIMIZERS, Optimizer

T, S, K = 6, 3, 4
ETA = 0.2
SGD: dict[str, Any] = {"name": "sgd", "momentum": 0.8}
ADAM: dict[str, Any] = {"name": "adam", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}


def optimizer(values: dict[str, Any]) -> Optimizer:
    return read_named(OPTIMIZERS, values, "optimizer")


# ---- against torch.optim -------------------------------------------------------------------------------

TORCH: dict[str, tuple[dict[str, Any], Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "momentum": (SGD, torch.optim.SGD, {"momentum": 0.8}),
    "nesterov": ({**SGD, "nesterov": True}, torch.optim.SGD, {"momentum": 0.8, "nesterov": True}),
    "sgd decay": ({"name": "sgd", "weight_decay": 0.1}, torch.optim.SGD, {"weight_decay": 0.1}),
    "momentum decay": (
        {**SGD, "weight_decay": 0.1}, torch.optim.SGD, {"momentum": 0.8, "weight_decay": 0.1},
    ),
    "adam": ({"name": "adam"}, torch.optim.Adam, {}),
    "adam options": (
        {**ADAM, "weight_decay": 0.3}, torch.optim.Adam,
        {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.3},
    ),
    "adam beta1=0": ({"name": "adam", "beta1": 0.0}, torch.optim.Adam, {"betas": (0.0, 0.999)}),
    "adamw": ({"name": "adamw"}, torch.optim.AdamW, {}),
    "adamw decay": ({**ADAM, "name": "adamw", "weight_decay": 0.5}, torch.optim.AdamW,
                    {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.5}),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("case", TORCH)
def test_steps_are_those_of_torch(case: str, dtype: torch.dtype, engine: str) -> None:
    """Of FedAvg with one client, whose model torch trains on the same full batch."""
    values, cls, given = TORCH[case]
    p, steps = Problem(sizes=(8,)), 12
    options = {"steps": steps, "engine": engine, "dtype": dtype, "optimizer": optimizer(values)}
    found = engine_path(p, "fedavg", [[0]], values={"lr": 0.05}, **options)[1]
    model = torch.nn.Linear(FEATURES, CLASSES).to(torch.float64)
    start = torch.from_numpy(p.theta0.copy())
    torch.nn.utils.vector_to_parameters(start, model.parameters())
    theirs = cls(model.parameters(), lr=0.05, **given)
    for _ in range(steps):
        theirs.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.from_numpy(p.x)), torch.from_numpy(p.y)).backward()
        theirs.step()
    expected = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    assert np.linalg.norm(expected - p.theta0) > 0.1
    assert relative_error([found], [expected]) < (1e-12 if dtype == torch.float64 else 2e-6)


# ---- inside of methods ---------------------------------------------------------------------------------


class Momentum(plain.Stepper):
    """SGD with momentum; `unit` is what the same makes of gradients 1."""

    b = unit = 0.0

    def step(self, y: np.ndarray, q: np.ndarray, eta: float) -> np.ndarray:
        self.b, self.unit = 0.8 * self.b + q, 0.8 * self.unit + 1
        self.travelled += self.unit
        return y - eta * self.b


class Adam(plain.Stepper):
    m = v = 0.0
    t = 0

    def step(self, y: np.ndarray, q: np.ndarray, eta: float) -> np.ndarray:
        self.t += 1
        self.m, self.v = 0.8 * self.m + 0.2 * q, 0.95 * self.v + 0.05 * q**2
        m, v = self.m / (1 - 0.8**self.t), self.v / (1 - 0.95**self.t)
        return y - eta * m / (np.sqrt(v) + 1e-3)


METHODS: dict[str, tuple[str, type[plain.Reference], dict[str, Any]]] = {
    "fedavg": ("fedavg", plain.Reference, {"weighting": "samples"}),
    "fedprox": ("fedprox", plain.FedProx, {"weighting": "samples", "mu": 0.7}),
    "feddyn": ("feddyn", plain.FedDyn, {"alpha": 0.4}),
    "scaffold": ("scaffold", plain.Scaffold, {}),
    "scaffold1": ("scaffold", plain.Scaffold, {"option": 1}),
    "vrl_sgd": ("vrl_sgd", plain.VRLSGD, {}),
    "led": ("led", plain.LED, {}),
}
CASES = [
    *((method, SGD, Momentum, keep) for method in METHODS for keep in (False, True)),
    *((method, ADAM, Adam, True) for method in ("fedavg", "fedprox", "feddyn", "scaffold1", "led")),
]


def follow(
    method: str, values: dict[str, Any], stepper: type[plain.Stepper], engine: str, clip: float | None = None
) -> plain.Reference:
    """Compare the method's path with that of its reference, which is returned."""
    p, (name, cls, own) = Problem(), METHODS[method]
    cohorts = [[*range(p.N)]] * T if algorithms.get(name).full_participation else p.cohorts(T, S)
    keep, given = values.get("keep", False), {"lr": ETA, **own}
    reference = cls(Batches(p, cohorts, K), stepper=stepper, keep=keep, clip=clip or np.inf, **given)
    expected = reference.path(cohorts)
    options = {"steps": K, "engine": engine, "optimizer": optimizer(values), "clip_norm": clip}
    assert np.linalg.norm(expected[-1] - p.theta0) > 0.3
    assert relative_error(engine_path(p, name, cohorts, values=given, **options), expected) < 1e-11
    return reference


def test_the_part_of_fedrep_that_is_at_rest_does_not_drift_on_its_momentum() -> None:
    """Two steps of the head (the bias), then two of the weight; the momentum of both decays in every step."""
    p, y, b = Problem(sizes=(8,)), Problem(sizes=(8,)).theta0, 0.0
    for k in range(4):
        moves = (np.arange(len(y)) >= CLASSES * FEATURES) == (k < 2)
        b = 0.8 * b + np.where(moves, Batches(p, [[0]], 4).grad(0, 0, k, y), 0.0)
        y = np.where(moves, y - ETA * b, y)
    method = know(algorithms.get("fedrep").create({"lr": ETA, "head_share": 0.5}),
                  names=("body.weight", "head.bias"))  # fmt: skip
    walk = started(p, method, [[0]], engine="loop", steps=4, optimizer=optimizer(SGD))
    models(walk)
    assert relative_error([*models_of_clients(walk)], [y]) < 1e-12


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(("method", "values", "stepper", "keep"), CASES)
def test_methods_step_along_their_directions(
    method: str, values: dict[str, Any], stepper: type[plain.Stepper], keep: bool, engine: str
) -> None:
    follow(method, {**values, "keep": keep}, stepper, engine)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_sum_of_weights_is_what_gradients_of_one_would_move(nesterov: bool) -> None:
    """Job after job with kept state, for jobs of different numbers of steps."""
    one = optimizer({**SGD, "nesterov": nesterov, "keep": True})
    h = {name: torch.tensor(value, dtype=torch.float64) for name, value in one.numbers.items()}
    ones = torch.ones(1, dtype=torch.float64)
    after = {"b": 0 * ones, "unit": 0 * ones[0]}
    for steps in (1, 5, 3):
        before, y = after, 0 * ones
        for _ in range(steps):
            y, after = one.step(y, ones, torch.tensor(0.5), after, h)
        travelled = one.travelled(torch.tensor(float(steps), dtype=torch.float64), before, after, h)
        assert float(travelled) == pytest.approx(float(-y / 0.5), rel=1e-13)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("method", ["fedprox", "scaffold"])
def test_gradients_are_clipped_as_a_whole_before_anything_is_added(method: str, engine: str) -> None:
    norms = follow(method, SGD, Momentum, engine, clip=0.35).norms
    assert min(norms) < 0.35 < max(norms)  # some are longer, some not


@pytest.mark.parametrize("same_batch", [True, False])
def test_both_gradients_of_a_step_of_delta_sgd_are_clipped(same_batch: bool) -> None:
    p, clip = Problem(), 0.5
    cohorts = p.cohorts(T, S)
    values = {"lr": 0.4, "amplifier": 1.5, "growth": 0.6, "same_batch": same_batch, "first_rate": "initial"}
    reference = adaptive.DeltaSGD(Batches(p, cohorts, K, 2), clip=clip, **values)
    expected = reference.path(cohorts)
    options = {"steps": K, "batch": 2, "values": values, "clip_norm": clip}
    assert relative_error(engine_path(p, "delta_sgd", cohorts, **options), expected) < 1e-9
    assert not same_batch or min(reference.second) < clip < max(reference.second)


def test_a_gradient_of_zero_and_one_that_is_short_are_left_as_they_are() -> None:
    from fedbench.engine.executors import clipped

    for g in (torch.zeros(3), torch.tensor([0.6, 0.8, 0.0])):
        assert torch.equal(clipped(g, torch.tensor(1.0)), g)
    torch.testing.assert_close(
        clipped(torch.tensor([30.0, 40.0]), torch.tensor(10.0)), torch.tensor([6.0, 8.0])
    )


class MomentumFedBuff(oracle.FedBuff):
    def work(self, i: int, theta: np.ndarray) -> np.ndarray:
        one, x = Momentum(), theta
        for _ in range(self.K):
            x = one.step(x, self.p.grad(i, x), self.h["lr"])
        return x - theta


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_fedbuff_with_local_momentum(engine: str) -> None:
    p, values = problem(), {"lr": 0.1, "server_lr": 0.7}
    trace = make_trace(12, 2, HALF_NORMAL, concurrency=4)
    options = {"steps": 3, "optimizer": optimizer(SGD), "engine": engine}
    found = models(make_async_walk(p, "fedbuff", trace, values, **options))
    expected = oracle.follow(MomentumFedBuff(p, 2, 3, **values), trace, 12)
    assert relative_error(found, expected) < 1e-11


@pytest.mark.parametrize("engine", ["vmap", pytest.param("compile", marks=pytest.mark.slow)])
@pytest.mark.parametrize("values", [SGD, {**ADAM, "keep": True}, {"name": "adamw"}], ids=lambda v: v["name"])
def test_jobs_of_different_lengths_agree_between_engines(values: dict[str, Any], engine: str) -> None:
    """Clients make one to three steps: the state of those that have finished stands still."""
    if engine == "compile" and compiler_missing(torch.device("cpu")):
        pytest.skip("no C++ compiler here")
    p = Problem()
    paths = [
        engine_path(
            p, "scaffold", p.cohorts(T, S), values={"lr": 0.1, "option": 2 if values is SGD else 1},
            steps=None, epochs=1, batch=4, engine=engine, chunk=2, optimizer=optimizer(values),
            clip_norm=None if values is not SGD else 0.5,
        )
        for engine in ("loop", engine)
    ]  # fmt: skip
    assert len(set(-(-p.sizes // 4))) > 1
    assert relative_error(paths[1], paths[0]) < 1e-10


def test_the_rates_of_fedhypers_clients_are_of_the_steps_that_the_optimizer_makes() -> None:
    """Constant gradients -x with momentum 1/2: steps 1, 3/2, 7/4 times eta x, in units of the rate."""
    given = {"lr": 0.1, "variant": "CL"}, np.array([[1.0, 1.0]])
    momentum = optimizer({"name": "sgd", "momentum": 0.5})
    walk = quadratics.linear("fedhyper", *given, steps=4, optimizer=momentum)
    walk.update()
    s2, s3 = 0.15, 0.175  # of each coordinate; b is still 1, as last is D' = 0 in the second step
    b = min(1.1, 1 + 2 * s3 * s2)
    np.testing.assert_allclose(walk.theta.numpy(), 0.1 + s2 + s3 + b * 0.1875, rtol=1e-12)


def test_compiled_steps_do_not_depend_on_numbers() -> None:
    """On what they do depend: `test_shared_programs`."""
    momenta = []
    for rho in (0.5, 0.9):
        options = {"optimizer": optimizer({**SGD, "momentum": rho}), "clip_norm": rho}
        walk = started(Problem(), "fedavg", [[0, 1]], **options)
        momenta.append(step_depends(walk.trainer.program, 2, 4))
    assert momenta[0] == momenta[1]
