"""What methods refuse, the grids that are searched, and step sizes from a theorem."""

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
PERSONAL = {cls.name for cls in algorithms.every() if cls().is_personal}  # what all of them have in common
ROUNDS_ONLY = {"fafed", "fedadamw", "fedadt", "fedlada", "led", "local_amsgrad", "mime", "mimelite"}
ROUNDS_ONLY |= PERSONAL
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


# ---- the step sizes of PAdaMFed's theorems ---------------------------------------------------------------


def test_theorem_values_and_clamp() -> None:
    # the spec's table: S=10, K=10, T=1000 and S=20, K=10, T=100
    values = algorithms.get("padamfed")().resolve(Counts(S=10, N=100, K=10, T=1000))
    assert values == pytest.approx({"lr": 0.0031623, "server_lr": 0.0177828, "beta": 0.3162278}, rel=1e-5)
    lines: list[str] = []
    values = algorithms.get("padamfed")().resolve(Counts(S=20, N=50, K=10, T=100), lines.append)
    assert values["beta"] == 1.0
    assert "algorithm.beta" in lines[0]
    values = algorithms.get("padamfed_vr")().resolve(Counts(S=10, N=100, K=10, T=1000))
    assert values == pytest.approx({"lr": 1e-4, "server_lr": 0.0464159, "beta": 0.0464159}, rel=1e-5)


@pytest.mark.parametrize("name", ["padamfed", "padamfed_vr", "adamasfl"])
def test_a_constant_in_front_of_the_theorem_multiplies_gamma_alone(name: str) -> None:
    """S = 3, K = 4, T = 48: gamma = 12^(1/4)/48^(3/4) for Theorem 1, 12^(1/3)/48^(2/3) for PAdaMFed-VR's."""
    n = Counts(S=3, N=9, K=4, T=48)
    plain, scaled = (algorithms.get(name).create({"scale": scale}).resolve(n) for scale in (None, 2.5))
    gamma = 12 ** (1 / 3) / 48 ** (2 / 3) if name == "padamfed_vr" else 12**0.25 / 48**0.75
    assert plain["server_lr"] == pytest.approx(gamma, rel=1e-12)
    assert scaled["server_lr"] == pytest.approx(2.5 * gamma, rel=1e-12)
    assert {**scaled, "server_lr": 0} == {**plain, "server_lr": 0}
    assert "scale" not in plain
