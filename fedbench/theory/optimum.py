"""Solve FedProxVR's parameter optimisation, problem (20) of Dinh et al. (ICPP 2020), numerically.

Two forms are solved. `reduced` is the paper's (23)-(24): both bounds on tau are tight, so beta follows from
tau, and (mu, beta) are free. `full` is (20) itself: only the lower bound is tight (a smaller theta never
hurts), and beta is free as long as it allows tau. There theta^2 is proportional to (beta^2 L^2 + mu^2)/(beta
- 3), which falls until beta = 3 + sqrt(9 + mu^2/L^2) and rises afterwards, so the best beta is the larger of
that and the smallest allowed one. The paper's form is therefore not always the optimum of its own problem;
`full` says what that costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from fedbench.errors import ConfigError, UserError
from fedbench.theory.fedproxvr import (
    Array,
    Problem,
    beta_min,
    federated_factor,
    local_accuracy,
    objective,
    slacks,
)

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

    In the reduced form tau stands for beta, which follows from it. tau is a real number, as in the paper.
    UserError where no point of the grid is feasible.
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
    """Solve (20) for every pair of `gammas` and `sigma2s`, in that nesting: one curve per sigma_bar^2."""
    gammas = list(gammas)
    return [
        solve(Problem(gamma, sigma2, smoothness, weak_convexity, estimator), form)
        for sigma2 in sigma2s
        for gamma in gammas
    ]
