"""What methods refuse, and the grids that are searched."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from oracle import refusal

from fedbench import algorithms
from fedbench.errors import ConfigError
from fedbench.method import Counts

GRIDS = Path(__file__).parents[2] / "conf" / "grid"
OURS = [cls.name for cls in algorithms.every() if cls.__module__.startswith("fedbench.")]
ROUNDS_ONLY = {"fafed", "fedadamw", "fedadt", "fedlada", "led", "local", "local_amsgrad", "mime", "mimelite"}
EVERYONE = {"fafed", "led", "vrl_sgd"}


@pytest.mark.parametrize("name", OURS)
def test_a_schedule_or_partial_participation_is_refused_where_the_equations_have_none(name: str) -> None:
    assert ("schedule=async" in str(refusal(name, schedule="async"))) == (name in ROUNDS_ONLY | EVERYONE)
    assert ("full participation" in str(refusal(name, S=1))) == (name in EVERYONE)
    alone = name in ("ace", "asyncfeded", "fedasync", "ringmaster_asgd")  # an update on every arrival
    assert (refusal(name) is None) != alone
    assert refusal(name, S=1) is None or name in EVERYONE


@pytest.mark.parametrize("name", sorted(file.stem for file in GRIDS.glob("*.yaml") if file.stem in OURS))
def test_a_grid_has_values_that_its_method_takes(name: str) -> None:
    for key, options in yaml.safe_load((GRIDS / f"{name}.yaml").read_text()).items():
        for option in options:
            algorithms.get(name).create({key: option})


def test_the_dual_step_of_led_is_at_most_one_over_k() -> None:
    counts, led = Counts(S=6, N=6, K=4, T=9), algorithms.get("led")
    assert led().resolve(counts)["dual_lr"] == 1 / 4
    assert led.create({"dual_lr": 0.25}).resolve(counts)["dual_lr"] == 0.25
    with pytest.raises(ConfigError, match=r"algorithm\.dual_lr.*0\.25"):
        led.create({"dual_lr": 0.26}).resolve(counts)
    with pytest.raises(ConfigError, match=r"algorithm\.dual_lr"):  # no single K to take 1/K of
        led().resolve(Counts(S=6, N=6, K=None, T=9))


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
        ("fedhyper", "alpha_min", 1.5),
        ("feddyn", "weighting", "samples"),
        ("slowmo", "weighting", "size"),
    ],
)
def test_values_without_meaning_are_refused(name: str, key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"algorithm\.{key}"):
        algorithms.get(name).create({key: value})
