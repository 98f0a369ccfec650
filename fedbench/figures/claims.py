"""The claims in the papers' text that a figure should show, each with the test that decides it.

Thresholds that a paper does not give (what "nearly consistent" means) are ours and stand in the test.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedbench.figures.check_accuracy import Beats, Faster, MarginGrows, Value
from fedbench.figures.check_ranges import AboveOnRange, Flat, FlatterThan, WidestRange
from fedbench.figures.check_rates import SameTraffic, Slope, TableTrend, Trend
from fedbench.figures.ledger import Claim

PADAMFED, SLIDES = "PAdaMFed, ICLR 2025", "PAdaMFed talk"
ADAMASFL = "AdaMasFL talk, ICML 2025"
FEDPROXVR = "FedProxVR talk, ICPP 2020"
OURS = ("padamfed", "padamfed_vr")
SYNC = ("fedavg", "scaffold", "scaffold_m")
ASYNC = ("fedbuff", "ca2fl", "defedavg_niid", "fadas", "masfl")
IID, NONIID = {"partition": "iid"}, {"partition": "!iid"}
EMNIST = {"dataset": "emnist"}
SVRG, SARAH = "fedproxvr algorithm.estimator=svrg", "fedproxvr algorithm.estimator=sarah"


def _padamfed() -> Iterable[Claim]:
    at = f"{PADAMFED}, p. 9, section 5, Figure 1"
    for split, where, panel in (("iid", IID, "a"), ("noniid", NONIID, "b")):
        here = {**EMNIST, **where}
        for method in OURS:
            yield Claim(
                f"{method}-accuracy-{split}",
                f"{method} is more accurate than tuned FedAvg, SCAFFOLD, SCAFFOLD-M (EMNIST, {split})",
                at + panel,
                "padamfed/fig1",
                Beats(method, SYNC, here),
            )
            yield Claim(
                f"{method}-speed-{split}",
                f"{method} converges faster than tuned FedAvg, SCAFFOLD, SCAFFOLD-M (EMNIST, {split})",
                at + panel,
                "padamfed/fig1",
                Faster(method, SYNC, here),
            )
        yield Claim(
            f"vr-over-plain-{split}",
            f"variance reduction further enhances PAdaMFed (EMNIST, {split})",
            at + panel,
            "padamfed/fig1",
            Beats("padamfed_vr", ("padamfed",), here),
        )
        yield Claim(
            f"scaffold-m-slower-{split}",
            f"SCAFFOLD-M, with a similar momentum, converges more slowly than PAdaMFed (EMNIST, {split})",
            at + panel,
            "padamfed/fig1",
            Faster("padamfed", ("scaffold_m",), here),
        )
        level = 0.8 if split == "iid" else 0.7
        source = f"{PADAMFED}, p. 9-10, section 5, Figure 2{panel}"
        for key, symbol in (("algorithm.lr", "eta"), ("algorithm.server_lr", "gamma")):
            yield Claim(
                f"range-{split}-{symbol}",
                f"PAdaMFed's test accuracy exceeds {level} for step sizes from 3e-3 to 1e-1, 400 rounds"
                f" (EMNIST, {split}; read as a range of {symbol})",
                source,
                "padamfed/fig2",
                AboveOnRange("padamfed", key, 3e-3, 1e-1, level, here),
                rounds=400,
            )
            yield Claim(
                f"narrower-{split}-{symbol}",
                f"baselines have substantially narrower stable regions (EMNIST, {split}, {symbol})",
                source,
                "padamfed/fig2",
                WidestRange("padamfed", SYNC if symbol == "eta" else ("scaffold", "scaffold_m"), key, here),
            )
    yield Claim(
        "larger-margin-noniid",
        "the margins over the baselines are even greater on non-i.i.d. than on i.i.d. data (EMNIST)",
        at,
        "padamfed/fig1",
        MarginGrows("padamfed", SYNC, {**EMNIST, **IID}, {**EMNIST, **NONIID}),
    )
    yield Claim(
        "rnn-robust",
        "PAdaMFed is stable on a significantly wider range of learning rates (EMNIST, RNN, Dir(1))",
        f"{SLIDES}, last figure",
        "padamfed/rnn_lr",
        WidestRange("padamfed", SYNC, "algorithm.lr", {**EMNIST, "model": "rnn", **NONIID}),
    )
    for method in OURS:
        yield Claim(
            f"{method}-cifar10",
            f"{method} reaches state-of-the-art accuracy without tuning (CIFAR-10, ResNet-18, Dir(0.5))",
            f"{SLIDES}, figure 1 of the results",
            "padamfed/cifar10",
            Beats(method, SYNC, {"dataset": "cifar10", **NONIID}),
            scale="paper",
        )
    yield Claim(
        "same-traffic-as-scaffold",
        "PAdaMFed keeps SCAFFOLD's communication workload, up and down",
        f"{PADAMFED}, p. 5, section 3.1",
        "padamfed/fig1",
        SameTraffic("padamfed", "scaffold", EMNIST),
        scale="smoke",
    )


def _theory() -> Iterable[Claim]:
    for method, power, source in (
        ("padamfed", -1 / 4, f"{PADAMFED}, p. 6, Theorem 1 and Remark 1"),
        ("padamfed_vr", -1 / 3, f"{PADAMFED}, p. 6, Theorem 2 and Remark 1"),
        ("adamasfl", -1 / 4, f"{ADAMASFL}, Theorem 2"),
        ("masfl", -1 / 4, f"{ADAMASFL}, Theorem 1"),
    ):
        for key, word in (("clients.per_round", "participating clients"), ("local.steps", "local steps")):
            yield Claim(
                f"speedup-{method}-{key.split('.')[1]}",
                f"{method} has a linear speed-up in the number of {word}: the mean gradient norm falls with"
                f" (S K T)^({power:.3g})",
                source,
                "speedup",
                Slope(method, key, power),
            )
    for method, others, source in (
        ("padamfed", SYNC, f"{PADAMFED}, p. 2, section 1.1"),
        ("padamfed_vr", SYNC, f"{PADAMFED}, p. 2, section 1.1"),
        ("adamasfl", ASYNC, f"{ADAMASFL}, Theorem 2"),
    ):
        yield Claim(
            f"problem-free-{method}",
            f"{method} needs no problem parameter: its accuracy does not change with the loss's factor",
            source,
            "loss_scale",
            Flat(method, "loss.scale", 0.01),
        )
        yield Claim(
            f"others-depend-{method}",
            f"the other algorithms depend on learning rates tuned to the problem (against {method})",
            source,
            "loss_scale",
            FlatterThan(method, others, "loss.scale"),
        )
        yield Claim(
            f"step-size-free-{method}",
            f"{method}'s step sizes follow from S, K and T alone",
            source,
            "theory/stepsizes",
            TableTrend("stepsizes", "lr", "x", 0, "axis", {"algorithm": method, "axis": "loss"}),
            scale="smoke",
        )


def _adamasfl() -> Iterable[Claim]:
    first = {"dataset": "fmnist", **NONIID}
    yield Claim(
        "adamasfl-accuracy",
        "AdaMasFL reaches state-of-the-art accuracy without tuning (FMNIST, CNN, Dir(0.5))",
        f"{ADAMASFL}, figure 1",
        "adamasfl/fig1",
        Beats("adamasfl", ASYNC, first),
    )
    yield Claim(
        "adamasfl-concurrency",
        "AdaMasFL keeps nearly consistent performance as M_c grows (within two points)",
        f"{ADAMASFL}, figure 2",
        "adamasfl/fig2",
        Flat("adamasfl", "schedule.concurrency", 0.02, first),
    )
    yield Claim(
        "adamasfl-most-robust",
        "AdaMasFL is exceptionally robust to asynchrony: it varies less with M_c than every baseline",
        f"{ADAMASFL}, figure 2",
        "adamasfl/fig2",
        FlatterThan("adamasfl", ASYNC, "schedule.concurrency", first),
    )
    key = "schedule.concurrency"
    delays = "a larger M_c results in greater asynchronous delays"
    for name, words, test in (
        (
            "concurrency-faster-updates",
            "a larger M_c enables more frequent global aggregations",
            Trend("adamasfl", "virtual_time", key, -1, per_round=True),
        ),
        (
            "concurrency-more-delay",
            f"{delays} (their mean)",
            Trend("adamasfl", "staleness_mean", key, 1, of_run="mean"),
        ),
        (
            "concurrency-longest-delay",
            f"{delays} (the longest that ended within the run)",
            Trend("adamasfl", "staleness_max", key, 1, of_run="max"),
        ),
    ):
        yield Claim(name, words, f"{ADAMASFL}, figure 2", "adamasfl/fig2", test, scale="smoke")


def _fedproxvr() -> Iterable[Claim]:
    paper = {"estimator": "sarah", "form": "reduced"}
    for column, words in (("beta", "beta"), ("tau", "tau")):
        yield Claim(
            f"cheap-computation-{column}",
            f"where gamma = d_cmp/d_com is small, the optimal {words} is large",
            f"{FEDPROXVR}, parameter optimisation",
            "theory/optimum",
            TableTrend("optimum", column, "gamma", -1, "sigma2", paper),
            scale="smoke",
        )
    for column, words, sign in (
        ("beta", "a higher beta", 1),
        ("mu", "a higher mu", 1),
        ("tau", "more local iterations", 1),
        ("theta", "a lower theta", -1),
        ("factor", "a lower Theta", -1),
    ):
        yield Claim(
            f"heterogeneity-{column}",
            f"a large sigma_bar^2 leads to {words}",
            f"{FEDPROXVR}, parameter optimisation",
            "theory/optimum",
            TableTrend("optimum", column, "sigma2", sign, "gamma", paper),
            scale="smoke",
        )
    for table, accuracies in (("table1", (0.8402, 0.8412, 0.8421)), ("table2", (0.9352, 0.9406, 0.9375))):
        kind = "a convex" if table == "table1" else "a nonconvex"
        source, figure = f"{FEDPROXVR}, Table {table[-1]}", f"fedproxvr/{table}"
        for method, accuracy in zip(("fedavg", SVRG, SARAH), accuracies, strict=True):
            short = method.split("=")[-1]
            yield Claim(
                f"{table}-{short}",
                f"{short} reaches {100 * accuracy:.2f}% with its best hyper-parameters on {kind} task",
                source,
                figure,
                Value(method, accuracy),
                rounds=900,
            )
        for method in (SVRG, SARAH):
            short = method.split("=")[-1]
            yield Claim(
                f"{table}-{short}-over-fedavg",
                f"FedProxVR ({short}) is more accurate than FedAvg on {kind} task, each at its best",
                source,
                figure,
                Beats(method, ("fedavg",)),
            )


CLAIMS: tuple[Claim, ...] = (*_padamfed(), *_adamasfl(), *_theory(), *_fedproxvr())
