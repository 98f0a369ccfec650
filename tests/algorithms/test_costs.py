"""What every method sends, keeps and computes, as the papers' listings say it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracle import LAYERS, cost

from fedbench import algorithms
from fedbench.algorithms.fedavg import FedAvg
from fedbench.method import Client, Counts, Record, Setting, Vectors
from fedbench.method.cost import LARGE, Cost, measure

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
    **dict.fromkeys(
        ("fedper", "fedrep"), (0.6, 0.6, 0, 0, 0.4, 0, 1, 0)
    ),  # of 1000 numbers 400 are the head's
    **dict.fromkeys(("ditto", "apfl"), (1, 1, 0, 0, 1, 0, 2, 0)),
    "pfedme inner_steps=3": (1, 1, 0, 0, 1, 0, 3, 0),
    "moon": (1, 1, 0, 0, 1, 0, 1, 0),
    "fedntd": FEDAVG,
    "fedproto": (0.17, 0.17, 0, 0, 1, 0.17, 1, 0),  # ten classes: 16 features and a number
    "ifca": (1, 2, 0, 0, 0, 2, 1, 0),  # of two clusters
    "local": (0, 0, 0, 0, 1, 0, 1, 0),
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
    known = {case.split()[0] for case in COSTS}
    assert known == set(OURS), "enter in COSTS, above, what its paper's listing sends, keeps and computes"


def of_a_large_model(algorithm: algorithms.Algorithm) -> Cost:
    """For 10^6 numbers and more, 7 of 1000 in a tensor of a normalisation layer."""
    sizes = (600 * LARGE // 1000, 7 * LARGE // 1000, 393 * LARGE // 1000)
    norm = torch.arange(sizes[0], sizes[0] + sizes[1])
    setting = Setting(Counts(S=2, N=2, K=4, T=4), "sync", sum(sizes), norm, sizes, names=LAYERS)
    algorithm.bind(setting)
    return measure(algorithm, setting)


@pytest.mark.parametrize("case", COSTS)
def test_costs_are_those_of_the_table_and_as_much_per_number_of_a_large_model(case: str) -> None:
    *sizes, calls, passes = COSTS[case]
    name, *words = case.split()
    values: dict[str, Any] = dict(word.split("=") for word in words)
    for number in values.keys() & {"option", "inner_steps"}:
        values[number] = int(values[number])
    assert cost(name, **values) == Cost(*(round(1000 * size) for size in sizes), calls, passes)
    expected = [round(LARGE * size) for size in sizes]
    if case == "fedadamw":  # its moments are a number for each of three tensors, however large
        expected = [LARGE * int(size) + 3 * (size != int(size)) for size in sizes]
    elif case == "fedproto":  # prototypes do not grow with the model
        expected = [LARGE * int(size) or round(1000 * size) for size in sizes]
    assert of_a_large_model(algorithms.get(name).create(values)) == Cost(*expected, calls, passes)


class Watched(FedAvg):
    """FedAvg that notes how long theta is."""

    lengths: list[int]

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        self.lengths.append(len(server.theta))
        return {"theta": server.theta}


def test_no_vector_of_a_large_model_is_made() -> None:
    algorithm = Watched()
    algorithm.lengths = []
    assert of_a_large_model(algorithm).downlink == LARGE
    assert 1 < max(algorithm.lengths) < 1000


class LastTensor(FedAvg):
    """FedAvg that sends the last tensor alone: its costs do not follow from how many numbers there are."""

    def bind(self, setting: Setting) -> None:
        self.last = setting.sizes[-1]

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"delta": (local.y - client.down.theta)[-self.last :]}, {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        kept = server.theta[: -self.last]
        return {"theta": torch.cat([kept, server.theta[-self.last :] + mean.delta])}


class EveryHundredth(FedAvg):
    """FedAvg that sends one in a hundred numbers, rounded down."""

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"delta": (local.y - client.down.theta)[: len(local.y) // 100]}, {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta}


@pytest.mark.parametrize(
    ("method", "sent"), [(LastTensor, 393 * LARGE // 1000), (EveryHundredth, LARGE // 100)]
)
def test_a_method_that_sends_some_numbers_only_is_measured_whole(method: type[FedAvg], sent: int) -> None:
    cost = of_a_large_model(method())
    assert (cost.uplink, cost.downlink) == (sent, LARGE)
