"""What the synchronous baselines share: engines that agree, config files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from problem import Problem, started

from fedbench import algorithms
from fedbench.errors import ConfigError
from fedbench.method import Counts

CONF = Path(__file__).parents[2] / "conf"

NAMES = ("fedprox", "fednova", "fedexp", "fedadagrad", "fedadam", "fedyogi", "fedavgm", "slowmo", "feddyn",
         "vrl_sgd", "led", "fedavg_m", "fedcm", "scaffold_m", "scaffold_m_vr",
         "fedexp_m", "scaffold_exp", "delta_sgd", "fedhyper", "fedlada", "fedadamw")  # fmt: skip
FULL = ("vrl_sgd", "led")


@pytest.mark.parametrize("name", NAMES)
def test_engines_agree_with_unequal_steps_and_mini_batches(name: str) -> None:
    p = Problem()
    cohorts = [list(range(p.N))] * 4 if name in FULL else p.cohorts(4, 3)
    values = yaml.safe_load((CONF / "algorithm" / f"{name}.yaml").read_text())
    values = {key: value for key, value in values.items() if key != "name"}
    if name == "led":
        values["dual_lr"] = 0.1  # below 1/K for the largest K_i
    thetas = []
    for engine, chunk in (("loop", 1000), ("vmap", 1000), ("vmap", 2)):
        how = {"engine": engine, "chunk": chunk}
        walk = started(p, name, cohorts, values, steps=None, epochs=2, batch=4, **how)
        for _ in cohorts:
            walk.update()
        thetas.append(walk.theta)
    for theta in thetas[1:]:
        torch.testing.assert_close(theta, thetas[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
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
