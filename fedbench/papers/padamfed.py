"""PAdaMFed: Yan, Zhang, Wang, Cao, Problem-Parameter-Free Federated Learning, ICLR 2025, and its talk.

Thresholds that the paper does not give (what "faster" or a "stable region" means) are ours and stand in the
tests of `fedbench.papers.comparisons`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

from fedbench.papers.across import NORMS, SUFFIX, problem_free, speedup, variant
from fedbench.papers.claims import Claim
from fedbench.papers.comparisons import AboveOnRange, Beats, Faster, MarginGrows, WidestRange
from fedbench.papers.figure import Figure, Paper, picture
from fedbench.papers.trends import Ahead, Reaches, SameTraffic

ICLR, TALK = "PAdaMFed, ICLR 2025", "PAdaMFed talk"
OURS = ("padamfed", "padamfed_vr")
BASELINES = ("fedavg", "scaffold", "scaffold_m")
SPLITS = {"iid": {"partition": "iid"}, "noniid": {"partition": "!iid"}}
PANELS = {"iid": "a", "noniid": "b"}
EMNIST = {"dataset": "emnist"}
CLASSES = {"": "EMNIST", "_balanced": "EMNIST, 47 classes"}
"""Of a figure of EMNIST, the end of its name and words: ten digits, which fit the accuracies that the paper
states, and the balanced split, as it does not say which."""
CIFAR = {"dataset": "cifar10", "partition": "!iid"}
NETS = {
    "resnet18": ("cifar10", "ResNet-18, at scale cpu with an eighth of its channels"),
    "cnn_small": ("cifar10-cnn", "a small CNN"),
}
"""Of CIFAR-10's networks, the claim's name and words."""
LEVELS = {"iid": 0.8, "noniid": 0.7}
"""What the paper's Figure 2 says is exceeded."""


START = {
    **{name: {"algorithm.lr": [0.03, 0.1], "algorithm.server_lr": [1.0]} for name in ("fedavg", "scaffold")},
    "scaffold_m": {
        "algorithm.lr": [0.03],
        "algorithm.server_lr": [0.3, 1.0],
        "algorithm.beta": [0.2],
    },
}
"""What is tried first at scale cpu, to be carried on where a winner stands at an edge: plain
averaging for FedAvg and SCAFFOLD, and for SCAFFOLD-M the step that its momentum is multiplied by."""


def by_split(runs: Path, out: Path) -> list[Path]:
    """Accuracy against rounds, iid beside Dirichlet."""
    return picture(runs, out, "accuracy", "round", "final", y="test_accuracy", rows="partition")


def by_step_size(runs: Path, out: Path) -> list[Path]:
    """Accuracy against eta and against gamma, iid beside Dirichlet."""
    files = []
    for key in ("lr", "server_lr"):
        files += picture(runs, out, key, f"algorithm.{key}", f"final-{key}", "final", rows="partition")
    return files


def by_lr(runs: Path, out: Path) -> list[Path]:
    """Accuracy against the learning rate."""
    return picture(runs, out, "lr", "algorithm.lr", "final-lr", "final")


def by_setting(runs: Path, out: Path) -> list[Path]:
    """Accuracy in several settings with the theorems' step sizes, and what their path length allows."""
    from fedbench.figures.comparisons import draw_settings

    powers = {"padamfed": 1 / 4, "padamfed_vr": 1 / 3}
    stages = [runs / stage for stage in ("final-norm", "final") if (runs / stage).is_dir()]
    return draw_settings(stages, powers, tuple(LEVELS.values())).save(out / "settings")


def by_rounds(runs: Path, out: Path) -> list[Path]:
    """Accuracy against rounds, for each model."""
    return picture(runs, out, "accuracy", "round", "final", y="test_accuracy", rows="model")


def _claims() -> Iterator[Claim]:
    for classes in CLASSES:
        for split, panel in PANELS.items():
            yield from _figure1(classes, split, f"{ICLR}, p. 9, section 5, Figure 1{panel}")
            yield from _figure2(classes, split, f"{ICLR}, p. 9-10, section 5, Figure 2{panel}")
        yield from _across(classes)
    yield from _settings()
    for norm, words in NORMS.items():
        for method, (model, (name, net)) in product(OURS, NETS.items()):
            yield Claim(
                f"{method}-{name}{SUFFIX[norm]}",
                f"{method} reaches state-of-the-art accuracy without tuning (CIFAR-10, {net}, {words})",
                f"{TALK}, figure 1 of the results",
                "padamfed/cifar10",
                Beats(variant(method, norm), BASELINES, CIFAR | {"model": model}),
                published="highest" if (method, model, norm) == ("padamfed", "resnet18", "vector") else "",
            )
    yield Claim(
        "same-traffic-as-scaffold",
        "PAdaMFed keeps SCAFFOLD's communication workload, up and down",
        f"{ICLR}, p. 5, section 3.1",
        "padamfed/fig1",
        test=SameTraffic("padamfed", "scaffold", EMNIST),
        scale="smoke",
    )
    for method, power, theorem in (("padamfed", -1 / 4, 1), ("padamfed_vr", -1 / 3, 2)):
        yield from speedup(method, power, f"{ICLR}, p. 6, Theorem {theorem} and Remark 1")
        yield from problem_free(method, "sync", BASELINES, f"{ICLR}, p. 2, section 1.1")


def _figure1(classes: str, split: str, source: str) -> Iterator[Claim]:
    """Accuracy against rounds: each of ours, in both readings, against tuned baselines."""
    claim, where = partial(Claim, source=source, figure=f"padamfed/fig1{classes}"), EMNIST | SPLITS[split]
    for norm, words in NORMS.items():
        ours, at = {method: variant(method, norm) for method in OURS}, f"{CLASSES[classes]}, {split}, {words}"
        end, ten = f"{split}{classes}{SUFFIX[norm]}", not classes
        for method, run in ours.items():
            yield claim(
                f"{method}-accuracy-{end}",
                f"{method} is more accurate than tuned FedAvg, SCAFFOLD, SCAFFOLD-M ({at})",
                test=Beats(run, BASELINES, where),
                published="highest" if ten and (method, norm) == ("padamfed", "vector") else "",
            )
            yield claim(
                f"{method}-speed-{end}",
                f"{method} converges faster than tuned FedAvg, SCAFFOLD, SCAFFOLD-M ({at})",
                test=Faster(run, BASELINES, where),
            )
        yield claim(
            f"vr-over-plain-{end}",
            f"variance reduction further enhances PAdaMFed ({at})",
            test=Beats(ours["padamfed_vr"], (ours["padamfed"],), where),
        )
        yield claim(
            f"scaffold-m-slower-{end}",
            f"SCAFFOLD-M, with a similar momentum, converges more slowly than PAdaMFed ({at})",
            test=Faster(ours["padamfed"], ("scaffold_m",), where),
        )


def _figure2(classes: str, split: str, source: str) -> Iterator[Claim]:
    """Accuracy against the step size, read once as eta and once as gamma: the paper does not say which; and
    what the theorem's own step sizes reach."""
    claim, where = partial(Claim, source=source, figure=f"padamfed/fig2{classes}"), EMNIST | SPLITS[split]
    level, data = LEVELS[split], CLASSES[classes]
    for norm, words in NORMS.items():
        ours, end = variant("padamfed", norm), f"{classes}{SUFFIX[norm]}"
        for key, symbol in (("algorithm.lr", "eta"), ("algorithm.server_lr", "gamma")):
            yield claim(
                f"range-{split}-{symbol}{end}",
                f"PAdaMFed's test accuracy exceeds {level} for step sizes from 3e-3 to 1e-1, 400 rounds"
                f" ({data}, {split}, {words}; read as a range of {symbol})",
                test=AboveOnRange(ours, key, 3e-3, 1e-1, level, where),
                rounds=400,
            )
            others = BASELINES if symbol == "eta" else ("scaffold", "scaffold_m")
            yield claim(
                f"narrower-{split}-{symbol}{end}",
                f"the baselines are stable only on a narrower range of {symbol} ({data}, {split}, {words})",
                test=WidestRange(ours, others, key, where),
            )


def _settings() -> Iterator[Claim]:
    """What the theorems' own step sizes reach in the settings that the paper leaves open."""
    claim = partial(Claim, figure="padamfed/settings", rounds=400)
    for (split, panel), (norm, words) in product(PANELS.items(), NORMS.items()):
        level, source = LEVELS[split], f"{ICLR}, p. 9-10, section 5, Figure 2{panel}"
        for method, name in (("padamfed", "PAdaMFed"), ("padamfed_vr", "PAdaMFed-VR")):
            if method == "padamfed" or norm == "vector":  # VR per tensor has run in few of them
                yield claim(
                    f"theorem-steps{'-vr' if method == 'padamfed_vr' else ''}-{split}{SUFFIX[norm]}",
                    f"{name}'s test accuracy exceeds {level} after 400 rounds (EMNIST, {split}; with its"
                    f" theorem's step sizes, {words})",
                    source=source,
                    test=Reaches("settings", variant(method, norm), level, SPLITS[split]),
                    published=f"> {level:.0%}" if method == "padamfed" else "",
                )
    for norm, words in NORMS.items():
        yield claim(
            f"vr-over-plain-settings{SUFFIX[norm]}",
            "variance reduction further enhances PAdaMFed in at least one of the settings that the paper"
            f" leaves open (EMNIST, {words})",
            source=f"{ICLR}, p. 9, section 5, Figure 1",
            test=Ahead("settings", variant("padamfed_vr", norm), variant("padamfed", norm)),
            published="higher" if norm == "vector" else "",
        )


def _across(classes: str) -> Iterator[Claim]:
    """What compares iid with Dirichlet(1), and the talk's learning rates."""
    data = CLASSES[classes]
    for norm, words in NORMS.items():
        ours, end = variant("padamfed", norm), f"{classes}{SUFFIX[norm]}"
        yield Claim(
            f"larger-margin-noniid{end}",
            f"the margins over the baselines are greater on non-i.i.d. than on i.i.d. data ({data}, {words})",
            f"{ICLR}, p. 9, section 5, Figure 1",
            f"padamfed/fig1{classes}",
            MarginGrows(ours, BASELINES, EMNIST | SPLITS["iid"], EMNIST | SPLITS["noniid"]),
        )
        yield Claim(
            f"rnn-robust{end}",
            f"PAdaMFed is stable on a significantly wider range of learning rates"
            f" ({data}, RNN, Dir(1), {words})",
            f"{TALK}, last figure",
            f"padamfed/rnn_lr{classes}",
            WidestRange(ours, BASELINES, "algorithm.lr", EMNIST | {"model": "rnn"} | SPLITS["noniid"]),
        )


PAPER = Paper(
    "Yan et al., Problem-Parameter-Free Federated Learning, ICLR 2025",
    (
        *(
            Figure(f"padamfed/{name}{classes}", about.format(data), draw, tuned=True, start=START)
            for classes, data in CLASSES.items()
            for name, about, draw in (
                ("fig1", "Accuracy against rounds, {}, iid and Dirichlet(1)", by_split),
                ("fig2", "Accuracy against the step size, {}, iid and Dirichlet(1)", by_step_size),
                ("rnn_lr", "Accuracy against the learning rate, {}, three-layer RNN, Dirichlet(1)", by_lr),
            )
        ),
        Figure(
            "padamfed/settings",
            "Accuracy with the theorems' step sizes in several settings, and what their path length allows",
            by_setting,
        ),
        Figure(
            "padamfed/cifar10",
            "Accuracy against rounds, CIFAR-10, ResNet-18, Dirichlet(0.5)",
            by_rounds,
            tuned=True,
            start=START,
        ),
    ),
    tuple(_claims()),
    picture=("padamfed/fig1", "accuracy.png"),
)
