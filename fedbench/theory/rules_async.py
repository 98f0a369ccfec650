"""Step-size rules of the asynchronous algorithms, as Table 1 of AdaMasFL (Yan et al., ICML 2025) prints them.

Each takes counts and constants that are known to be complete and returns {name: (number, relation)}, see
`fedbench.theory.setting.Prescription`. AdaMasFL's own values are PAdaMFed's (`rules_sync.padamfed`).
"""

from __future__ import annotations

import math

from scipy.optimize import brentq

from fedbench.theory.rules_sync import Known, momentum_weight, ratio
from fedbench.theory.setting import Values, VoidRule


def masfl_least_updates(S: int, K: int, tau_max: float) -> float:
    """Return the T above which MasFL's bound on eta is real: T = sqrt(S K T) + 4 S K tau_max^2, solved."""
    return S * K * (1 + math.sqrt(1 + 16 * tau_max**2)) ** 2 / 4


def masfl(n: Known, c: Known) -> Values:
    """Yan et al., ICML 2025, Theorem 1: beta = sqrt(S K/T), gamma = beta/(4 L),

    eta <= sqrt(T - sqrt(S K T) - 4 S K tau_max^2) / (4 sqrt(5) e K L sqrt(T)).
    """
    room = n.T - math.sqrt(n.S * n.K * n.T) - 4 * n.S * n.K * c.tau_max**2
    if room <= 0:
        least = masfl_least_updates(n.S, n.K, c.tau_max)
        raise VoidRule(
            f"masfl: no local step satisfies its theorem with S={n.S}, K={n.K}, tau_max={c.tau_max:g}"
            f" and T={n.T}; it needs T > {least:.0f}"
        )
    beta = momentum_weight(n)
    bound = math.sqrt(room) / (4 * math.sqrt(5) * math.e * n.K * c.L * math.sqrt(n.T))
    return {"lr": (bound, "<="), "server_lr": (beta / (4 * c.L), "="), "beta": (beta, "=")}


def fedbuff(n: Known, c: Known) -> Values:
    """Nguyen et al., AISTATS 2022: eta gamma <= 1/(4 K tau_max^(3/2))."""
    return {"product": (ratio(1.0, 4 * n.K * c.tau_max**1.5), "<=")}


def ca2fl(n: Known, c: Known) -> Values:
    """Wang et al., ICLR 2024: eta gamma <= S/(36 K tau_max^2 L^2), eta <= 1/(36 K sqrt(tau_max) L)."""
    return {
        "lr": (ratio(1.0, 36 * n.K * math.sqrt(c.tau_max) * c.L), "<="),
        "product": (ratio(n.S, 36 * n.K * c.tau_max**2 * c.L**2), "<="),
    }


def defedavg_niid(n: Known, c: Known) -> Values:
    """Wang et al., arXiv:2402.11198: eta gamma <= 1/(4 L K tau_max), eta <= 1/(4 sqrt(3) L K)."""
    return {
        "lr": (1 / (4 * math.sqrt(3) * c.L * n.K), "<="),
        "product": (ratio(1.0, 4 * c.L * n.K * c.tau_max), "<="),
    }


def fadas(n: Known, c: Known, epsilon: float = 1e-8) -> Values:
    """Wang et al., ICML 2024; `epsilon` is the adaptive step's, C = eta K G + epsilon:

    eta <= sqrt(epsilon) / (sqrt(360 C) tau_max^2 K L), eta gamma <= min{epsilon^2 S(N-1)/(180 C^2 N(N-S)
    tau_max^2 K L), sqrt(epsilon^3 S(N-1)) / (12 sqrt(C N(N-S)) tau_max^2 K L)}. The bound on eta is implicit,
    since C grows with eta; the largest eta is its fixed point, and the product is bounded there.
    """
    if c.tau_max == 0:
        return {}
    common = c.tau_max**2 * n.K * c.L

    def excess(eta: float) -> float:
        return float(360 * (eta * n.K * c.G + epsilon) * (eta * common) ** 2 / epsilon - 1.0)

    # without the eta in C the bound would be 1/(sqrt(360) common); the true one is below it
    eta = float(brentq(excess, 0.0, 1 / (math.sqrt(360) * common), xtol=1e-300, rtol=1e-14))
    C = eta * n.K * c.G + epsilon
    part = ratio(n.S * (n.N - 1), n.N * (n.N - n.S))
    product = min(epsilon**2 * part / (180 * C**2 * common), math.sqrt(epsilon**3 * part / C) / (12 * common))
    return {"lr": (eta, "<="), "product": (product, "<=")}
