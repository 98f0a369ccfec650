"""Pictures of theorems: FedProxVR's optimal parameters, and each algorithm's prescribed step sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedbench.figures.page import Drawing
from fedbench.figures.style import SAID, line_styles, of_algorithm, of_rank
from fedbench.papers.grid import Panel, Trace, draw_grid
from fedbench.papers.optimum import Problem, solve
from fedbench.theory.setting import Constants, Counts, VoidRule
from fedbench.theory.stepsizes import RULES, masfl_least_updates, prescribe

# ---- FedProxVR's optimal parameters against gamma = d_cmp/d_com, for several levels of heterogeneity ----

GAMMAS = tuple(float(f"{value:.6g}") for value in np.logspace(-5, 1, 25))
SIGMA2S = (0.1, 0.5, 1.0, 5.0)
SMOOTHNESS, WEAK_CONVEXITY = 1.0, 0.5
QUANTITIES: dict[str, str] = SAID["optimum"]
"""Columns of the table that are drawn, and their symbols."""
PROBLEMS = {"reduced": "(23)-(24), both bounds on τ tight", "full": "(20), β free as far as τ allows"}
_GAMMA = r"$\gamma=d_{cmp}/d_{com}$"


@cache
def optimum_table(estimator: str = "sarah", form: str = "reduced") -> pd.DataFrame:
    """One row per (sigma_bar^2, gamma): the problem, its optimum, whether all constraints hold. Six digits,
    nine of the slack: further ones differ from processor to processor."""
    constants = {"smoothness": SMOOTHNESS, "weak_convexity": WEAK_CONVEXITY}
    found = pd.DataFrame([
        solve(Problem(estimator=estimator, form=form, sigma2=sigma2, gamma=gamma, **constants))
        for sigma2, gamma in product(SIGMA2S, GAMMAS)
    ])  # fmt: skip
    found["least_slack"] = found.least_slack.round(9) + 0.0
    numbers = found.select_dtypes("float")
    return found.assign(**numbers.map(lambda value: float(f"{value:.6g}")))


def draw_optimum(estimator: str = "sarah", form: str = "reduced") -> Drawing:
    """Draw optimal beta, mu, tau, theta, Theta and objective against gamma."""
    data = optimum_table(estimator, form)
    panels = [Panel("gamma", _GAMMA, label, _by_sigma2(data, column)) for column, label in QUANTITIES.items()]
    settings = {"L": SMOOTHNESS, "lambda": WEAK_CONVEXITY, "estimator": estimator, "problem": PROBLEMS[form]}
    slack = float(data.least_slack.min())
    held = "All constraints hold, tight ones to rounding"
    if not data.feasible.all():
        held = f"Constraints violated (least slack {slack:.0e})"
    text = (
        f"FedProxVR's parameter optimisation, problem {PROBLEMS[form]}, {estimator.upper()},"
        f" L = {SMOOTHNESS:g}, λ = {WEAK_CONVEXITY:g}, solved numerically at each γ. {held}."
    )
    said = {"settings": settings, "feasible": bool(data.feasible.all()), "least_slack": slack, "text": [text]}
    return draw_grid(panels, 3, "two", data, said)


def draw_reduction_cost() -> Drawing:
    """Draw the cost of the paper's reduced problem relative to its own (20): the ratio of best objectives."""
    reduced, full = optimum_table(), optimum_table(form="full")
    data = reduced[["sigma2", "gamma"]].assign(reduced=reduced.objective, full=full.objective)
    data = data.assign(ratio=data.reduced / data.full)
    panel = Panel("gamma", _GAMMA, "time, reduced / full", _by_sigma2(data, "ratio"), log_y=False)
    settings = {"L": SMOOTHNESS, "lambda": WEAK_CONVEXITY, "estimator": "sarah", "problems": PROBLEMS}
    text = (
        "FedProxVR's training time at the optimum of the paper's reduced problem (23)-(24) over that at the"
        f" optimum of problem (20), where β is free (SARAH, L = {SMOOTHNESS:g}, λ = {WEAK_CONVEXITY:g})."
    )
    return draw_grid([panel], 1, "one", data, {"settings": settings, "text": [text]})


def _by_sigma2(data: pd.DataFrame, column: str) -> list[Trace]:
    return [
        Trace(of_rank(f"$\\bar\\sigma^2$ = {sigma2:g}", rank), part.gamma.to_numpy(), part[column].to_numpy())
        for rank, (sigma2, part) in enumerate(data.groupby("sigma2", sort=True))
    ]


# ---- prescribed step sizes against T, S, K, the staleness and a factor on the loss ----------------------

METHODS = {
    "sync": ("scaffold", "mime", "fedsps", "scaffold_m", "padamfed", "fafed", "scaffold_m_vr", "padamfed_vr"),
    "async": ("fedbuff", "ca2fl", "defedavg_niid", "fadas", "masfl", "adamasfl"),
}
BASE = {"sync": Counts(S=10, K=10, T=1000, N=100), "async": Counts(S=10, K=10, T=10_000, N=100)}
ONES = Constants(L=1.0, Delta=1.0, sigma2=1.0, sigma_h2=1.0, G0=1.0, G=1.0, tau_max=4.0, loss_floor=0.0)
EPSILON = 1e-8  # FADAS's parameter, as in its code
_FEW = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0)
AXES: dict[str, tuple[str, tuple[float, ...]]] = {
    "T": ("$T$", tuple(float(x) for x in np.rint(np.logspace(2, 6, 17)))),
    "S": ("$S$", _FEW),
    "K": ("$K$", _FEW),
    "tau_max": (r"$\tau_{\max}$", _FEW),
    "loss": ("loss factor", tuple(float(f"{x:.6g}") for x in np.logspace(-3, 3, 13))),
}
COLUMNS = {"lr": r"$\eta$", "reach": r"$\eta\gamma$", "beta": r"$\beta$"}
_SIGNS = {"=": "=", "<=": "≤", "~": "∼"}
_FIXED = {"sync": "L = Δ = σ² = σ_h² = G₀ = 1", "async": "L = G = 1, τ_max = 4"}
_DIRECTIONS = {
    "sync": "a gradient; a unit vector for PAdaMFed, PAdaMFed-VR; a rescaled gradient for FAFED",
    "async": "a gradient; a unit vector for AdaMasFL; a rescaled gradient for FADAS",
}


def axes_of(kind: str) -> list[str]:
    """What the step sizes of this kind are drawn against; staleness only for `async`."""
    return [axis for axis in AXES if axis != "tau_max" or kind == "async"]


def stepsize_table(kind: str) -> pd.DataFrame:
    """Prescribed step sizes of the `sync` or `async` methods, one row per (algorithm, axis, x): what
    `prescribe` returns; `void`: why a rule leaves no step size."""
    places = [(name, axis, x) for name in METHODS[kind] for axis in axes_of(kind) for x in AXES[axis][1]]
    return pd.DataFrame([_prescribed(name, BASE[kind], axis, x) for name, axis, x in places])


def _prescribed(algorithm: str, base: Counts, axis: str, x: float) -> dict[str, Any]:
    counts = replace(base, **{axis: int(x)}) if axis in ("S", "K", "T") else base
    constants = replace(ONES, tau_max=x) if axis == "tau_max" else ONES.scaled(x) if axis == "loss" else ONES
    own = {"epsilon": EPSILON} if algorithm == "fadas" else {}
    try:
        found = {**prescribe(algorithm, counts, constants, **own), "void": ""}
    except VoidRule as void:
        found = {"void": str(void)}
    return {"algorithm": algorithm, "axis": axis, "x": x, **found}


def draw_stepsizes(kind: str) -> Drawing:
    """Draw eta, eta gamma and beta (rows) against the axes (columns) for one kind."""
    data, base = stepsize_table(kind), BASE[kind]
    names = METHODS[kind]
    panels = [
        Panel(axis, AXES[axis][0], label, _by_algorithm(data[data.axis == axis], column))
        for column, label in COLUMNS.items()
        for axis in axes_of(kind)
    ]
    needs = {name: list(RULES[name].needs) for name in names}
    known = {need: getattr(ONES, need) for some in needs.values() for need in some if need != "loss_floor"}
    text = (
        "Step sizes prescribed (=), the largest allowed (≤), or known up to a constant (∼), as printed in the"
        f" papers' tables. Where not varied: N = {base.N}, S = {base.S}, K = {base.K}, T = {base.T},"
        f" {_FIXED[kind]}. ηγ: how far the server moves per unit of one local direction, {_DIRECTIONS[kind]}."
    )
    if kind == "async":
        assert base.K
        assert ONES.tau_max
        void = masfl_least_updates(base.S, base.K, ONES.tau_max)
        text += (
            f" FADAS: ε = {EPSILON:g}; its ηγ, about 1e-14, lies below the picture. MasFL's rule is void"
            f" where its line is missing (T up to {void:.0f})."
        )
    said = {
        "settings": {"N": base.N, "S": base.S, "K": base.K, "T": base.T, **known},
        "needs": needs,
        "text": [text],
    }
    return draw_grid(panels, len(axes_of(kind)), "two", data, said)


def _by_algorithm(data: pd.DataFrame, column: str) -> list[Trace]:
    traces = []
    parts = {str(name): part for name, part in data.groupby("algorithm", sort=False)}
    looks = line_styles([(name, name, of_algorithm(name).label) for name in parts])
    for look, part in zip(looks, parts.values(), strict=True):
        signs = part.lr_relation.fillna(part.reach_relation).dropna()
        label = f"{look.label} ({_SIGNS[signs.iloc[0]]})" if len(signs) else look.label
        traces.append(Trace(look, part.x.to_numpy(), part[column].to_numpy(float), label))
    return traces
