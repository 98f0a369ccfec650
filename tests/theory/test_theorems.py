"""The algorithms' own theorem values agree with the published rules, which are written apart from them."""

from __future__ import annotations

import pytest

from fedbench.theory.stepsizes import RULES, Constants, Counts, prescribe

registry = pytest.importorskip("fedbench.algorithms")
base = pytest.importorskip("fedbench.method.interface")

# No staleness, so that MasFL's rule is not void; what a theorem of an algorithm gives never depends on it.
KNOWN = Constants(L=2.0, Delta=3.0, sigma2=4.0, sigma_h2=5.0, G0=6.0, G=7.0, tau_max=0.0, loss_floor=0.0)


@pytest.mark.parametrize("algorithm", [name for name in RULES if name in registry.names()])
@pytest.mark.parametrize(("S", "K", "T", "N"), [(5, 4, 900, 20), (2, 10, 21, 20)])
def test_theorem_values(algorithm, S, K, T, N):
    given = registry.get(algorithm)().theorem(base.Counts(S=S, N=N, K=K, T=T))
    if given:
        expected = prescribe(algorithm, Counts(S=S, K=K, T=T, N=N), KNOWN).values
        assert given == pytest.approx({name: expected[name] for name in given}, rel=1e-12)


def test_the_parameter_free_methods_take_all_three_values_from_it():
    for algorithm in ("padamfed", "padamfed_vr"):
        given = registry.get(algorithm)().theorem(base.Counts(S=2, N=9, K=3, T=50))
        assert set(given) == {"lr", "server_lr", "beta"}
