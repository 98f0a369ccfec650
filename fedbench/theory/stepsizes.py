"""Step-size rules of the papers' theorems: what they prescribe for given counts S, K, T, N and constants.

The rules are as Table 1 of PAdaMFed (ICLR 2025, p. 8) and Table 1 of AdaMasFL (Yan et al., ICML 2025) print
them. Each takes counts and constants, which must be complete, and returns {name: (number, relation)}.
`prescribe("padamfed", Counts(S=10, K=10, T=1000, N=100))` needs no constants, nor do padamfed_vr and
adamasfl. Every other rule lists the constants of the problem that it needs, and `prescribe` refuses it
without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedbench.errors import ConfigError
from fedbench.theory.setting import Constants, Values, VoidRule

Known = Any  # Counts or Constants whose needed fields are numbers


def ratio(over: float, under: float) -> float:
    """Return over/under, infinite for under = 0: a term of a minimum that then restricts nothing."""
    return over / under if under > 0 else math.inf


def momentum_weight(n: Known) -> float:
    """Return beta = sqrt(S K / T), the momentum's weight in PAdaMFed, MasFL and AdaMasFL."""
    return math.sqrt(n.S * n.K / n.T)


def padamfed(n: Known, c: Known = None) -> Values:
    """Yan et al., ICLR 2025, Theorem 1 (the same values: AdaMasFL, Yan et al., ICML 2025, Theorem 2)."""
    return {
        "lr": (1 / (n.K * math.sqrt(n.T)), "="),
        "server_lr": ((n.S * n.K) ** 0.25 / n.T**0.75, "="),
        "beta": (momentum_weight(n), "="),
    }


def padamfed_vr(n: Known, c: Known = None) -> Values:
    """Yan et al., ICLR 2025, Theorem 2."""
    both = (n.S * n.K) ** (1 / 3) / n.T ** (2 / 3)
    return {"lr": (1 / (n.K * n.T), "="), "server_lr": (both, "="), "beta": (both, "=")}


def scaffold(n: Known, c: Known) -> Values:
    """Karimireddy et al., ICML 2020: gamma = sqrt(S), eta <= (S/N)^(2/3) / (24 gamma K L)."""
    gamma = math.sqrt(n.S)
    return {"lr": ((n.S / n.N) ** (2 / 3) / (24 * gamma * n.K * c.L), "<="), "server_lr": (gamma, "=")}


def mime(n: Known, c: Known) -> Values:
    """Karimireddy et al., arXiv:2008.03606: eta = sqrt(Delta S / (L Gt T K^2)), Gt = sigma_h^2 + sigma^2/K.

    The server takes the plain average.
    """
    noise = c.sigma_h2 + c.sigma2 / n.K
    return {"lr": (math.sqrt(ratio(c.Delta * n.S, c.L * noise * n.T * n.K**2)), "="), "server_lr": (1.0, "=")}


def fedsps(n: Known, c: Known, polyak: float = 0.5) -> Values:
    """Mukherjee, Loizou, Stich, TMLR 2024: Polyak step capped at eta_b <= min{1/(2 c L), 1/(25 L K)}.

    `polyak` is the rule's c; the step itself also needs the lower bounds of the losses. The server averages.
    """
    return {"lr_max": (min(1 / (2 * polyak * c.L), 1 / (25 * c.L * n.K)), "<="), "server_lr": (1.0, "=")}


def scaffold_m(n: Known, c: Known) -> Values:
    """Cheng et al., ICLR 2024: gamma = beta/L, eta K L <~ min{S^(-1/2), 1/(beta K^(1/4)), sqrt(S)/N},

    beta = min{1, S/N^(2/3), sqrt(L Delta S K/(sigma^2 T)), sqrt(L Delta S^2/(G0 N))}.
    """
    noise = ratio(c.L * c.Delta * n.S * n.K, c.sigma2 * n.T)
    start = ratio(c.L * c.Delta * n.S**2, c.G0 * n.N)
    beta = min(1.0, n.S / n.N ** (2 / 3), math.sqrt(noise), math.sqrt(start))
    local = min(n.S**-0.5, ratio(1.0, beta * n.K**0.25), math.sqrt(n.S) / n.N)
    return {"lr": (local / (n.K * c.L), "~"), "server_lr": (beta / c.L, "="), "beta": (beta, "=")}


def scaffold_m_vr(n: Known, c: Known) -> Values:
    """Cheng et al., ICLR 2024: gamma L = min{1, sqrt(beta S)}, eta K L <~ min{(beta/S)^(1/2),
    (beta/(SK))^(1/4)},

    beta = min{S/N, (K L Delta/(sigma^2 T))^(2/3) S^(1/3)}. The table prints a comma before S^(1/3); as a
    third entry it could never be the minimum (S/N <= 1 <= S^(1/3)), so it is read as a factor.
    """
    noise = ratio(n.K * c.L * c.Delta, c.sigma2 * n.T)
    beta = min(n.S / n.N, noise ** (2 / 3) * n.S ** (1 / 3))
    local = min(math.sqrt(beta / n.S), (beta / (n.S * n.K)) ** 0.25)
    return {
        "lr": (local / (n.K * c.L), "~"),
        "server_lr": (min(1.0, math.sqrt(beta * n.S)) / c.L, "="),
        "beta": (beta, "="),
    }


def fafed(n: Known, c: Known) -> Values:
    """Wu et al., AAAI 2023: eta_t ~ N^(2/3)/(L t^(1/3)), here at the last round t = T.

    The momentum's weight is ~ eta_t^2 with a constant that carries L^2 and is not printed: no number for it.
    """
    return {"lr": (n.N ** (2 / 3) / (c.L * n.T ** (1 / 3)), "~"), "server_lr": (1.0, "=")}


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
    common = c.tau_max**2 * n.K * c.L

    from scipy.optimize import brentq  # slow to import, and only this rule needs it

    def excess(eta: float) -> float:
        return float(360 * (eta * n.K * c.G + epsilon) * (eta * common) ** 2 / epsilon - 1.0)

    # without the eta in C the bound would be 1/(sqrt(360) common); the true one is below it
    eta = float(brentq(excess, 0.0, 1 / (math.sqrt(360) * common), xtol=1e-300, rtol=1e-14))
    C = eta * n.K * c.G + epsilon
    part = ratio(n.S * (n.N - 1), n.N * (n.N - n.S))
    product = min(epsilon**2 * part / (180 * C**2 * common), math.sqrt(epsilon**3 * part / C) / (12 * common))
    return {"lr": (eta, "<="), "product": (product, "<=")}


@dataclass(frozen=True)
class Rule:
    """A published rule. `needs`: the problem constants in it, in the order of the papers' tables.

    `convention`: the server step multiplies a gradient-sized mean ("G") or a mean displacement ("D").
    """

    compute: Callable[..., Values]
    needs: tuple[str, ...]
    convention: str


RULES: dict[str, Rule] = {
    "scaffold": Rule(scaffold, ("L",), "D"),
    "mime": Rule(mime, ("L", "Delta", "sigma2", "sigma_h2"), "D"),
    "fedsps": Rule(fedsps, ("L", "loss_floor"), "D"),
    "scaffold_m": Rule(scaffold_m, ("L", "Delta", "sigma2", "G0"), "G"),
    "padamfed": Rule(padamfed, (), "G"),
    "fafed": Rule(fafed, ("L",), "D"),
    "scaffold_m_vr": Rule(scaffold_m_vr, ("L", "Delta", "sigma2"), "G"),
    "padamfed_vr": Rule(padamfed_vr, (), "G"),
    "fedbuff": Rule(fedbuff, ("tau_max",), "D"),
    "ca2fl": Rule(ca2fl, ("tau_max", "L"), "D"),
    "defedavg_niid": Rule(defedavg_niid, ("tau_max", "L"), "D"),
    "fadas": Rule(fadas, ("tau_max", "L", "G"), "D"),
    "masfl": Rule(masfl, ("tau_max", "L"), "G"),
    "adamasfl": Rule(padamfed, (), "G"),
}


def prescribe(
    algorithm: str, counts: Known, constants: Constants | None = None, **own: float
) -> dict[str, Any]:
    """Return what the algorithm's rule prescribes, as a row of a table. `own`: further parameters of the rule
    (polyak, epsilon).

    `lr`: eta, or the cap of an adaptive local step. `reach`: how far the server moves per unit of one local
    direction (eta gamma for a server step on displacements, gamma/K for one on gradient-sized means).
    `lr_relation`, `reach_relation`: "=", "<=" or "~", as in the rule. `beta`: the momentum's weight; 1 where
    the theorem puts it above 1, and `clamped` says so. None: the rule leaves it open. Raises ConfigError for
    a needed constant that is not known, and VoidRule if the rule leaves no step size.
    """
    rule, constants = RULES[algorithm], constants or Constants()
    for name in rule.needs:
        if getattr(constants, name) is None:
            raise ConfigError(name, None, f"the step-size rule of {algorithm} needs {', '.join(rule.needs)}")
    given: dict[str, Any] = rule.compute(counts, constants, **own)
    given = {name: value for name, value in given.items() if not math.isinf(value[0])}
    nothing = (None, None)
    lr = given.get("lr") or given.get("lr_max") or nothing
    reach, server = given.get("product", nothing), given.get("server_lr")
    if server and rule.convention == "G":
        reach = server[0] / counts.K, server[1]
    elif server:
        reach = lr[0] * server[0], lr[1]
    beta, _ = given.get("beta", nothing)
    above = beta is not None and beta > 1
    return {
        "lr": lr[0],
        "lr_relation": lr[1],
        "reach": reach[0],
        "reach_relation": reach[1],
        "beta": 1.0 if above else beta,
        "clamped": "beta" if above else "",
    }
