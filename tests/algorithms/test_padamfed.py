"""The step sizes of PAdaMFed's theorems, and the constant in front of them."""

from __future__ import annotations

import pytest

from fedbench import algorithms
from fedbench.errors import ConfigError
from fedbench.method import Counts


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


def test_a_constant_needs_a_theorem_to_stand_in_front_of() -> None:
    for key, value in (("server_lr", 0.1), ("scale", 0.0)):
        with pytest.raises(ConfigError, match=r"^algorithm\.scale="):
            algorithms.get("padamfed").create({"scale": 2.0, key: value})
    with pytest.raises(ConfigError, match=r"^algorithm\.scale"):
        algorithms.get("masfl").create({"scale": 2.0})  # its theorem gives beta alone
