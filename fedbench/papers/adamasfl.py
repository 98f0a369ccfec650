"""AdaMasFL: Yan, Zhong, Wang, Zhang, Momentum-Driven Adaptivity, ICML 2025, as in its talk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fedbench.papers.across import NORMS, SUFFIX, problem_free, speedup, variant
from fedbench.papers.claims import Claim
from fedbench.papers.comparisons import Beats, Flat, FlatterThan
from fedbench.papers.figure import Figure, Paper, picture
from fedbench.papers.trends import Trend

TALK = "AdaMasFL talk, ICML 2025"
BASELINES = ("fedbuff", "ca2fl", "defedavg_niid", "fadas", "masfl")
FMNIST = {"dataset": "fmnist", "partition": "!iid"}
M_C = "schedule.concurrency"
OURS = variant("adamasfl", "vector")
"""As the paper writes it; the delays are the same for a norm per tensor."""
START = {
    **{
        name: {"algorithm.lr": [0.03, 0.1], "algorithm.server_lr": [1.0]}
        for name in ("fedbuff", "ca2fl", "defedavg_niid")
    },
    "fadas": {
        "algorithm.lr": [0.03, 0.1],
        "algorithm.server_lr": [0.001, 0.003],
        "algorithm.epsilon": [1e-4],
    },
    "masfl": {"algorithm.lr": [0.1], "algorithm.server_lr": [0.1, 0.3]},
}
"""What is tried first at 1,000 updates: plain averaging; for FADAS and MasFL what was best at 150 updates."""


def by_updates(runs: Path, out: Path) -> list[Path]:
    """Accuracy against server updates, and against virtual time: logarithmic, as an update of DeFedAvg-niid,
    which waits for all of its clients, takes several times as long as the others'."""
    y = "test_accuracy"
    return [
        *picture(runs, out, "updates", "round", "final", y=y),
        *picture(runs, out, "virtual_time", "virtual_time", "final", y=y, log=("x",)),
    ]


def by_concurrency(runs: Path, out: Path) -> list[Path]:
    """Final accuracy, and the virtual time it took, against M_c."""
    stage = "final-concurrency"
    return [
        *picture(runs, out, "concurrency", M_C, stage),
        *picture(runs, out, "concurrency_time", M_C, stage, y="virtual_time", log=("y",)),
    ]


def _claims() -> Iterator[Claim]:
    for norm, words in NORMS.items():
        method, name = variant("adamasfl", norm), f"adamasfl{SUFFIX[norm]}"
        yield Claim(
            f"{name}-accuracy",
            f"AdaMasFL reaches state-of-the-art accuracy without tuning (FMNIST, CNN, Dir(0.5), {words})",
            f"{TALK}, figure 1",
            "adamasfl/fig1",
            Beats(method, BASELINES, FMNIST),
            rounds=1000,
            published="highest",
        )
        second = partial(Claim, source=f"{TALK}, figure 2", figure="adamasfl/fig2")
        yield second(
            f"{name}-concurrency",
            f"AdaMasFL keeps nearly consistent performance as M_c grows (within two points; {words})",
            test=Flat(method, M_C, 0.02, FMNIST),
            rounds=1000,
            published="nearly constant",
        )
        yield second(
            f"{name}-most-robust",
            "AdaMasFL is exceptionally robust to asynchrony: it varies less with M_c than every baseline"
            f" ({words})",
            test=FlatterThan(method, BASELINES, M_C, FMNIST),
            rounds=1000,
            published="varies least" if norm == "vector" else "",
        )
    second = partial(Claim, source=f"{TALK}, figure 2", figure="adamasfl/fig2")
    yield second(
        "concurrency-faster-updates",
        "a larger M_c enables more frequent global aggregations",
        test=Trend(OURS, "virtual_time", M_C, -1, per_round=True),
        scale="smoke",
        published="less time per update",
    )
    delays = "a larger M_c results in greater asynchronous delays"
    yield second(
        "concurrency-more-delay",
        f"{delays} (their mean)",
        test=Trend(OURS, "staleness_mean", M_C, 1, of_run="mean"),
        scale="smoke",
        published="longer delays",
    )
    yield second(
        "concurrency-longest-delay",
        f"{delays} (the longest that ended within the run)",
        test=Trend(OURS, "staleness_max", M_C, 1, of_run="max"),
        scale="smoke",
    )
    yield from speedup("adamasfl", -1 / 4, f"{TALK}, Theorem 2")
    yield from speedup("masfl", -1 / 4, f"{TALK}, Theorem 1")
    yield from problem_free("adamasfl", "async", BASELINES, f"{TALK}, Theorem 2")


PAPER = Paper(
    "Yan et al., Momentum-Driven Adaptivity: Towards Tuning-Free Asynchronous Federated Learning, ICML 2025",
    (
        Figure(
            "adamasfl/fig1",
            "Accuracy against server updates and time, Fashion-MNIST, asynchronous",
            by_updates,
            tuned=True,
            start=START,
        ),
        Figure(
            "adamasfl/fig2",
            "Accuracy under growing asynchrony M_c",
            by_concurrency,
            tuned=True,
            start=START,
        ),
    ),
    tuple(_claims()),
    picture=("adamasfl/fig1", "updates.png"),
)
