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

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

Array = Any  # a float or a float64 NumPy array: every formula below is elementwise
TOLERANCE = 1e-9  # a tight constraint is zero only to rounding


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The constants of problem (20), which the system and its data determine, and which `form` of it is
    solved. `estimator`: sarah or svrg."""

    estimator: str = "sarah"
    form: str = "reduced"
    sigma2: float
    gamma: float
    smoothness: float = 1.0
    weak_convexity: float = 0.5


def svrg_constant(tau: Array) -> Array:
    """Return the smallest a with a - 4 >= 4 sqrt(a (tau + 1)), eq. (14): a = 4 (sqrt(tau+1) + sqrt(tau+2))^2.

    With x = sqrt(a) the condition is x^2 - 4 x sqrt(tau+1) - 4 >= 0, whose positive root is 2 sqrt(tau+1) + 2
    sqrt(tau+2).
    """
    return 4.0 * (np.sqrt(tau + 1.0) + np.sqrt(tau + 2.0)) ** 2


def beta_min(tau: Array, estimator: str) -> Array:
    """Return the smallest beta that allows `tau` local iterations: the upper bound of (13) or (14), tight,
    which reads r(tau) <= (5 beta^2 - 4 beta)/8."""
    r = tau if estimator == "sarah" else svrg_constant(tau) * (tau + 2.0)
    return (2.0 + np.sqrt(4.0 + 40.0 * r)) / 5.0


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


def best_beta(mu: Array, tau: Array, problem: Problem) -> Array:
    """Return beta for given mu and tau: the smallest allowed (`reduced`), or the best allowed (`full`)."""
    least = beta_min(tau, problem.estimator)
    if problem.form == "reduced":
        return least
    return np.maximum(least, 3.0 + np.sqrt(9.0 + (mu / problem.smoothness) ** 2))


def value(mu: Array, tau: Array, problem: Problem) -> Array:
    """Return (20)'s objective at (mu, tau), theta and beta eliminated; infinite outside the feasible set."""
    theta = local_accuracy(best_beta(mu, tau, problem), mu, tau, problem)
    return objective(tau, federated_factor(mu, theta, problem), problem.gamma)


def solve(problem: Problem) -> dict[str, Any]:
    """Minimise (20) over mu and tau: a log grid finds a feasible start, Nelder-Mead refines it.

    In the reduced form beta follows from tau. tau is a real number, as in the paper. Returns the problem's
    constants, the optimum (mu, beta, tau, theta, factor, objective), whether all constraints hold there
    (`feasible`) and the smallest of their `slacks` (`least_slack`).
    """
    L = problem.smoothness
    # In units of L the answer does not depend on L; mu grows about linearly with 1 + sigma_bar^2, tau
    # likewise.
    mu_axis = problem.weak_convexity + L * np.logspace(-2, 4, 200) * (1.0 + problem.sigma2)
    tau_axis = np.logspace(0, 9, 200) * (1.0 + problem.sigma2)

    def cost(point: np.ndarray) -> float:
        return float(np.log(value(np.exp(point[0]), np.exp(point[1]), problem)))

    # points outside the feasible set divide by zero or take roots of negatives
    with np.errstate(all="ignore"):
        grid = value(mu_axis[:, None], tau_axis[None, :], problem)
        row, column = np.unravel_index(int(np.argmin(grid)), grid.shape)
        point = np.array([np.log(mu_axis[row]), np.log(tau_axis[column])])
        options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4000}
        # a second simplex from the first one's end: cheap insurance against a collapsed simplex
        for _ in range(2):
            point = minimize(cost, point, method="Nelder-Mead", options=options).x
    mu, tau = float(np.exp(point[0])), float(np.exp(point[1]))
    beta = float(best_beta(mu, tau, problem))
    theta = float(local_accuracy(beta, mu, tau, problem))
    factor = float(federated_factor(mu, theta, problem))
    found = {"mu": mu, "beta": beta, "tau": tau, "theta": theta, "factor": factor}
    least = min(slacks(problem, mu, theta, beta, tau).values())
    said = {"objective": float(objective(tau, factor, problem.gamma)), "feasible": least >= -TOLERANCE}
    return {**asdict(problem), **found, **said, "least_slack": least}
