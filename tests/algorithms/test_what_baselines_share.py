"""What the synchronous baselines share: costs as in the spec's table, engines that agree, config files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from problem import Problem
from tests_support import FixedTrace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.errors import ConfigError
from fedbench.method import Counts, Setting
from fedbench.method.cost import Cost, measure

CONF = Path(__file__).parents[2] / "conf"

# in units of d: up, down, kept by a client, kept by the server beside theta, gradients per step
COSTS = {
    "fedprox": (1, 1, 0, 0, 1),
    "fednova": (1, 1, 0, 0, 1),
    "fedexp": (1, 1, 0, 0, 1),
    "fedadagrad": (1, 1, 0, 2, 1),
    "fedadam": (1, 1, 0, 2, 1),
    "fedyogi": (1, 1, 0, 2, 1),
    "fedavgm": (1, 1, 0, 1, 1),
    "slowmo": (1, 1, 0, 1, 1),
    "feddyn": (1, 1, 1, 1, 1),
    "vrl_sgd": (1, 1, 1, 0, 1),
    "led": (1, 1, 1, 0, 1),
    "fedavg_m": (1, 2, 0, 1, 1),
    "fedcm": (1, 2, 0, 1, 1),
    "scaffold_m": (2, 2, 1, 2, 1),
    "scaffold_m_vr": (2, 3, 1, 3, 2),  # theta^{t-1} is kept and sent by the server, not cached by clients
}
FULL = ("vrl_sgd", "led")


@pytest.mark.parametrize("name", COSTS)
def test_costs_are_those_of_the_table(name: str) -> None:
    up, down, client, server, calls = COSTS[name]
    d = 7
    setting = Setting(Counts(S=3, N=6, K=4, T=9), "sync", d, torch.zeros(0, dtype=torch.int64))
    surveyed = d if name == "scaffold_m_vr" else 0
    expected = Cost(up * d, down * d, surveyed, surveyed, client * d, server * d, calls, 0)
    assert measure(algorithms.get(name)(), setting) == expected


@pytest.mark.parametrize("name", COSTS)
def test_engines_agree_with_unequal_steps_and_mini_batches(name: str) -> None:
    p = Problem()
    cohorts = [list(range(p.N))] * 4 if name in FULL else p.cohorts(4, 3)
    values = yaml.safe_load((CONF / "algorithm" / f"{name}.yaml").read_text())
    values = {key: value for key, value in values.items() if key != "name"}
    if name == "led":
        values["dual_lr"] = 0.1  # below 1/K for the largest K_i
    thetas = []
    for engine, chunk in (("loop", 1000), ("vmap", 1000), ("vmap", 2)):
        torch.manual_seed(0)
        walk = make_walk(
            algorithms.get(name).create(values), nn.Linear(4, 3), p.x, p.y, p.assignment,
            FixedTrace(cohorts, p.N), per_round=len(cohorts[0]), steps=None, epochs=2, batch=4,
            engine=engine, chunk=chunk,
        )  # fmt: skip
        for _ in cohorts:
            walk.update()
        thetas.append(walk.theta)
    for theta in thetas[1:]:
        torch.testing.assert_close(theta, thetas[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", COSTS)
def test_config_file_names_every_hyper_parameter_and_a_usable_grid(name: str) -> None:
    values = yaml.safe_load((CONF / "algorithm" / f"{name}.yaml").read_text())
    tried = CONF / "grid" / f"{name}.yaml"
    grid = yaml.safe_load(tried.read_text()) if tried.exists() else {}
    assert values.pop("name") == name
    algorithm = algorithms.get(name)
    assert set(values) == set(algorithm.options())
    algorithm.create(values).resolve(Counts(S=5, N=5, K=10, T=50))
    for key, options in grid.items():
        for option in options:
            algorithm.create({**values, key: option})


@pytest.mark.parametrize("name", ["fedavg_m", "fedcm", "scaffold_m", "scaffold_m_vr"])
def test_gradient_sized_server_step_must_be_given(name: str) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.server_lr"):
        algorithms.get(name).create({"server_lr": None}).resolve(Counts(S=3, N=6, K=4, T=9))


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("fedcm", "beta", 0.0),
        ("feddyn", "alpha", 0.0),
        ("fedadam", "beta1", 1.0),
        ("fedavgm", "momentum", 1.0),
        ("fednova", "mu", -0.1),
        ("feddyn", "weighting", "samples"),
        ("slowmo", "weighting", "size"),
    ],
)
def test_values_without_meaning_are_refused(name: str, key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"algorithm\.{key}"):
        algorithms.get(name).create({key: value})
