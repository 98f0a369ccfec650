"""AdaMasFL: Yan, Zhong, Wang, Zhang, Momentum-Driven Adaptivity, ICML 2025, as in its talk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fedbench.fields import AVERAGE
from fedbench.papers.across import AVERAGES, ELSEWHERE, by_norm, elsewhere, problem_free, speedup
from fedbench.papers.claims import Claim, Measure, Readings, on_figure
from fedbench.papers.figure import Figure, Paper, Search, picture
from fedbench.papers.measures import Flat, Leads, Moves
from fedbench.papers.scores import Range

TALK = "AdaMasFL talk, ICML 2025"
BASELINES = ("fedbuff", "ca2fl", "defedavg_niid", "fadas", "masfl")
FMNIST = {"dataset": "fmnist", "partition": "!iid"}
M_C = "schedule.concurrency"
OURS = {"algorithm": "adamasfl", "algorithm.norm": "vector"}
"""One norm suffices for claims on delays, which are the same with a norm per tensor."""
CHOSEN = "chosen"
"""The search of one eta at the smallest M_c, and a part of its stage's name."""
_SETTING = "data, network and alpha are the talk's; what it leaves open is our choice"
ETAS = (0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
_PLAIN = {"algorithm.lr": [0.03, 0.1], "algorithm.server_lr": [1.0]}
START = {
    **dict.fromkeys(("fedbuff", "ca2fl", "defedavg_niid"), _PLAIN),
    "fadas": _PLAIN | {"algorithm.server_lr": [0.001, 0.003], "algorithm.epsilon": [1e-4]},
    "masfl": {"algorithm.lr": [0.1], "algorithm.server_lr": [0.1, 0.3]},
}
"""What is tried first at 1,000 updates: plain averaging; for FADAS and MasFL the best of 150 updates."""


def by_updates(out: Path) -> list[Path]:
    """Accuracy against server updates, from 0.5, and against virtual time. Time is logarithmic because an
    update of DeFedAvg-niid, which waits for all of its clients, takes several times as long as one of the
    others."""
    y = "test_accuracy"
    return [
        *picture(out, "updates", "round", y=y, limits={"y": (0.5, 0.9)}),
        *picture(out, "virtual_time", "virtual_time", y=y, log=("x",)),
    ]


RATES = "The rates are those of figure 1, as in the talk: both figures have one search, at M_c = 2 S."
by_concurrency = partial(picture, name="concurrency", x=M_C, spread="points", notes=(RATES,))
"""Final accuracy against M_c, a point for each seed: seeds form two groups if some fail to train."""
by_updates_averaging = partial(picture, name="average", x="round", y="test_accuracy")
"""Accuracy against server updates where the server averages: eta of the theorem, and of another task."""
SMALLEST = "Rates and eta were chosen at M_c = S, not at figure 1's M_c."
by_concurrency_averaging = partial(picture, name="average", x=M_C, spread="points", notes=(SMALLEST,),
                                   stages=("final-concurrency", f"final-{CHOSEN}-concurrency"))  # fmt: skip
"""Accuracy against M_c where the server averages: eta of the theorem, and chosen at the smallest M_c."""


def _readings(name: str, measure: Callable[[str], Measure]) -> Readings:
    """The readings of a claim on a figure: as the paper has it, and where the server averages, at the
    theorem's eta and at one that was chosen."""
    one, (chosen, where, along, others) = f"adamasfl/{name}", {
        "fig1": (ELSEWHERE, "of another task", "", ""),
        "fig2": (CHOSEN, "chosen at M_c = S", "-concurrency", ", baselines' rates chosen at M_c = S"),
    }[name]  # fmt: skip
    theorem, other = (f"server averages, {eta}" for eta in (f"theorem's eta{others}", f"eta {where}"))
    return (
        *by_norm("adamasfl", {"": one}, measure),
        *by_norm("adamasfl", {theorem: f"{one}_average"}, measure, f"final{along}"),
        *by_norm("adamasfl", {other: f"{one}_average"}, measure, f"final-{chosen}{along}", ours=True),
    )


def _claims() -> Iterator[Claim]:
    one, two = f"{TALK}, figure 1", f"{TALK}, figure 2"
    claim = partial(Claim, rounds=1000, differs=_SETTING)
    yield claim("adamasfl-accuracy", "AdaMasFL reaches state-of-the-art accuracy without tuning", one,
                _readings("fig1", lambda run: Leads(run, BASELINES, where=FMNIST)))  # fmt: skip
    yield claim("adamasfl-concurrency", "AdaMasFL's accuracy is nearly constant in M_c (within two points)",
                two, _readings("fig2", lambda run: Flat(run, M_C, 0.02, FMNIST)))  # fmt: skip
    yield claim("adamasfl-most-robust", "AdaMasFL varies less with M_c than every baseline", two,
                _readings("fig2", lambda run: Leads(run, BASELINES, Range(M_C), FMNIST)))  # fmt: skip
    delays = {
        "time per update": Moves("virtual_time", M_C, -1, where=OURS, of_run="rate"),
        "mean delay": Moves("staleness_mean", M_C, 1, where=OURS),
        "longest delay": Moves("staleness_max", M_C, 1, where=OURS, of_run="max"),
    }
    yield Claim("concurrency-delays", "a larger M_c makes updates more frequent and delays longer", two,
                on_figure("adamasfl/fig2", delays), scale="smoke", kind="construction")  # fmt: skip
    yield speedup("adamasfl", -1 / 4, f"{TALK}, Theorem 2")
    yield speedup("masfl", -1 / 4, f"{TALK}, Theorem 1")
    yield from problem_free("adamasfl", "async", BASELINES, f"{TALK}, Theorem 2")


HEADLINES = {
    "adamasfl-accuracy": "adamasfl/fig1",
    "adamasfl-concurrency": "adamasfl/fig2",
    "problem-free-adamasfl": "loss_scale",
    "adamasfl-most-robust": "adamasfl/fig2",
}

PAPER = Paper("adamasfl", "AdaMasFL: Momentum-Driven Adaptivity, ICML 2025, as in its talk", (
    Figure("adamasfl/fig1", "Accuracy against server updates and time, Fashion-MNIST, asynchronous",
           by_updates, tuned=True, start=START, panels=("adamasfl/fig1_average",)),
    Figure("adamasfl/fig2", "Accuracy under growing asynchrony M_c", by_concurrency, tuned=True, start=START,
           panels=("adamasfl/fig2_average",)),
    Figure("adamasfl/fig1_average", "Accuracy against updates where the server averages, Fashion-MNIST",
           by_updates_averaging, tuned=True, start=START, few=True,
           search=(elsewhere("adamasfl", ETAS),)),
    Figure("adamasfl/fig2_average", "Accuracy under growing asynchrony M_c where the server averages",
           by_concurrency_averaging, tuned=True, start=START, few=True,
           search=(Search(CHOSEN, {"algorithm": "adamasfl", AVERAGES: AVERAGE}, {"algorithm.lr": ETAS},
                          unless=("algorithm.lr",)),)),
), tuple(_claims()), HEADLINES)  # fmt: skip
