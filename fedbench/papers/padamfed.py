"""PAdaMFed: Yan, Zhang, Wang, Cao, Problem-Parameter-Free Federated Learning, ICLR 2025, and its talk.

Thresholds that the paper does not give (what "faster" or a "stable region" means) are ours and stand in the
tests of `fedbench.claims`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fedbench.claims.accuracy import Beats, Faster, MarginGrows
from fedbench.claims.ledger import Claim
from fedbench.claims.ranges import AboveOnRange, WidestRange
from fedbench.claims.rates import SameTraffic
from fedbench.papers.across import problem_free, speedup
from fedbench.papers.drawing import against, curves
from fedbench.papers.figure import Figure, Paper

ICLR, TALK = "PAdaMFed, ICLR 2025", "PAdaMFed talk"
OURS = ("padamfed", "padamfed_vr")
BASELINES = ("fedavg", "scaffold", "scaffold_m")
SPLITS = {"iid": {"partition": "iid"}, "noniid": {"partition": "!iid"}}
EMNIST = {"dataset": "emnist"}


def by_split(runs: Path, out: Path) -> list[Path]:
    """Accuracy against rounds, iid and Dirichlet."""
    splits = ("iid", "dirichlet")
    return [file for split in splits for file in curves(runs, out, split, where={"partition": [split]})]


def by_step_size(runs: Path, out: Path) -> list[Path]:
    """Accuracy against eta and gamma, iid and Dirichlet."""
    files = []
    for split in ("iid", "dirichlet"):
        for key in ("lr", "server_lr"):
            stages, where = (f"final-{key}", "final"), {"partition": [split]}
            files += against(runs, out, f"{split}_{key}", f"algorithm.{key}", stages=stages, where=where)
    return files


def by_lr(runs: Path, out: Path) -> list[Path]:
    """Accuracy against the learning rate."""
    return against(runs, out, "lr", "algorithm.lr", stages=("final-lr", "final"))


def by_rounds(runs: Path, out: Path) -> list[Path]:
    """Accuracy against rounds."""
    return curves(runs, out, "accuracy")


def _claims() -> Iterator[Claim]:
    for split, panel, level in (("iid", "a", 0.8), ("noniid", "b", 0.7)):
        yield from _figure1(split, f"{ICLR}, p. 9, section 5, Figure 1{panel}")
        yield from _figure2(split, f"{ICLR}, p. 9-10, section 5, Figure 2{panel}", level)
    first = partial(Claim, figure="padamfed/fig1")
    yield first(
        "larger-margin-noniid",
        "the margins over the baselines are even greater on non-i.i.d. than on i.i.d. data (EMNIST)",
        f"{ICLR}, p. 9, section 5, Figure 1",
        test=MarginGrows("padamfed", BASELINES, EMNIST | SPLITS["iid"], EMNIST | SPLITS["noniid"]),
    )
    yield Claim(
        "rnn-robust",
        "PAdaMFed is stable on a significantly wider range of learning rates (EMNIST, RNN, Dir(1))",
        f"{TALK}, last figure",
        "padamfed/rnn_lr",
        WidestRange("padamfed", BASELINES, "algorithm.lr", EMNIST | {"model": "rnn"} | SPLITS["noniid"]),
    )
    for method in OURS:
        yield Claim(
            f"{method}-cifar10",
            f"{method} reaches state-of-the-art accuracy without tuning (CIFAR-10, ResNet-18, Dir(0.5))",
            f"{TALK}, figure 1 of the results",
            "padamfed/cifar10",
            Beats(method, BASELINES, {"dataset": "cifar10"} | SPLITS["noniid"]),
            scale="paper",
            published="highest" if method == "padamfed" else "",
        )
    yield first(
        "same-traffic-as-scaffold",
        "PAdaMFed keeps SCAFFOLD's communication workload, up and down",
        f"{ICLR}, p. 5, section 3.1",
        test=SameTraffic("padamfed", "scaffold", EMNIST),
        scale="smoke",
        published="2d up, 2d down",
    )
    for method, power, theorem in (("padamfed", -1 / 4, 1), ("padamfed_vr", -1 / 3, 2)):
        yield from speedup(method, power, f"{ICLR}, p. 6, Theorem {theorem} and Remark 1")
        yield from problem_free(method, "sync", BASELINES, f"{ICLR}, p. 2, section 1.1")


def _figure1(split: str, source: str) -> Iterator[Claim]:
    """Accuracy against rounds: each of ours against tuned baselines."""
    claim, where = partial(Claim, source=source, figure="padamfed/fig1"), EMNIST | SPLITS[split]
    for method in OURS:
        yield claim(
            f"{method}-accuracy-{split}",
            f"{method} is more accurate than tuned FedAvg, SCAFFOLD, SCAFFOLD-M (EMNIST, {split})",
            test=Beats(method, BASELINES, where),
            published="highest" if method == "padamfed" else "",
        )
        yield claim(
            f"{method}-speed-{split}",
            f"{method} converges faster than tuned FedAvg, SCAFFOLD, SCAFFOLD-M (EMNIST, {split})",
            test=Faster(method, BASELINES, where),
        )
    yield claim(
        f"vr-over-plain-{split}",
        f"variance reduction further enhances PAdaMFed (EMNIST, {split})",
        test=Beats("padamfed_vr", ("padamfed",), where),
        published="higher" if split == "noniid" else "",
    )
    yield claim(
        f"scaffold-m-slower-{split}",
        f"SCAFFOLD-M, with a similar momentum, converges more slowly than PAdaMFed (EMNIST, {split})",
        test=Faster("padamfed", ("scaffold_m",), where),
    )


def _figure2(split: str, source: str, level: float) -> Iterator[Claim]:
    """Accuracy against the step size, read once as eta and once as gamma: the paper does not say which."""
    claim, where = partial(Claim, source=source, figure="padamfed/fig2"), EMNIST | SPLITS[split]
    for key, symbol in (("algorithm.lr", "eta"), ("algorithm.server_lr", "gamma")):
        yield claim(
            f"range-{split}-{symbol}",
            f"PAdaMFed's test accuracy exceeds {level} for step sizes from 3e-3 to 1e-1, 400 rounds"
            f" (EMNIST, {split}; read as a range of {symbol})",
            test=AboveOnRange("padamfed", key, 3e-3, 1e-1, level, where),
            rounds=400,
            published=f"> {level:.0%}" if symbol == "eta" else "",
        )
        others = BASELINES if symbol == "eta" else ("scaffold", "scaffold_m")
        yield claim(
            f"narrower-{split}-{symbol}",
            f"baselines have substantially narrower stable regions (EMNIST, {split}, {symbol})",
            test=WidestRange("padamfed", others, key, where),
            published="widest" if (split, symbol) == ("noniid", "eta") else "",
        )


PAPER = Paper(
    "Yan et al., Problem-Parameter-Free Federated Learning, ICLR 2025",
    (
        Figure(
            "padamfed/fig1", "Accuracy against rounds, EMNIST, iid and Dirichlet(1)", by_split, tuned=True
        ),
        Figure(
            "padamfed/fig2",
            "Accuracy against the step size, EMNIST, iid and Dirichlet(1)",
            by_step_size,
            tuned=True,
        ),
        Figure(
            "padamfed/rnn_lr",
            "Accuracy against the learning rate, three-layer RNN, Dirichlet(1)",
            by_lr,
            tuned=True,
        ),
        Figure(
            "padamfed/cifar10",
            "Accuracy against rounds, CIFAR-10, ResNet-18, Dirichlet(0.5)",
            by_rounds,
            tuned=True,
        ),
    ),
    tuple(_claims()),
    picture=("padamfed/fig1", "dirichlet.png"),
)
