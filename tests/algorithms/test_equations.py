"""Every synchronous method against its NumPy reference, round by round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import adaptive_references as adaptive
import numpy as np
import pytest
import references as plain
import torch
from oracle import case, know
from problem import CLASSES, Problem, models, models_of_clients, relative_error, started

from fedbench import algorithms
from fedbench.engine.compiled import compiler_missing

S, K = 3, 4
WEIGHTS = plain.WEIGHTS


@dataclass(frozen=True)
class Case:
    """A method, its reference and their hyper-parameters; `numbers`: what the reference is told besides.

    `hows`: of `oracle.case`. If the method has a weighting, it is by samples, and uniform for `epochs`."""

    name: str
    reference: type[plain.Reference]
    values: dict[str, Any]
    rounds: int = 10
    hows: tuple[str, ...] = ("full", "epochs", "rates")
    numbers: dict[str, Any] = field(default_factory=dict)


def theorem(rounds: int, vr: bool = False) -> dict[str, float]:
    """The step sizes and beta of PAdaMFed's theorems."""
    gamma = (S * K) ** (1 / 3) / rounds ** (2 / 3) if vr else (S * K) ** 0.25 / rounds**0.75
    beta = gamma if vr else (S * K / rounds) ** 0.5
    return {"lr": 1 / (K * (rounds if vr else rounds**0.5)), "server_lr": gamma, "beta": min(1.0, beta)}


MASS = {"lr": 0.15, "server_lr": 0.4, "beta": 0.3}
EXP = {"lr": 0.2, "epsilon": 0.03, "epsilon_decay": 0.4}
OPT = {"lr": 0.2, "server_lr": 0.05, "beta1": 0.8, "beta2": 0.9, "epsilon": 0.02}
AMS = {"lr": 0.05, "beta1": 0.7, "beta2": 0.8, "epsilon": 0.02}
FLOOR = {**AMS, "server_lr": 0.3, "epsilon": 0.0, "vhat_init": 1e-3, "bias_correction": True}
MIME = {"lr": 0.1, "server_lr": 1.2, "momentum": 0.8, "beta1": 0.7, "beta2": 0.9, "epsilon": 0.05}
VR = {"lr": 0.2, "mu": 0.7}
ADAMW = {"lr": 0.05, "alpha": 0.4, "beta1": 0.7, "beta2": 0.8, "epsilon": 0.01, "weight_decay": 0.2}
DELTA = {"lr": 0.4, "amplifier": 1.5, "growth": 0.6}
HYPER = {"lr": 0.2, "kappa": 4.0, "momentum": 0.6, "alpha_min": 0.7, "alpha_max": 1.8, "rate_bound": 1.5}
SPS = {"c": 0.9, "lr_max": 1.5, "loss_lower_bound": 0.2}
FAFED = {"lr": 0.05, "beta2": 0.8, "epsilon": 0.2}
FULL, OWN = ("full", "epochs"), ("epochs",)

CASES: dict[str, Case] = {
    "fedavg": Case("fedavg", plain.Reference, {"lr": 0.2, "server_lr": 1.3}),
    "fedavgm": Case("fedavgm", plain.FedAvgM, {"lr": 0.2, "server_lr": 0.7, "momentum": 0.6}),
    "fedavgm nesterov": Case(
        "fedavgm", plain.FedAvgM, {"lr": 0.2, "server_lr": 0.7, "momentum": 0.6, "nesterov": True}
    ),
    "slowmo": Case("slowmo", plain.SlowMo, {"lr": 0.2, "server_lr": 0.7, "momentum": 0.6}),
    "fedexp": Case("fedexp", plain.FedExP, EXP, hows=FULL),
    "fedexp constant": Case("fedexp", plain.FedExP, {**EXP, "epsilon_decay": 1.0}),
    "fedexp_m": Case("fedexp_m", plain.FedExPM, {**EXP, "epsilon_decay": 0.6, "momentum": 0.7}),
    "scaffold_exp": Case("scaffold_exp", plain.ScaffoldExP, {**EXP, "epsilon": 0.01, "epsilon_decay": 0.8}),
    "fedadagrad": Case("fedadagrad", plain.FedAdagrad, OPT),
    "fedadam": Case("fedadam", plain.FedOpt, OPT),
    "fedyogi": Case("fedyogi", plain.FedYogi, OPT),
    "fedams": Case("fedams", plain.FedAMS, {**AMS, "server_lr": 0.3}),
    "fedams corrected": Case("fedams", plain.FedAMS, {**AMS, "server_lr": 0.3, "bias_correction": True}),
    "fedams official": Case("fedams", plain.FedAMS, FLOOR),
    "fedprox": Case("fedprox", plain.FedProx, {"lr": 0.2, "server_lr": 1.2, "mu": 0.7}),
    **{
        f"fednova {rho} {mu}": Case(
            "fednova", plain.FedNova, {"lr": 0.1, "server_lr": 0.9, "momentum": rho, "mu": mu}
        )
        for rho, mu in [(0.0, 0.0), (0.6, 0.0), (0.0, 0.8), (0.6, 0.8)]
    },
    "fedbn": Case("fedbn", plain.FedBN, {"lr": 0.2, "server_lr": 1.2}),
    "fedper": Case("fedper", plain.FedBN, {"lr": 0.2, "server_lr": 1.2}),
    "fedrep": Case("fedrep", plain.FedRep, {"lr": 0.2, "server_lr": 1.2, "head_share": 0.6}),
    "ditto": Case("ditto", plain.Ditto, {"lr": 0.2, "server_lr": 1.2, "lam": 0.7}),
    "apfl": Case("apfl", plain.APFL, {"lr": 0.2, "server_lr": 1.2, "alpha": 0.3, "adaptive": False}),
    "apfl adaptive": Case("apfl", plain.APFL, {"lr": 0.2, "server_lr": 1.2, "alpha": 0.3, "adaptive": True}),
    "pfedme": Case(
        "pfedme", plain.PFedMe, {"lr": 0.1, "server_lr": 1.2, "outer_lr": 0.2, "lam": 2.0, "inner_steps": 3}
    ),
    # where features do not depend on the model, it is FedAvg; test_features.py has a network
    "moon": Case("moon", plain.Reference, {"lr": 0.2, "server_lr": 1.3, "mu": 2.0, "temperature": 0.4}),
    "fedntd": Case("fedntd", plain.FedNTD, {"lr": 0.2, "server_lr": 1.2, "beta": 0.8, "temperature": 1.5}),
    "ifca": Case("ifca", plain.IFCA, {"lr": 0.2, "server_lr": 0.9, "clusters": 3, "spread": 0.5}),
    "scaffold": Case("scaffold", plain.Scaffold, {"lr": 0.2, "server_lr": 0.8, "option": 2}),
    "scaffold 1": Case("scaffold", plain.Scaffold, {"lr": 0.2, "server_lr": 0.8, "option": 1}),
    "feddyn": Case("feddyn", plain.FedDyn, {"lr": 0.2, "alpha": 0.5}),
    "feddyn 0.05": Case("feddyn", plain.FedDyn, {"lr": 0.2, "alpha": 0.05}),
    "vrl_sgd": Case("vrl_sgd", plain.VRLSGD, {"lr": 0.2}, hows=("full", "rates")),
    "led": Case("led", plain.LED, {"lr": 0.2, "dual_lr": 0.1}),
    "led 1/K": Case("led", plain.LED, {"lr": 0.2}, hows=("full", "rates")),
    "fedavg_m": Case("fedavg_m", plain.FedCM, MASS),
    "fedcm": Case("fedcm", plain.FedCM, MASS),
    "scaffold_m": Case("scaffold_m", plain.ScaffoldM, MASS),
    "scaffold_m_vr": Case("scaffold_m_vr", plain.ScaffoldMVR, MASS),
    "padamfed": Case("padamfed", plain.PAdaMFed, MASS),
    "padamfed theorem": Case("padamfed", plain.PAdaMFed, {}, 20, ("full",), theorem(20)),
    "padamfed tensor": Case("padamfed", plain.PAdaMFed, {**MASS, "norm": "tensor"}, hows=FULL),
    "padamfed unnormalised": Case("padamfed", plain.PAdaMFed, {**MASS, "normalise": False}, hows=OWN),
    "padamfed no momentum": Case("padamfed", plain.PAdaMFed, {**MASS, "momentum": False}, hows=OWN),
    "padamfed no control": Case(
        "padamfed", plain.PAdaMFed, {**MASS, "control_variates": False}, hows=OWN
    ),
    "padamfed nothing": Case(
        "padamfed", plain.PAdaMFed,
        {**MASS, "normalise": False, "momentum": False, "control_variates": False}, hows=OWN,
    ),
    "padamfed_vr": Case("padamfed_vr", plain.PAdaMFedVR, MASS),
    "padamfed_vr theorem": Case("padamfed_vr", plain.PAdaMFedVR, {}, 20, ("full",), theorem(20, vr=True)),
    "padamfed_vr tensor": Case("padamfed_vr", plain.PAdaMFedVR, {**MASS, "norm": "tensor"}, hows=FULL),
    "padamfed_vr literal": Case(
        "padamfed_vr", plain.PAdaMFedVR, {**MASS, "vr_momentum": "literal"}, hows=OWN
    ),
    "padamfed_vr no momentum": Case(
        "padamfed_vr", plain.PAdaMFedVR, {**MASS, "momentum": False}, hows=OWN
    ),
    "fedproxvr svrg": Case("fedproxvr", plain.FedProxVR, {**VR, "estimator": "svrg"}),
    "fedproxvr sarah": Case("fedproxvr", plain.FedProxVR, {**VR, "estimator": "sarah", "output": "random"}),
    "fedproxvr sgd": Case("fedproxvr", plain.FedProxVR, {**VR, "estimator": "sgd"}),
    **{
        f"{name} {base}": Case(name, cls, {**MIME, "base": base})
        for name, cls in (("mime", plain.Mime), ("mimelite", plain.MimeLite))
        for base in ("sgd", "momentum", "adam")
    },
    "local_amsgrad": Case("local_amsgrad", adaptive.LocalAMSGrad, AMS),
    "local_amsgrad corrected": Case("local_amsgrad", adaptive.LocalAMSGrad, {**AMS, "bias_correction": True}),
    "fedadt": Case("fedadt", adaptive.FedADT, {**AMS, "beta3": 0.6, "derivative": 0.4}),
    "fedlada": Case("fedlada", adaptive.FedLADA, {**AMS, "server_lr": 0.8, "alpha": 0.3, "epsilon": 0.05}),
    **{
        f"fedadamw {moment} {counter}": Case(
            "fedadamw", adaptive.FedAdamW, {**ADAMW, "second_moment": moment, "m_counter": counter}, 6
        )
        for moment in ("block", "coordinate")
        for counter in ("local", "global")
    },
    "fafed": Case("fafed", adaptive.FAFED, {**FAFED, "alpha": 0.3}),
    "fafed 1": Case("fafed", adaptive.FAFED, {**FAFED, "alpha": 1.0}),
    **{
        f"delta_sgd {same} {first}": Case(
            "delta_sgd", adaptive.DeltaSGD, {**DELTA, "same_batch": same, "first_rate": first}, 6
        )
        for same in (True, False)
        for first in ("initial", "grown")
    },
    "fedsps local": Case("fedsps", adaptive.FedSPS, {**SPS, "scope": "local"}, hows=FULL),
    "fedsps global": Case("fedsps", adaptive.FedSPS, {**SPS, "scope": "global"}, hows=FULL),
    **{
        f"fedhyper {variant}": Case("fedhyper", adaptive.FedHyper, {**HYPER, "variant": variant}, 8)
        for variant in ("G", "GM", "SL", "CL", "FULL")
    },
}  # fmt: skip


BIAS_STAYS = ("fedbn", "fedper", "fedrep")  # at its client
BIAS = {"names": ("body.weight", "head.bias"), "norm_index": torch.arange(WEIGHTS, WEIGHTS + CLASSES)}
"""What a setting says then: it is the head, or belongs to a normalisation layer."""


def follow(name: str, how: str, engine: str, **more: Any) -> plain.Reference:
    """Compare the method's path with that of its reference, which is returned. `more`: options of both."""
    one, p = CASES[name], Problem()
    cls = algorithms.get(one.name)
    cohorts = [[*range(p.N)]] * one.rounds if cls.full_participation else p.cohorts(one.rounds, S)
    options, batches, factor = case(p, cohorts, how, K)
    weighting = {"weighting": "uniform" if how == "epochs" else "samples"}
    values = {**(weighting if "weighting" in cls.options() else {}), **one.values, **more}
    reference = one.reference(batches, factor, **values, **one.numbers)
    expected = reference.path(cohorts)
    method = cls.create(values)
    if one.name in BIAS_STAYS:
        method = know(method, **BIAS)
    walk = started(p, method, cohorts, engine=engine, **options)
    assert relative_error(models(walk), expected) < 1e-9
    if method.is_personal:
        assert relative_error(models_of_clients(walk), [*reference.personal(expected[-1])]) < 1e-9
    assert np.linalg.norm(expected[-1] - expected[0]) > 0.1
    return reference


@pytest.mark.parametrize(("name", "how"), [(name, how) for name, one in CASES.items() for how in one.hows])
def test_follows_the_equations(name: str, how: str) -> None:
    """With full batches, with clients that make their own numbers of steps (as one padded batch of clients,
    whose masked steps must change nothing), with a changing rate."""
    assert follow(name, how, "loop" if how == "full" else "vmap").exercised


COMPILED = {
    **dict.fromkeys(("fedadamw block local", "fedhyper FULL", "fedlada", "fedproxvr sarah"), "epochs"),
    **dict.fromkeys(("delta_sgd True grown", "fafed", "fedbn", "fedsps global"), "epochs"),
    **dict.fromkeys(("ditto", "fedper", "fedrep", "apfl adaptive", "pfedme", "fedntd", "ifca"), "epochs"),
    "padamfed_vr tensor": "full",  # each tensor is normalised by itself
}
"""Methods with local steps of their own. What others share is compiled in `test_async_rederivations`."""


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_programs_follow_the_equations(name: str) -> None:
    if missing := compiler_missing(torch.device("cpu")):
        pytest.skip(missing)
    follow(name, COMPILED[name], "compile")


@pytest.mark.parametrize(
    ("variant", "eta", "kappa", "bound"),
    [("G", 3.0, 1.0, None), ("GM", 0.1, 100.0, None), ("SL", 0.3, 2.0, 1.15), ("CL", 0.1, 10.0, 1.15),
     ("FULL", 0.1, 100.0, 1.15)],
)  # fmt: skip
def test_rates_of_fedhyper_meet_both_of_their_bounds(
    variant: str, eta: float, kappa: float, bound: float | None
) -> None:
    """The server's are those that the variant has by default. In few steps b only meets a narrow bound."""
    own = {"lr": eta, "kappa": kappa, "alpha_min": None, "alpha_max": None, "weighting": "uniform"}
    met = follow(f"fedhyper {variant}", "steps", "vmap", **own, rate_bound=bound or 10.0)
    assert isinstance(met, adaptive.FedHyper)
    assert met.servers.met == {"low", "high"} or variant in ("SL", "CL")
    assert met.clients.met == {"low", "high"} or variant in ("G", "GM")
