"""Prescribed step sizes: numbers by hand, the theorems' own conditions, scaling of the loss, void rules."""

from __future__ import annotations

import math
import random

import pytest

from fedbench.errors import ConfigError
from fedbench.theory.setting import Constants, Counts, VoidRule, numbers
from fedbench.theory.stepsizes import RULES, masfl_least_updates, prescribe

PROBLEM = Constants(L=2.0, Delta=3.0, sigma2=4.0, sigma_h2=5.0, G0=6.0, G=7.0, tau_max=3.0, loss_floor=0.0)
COUNTS = Counts(S=16, K=4, T=10_000, N=64)


def values(name, counts=COUNTS, constants=PROBLEM, **own):
    return numbers(RULES[name].compute(counts, constants, **own))


def test_values_by_hand():
    """S = 16, K = 4, T = 10^4, N = 64, L = 2: powers of two, so that the formulas can be done on paper."""
    expected = {
        "scaffold": {"lr": (1 / 4) ** (2 / 3) / (24 * 4 * 4 * 2), "server_lr": 4.0},
        "mime": {"lr": math.sqrt(48 / (2 * 6 * 10_000 * 16)), "server_lr": 1.0},  # Gt = 5 + 4/4 = 6
        # S/N^(2/3) = 1, sqrt(2*3*64/(4*10^4)) = sqrt(0.0096), sqrt(6*256/(6*64)) = 2
        "scaffold_m": {"lr": min(1 / 4, 1 / 16) / 8, "server_lr": 0.0096**0.5 / 2, "beta": 0.0096**0.5},
        "fafed": {"lr": 16 / (2 * 10_000 ** (1 / 3)), "server_lr": 1.0},
        "fedbuff": {"product": 1 / (16 * 27**0.5)},
        "ca2fl": {"lr": 1 / (144 * 3**0.5 * 2), "product": 16 / (144 * 9 * 4)},
        "defedavg_niid": {"lr": 1 / (4 * 3**0.5 * 8), "product": 1 / (32 * 3)},
    }
    for name, found in expected.items():
        assert values(name) == pytest.approx(found, rel=1e-12), name


def terms_of_minima(S, K, T, N, L, Delta, sigma2, G0):
    """The minima in the rules of Table 1 (PAdaMFed, p. 8), each as the list of its terms."""
    noise = K * L * Delta / (sigma2 * T)
    m = [1.0, S / N ** (2 / 3), math.sqrt(noise * S), math.sqrt(L * Delta * S**2 / (G0 * N))]
    vr = [S / N, noise ** (2 / 3) * S ** (1 / 3)]
    return {
        ("scaffold_m", "beta"): (m, 1.0),
        ("scaffold_m", "lr"): ([S**-0.5, 1 / (min(m) * K**0.25), S**0.5 / N], 1 / (K * L)),
        ("scaffold_m_vr", "beta"): (vr, 1.0),
        ("scaffold_m_vr", "server_lr"): ([1.0, math.sqrt(min(vr) * S)], 1 / L),
        ("scaffold_m_vr", "lr"): ([math.sqrt(min(vr) / S), (min(vr) / (S * K)) ** 0.25], 1 / (K * L)),
    }


def test_every_term_of_a_minimum_decides_somewhere():
    """Over random problems each rule is the smallest of its terms, and each term that can be is it once."""
    draws, decided = random.Random(0), {}
    for _ in range(4000):
        N = draws.choice([1, 2, 10, 100, 1000])
        S, K, T = draws.randint(1, N), draws.choice([1, 5, 50]), draws.choice([1, 100, 100_000])
        L, Delta, sigma2, G0 = (10 ** draws.uniform(-3, 3) for _ in range(4))
        known = Constants(L=L, Delta=Delta, sigma2=sigma2, G0=G0, loss_floor=0.0)
        for (rule, name), (terms, factor) in terms_of_minima(S, K, T, N, L, Delta, sigma2, G0).items():
            found = values(rule, Counts(S=S, K=K, T=T, N=N), known)[name]
            assert found == pytest.approx(min(terms) * factor, rel=1e-12), (rule, name)
            decided.setdefault((rule, name), set()).add(terms.index(min(terms)))
    everywhere = {key: set(range(len(terms))) for key, (terms, _) in terms_of_minima(*[1] * 8).items()}
    # beta <= 1 and sqrt(S)/N <= S^(-1/2): of SCAFFOLD-M's local step the second term decides for large K only
    assert decided == everywhere | {("scaffold_m", "lr"): decided["scaffold_m", "lr"]}
    assert 2 in decided["scaffold_m", "lr"]


@pytest.mark.parametrize(
    ("c", "K", "cap"), [(0.5, 1, 1 / 50), (10.0, 1, 1 / 50), (50.0, 1, 1 / 200), (50.0, 5, 1 / 250)]
)
def test_fedsps_cap_is_the_smaller_of_two(c, K, cap):
    """L = 2: 1/(2 c L) and 1/(25 L K)."""
    found = values("fedsps", Counts(S=4, K=K, T=9, N=4), Constants(L=2.0), polyak=c)
    assert found == pytest.approx({"lr_max": cap, "server_lr": 1.0}, rel=1e-12)


@pytest.mark.parametrize(
    ("beta", "clamped"), [((900, 1, 900), ""), ((901, 1, 900), "beta"), ((1600, 1, 900), "beta")]
)
def test_a_weight_above_one_is_clamped_and_said(beta, clamped):
    S, K, T = beta
    found = prescribe("padamfed", Counts(S=S, K=K, T=T, N=2000))
    assert (found["clamped"], found["beta"]) == (clamped, 1.0)
    assert found["reach"] == pytest.approx((S * K) ** 0.25 / T**0.75 / K, rel=1e-12)


@pytest.mark.parametrize(
    ("rule", "reach"),
    [
        ("scaffold", lambda v, K: v["lr"] * v["server_lr"]),
        ("mime", lambda v, K: v["lr"]),
        ("fedsps", lambda v, K: v["lr_max"]),
        ("fafed", lambda v, K: v["lr"]),
        ("scaffold_m", lambda v, K: v["server_lr"] / K),
        ("scaffold_m_vr", lambda v, K: v["server_lr"] / K),
        ("padamfed", lambda v, K: v["server_lr"] / K),
        ("padamfed_vr", lambda v, K: v["server_lr"] / K),
        ("masfl", lambda v, K: v["server_lr"] / K),
        ("adamasfl", lambda v, K: v["server_lr"] / K),
        ("fedbuff", lambda v, K: v["product"]),
        ("fadas", lambda v, K: v["product"]),
    ],
)
def test_reach_of_one_local_direction(rule, reach):
    """eta gamma for server steps on displacements, gamma / K on gradient-sized means."""
    found = prescribe(rule, COUNTS, PROBLEM)
    assert found["reach"] == pytest.approx(reach(values(rule), 4), rel=1e-12)
    assert found["lr"] == values(rule).get("lr", values(rule).get("lr_max"))


def test_constants_of_a_loss_multiplied_by_s():
    """On s F: smoothness, gaps and gradient norms grow like s, squared norms and variances like s^2."""
    found = PROBLEM.scaled(10.0).known()
    powers = {"L": 1, "Delta": 1, "G": 1, "loss_floor": 1, "sigma2": 2, "sigma_h2": 2, "G0": 2, "tau_max": 0}
    assert found == pytest.approx({name: getattr(PROBLEM, name) * 10.0**k for name, k in powers.items()})


def test_masfl_makes_its_theorems_condition_tight():
    found = values("masfl")
    eta, beta = found["lr"], found["beta"]
    a = 3.0**2 * beta**2 + 20 * math.e**2 * eta**2 * 4**2 * 2.0**2
    assert 1 - 4 * a - math.sqrt(16 * 4 / 10_000) == pytest.approx(0.0, abs=1e-12)
    assert found["server_lr"] == beta / 8
    row = prescribe("masfl", COUNTS, PROBLEM)
    assert (row["lr_relation"], row["reach_relation"]) == ("<=", "=")


def test_masfl_is_void_where_updates_are_few():
    least = masfl_least_updates(10, 10, 20.0)
    assert least == pytest.approx(math.sqrt(100 * least) + 4 * 100 * 400)
    with pytest.raises(VoidRule, match=r"masfl: no local step .* T=160000; it needs T > 16\d{4}"):
        prescribe("masfl", Counts(S=10, K=10, T=160_000, N=100), Constants(L=1.0, tau_max=20.0))
    enough = Counts(S=10, K=10, T=math.ceil(least) + 1, N=100)
    assert prescribe("masfl", enough, Constants(L=1.0, tau_max=20.0))["lr"] > 0


@pytest.mark.parametrize("epsilon", [1e-8, 1e-2, 10.0])
def test_fadas_solves_its_implicit_bound(epsilon):
    found = values("fadas", epsilon=epsilon)
    eta, K, L, G, tau = found["lr"], 4, 2.0, 7.0, 3.0
    C = eta * K * G + epsilon
    assert eta == pytest.approx(math.sqrt(epsilon) / (math.sqrt(360 * C) * tau**2 * K * L), rel=1e-10)
    first = epsilon**2 * 16 * 63 / (180 * C**2 * 64 * 48 * tau**2 * K * L)
    second = math.sqrt(epsilon**3 * 16 * 63) / (12 * math.sqrt(C * 64 * 48) * tau**2 * K * L)
    assert found["product"] == pytest.approx(min(first, second), rel=1e-10)
    full = prescribe("fadas", Counts(S=64, K=4, T=100, N=64), PROBLEM, epsilon=epsilon)
    assert full["lr"] > 0
    assert full["reach"] is None  # N - S = 0: the bound on the product disappears


@pytest.mark.parametrize("algorithm", RULES)
def test_each_constant_that_is_needed_is_asked_for_and_no_other(algorithm):
    needs = RULES[algorithm].needs
    known = PROBLEM.known()
    assert prescribe(algorithm, COUNTS, Constants(**{k: known[k] for k in needs})) == prescribe(
        algorithm, COUNTS, PROBLEM
    )
    for missing in needs:
        with pytest.raises(ConfigError, match=f"{missing}=null: the step-size rule of {algorithm} needs"):
            prescribe(algorithm, COUNTS, Constants(**{k: v for k, v in known.items() if k != missing}))
