"""The step sizes that methods take from their theorems, against the theorems' formulas written out here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fedbench import algorithms
from fedbench.method import Counts

COUNTS = [(5, 4, 900, 20), (2, 10, 21, 20)]  # S, K, T, N

# PAdaMFed: Yan et al., ICLR 2025, Theorems 1 and 2; AdaMasFL, MasFL: Yan et al., ICML 2025, Theorems 2 and 1;
# LED: Alghunaim, IEEE TAC 2024, beta = 1/K, with which it is VRL-SGD.
THEOREMS: dict[str, Callable[[int, int, int], dict[str, float]]] = {
    "padamfed": lambda S, K, T: {
        "lr": 1 / (K * T**0.5),
        "server_lr": (S * K) ** 0.25 / T**0.75,
        "beta": (S * K / T) ** 0.5,
    },
    "padamfed_vr": lambda S, K, T: {
        "lr": 1 / (K * T),
        "server_lr": (S * K / T**2) ** (1 / 3),
        "beta": (S * K / T**2) ** (1 / 3),
    },
    "adamasfl": lambda S, K, T: THEOREMS["padamfed"](S, K, T),
    "masfl": lambda S, K, T: {"beta": (S * K / T) ** 0.5},
    "led": lambda S, K, T: {"dual_lr": 1 / K},
}


@pytest.mark.parametrize("algorithm", THEOREMS)
@pytest.mark.parametrize(("S", "K", "T", "N"), COUNTS)
def test_theorem_values(algorithm: str, S: int, K: int, T: int, N: int) -> None:
    given = algorithms.get(algorithm)().theorem(Counts(S=S, N=N, K=K, T=T))
    assert given == pytest.approx(THEOREMS[algorithm](S, K, T), rel=1e-12)


def test_no_other_method_has_a_theorem() -> None:
    """Those that come must be written out above."""
    with_one = {name for name in algorithms.names() if algorithms.get(name)().theorem(Counts(2, 9, 3, 50))}
    assert with_one == set(THEOREMS)
