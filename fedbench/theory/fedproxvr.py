"""FedProxVR's training-time model: local accuracy, federated factor, training time, constraints.

Source: Dinh, Tran, Nguyen, Bao, Zomaya, Zhou, "Federated Learning with Proximal Stochastic Variance Reduced
Gradient Algorithms", ICPP 2020: Lemma 1, eqs. (13) and (14); Theorem 1, eq. (17); Corollary 1, eq. (18); eqs.
(19) to (24).

Symbols. L: smoothness of every sample's loss. lambda: weak convexity of the users' losses. sigma_bar^2
(`sigma2`): weighted mean of the users' squared gradient dissimilarities. mu: proximal weight; mu_tilde = mu -
lambda > 0. beta > 3: step-size parameter, the local step is eta = 1/(beta L). tau: local iterations. theta
(`theta`): local accuracy. Theta (`factor`): federated factor. gamma = d_cmp / d_com: time of a local
iteration over the time of an exchange. All functions take floats or NumPy arrays that broadcast, and are
pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from fedbench.errors import ConfigError

Array = Any  # a float or a float64 NumPy array: every formula below is elementwise
ESTIMATORS = ("sarah", "svrg")


@dataclass(frozen=True)
class Problem:
    """The constants of problem (20): what the system and its data set, not what is optimised."""

    gamma: float
    sigma2: float
    smoothness: float = 1.0
    weak_convexity: float = 0.5
    estimator: str = "sarah"

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ConfigError("estimator", self.estimator, f"one of {', '.join(ESTIMATORS)}", ESTIMATORS)
        for key, lowest, strict in (("gamma", 0, True), ("sigma2", 0, False), ("smoothness", 0, True)):
            value = getattr(self, key)
            if not np.isfinite(value) or value < lowest or (strict and value == lowest):
                raise ConfigError(key, value, f"a finite number {'>' if strict else '>='} {lowest}")
        if not 0 <= self.weak_convexity <= self.smoothness:
            raise ConfigError("weak_convexity", self.weak_convexity, "a number from 0 to the smoothness L")


def svrg_constant(tau: Array) -> Array:
    """Return the smallest a with a - 4 >= 4 sqrt(a (tau + 1)), eq. (14): a = 4 (sqrt(tau+1) + sqrt(tau+2))^2.

    With x = sqrt(a) the condition is x^2 - 4 x sqrt(tau+1) - 4 >= 0, whose positive root is 2 sqrt(tau+1) + 2
    sqrt(tau+2).
    """
    return 4.0 * (np.sqrt(tau + 1.0) + np.sqrt(tau + 2.0)) ** 2


def _reach(tau: Array, estimator: str) -> Array:
    """Return r(tau) such that Lemma 1's upper bound on tau reads r(tau) <= (5 beta^2 - 4 beta)/8."""
    return tau if estimator == "sarah" else svrg_constant(tau) * (tau + 2.0)


def beta_min(tau: Array, estimator: str) -> Array:
    """Return the smallest beta that allows `tau` local iterations: the upper bound of (13) or (14), tight."""
    return (2.0 + np.sqrt(4.0 + 40.0 * _reach(tau, estimator))) / 5.0


def tau_max(beta: float, estimator: str) -> float:
    """Return the largest real tau that (13) or (14) allows at `beta`; NaN where even tau = 0 is too much."""
    room = (5.0 * beta**2 - 4.0 * beta) / 8.0
    if room < _reach(0.0, estimator):
        return float("nan")
    if estimator == "sarah":
        return room
    return float(brentq(lambda tau: _reach(tau, estimator) - room, 0.0, room, xtol=1e-12, rtol=1e-14))


def tau_min(beta: Array, mu: Array, theta: Array, problem: Problem) -> Array:
    """Return the fewest local iterations that reach local accuracy theta: the left side of (13) and (14)."""
    L = problem.smoothness
    return 3.0 * (beta**2 * L**2 + mu**2) / (theta**2 * (mu - problem.weak_convexity) * L * (beta - 3.0))


def local_accuracy(beta: Array, mu: Array, tau: Array, problem: Problem) -> Array:
    """Return the smallest theta that `tau` local iterations guarantee: the left side of (13), tight.

    With SARAH and tau = (5 beta^2 - 4 beta)/8 this is eq. (22). NaN outside beta > 3, mu > lambda.
    """
    # tau_min is proportional to 1/theta^2, so tau_min(theta = 1)/tau is theta^2
    squared = np.asarray(tau_min(beta, mu, 1.0, problem) / tau)
    inside = (np.asarray(beta) > 3.0) & (np.asarray(mu) > problem.weak_convexity) & (squared >= 0)
    return np.sqrt(np.where(inside, squared, np.nan))[()]


def federated_factor(mu: Array, theta: Array, problem: Problem) -> Array:
    """Return Theta of Theorem 1, in units of 1/mu; the method converges where it is positive."""
    L, spread = problem.smoothness, 1.0 + problem.sigma2
    excess = mu - problem.weak_convexity
    both = (1.0 + theta**2) * spread
    bracket = (
        1.0
        - theta * np.sqrt(2.0 * spread)
        - 2.0 * L / excess * np.sqrt(both)
        - 2.0 * L * mu / excess**2 * both
    )
    return bracket / mu


def objective(tau: Array, factor: Array, gamma: float) -> Array:
    """Return (1 + gamma tau)/Theta, eq. (20); inf unless Theta > 0.

    It is the training time T (d_com + d_cmp tau), eq. (19), of T = Delta/(Theta epsilon) rounds, eq. (18), in
    units of d_com Delta/epsilon.
    """
    factor = np.asarray(factor, dtype=float)
    positive = factor > 0.0
    return np.where(positive, (1.0 + gamma * tau) / np.where(positive, factor, 1.0), np.inf)[()]


def slacks(problem: Problem, mu: float, theta: float, beta: float, tau: float) -> dict[str, float]:
    """Return how far each constraint of (20) to (24) is from being violated: >= 0 holds, and 0 is tight.

    The two bounds on tau are relative to tau; the others are plain differences. `theta_max` is the necessary
    condition theta < (2 (1 + sigma_bar^2))^(-1/2) for a positive Theta (the slides print 1 - sigma_bar^2
    there, which the bracket of Theta contradicts).
    """
    room = (5.0 * beta**2 - 4.0 * beta) / 8.0
    upper = room if problem.estimator == "sarah" else room / svrg_constant(tau) - 2.0
    return {
        "beta > 3": beta - 3.0,
        "mu > lambda": mu - problem.weak_convexity,
        "Theta > 0": float(federated_factor(mu, theta, problem)),
        "theta_max": (2.0 * (1.0 + problem.sigma2)) ** -0.5 - theta,
        "tau >= lower bound": float(1.0 - tau_min(beta, mu, theta, problem) / tau),
        "tau <= upper bound": float(upper / tau - 1.0),
    }
