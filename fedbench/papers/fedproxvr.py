"""FedProxVR: Dinh et al., Federated Learning with Proximal Stochastic Variance Reduced Gradient Algorithms,
ICPP 2020, as in its talk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.papers.claims import Claim
from fedbench.papers.comparisons import Beats, Value
from fedbench.papers.figure import Figure, Paper, Search, markdown, picture
from fedbench.papers.trends import TableTrend
from fedbench.runs.run_directory import RunDirectory

TALK = "FedProxVR talk, ICPP 2020"
SVRG, SARAH = "fedproxvr algorithm.estimator=svrg", "fedproxvr algorithm.estimator=sarah"
ESTIMATOR = "algorithm.estimator"
L = {"table1": 40, "table2": 200}
"""Smoothness that the paper's learning rates imply."""
MU = "algorithm.mu"
OTHERS = {MU: (0, 0.01, 0.1), "local.steps": (10, 20), "local.batch_size": (16, 32)}
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
BETAS = (5, 7, 9, 10, 15)
PUBLISHED = {"table1": (0.8402, 0.8412, 0.8421), "table2": (0.9352, 0.9406, 0.9375)}
"""Accuracies of FedAvg, SVRG and SARAH."""
SEARCH_ROUNDS = {"table2": {"cpu": 100}}
"""Of a point of a search, by scale, where only its finalists have the table's own 1,000."""
CONVEX, NONCONVEX = "a convex task", "a nonconvex task, a CNN (smaller at cpu scale)"
READINGS = {"final": "paper's rows", "final-rule": "one rule, searched", "final-free": "tuned freely"}
"""Of a table, by the stage of the runs: eta = 1/(beta L) for all methods in the first two."""


def searches(table: str) -> Iterator[Search]:
    """The random searches of a table: within the rule eta = 1/(beta L), FedAvg's too, and free.

    All methods share the draws of learning rate, local steps and batch size; FedAvg's have no mu.
    """
    rates = [float(f"{1 / (beta * L[table]):.9g}") for beta in BETAS]
    less = SEARCH_ROUNDS.get(table, {})
    for method, lacks, key, ruled in (
        ("fedavg", (MU,), "algorithm.lr", rates),
        ("fedproxvr", (), "algorithm.beta", BETAS),
    ):
        where = {"algorithm": method}
        yield Search("rule", {**where, key: ruled[1]}, {key: ruled, **OTHERS}, lacks, less)
        yield Search("free", {**where, "algorithm.lr": 0.1}, {"algorithm.lr": RATES, **OTHERS}, lacks, less)


def by_beta_tau(runs: Path, out: Path) -> list[Path]:
    """Final accuracy against beta, and against tau, a panel for each task's model."""
    files = []
    for stage, name, key in (
        ("final-beta-estimator", "beta", "algorithm.beta"),
        ("final-estimator-steps", "tau", "local.steps"),
    ):
        by = ("algorithm", ESTIMATOR)
        files += picture(runs, out, name, key, stage, by=by, rows="model", own_y=True)
    return files


def by_mu(runs: Path, out: Path) -> list[Path]:
    """Training loss and accuracy against rounds for each mu, a panel for each estimator."""
    files = []
    for y in ("train_loss", "test_accuracy"):
        files += picture(runs, out, y, "round", "final-mu", y=y, by=(MU,), rows=ESTIMATOR)
    return files


def best_table(runs: Path, out: Path, smoothness: float) -> list[Path]:
    """The table of best hyper-parameters: a row for every method in every reading; CSV, Markdown, JSON."""
    rows, n, what = [], 0, ""
    for stage, reading in READINGS.items():
        if not (runs / stage).is_dir():
            continue
        table = pd.read_csv(runs / stage / "runs.csv")
        estimators = table[ESTIMATOR]
        method = table.algorithm.where(estimators.isna(), table.algorithm + " " + estimators.map(str))
        n += len(table)
        for name, part in table.groupby(method, sort=False):
            found = [RunDirectory(runs / stage / place).summary or {} for place in part.dir]
            rows.append({"reading": reading, "method": str(name), **_row(part, found, smoothness)})
            what = _task(found[0].get("config", {}))
    made = pd.DataFrame(rows)
    text = (
        f"Data, model, rounds: {what}. beta = 1/(eta L) with L = {smoothness:g}, as the paper's rates imply."
        " Its L bounds every sample's loss; algorithm.L=null would measure that of the mean loss at theta^0,"
        " which is smaller. T: median round of the best accuracy. Accuracies: mean over seeds, of the best"
        " evaluation (std: its standard deviation) and of the last evaluations' mean."
    )
    files = [out / "table.csv", out / "table.md", out / "table.json"]
    made.to_csv(files[0], index=False, lineterminator="\n")
    files[1].write_text(markdown(made) + f"\n{text}\n", encoding="utf-8")
    files[2].write_text(json.dumps({"text": [text], "n": n}, indent=1) + "\n", encoding="utf-8")
    return files


def _task(config: Mapping[str, Any]) -> str:
    taken = config.get("dataset.train_samples")
    data = str(config.get("dataset")) + (f" ({taken:,} of its training samples)" if taken else "")
    return f"{data}, {config.get('model')}, {config.get('rounds')}"


def _row(rows: pd.DataFrame, found: Sequence[Mapping[str, Any]], smoothness: float) -> dict[str, Any]:
    config = found[0].get("config", {})
    lr = found[0].get("hyper", {}).get("lr") or float("nan")
    best = pd.Series([content.get("best_accuracy") for content in found], dtype=float).dropna()
    return {
        "tau": config.get("local.steps"),
        "lr": lr,
        "beta": 1 / (lr * smoothness),
        "mu": config.get("algorithm.mu", 0),
        "B": config.get("local.batch_size"),
        "T": int(pd.Series([content.get("best_round", 0) for content in found]).median()),
        "best accuracy": best.mean(),
        "std": best.std(ddof=1),
        "final accuracy": pd.to_numeric(rows.final_accuracy, errors="coerce").mean(),
        "seeds": len(found),
    }


def optimum(_: Path, out: Path) -> list[Path]:
    """Optimal parameters: of the reduced problem, with beta free, with SVRG, and what reducing costs."""
    from fedbench.figures.theory import draw_optimum, draw_reduction_cost

    return [
        *draw_optimum().save(out / "optimum"),
        *draw_optimum(form="full").save(out / "optimum_full"),
        *draw_optimum(estimator="svrg").save(out / "optimum_svrg"),
        *draw_reduction_cost().save(out / "optimum_cost"),
    ]


def _claims() -> Iterator[Claim]:
    own_network = "a nonconvex task, a CNN of 1.66 million parameters"
    for figure, kind in (("table1", CONVEX), ("table2", NONCONVEX), ("table2_cnn", own_network)):
        table = figure.removesuffix("_cnn")
        for method, accuracy in zip(("fedavg", SVRG, SARAH), PUBLISHED[table], strict=True):
            short = method.split("=")[-1]
            yield Claim(
                f"{figure}-{short}".replace("_", "-"),
                f"{short} reaches {100 * accuracy:.2f}% with the paper's hyper-parameters on {kind}",
                source=f"{TALK}, Table {table[-1]}",
                rounds=900,
                figure=f"fedproxvr/{figure}",
                test=Value(method, accuracy),
                # the first page has ten rows a paper: Table 2's own network, and not the smaller one
                published="" if figure == "table2" else f"{accuracy:.2%}",
            )
    for table, kind, ordered in (  # `ordered`: stages of which the first page tells the order
        ("table1", CONVEX, ("final", "final-free")),
        ("table2", NONCONVEX, ("final",)),
    ):
        claim = partial(Claim, source=f"{TALK}, Table {table[-1]}", rounds=900)
        for method in (SVRG, SARAH):
            short = method.split("=")[-1]
            for stage, reading in READINGS.items():
                yield claim(
                    f"{table}-{short}-over-fedavg{stage.removeprefix('final')}",
                    f"FedProxVR ({short}) is more accurate than FedAvg on {kind} ({reading})",
                    figure=f"fedproxvr/{table}" + ("" if stage == "final" else "_searched"),
                    test=Beats(method, ("fedavg",), {"stage": stage}),
                    published="higher" if method == SARAH and stage in ordered else "",
                )
    claim = partial(Claim, source=f"{TALK}, parameter optimisation", figure="theory/optimum", scale="smoke")
    reduced = {"estimator": "sarah", "form": "reduced"}  # the paper's problem (23)-(24)
    for column in ("beta", "tau"):
        yield claim(
            f"cheap-computation-{column}",
            f"where gamma = d_cmp/d_com is small, the optimal {column} is large",
            test=TableTrend("optimum", column, "gamma", -1, "sigma2", reduced),
            published="falls with gamma" if column == "beta" else "",
        )
    for column, words, sign in (
        ("beta", "a higher beta", 1),
        ("mu", "a higher mu", 1),
        ("tau", "more local iterations", 1),
        ("theta", "a lower theta", -1),
        ("factor", "a lower Theta", -1),
    ):
        yield claim(
            f"heterogeneity-{column}",
            f"a large sigma_bar^2 leads to {words}",
            test=TableTrend("optimum", column, "sigma2", sign, "gamma", reduced),
        )


PAPER = Paper(
    "Dinh et al., Federated Learning with Proximal Stochastic Variance Reduced Gradient Algorithms,"
    " ICPP 2020",
    (
        Figure("fedproxvr/beta_tau", "Effect of beta and of tau, convex and non-convex", by_beta_tau),
        Figure("fedproxvr/mu", "Effect of mu on synthetic(0, 0)", by_mu),
        *(
            Figure(
                f"fedproxvr/{table}{searched}",
                f"Best hyper-parameters, accuracy and T, {kind}{', searched anew' if searched else ''}",
                partial(best_table, smoothness=L[table]),
                search=tuple(searches(table)) if searched else (),
            )
            for table, kind in (("table1", "convex"), ("table2", "non-convex"))
            for searched in ("", "_searched")
        ),
        Figure(
            "fedproxvr/table2_cnn",
            "Best hyper-parameters, accuracy and T, non-convex, the paper's own network",
            partial(best_table, smoothness=L["table2"]),
        ),
        Figure("theory/optimum", "FedProxVR's optimal parameters against gamma", optimum, runs=False),
    ),
    tuple(_claims()),
    picture=("theory/optimum", "optimum.png"),
)
