"""FedProxVR: Dinh et al., Federated Learning with Proximal Stochastic Variance Reduced Gradient Algorithms,
ICPP 2020, as in its talk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.claims.accuracy import Beats, Value
from fedbench.claims.ledger import Claim
from fedbench.claims.rates import TableTrend
from fedbench.papers.drawing import against, curves
from fedbench.papers.figure import Figure, Paper
from fedbench.papers.markdown import markdown

TALK = "FedProxVR talk, ICPP 2020"
SVRG, SARAH = "fedproxvr algorithm.estimator=svrg", "fedproxvr algorithm.estimator=sarah"
ESTIMATOR = "algorithm.estimator"
_PROX: Mapping[str, Sequence[object]] = {
    "algorithm.beta": (5, 7, 9, 10, 15),
    "algorithm.mu": (0, 0.01, 0.1),
    "local.steps": (10, 20),
    "local.batch_size": (16, 32),
}
_AVG: Mapping[str, Sequence[object]] = {
    "algorithm.lr": (0.003, 0.01, 0.03, 0.1, 0.3),
    "local.steps": (10, 20),
    "local.batch_size": (16, 32),
}
SEARCH = {"fedavg": _AVG, "fedproxvr-svrg": _PROX, "fedproxvr-sarah": _PROX}


def by_beta_tau(runs: Path, out: Path) -> list[Path]:
    """Final accuracy against beta, and against tau, for each task."""
    files = []
    for stage, key in (("final-beta-estimator", "algorithm.beta"), ("final-estimator-steps", "local.steps")):
        labels = sorted(pd.read_csv(runs / stage / "runs.csv")["partition.labels"].unique())
        for per_user in labels:
            task = "convex" if per_user == labels[0] else "nonconvex"
            name = f"{task}_{key.split('.')[-1].replace('steps', 'tau')}"
            where, by = {"partition.labels": [int(per_user)]}, ("algorithm", ESTIMATOR)
            files += against(runs, out, name, key, stages=(stage,), where=where, by=by)
    return files


def by_mu(runs: Path, out: Path) -> list[Path]:
    """Training loss and accuracy against rounds for each mu."""
    files = []
    for y in ("train_loss", "test_accuracy"):
        for estimator in ("svrg", "sarah"):
            stage, where = "final-estimator-mu", {ESTIMATOR: [estimator]}
            files += curves(
                runs, out, f"{estimator}_{y}", stage=stage, y=y, where=where, by=("algorithm.mu",)
            )
    return files


def best_table(runs: Path, out: Path) -> list[Path]:
    """The table of best hyper-parameters: one row per method, as CSV, Markdown and JSON."""
    table = pd.read_csv(runs / "final" / "runs.csv")
    estimators = table[ESTIMATOR]
    method = table.algorithm.where(estimators.isna(), table.algorithm + " " + estimators.map(str))
    made = pd.DataFrame(
        [_row(str(name), part, runs / "final") for name, part in table.groupby(method, sort=False)]
    )
    text = (
        "T: median round of the best accuracy. Accuracies: mean over seeds, of the best and the last round."
    )
    files = [out / "table.csv", out / "table.md", out / "table.json"]
    made.to_csv(files[0], index=False, lineterminator="\n")
    files[1].write_text(markdown(made) + f"\n{text}\n", encoding="utf-8")
    files[2].write_text(json.dumps({"text": [text], "n": len(table)}, indent=1) + "\n", encoding="utf-8")
    return files


def _row(method: str, rows: pd.DataFrame, stage: Path) -> dict[str, Any]:
    found = [json.loads((stage / place / "summary.json").read_text(encoding="utf-8")) for place in rows.dir]
    config = found[0].get("config", {})
    best = pd.Series([content.get("best_accuracy") for content in found], dtype=float).dropna()
    return {
        "method": method,
        "tau": config.get("local.steps"),
        "lr": found[0].get("hyper", {}).get("lr"),
        "beta": config.get("algorithm.beta"),
        "mu": config.get("algorithm.mu"),
        "B": config.get("local.batch_size"),
        "T": int(pd.Series([content.get("best_round", 0) for content in found]).median()),
        "best accuracy": best.mean(),
        "std": best.std(ddof=1),
        "final accuracy": pd.to_numeric(rows.final_accuracy, errors="coerce").mean(),
        "seeds": len(found),
    }


def optimum(_: Path, out: Path) -> list[Path]:
    """Optimal parameters: of the reduced problem, with beta free, with SVRG, and what reducing costs."""
    from fedbench.figures.optimum import draw_optimum, draw_reduction_cost

    return [
        *draw_optimum(out / "optimum"),
        *draw_optimum(out / "optimum_full", form="full"),
        *draw_optimum(out / "optimum_svrg", estimator="svrg"),
        *draw_reduction_cost(out / "optimum_cost"),
    ]


def _claims() -> Iterator[Claim]:
    for table, kind, accuracies in (
        ("table1", "a convex", (0.8402, 0.8412, 0.8421)),
        ("table2", "a nonconvex", (0.9352, 0.9406, 0.9375)),
    ):
        claim = partial(Claim, source=f"{TALK}, Table {table[-1]}", figure=f"fedproxvr/{table}")
        for method, accuracy in zip(("fedavg", SVRG, SARAH), accuracies, strict=True):
            short = method.split("=")[-1]
            yield claim(
                f"{table}-{short}",
                f"{short} reaches {100 * accuracy:.2f}% with its best hyper-parameters on {kind} task",
                test=Value(method, accuracy),
                rounds=900,
                published=f"{accuracy:.2%}",
            )
        for method in (SVRG, SARAH):
            short = method.split("=")[-1]
            yield claim(
                f"{table}-{short}-over-fedavg",
                f"FedProxVR ({short}) is more accurate than FedAvg on {kind} task, each at its best",
                test=Beats(method, ("fedavg",)),
                published="higher" if method == SARAH else "",
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
        Figure(
            "fedproxvr/table1", "Best hyper-parameters, accuracy and T, convex", best_table, search=SEARCH
        ),
        Figure(
            "fedproxvr/table2",
            "Best hyper-parameters, accuracy and T, non-convex",
            best_table,
            search=SEARCH,
        ),
        Figure("theory/optimum", "FedProxVR's optimal parameters against gamma", optimum, runs=False),
    ),
    tuple(_claims()),
    picture=("theory/optimum", "optimum.png"),
)
