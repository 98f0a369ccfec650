"""Step-size rules of the synchronous algorithms, as Table 1 of PAdaMFed (ICLR 2025, p. 8) prints them.

Each takes counts and constants that are known to be complete and returns {name: (number, relation)}, see
`fedbench.theory.setting.Prescription`.
"""

from __future__ import annotations

import math
from typing import Any

from fedbench.theory.setting import Values

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
