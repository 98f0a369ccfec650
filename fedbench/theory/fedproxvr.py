"""FedProxVR's training-time model, and the hyper-parameters that minimise it.

Source: Dinh, Tran, Nguyen, Bao, Zomaya, Zhou, "Federated Learning with Proximal Stochastic Variance Reduced
Gradient Algorithms", ICPP 2020: Lemma 1, eqs. (13) and (14); Theorem 1, eq. (17); Corollary 1, eq. (18); eqs.
(19) to (24).

Symbols. L: smoothness of every sample's loss. lambda: weak convexity of the users' losses. sigma_bar^2
(`sigma2`): weighted mean of the users' squared gradient dissimilarities. mu: proximal weight; mu_tilde = mu -
lambda > 0. beta > 3: step-size parameter, the local step is eta = 1/(beta L). tau: local iterations. theta
(`theta`): local accuracy. Theta (`factor`): federated factor. gamma = d_cmp / d_com: time of a local
iteration over the time of an exchange. All functions are pure; an `Array` is a float or a NumPy array, and
arrays broadcast.

`solve` finds the optimum of problem (20) numerically. Two forms are solved. `reduced` is the paper's
(23)-(24): both bounds on tau are tight, so beta follows from tau, and (mu, beta) are free. `full` is (20)
itself: only the lower bound is tight (a smaller theta never hurts), and beta is free as long as it allows
tau. There theta^2 is proportional to (beta^2 L^2 + mu^2)/(beta - 3), which falls until beta = 3 + sqrt(9 +
mu^2/L^2) and rises afterwards, so the best beta is the larger of that and the smallest allowed one. The
paper's form is therefore not always the optimum of its own problem; `full` says what that costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize

from fedbench.errors import ConfigError, UserError

Array = Any  # a float or a float64 NumPy array: every formula below is elementwise
ESTIMATORS = ("sarah", "svrg")


@dataclass(frozen=True)
class Problem:
    """The constants of problem (20). The system and its data determine them; they are not optimised."""

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
    """Return the largest real tau that (13) or (14) allows at `beta`; NaN if even tau = 0 is too large."""
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
    """Return the slack of each constraint of (20) to (24): >= 0 means that it holds, 0 that it is tight.

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


FORMS = ("reduced", "full")
TOLERANCE = 1e-9  # a tight constraint is zero only to rounding


@dataclass(frozen=True)
class Optimum:
    """An optimal point of problem (20) and the slack of each constraint at it (>= 0 holds, 0 is tight)."""

    problem: Problem
    form: str
    mu: float
    beta: float
    tau: float
    theta: float
    factor: float
    objective: float
    slacks: dict[str, float]

    @property
    def feasible(self) -> bool:
        return all(slack >= -TOLERANCE for slack in self.slacks.values())

    def row(self) -> dict[str, float | str | bool]:
        """Return one row of a table: the problem's constants, the optimum, the smallest slack."""
        p = self.problem
        return {
            "estimator": p.estimator,
            "form": self.form,
            "sigma2": p.sigma2,
            "gamma": p.gamma,
            "smoothness": p.smoothness,
            "weak_convexity": p.weak_convexity,
            "mu": self.mu,
            "beta": self.beta,
            "tau": self.tau,
            "theta": self.theta,
            "factor": self.factor,
            "objective": self.objective,
            "feasible": self.feasible,
            "least_slack": min(self.slacks.values()),
        }


def best_beta(mu: Array, tau: Array, problem: Problem, form: str) -> Array:
    """Return beta for given mu and tau: the smallest allowed (`reduced`), or the best allowed (`full`)."""
    least = beta_min(tau, problem.estimator)
    if form == "reduced":
        return least
    return np.maximum(least, 3.0 + np.sqrt(9.0 + (mu / problem.smoothness) ** 2))


def value(mu: Array, tau: Array, problem: Problem, form: str) -> Array:
    """Return (20)'s objective at (mu, tau), theta and beta eliminated; infinite outside the feasible set."""
    theta = local_accuracy(best_beta(mu, tau, problem, form), mu, tau, problem)
    return objective(tau, federated_factor(mu, theta, problem), problem.gamma)


def solve(problem: Problem, form: str = "reduced", points: int = 200) -> Optimum:
    """Minimise (20) over mu and tau: a log grid finds a feasible start, Nelder-Mead refines it.

    In the reduced form beta follows from tau. tau is a real number, as in the paper. Raises UserError if no
    point of the grid is feasible.
    """
    if form not in FORMS:
        raise ConfigError("form", form, f"one of {', '.join(FORMS)}", FORMS)
    L = problem.smoothness
    # In units of L the answer does not depend on L; mu grows about linearly with 1 + sigma_bar^2, tau
    # likewise.
    mu_axis = problem.weak_convexity + L * np.logspace(-2, 4, points) * (1.0 + problem.sigma2)
    tau_axis = np.logspace(0, 9, points) * (1.0 + problem.sigma2)
    with np.errstate(
        all="ignore"
    ):  # points outside the feasible set divide by zero or take roots of negatives
        grid = value(mu_axis[:, None], tau_axis[None, :], problem, form)
        if not np.isfinite(grid).any():
            raise UserError(f"FedProxVR's problem (20) has no feasible point on the grid for {problem}")
        row, column = np.unravel_index(int(np.argmin(grid)), grid.shape)
        start = np.array([np.log(mu_axis[row]), np.log(tau_axis[column])])

        def cost(point: np.ndarray) -> float:
            return float(np.log(value(np.exp(point[0]), np.exp(point[1]), problem, form)))

        options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4000}
        for _ in range(
            2
        ):  # a second simplex from the first one's end: cheap insurance against a collapsed simplex
            start = minimize(cost, start, method="Nelder-Mead", options=options).x
    mu, tau = float(np.exp(start[0])), float(np.exp(start[1]))
    beta = float(best_beta(mu, tau, problem, form))
    theta = float(local_accuracy(beta, mu, tau, problem))
    factor = float(federated_factor(mu, theta, problem))
    least = float(objective(tau, factor, problem.gamma))
    return Optimum(problem, form, mu, beta, tau, theta, factor, least, slacks(problem, mu, theta, beta, tau))


def sweep(
    gammas: Iterable[float],
    sigma2s: Iterable[float],
    smoothness: float = 1.0,
    weak_convexity: float = 0.5,
    estimator: str = "sarah",
    form: str = "reduced",
) -> list[Optimum]:
    """Solve (20) for every pair; `gammas` vary fastest, so that each sigma_bar^2 gives one curve."""
    gammas = list(gammas)
    return [
        solve(Problem(gamma, sigma2, smoothness, weak_convexity, estimator), form)
        for sigma2 in sigma2s
        for gamma in gammas
    ]
