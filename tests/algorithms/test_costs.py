"""What every method sends, keeps and computes, as the papers' listings say it."""

from __future__ import annotations

from typing import Any

import pytest
from oracle import cost

from fedbench import algorithms
from fedbench.method.cost import Cost

OURS = [cls.name for cls in algorithms.every() if cls.__module__.startswith("fedbench.")]
FEDAVG = (1, 1, 0, 0, 0, 0, 1, 0)

# in units of d: up, down, once at the start up and down, kept by a client, kept by the server beside theta;
# then gradients per step and full local passes
COSTS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("fedavg", "fedprox", "fednova", "fedexp", "fedasync", "fedsps"), FEDAVG),
    **dict.fromkeys(("fedsps scope=global", "defedavg_iid", "defedavg_niid"), FEDAVG),
    **dict.fromkeys(("fedadagrad", "fedadam", "fedyogi"), (1, 1, 0, 0, 0, 2, 1, 0)),
    **dict.fromkeys(("fedavgm", "slowmo", "fedbuff", "ca2fl", "fedexp_m"), (1, 1, 0, 0, 0, 1, 1, 0)),
    **dict.fromkeys(("fedams", "fadas"), (1, 1, 0, 0, 0, 3, 1, 0)),
    "ringmaster_asgd": FEDAVG,
    "asyncfeded": FEDAVG,  # the start models are the server's own
    "feddyn": (1, 1, 0, 0, 1, 1, 1, 0),
    **dict.fromkeys(("vrl_sgd", "led"), (1, 1, 0, 0, 1, 0, 1, 0)),
    **dict.fromkeys(("fedavg_m", "fedcm"), (1, 2, 0, 0, 0, 1, 1, 0)),
    "scaffold": (2, 2, 0, 0, 1, 1, 1, 0),
    "scaffold_exp": (2, 2, 0, 0, 1, 1, 1, 0),
    "scaffold option=1": (2, 2, 0, 0, 1, 1, 1, 1),
    "scaffold_m": (2, 2, 0, 0, 1, 2, 1, 0),
    "scaffold_m_vr": (2, 3, 1, 1, 1, 3, 2, 0),  # theta^{t-1} is kept and sent by the server
    "padamfed": (2, 2, 1, 1, 1, 2, 1, 0),
    "padamfed_vr": (3, 3, 1, 1, 1, 3, 2, 0),
    "padamfed_vr vr_momentum=literal": (2, 3, 1, 1, 1, 3, 2, 0),
    "masfl": (1, 2, 1, 1, 1, 2, 1, 0),
    "adamasfl": (2, 2, 1, 1, 1, 2, 1, 0),
    **dict.fromkeys(("dude_asgd", "ace"), (1, 1, 1, 1, 1, 1, 1, 0)),
    "area": (1, 1, 0, 0, 1, 0, 1, 0),
    "fafed": (3, 3, 2, 1, 1, 2, 2, 0),
    "local_amsgrad": (2, 2, 0, 0, 2, 1, 1, 0),
    "delta_sgd": (1, 1, 0, 0, 0, 0, 2, 0),
    "delta_sgd same_batch=false": FEDAVG,
    **dict.fromkeys(("fedhyper", "fedhyper variant=GM", "fedhyper variant=SL"), (1, 1, 0, 0, 0, 1, 1, 0)),
    "fedhyper variant=CL": (1, 2, 0, 0, 0, 1, 1, 0),
    "fedhyper variant=FULL": (1, 2, 0, 0, 0, 2, 1, 0),
    "fedlada": (2, 3, 0, 0, 0, 2, 1, 0),
    "fedadamw": (1.003, 2.003, 0, 0, 0, 1.003, 1, 0),  # a number for each of three tensors
    "fedadamw second_moment=coordinate": (2, 3, 0, 0, 0, 2, 1, 0),
    "fedadt": (3, 3, 0, 0, 3, 2, 1, 0),
    "fedbn": (0.993, 0.993, 0, 0, 0.007, 0, 1, 0),  # of 1000 numbers 7 are of normalisation layers
    "fedproxvr": (1, 1, 0, 0, 0, 0, 2, 1),
    "fedproxvr estimator=sarah": (1, 1, 0, 0, 0, 0, 2, 1),
    "fedproxvr estimator=sgd output=random": (1, 1, 0, 0, 0, 0, 1, 1),
    "mime base=sgd": (2, 2, 0, 0, 0, 0, 2, 1),
    "mime": (2, 3, 0, 0, 0, 1, 2, 1),
    "mime base=adam": (2, 4, 0, 0, 0, 2, 2, 1),
    "mimelite base=sgd": (2, 1, 0, 0, 0, 0, 1, 1),
    "mimelite": (2, 2, 0, 0, 0, 1, 1, 1),
    "mimelite base=adam": (2, 3, 0, 0, 0, 2, 1, 1),
}


def test_every_method_has_a_row() -> None:
    assert {case.split()[0] for case in COSTS} == set(OURS)


@pytest.mark.parametrize("case", COSTS)
def test_costs_are_those_of_the_table(case: str) -> None:
    name, *words = case.split()
    values: dict[str, Any] = dict(word.split("=") for word in words)
    if "option" in values:
        values["option"] = int(values["option"])
    *sizes, calls, passes = COSTS[case]
    assert cost(name, **values) == Cost(*(round(1000 * size) for size in sizes), calls, passes)
