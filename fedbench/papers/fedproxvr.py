"""FedProxVR: Dinh et al., Federated Learning with Proximal Stochastic Variance Reduced Gradient Algorithms,
ICPP 2020, as in its talk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.figures.style import option
from fedbench.papers.claims import Claim, Measure, Reading, Readings, on_figure
from fedbench.papers.evidence import runs_in
from fedbench.papers.figure import Figure, Paper, Search, picture, save_table
from fedbench.papers.measures import Leads, Moves, Near
from fedbench.papers.scores import Column
from fedbench.runs.records import Run, number

TALK = "FedProxVR talk, ICPP 2020"
SVRG, SARAH = "fedproxvr algorithm.estimator=svrg", "fedproxvr algorithm.estimator=sarah"
ESTIMATOR = "algorithm.estimator"
L = {"table1": 40, "table2": 200}
"""Smoothness implied by the paper's learning rates."""
MU = "algorithm.mu"
FIXED = {"clients.total": "N", "clients.per_round": "S", "dataset.train_samples": "training samples",
         "algorithm.L": "L", "algorithm.beta": "β", MU: "μ"}  # fmt: skip
OTHERS = {MU: (0, 0.01, 0.1), "local.steps": (10, 20), "local.batch_size": (16, 32)}
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
BETAS = (5, 7, 9, 10, 15)
METHODS = {"FedAvg": "fedavg", "SVRG": SVRG, "SARAH": SARAH}
PUBLISHED = {
    "table1": {"FedAvg": (0.8402, 983), "SVRG": (0.8412, 895), "SARAH": (0.8421, 965)},
    "table2": {"FedAvg": (0.9352, 995), "SVRG": (0.9406, 970), "SARAH": (0.9375, 958)},
}
"""Table -> method -> accuracy and T, the round of the best accuracy."""
TASKS = {
    "table1": {"table1": ""},
    "table2": {"table2_cnn": ", the paper's CNN", "table2": ", a smaller CNN"},
}
"""Table -> its figures and their words."""
CUTS = {
    "table2_cnn": "20,000 of 60,000 training samples, of which clients hold 9,577, not 19,799 (seed 0)",
    "table2": "a smaller CNN",
    "table2_searched": "a smaller CNN, 20,000 of 60,000 training samples",
}  # fmt: skip
"""Figure -> what is smaller at scale cpu."""
DIFFERS = {
    "table1": "samples are drawn from all 70,000 by the authors' rule of sizes; their code leaves 5,000 out",
    "table2": "at scale cpu a smaller CNN, a third of the training file, or both",
}
READINGS = {"final": "paper's rows", "final-rule": "one rule, searched", "final-free": "tuned freely"}
"""Ways to read a table, by the stage of the runs. In the first two, all methods have eta = 1/(beta L)."""


def searches(table: str) -> Iterator[Search]:
    """The random searches of a table: one under the rule eta = 1/(beta L), for FedAvg too, and one without.

    All methods share the draws of learning rate, local steps and batch size; FedAvg's have no mu.
    """
    rates = [float(f"{1 / (beta * L[table]):.9g}") for beta in BETAS]
    for method, lacks, key, ruled in (
        ("fedavg", (MU,), "algorithm.lr", rates),
        ("fedproxvr", (), "algorithm.beta", BETAS),
    ):
        where = {"algorithm": method}
        yield Search("rule", {**where, key: ruled[1]}, {key: ruled, **OTHERS}, lacks)
        yield Search("free", {**where, "algorithm.lr": 0.1}, {"algorithm.lr": RATES, **OTHERS}, lacks)


def by_beta_tau(out: Path) -> list[Path]:
    """Draw the loss against rounds for each beta and for each tau, a panel for each task and estimator."""
    options: dict[str, Any] = {"rows": f"dataset,model,{ESTIMATOR}", "own_y": True, "log": ("y",)}
    files = []
    for stage, name, key in (
        ("final-beta-estimator", "beta", "algorithm.beta"),
        ("final-estimator-steps", "tau", "local.steps"),
    ):
        notes = [_fixed(runs_in(out, stage), key), *["K is the paper's τ."] * (name == "tau")]
        files += picture(out, name, "round", [stage], "test_loss", notes, by=(key,), **options)
    return files


def _fixed(runs: Sequence[Run], varied: str) -> str:
    """`FIXED` on each data set, without the key that is varied: `MNIST: N = 10, L = 200, β = 7, μ = 0.01.`"""
    first = {str(run.choices["dataset"]): run.choices for run in reversed(runs)}
    parts = []
    for name in reversed(first):
        given = {symbol: first[name].get(key) for key, symbol in FIXED.items() if key != varied}
        values = [f"{symbol} = {value}" for symbol, value in given.items() if value is not None]
        parts.append(f"{option(name)}: {', '.join(values)}")
    return f"{'; '.join(parts)}."


def by_mu(out: Path) -> list[Path]:
    """Draw training loss and accuracy against rounds for each mu, a panel for each estimator. The y axis
    leaves out the values of the first rounds, next to which all mu look the same."""
    files, rates = [], {option(run.choices[ESTIMATOR]): run.choices["algorithm.lr"] for run in runs_in(out)}
    note = f"η = 1/(βL) with β = 7: {', '.join(f'{rate:g} ({name})' for name, rate in rates.items())}."
    for y, ends in (("train_loss", (0.4, 1.6)), ("test_accuracy", (0.5, 0.86))):
        limits = {"y": ends}
        files += picture(out, y, "round", y=y, notes=[note], by=(MU,), rows=ESTIMATOR, limits=limits)
    return files


def best_table(out: Path, smoothness: float) -> list[Path]:
    """Write the table of best hyper-parameters as CSV and Markdown: a row per reading and method."""
    found = [
        {"reading": reading, **_row(run, smoothness)}
        for stage, reading in READINGS.items()
        for run in runs_in(out, stage)
    ]
    methods = pd.DataFrame(found).groupby(["reading", "method"], sort=False)
    made = methods[["tau", "lr", "beta", "mu", "B"]].first()
    made["T"] = methods["T"].mean().round().astype(int)
    # Series.mean per group, because the grouped mean differs from it in the last digit
    made["best accuracy"] = methods.best.apply(pd.Series.mean)
    made["std"] = methods.best.apply(pd.Series.std)
    made["final accuracy"] = methods.final.apply(pd.Series.mean)
    made = made.assign(seeds=methods.size()).reset_index()
    what = found[-1]["task"]
    text = (
        f"Data, model, rounds: {what}. beta = 1/(eta L) with L = {smoothness:g}, as the paper's rates imply."
        " Its L bounds every sample's loss; algorithm.L=null would measure that of the mean loss at theta^0,"
        " which is smaller. T: round of the best accuracy. T and accuracies: mean over seeds, of the best"
        " evaluation (std: its standard deviation) and of the last evaluations' mean."
    )
    return save_table(made, out, "table", text)


def _row(run: Run, smoothness: float) -> dict[str, Any]:
    """What the table says of a run."""
    config, taken = run.choices, run.choices.get("dataset.train_samples")
    data = str(config.get("dataset")) + (f" ({taken:,} of its training samples)" if taken else "")
    lr = number(run.hyper.get("lr")) or float("nan")
    return {
        "method": " ".join(str(config[key]) for key in ("algorithm", ESTIMATOR) if config.get(key)),
        "tau": config.get("local.steps"),
        "lr": lr,
        "beta": 1 / (lr * smoothness),
        "mu": config.get(MU) or 0,
        "B": config.get("local.batch_size"),
        "T": run.summary.get("best_round") or 0,
        "best": run.result("best_accuracy"),
        "final": run.result("final_accuracy"),
        "task": f"{data}, {config.get('model')}, {config.get('rounds')}",
    }


def optimum(out: Path) -> list[Path]:
    """Draw optimal parameters (reduced problem, free beta, SVRG) and the cost of the reduction."""
    from fedbench.papers.theory import draw_optimum, draw_reduction_cost

    return [
        *draw_optimum().save(out / "optimum"),
        *draw_optimum(form="full").save(out / "optimum_full"),
        *draw_optimum(estimator="svrg").save(out / "optimum_svrg"),
        *draw_reduction_cost().save(out / "optimum_cost"),
    ]


def _claims() -> Iterator[Claim]:
    for table, (name, method) in product(TASKS, METHODS.items()):
        (accuracy, T), number = PUBLISHED[table][name], f"Table {table[-1]}"

        def near(of: Near, table: str = table, name: str = name) -> Readings:
            return tuple(_on(one, f"{name}{words}", of) for one, words in TASKS[table].items())

        claim = partial(Claim, source=f"{TALK}, {number}", rounds=900, differs=DIFFERS[table])
        yield claim(f"{table}-{name}", f"{number}, {name}: {accuracy:.2%}",
                    numbers=near(Near(method, accuracy)))  # fmt: skip
        yield claim(f"{table}-{name}-T", f"{number}, {name}: most accurate in round {T} (within 10 %)",
                    numbers=near(Near(method, T, "T")))  # fmt: skip
        if name != "FedAvg":
            yield claim(f"{table}-{name}-over-fedavg", f"{number}: {name} is more accurate than FedAvg",
                        numbers=tuple(_over_fedavg(table, method)))  # fmt: skip
    built = partial(Claim, source=f"{TALK}, parameter optimisation", scale="smoke", kind="construction")
    where = {"estimator": "sarah", "form": "reduced"}  # the paper's problem (23)-(24)
    signs = {"beta": 1, "mu": 1, "tau": 1, "theta": -1, "factor": -1}
    small = {one: Moves(one, "gamma", -1, "optimum", where, "sigma2") for one in ("beta", "tau")}
    skewed = {one: Moves(one, "sigma2", sign, "optimum", where, "gamma") for one, sign in signs.items()}
    yield built("cheap-computation", "where gamma = d_cmp/d_com is small, the optimal beta and tau are large",
                numbers=on_figure("theory/optimum", small))  # fmt: skip
    yield built("heterogeneity", "with sigma_bar^2 the optimal beta, mu and tau grow, theta and Theta fall",
                numbers=on_figure("theory/optimum", skewed))  # fmt: skip
    yield from _effects()


def _over_fedavg(table: str, method: str) -> Iterator[Reading]:
    """Tests in the paper's rows and in searched ones, by the best evaluation, as in the tables."""
    for stage, reading in READINGS.items():
        test = Leads(method, ("fedavg",), Column("best_accuracy"), {"stage": stage})
        for figure, words in TASKS[table].items() if stage == "final" else ((f"{table}_searched", ""),):
            yield _on(figure, f"{reading}{words}", test)


def _on(figure: str, words: str, measure: Measure) -> Reading:
    return Reading(words, f"fedproxvr/{figure}", measure, cut=CUTS.get(figure, ""))


def _effects() -> Iterator[Claim]:
    """Claims on the talk's pictures of beta, tau and mu, which it shows without comment."""
    ours = partial(Claim, source=f"{TALK}, a picture without words", kind="ours")
    for name, text, key, sign, stage in (
        ("beta", "a smaller beta (a larger step)", "algorithm.beta", -1, "final-beta-estimator"),
        ("tau", "more local iterations", "local.steps", 1, "final-estimator-steps"),
    ):
        where = {"stage": stage}
        tests = {one: Moves("final_accuracy", key, sign, where=where | {"model": one}, each=ESTIMATOR)
                 for one in ("logistic", "cnn_small")}  # fmt: skip
        yield ours(f"effect-of-{name}", f"FedProxVR: {text}, higher accuracy after the same rounds",
                   numbers=on_figure("fedproxvr/beta_tau", tests))  # fmt: skip
    lower = {name: Leads(f"{method} {MU}=1", (f"{method} {MU}=0",), Column("train_loss"))
             for name, method in METHODS.items() if name != "FedAvg"}  # fmt: skip
    yield ours("effect-of-mu", "FedProxVR, synthetic(0, 0): mu = 1 ends at a lower training loss than 0",
               numbers=on_figure("fedproxvr/mu", lower))  # fmt: skip


HEADLINES = {
    "table1-FedAvg": "fedproxvr/table1",
    "table1-SARAH-over-fedavg": "fedproxvr/table1_searched",
    "table2-SARAH-over-fedavg": "fedproxvr/table2",
    "cheap-computation": "theory/optimum",
}

_TABLE = "Best hyper-parameters, accuracy and T, {}"
PAPER = Paper("fedproxvr", "FedProxVR: Proximal Stochastic Variance Reduced Gradients, ICPP 2020", (
    Figure("fedproxvr/beta_tau", "Effect of beta and of K, the paper's tau, convex and non-convex",
           by_beta_tau),
    Figure("fedproxvr/mu", "Effect of mu on synthetic(0, 0)", by_mu),
    *(Figure(f"fedproxvr/{table}{also}", _TABLE.format(kind + ", searched anew" * bool(also)),
             partial(best_table, smoothness=L[table]), search=tuple(searches(table)) if also else ())
      for table, kind in (("table1", "convex"), ("table2", "non-convex")) for also in ("", "_searched")),
    Figure("fedproxvr/table2_cnn", _TABLE.format("non-convex, the paper's own network"),
           partial(best_table, smoothness=L["table2"])),
    Figure("theory/optimum", "FedProxVR's optimal parameters against gamma", optimum, runs=False),
), tuple(_claims()), HEADLINES)  # fmt: skip
