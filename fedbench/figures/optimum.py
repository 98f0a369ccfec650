"""FedProxVR's optimal parameters against gamma = d_cmp/d_com, for several levels of heterogeneity."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from fedbench.figures.draw.grid import Panel, Trace, save_grid
from fedbench.figures.style import of_rank
from fedbench.theory.fedproxvr import Optimum, sweep

GAMMAS = tuple(float(f"{value:.6g}") for value in np.logspace(-5, 1, 25))
SIGMA2S = (0.1, 0.5, 1.0, 5.0)
SMOOTHNESS, WEAK_CONVEXITY = 1.0, 0.5
QUANTITIES = {
    "beta": r"$\beta$",
    "mu": r"$\mu$",
    "tau": r"$\tau$",
    "theta": r"$\theta$",
    "factor": r"$\Theta$",
    "objective": r"$(1+\gamma\tau)/\Theta$",
}
PROBLEMS = {
    "reduced": "(23)-(24), both bounds on τ tight",
    "full": "(20), β free as far as τ allows",
}
_GAMMA = r"$\gamma=d_{cmp}/d_{com}$"


def optimum_table(estimator: str = "sarah", form: str = "reduced") -> pd.DataFrame:
    """One row per (sigma_bar^2, gamma): the problem, its optimum, whether all constraints hold."""
    return pd.DataFrame([point.row() for point in _points(estimator, form)])


@cache
def _points(estimator: str, form: str) -> list[Optimum]:
    return sweep(GAMMAS, SIGMA2S, SMOOTHNESS, WEAK_CONVEXITY, estimator, form)


def draw_optimum(out: str | Path, estimator: str = "sarah", form: str = "reduced") -> list[Path]:
    """Draw optimal beta, mu, tau, theta, Theta and objective against gamma; returns the files."""
    data = optimum_table(estimator, form)
    panels = [Panel("gamma", _GAMMA, label, _by_sigma2(data, column)) for column, label in QUANTITIES.items()]
    settings = {"L": SMOOTHNESS, "lambda": WEAK_CONVEXITY, "estimator": estimator, "problem": PROBLEMS[form]}
    slack = float(data.least_slack.min())
    held = "All constraints hold, tight ones to rounding" if data.feasible.all() else "Constraints violated"
    text = (
        f"FedProxVR's parameter optimisation, problem {PROBLEMS[form]}, {estimator.upper()},"
        f" L = {SMOOTHNESS:g}, λ = {WEAK_CONVEXITY:g}, solved numerically at each γ. {held}"
        f" (least slack {slack:.0e})."
    )
    said = {"settings": settings, "feasible": bool(data.feasible.all()), "least_slack": slack, "text": [text]}
    return save_grid(out, panels, 3, "two", data, said)


def draw_reduction_cost(out: str | Path) -> list[Path]:
    """Draw what the paper's reduced problem costs against its own (20): the ratio of the best objectives."""
    reduced, full = optimum_table(), optimum_table(form="full")
    data = reduced[["sigma2", "gamma"]].assign(reduced=reduced.objective, full=full.objective)
    data = data.assign(ratio=data.reduced / data.full)
    panel = Panel("gamma", _GAMMA, "time, reduced / full", _by_sigma2(data, "ratio"), log_y=False)
    settings = {"L": SMOOTHNESS, "lambda": WEAK_CONVEXITY, "estimator": "sarah", "problems": PROBLEMS}
    text = (
        "FedProxVR's training time at the optimum of the paper's reduced problem (23)-(24) over that at the"
        f" optimum of problem (20), where β is free (SARAH, L = {SMOOTHNESS:g}, λ = {WEAK_CONVEXITY:g})."
    )
    return save_grid(out, [panel], 1, "one", data, {"settings": settings, "text": [text]})


def _by_sigma2(data: pd.DataFrame, column: str) -> list[Trace]:
    return [
        Trace(of_rank(f"$\\bar\\sigma^2$ = {sigma2:g}", rank), part.gamma.to_numpy(), part[column].to_numpy())
        for rank, (sigma2, part) in enumerate(data.groupby("sigma2", sort=True))
    ]
