"""The tables of other suites and papers: their settings, how numbers are known, rounds to a target."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figures.make_results import rows, write_sweep
from papers.keep import keep_runs

from fedbench.papers import FIGURES
from fedbench.papers.claims import AGREES, DISAGREES, TOO_FEW, Way, ways
from fedbench.papers.evidence import Evidence, rows_of
from fedbench.papers.figure import experiment
from fedbench.papers.peers import NUMBERS, PAPER, TABLES, differing_settings, rounds_to, write
from fedbench.sweeps.plan import points

compose_experiment = functools.cache(lambda name, scale: experiment(FIGURES[f"peers/{name}"], scale))
CLAIMS = PAPER.claims

# what the sources say, typed from them; a list of several seeds is swept
NIID = {"local.epochs": 10, "local.batch_size": 64, "loss.weight_decay": 1e-5, "rounds": 50,
        "dataset.normalize": False, "clients.per_round": 10, "algorithm.lr": 0.01, "model.preset": "niid",
        "seed": [0, 1, 2]}  # fmt: skip
NIID_FMNIST = ["niid_fmnist", "niid_fmnist_labels", "niid_fmnist_noise", "niid_fmnist_quantity"]
CROP = {"dataset.augment": "crop_flip", "dataset.pad_mode": "zeros", "dataset.augment_probability": 1.0}
MNIST = {"dataset": "mnist", "clients.total": 100, "eval.every": 1}
EMNIST = {"clients.total": 100, "rounds": 1000}
DECAY = {"lr_schedule": "exponential", "lr_schedule.factor": 0.998}
FEDDYN = {
    "clients.total": 100,
    "clients.per_round": 10,
    "model.preset": "feddyn",
    "local.epochs": 5,
    "rounds": 1000,
}
LEAF = {"dataset": "leaf", "local.epochs": 1, "clients.per_round": 10, "eval.every": 10, "eval.final_k": 10}
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: {**NIID, "clients.total": 10} for name in NIID_FMNIST},
    "niid_cifar10": {**NIID, "dataset.augment": "crop_flip", "dataset.pad_mode": "reflect"},
    "fedavg_2nn": {**MNIST, "local.epochs": 1, "target": 0.97, "model.hidden": [200, 200]},
    "fedavg_2nn_epochs": {**MNIST, "clients.per_round": 10, "target": 0.97, "model.hidden": [200, 200],
                          "seed": [0, 1, 2]},
    "fedavg_cnn": {**MNIST, "target": 0.99, "model": "cnn"},
    "scaffold_emnist": {**EMNIST, "target": 0.5, "local.batch_share": 0.2, "clients.per_round": 20,
                        "model": "logistic"},
    "scaffold_participation": {**EMNIST, "target": 0.45, "local.batch_share": 0.2, "local.epochs": 5,
                               "model": "logistic"},
    "scaffold_mlp": {**EMNIST, "clients.per_round": 20, "model": "mlp"},
    "feddyn_cifar10_rounds": {**FEDDYN, "target": 0.823},
    "feddyn_cifar10": {**FEDDYN, **CROP, **DECAY, "local.batch_size": 50, "local.clip_norm": 10,
                       "optimizer.weight_decay": 1e-3, "participation": "bernoulli", "algorithm.lr": 0.1,
                       "dataset.augment_probability": 0.5},
    "fedexp_cifar10": {**CROP, **DECAY, "local.steps": 20, "local.batch_size": 50, "local.clip_norm": 10,
                       "rounds": 500, "optimizer.weight_decay": 1e-4, "eval.every": 5, "clients.total": 100,
                       "clients.per_round": 20, "algorithm.lr": 0.00998, "partition": "dirichlet_clients",
                       "partition.alpha": 0.5, "model": "resnet18"},
    "pfl_cifar10": {"local.epochs": 1, "local.batch_size": 10, "rounds": 3000, "eval.every": 10,
                    "dataset.augment": "none", "clients.total": 1000, "clients.per_round": 50,
                    "algorithm.lr": 0.1, "model.preset": "pfl", "model.init": "glorot"},
    "pfllib_fmnist": {"dataset.pool": 0.25, "local.epochs": 1, "local.batch_size": 10, "rounds": 2000,
                      "clients.total": 20, "clients.per_round": 20, "partition": "dirichlet",
                      "partition.alpha": 0.1, "partition.balance": True, "partition.redraw": True,
                      "model.preset": "cnn", "model.padding": [0]},
    "fednova_cifar10": {**CROP, "local.batch_size": 32, "rounds": 100, "lr_schedule": "step",
                        "lr_schedule.factor": 0.1, "lr_schedule.milestones": [50, 75],
                        "loss.weight_decay": 1e-4, "clients.total": 16, "clients.per_round": 16,
                        "partition": "dirichlet", "partition.alpha": 0.1, "partition.balance": True,
                        "partition.redraw": True, "partition.min_size": 10, "partition.seed": 2020,
                        "seed": [0, 1, 2], "model.preset": "vgg11"},
    "fednova_logistic": {"local.epochs_range": [1, 5], "local.batch_size": 20, "clients.total": 30,
                         "clients.per_round": 30, "algorithm.lr": 0.02, "dataset": "synthetic"},
    "fedprox_synthetic": {"local.epochs": 20, "local.batch_size": 10, "rounds": 200, "optimizer": "sgd",
                          "optimizer.weight_decay": 0, "clients.total": 30, "clients.per_round": 10,
                          "algorithm.lr": 0.01, "dataset": "synthetic", "model": "logistic",
                          "seed": [0, 1, 2]},
    "fedopt_emnist": {**LEAF, "local.batch_size": 20, "rounds": 1500, "clients.total": 3400,
                      "model.preset": "pfl"},
    "fedopt_shakespeare": {**LEAF, "local.batch_size": 4, "rounds": 1200, "clients.total": 715,
                           "dataset.task": "sequence", "model": "char_lstm"},
    "fadas_cifar10": {"local.epochs": 2, "local.batch_size": 50, "rounds": 500, "seed": 42,
                      "optimizer.weight_decay": 1e-4, "schedule": "async", "schedule.concurrency": 25,
                      "delay": "bands", "delay.preset": "fadas_large", "delay.dirichlet": [3, 2, 1],
                      "clients.total": 50, "clients.per_round": 5, "algorithm.lr": 0.1,
                      "partition": "dirichlet", "partition.alpha": 0.3, "model": "resnet18",
                      "model.norm": "batch"},
}  # fmt: skip
# method -> client rate, server rate, epsilon, as powers of ten (Reddi et al.)
ADAPTIVE: dict[str, dict[str, tuple[float, ...]]] = {
    "fedopt_emnist": {"fedadagrad": (-1.5, -1, -2), "fedadam": (-1.5, -2.5, -4), "fedyogi": (-1.5, -2.5, -4),
                      "fedavgm": (-1.5, -0.5), "fedavg": (-1, 0)},
    "fedopt_shakespeare": {"fedadagrad": (0, -0.5, -1), "fedadam": (0, -2, -3), "fedyogi": (0, -2, -3),
                           "fedavgm": (0, -0.5), "fedavg": (0, 0)},
}  # fmt: skip


def test_every_table_is_tested() -> None:
    """The settings above are those of all tables."""
    assert sorted(table.name for table in TABLES) == sorted(SETTINGS)


@pytest.mark.parametrize("name", list(SETTINGS))
def test_settings_at_scale_paper_are_the_sources(name: str) -> None:
    """Common keys, and those that the whole sweep has."""
    made = compose_experiment(name, "paper")
    swept = {key: values if len(values) > 1 else values[0] for key, values in made.params.items()}
    found = {**made.base, **swept}
    assert {key: found[key] for key in SETTINGS[name]} == SETTINGS[name]


@pytest.mark.parametrize("names", [NIID_FMNIST, ["niid_cifar10"]])
def test_niid_bench_has_seven_partitions_of_four_methods(names: list[str]) -> None:
    """Momentum 0.9 in every method, FedProx with four mu, balanced Dirichlet cuts that are drawn again."""
    branches = [branch for name in names for branch in compose_experiment(name, "paper").branches]
    small = [branch for branch in branches if branch.context.get("clients.total", 10) == 10]
    assert len(small) == 7 * 4
    for branch in small:
        own = branch.algorithm == "fednova"
        assert branch.context.get("optimizer.momentum") == (0 if own else 0.9)
        assert branch.context.get("algorithm.momentum") == (0.9 if own else None)
        if branch.algorithm == "fedprox":
            assert branch.along == {"algorithm.mu": [0.001, 0.01, 0.1, 1]}
        if branch.context["partition"] == "dirichlet":
            keys = [f"partition.{key}" for key in ("alpha", "balance", "redraw", "min_size")]
            assert [branch.context[key] for key in keys] == [0.5, True, True, 10]


@pytest.mark.parametrize("name", list(ADAPTIVE))
def test_adaptive_methods_have_the_tuned_rates_of_their_table(name: str) -> None:
    """Five methods, rates to six digits."""
    made = compose_experiment(name, "paper")
    found = {branch.algorithm: branch.context for branch in made.branches}
    assert set(found) == set(ADAPTIVE[name])
    for method, powers in ADAPTIVE[name].items():
        keys = ("algorithm.lr", "algorithm.server_lr", "algorithm.epsilon")
        given = [found[method][key] for key in keys[: len(powers)]]
        assert given == pytest.approx([10**power for power in powers], rel=1e-5)


def test_methods_have_their_own_settings() -> None:
    """FedDyn's alpha and mu, FedExP's epsilon of 20 clients, FedNova's rates, FADAS."""

    def own(name: str, method: str, key: str) -> set[Any]:
        made = compose_experiment(name, "paper")
        return {branch.context.get(key) for branch in made.branches if branch.algorithm == method}

    assert own("feddyn_cifar10", "feddyn", "algorithm.alpha") == {0.01}
    assert own("feddyn_cifar10", "fedprox", "algorithm.mu") == {1e-4}
    assert own("fedexp_cifar10", "fedexp", "algorithm.epsilon") == {20 * 0.001}
    assert own("fedexp_cifar10", "fedexp", "algorithm.epsilon_decay") == {0.998 * 0.998}
    assert own("fedexp_cifar10", "fedexp", "eval.model") == {"mean_of_two"}
    assert own("fedexp_cifar10", "fedprox", "algorithm.mu") == {0.1}
    assert own("pfllib_fmnist", "fedrep", "algorithm.lr") == {0.005}
    assert own("pfllib_fmnist", "pfedme", "algorithm.lr") == {0.01}
    assert own("pfllib_fmnist", "pfedme", "algorithm.outer_lr") == {0.005}
    assert own("pfl_cifar10", "fedprox", "algorithm.mu") == {0.01}
    assert own("pfl_cifar10", "fedavg", "rounds") == {1500, None}
    assert own("scaffold_emnist", "fedprox", "algorithm.mu") == {1}
    assert own("fadas_cifar10", "fadas", "algorithm.server_lr") == {1e-4, 1e-3}
    made = compose_experiment("fednova_cifar10", "paper")
    for branch in made.branches:
        moving = 0.9 in (branch.context["optimizer.momentum"], branch.context.get("algorithm.momentum"))
        assert branch.context["algorithm.lr"] == (0.02 if moving else 0.05)
    assert {str(branch.context.get("local.epochs_range")) for branch in made.branches} == {"None", "[2, 5]"}


def test_fedprox_keeps_the_stragglers_that_fedavg_drops() -> None:
    """Four sets of data, 0, 50 and 90 % stragglers, mu 0 and 1: 36 cells."""
    made, cells = compose_experiment("fedprox_synthetic", "paper"), set()
    for branch in made.branches:
        kept = branch.context["participation.straggler_work"]
        assert kept == {"fedavg": "drop", "fedprox": "partial"}[branch.algorithm]
        data = tuple(branch.context[f"dataset.{key}"] for key in ("iid", "alpha", "beta"))
        for mu in branch.along.get("algorithm.mu", [None]):
            cells.add((data, branch.context["participation.stragglers"], branch.algorithm, mu))
    sets = {(False, 0, 0), (False, 0.5, 0.5), (False, 1, 1), (True, 0, 0)}
    methods = [("fedavg", None), ("fedprox", 0), ("fedprox", 1)]
    assert cells == {(data, late, *method) for data in sets for late in (0, 0.5, 0.9) for method in methods}


def test_every_cell_picks_what_is_run_at_scale_paper() -> None:
    """No number of peers.csv stands beside nothing: some branch has its method and its choices."""
    for words, _ in NUMBERS.groupby(["table", "where", "method"]):
        name, where, method = map(str, words)
        made, rows = compose_experiment(name, "paper"), []
        for branch in made.branches:
            runs = {key: values[0] for key, values in made.params.items()}
            rows += [{**runs, **branch.context, **point, "algorithm": branch.algorithm}
                     for point in points(branch.along)]  # fmt: skip
        assert len(rows_of(pd.DataFrame(rows), method, dict(word.split("=") for word in where.split())))


@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
def test_rounds_to_a_target_are_counted_where_the_paper_has_numbers(scale: str) -> None:
    """FedDyn's are known for iid clients alone: every scale runs these cells, and no others."""
    cells = NUMBERS[NUMBERS.table == "feddyn_cifar10_rounds"]
    assert set(cells["where"]) == {"partition=iid"}
    branches = compose_experiment("feddyn_cifar10_rounds", scale).branches
    assert sorted(branch.algorithm for branch in branches) == sorted(cells.method)
    assert {branch.context["partition"] for branch in branches} == {"iid"}


def test_a_table_of_which_no_cell_was_run_has_its_titles(tmp_path: Path) -> None:
    """And its report can be read."""
    write_sweep(tmp_path / "sweeps/final", [{"metrics": rows(0.5, 0.6, 0, last=5), "algorithm": "led"}], [])
    out = keep_runs(tmp_path)
    write(next(table for table in TABLES if table.target), out)
    made = pd.read_csv(out / "table.csv")
    assert (list(made.columns[:2]), len(made)) == (["setting", "method"], 0)


def test_settings_that_differ_are_named_and_searched_rates_are_none() -> None:
    """Of fedavg_2nn, which searches the rate, and has B = 10 and 600 and T = 5000 at scale paper."""
    table = next(table for table in TABLES if table.name == "fedavg_2nn")
    ours = {"rounds": 400, "algorithm.lr": 0.3, "local.batch_size": 20, "clients.per_round": 10}
    assert differing_settings(table, [ours]) == ["rounds=400 (5000)", "local.batch_size=20 (10)"]


def test_numbers_from_memory_decide_nothing() -> None:
    """No claim has such a number, and none counts rounds; others stand as their source has them."""
    claimed = {(claim.name, claim.source) for claim in CLAIMS}
    assert not [source for _, source in claimed if "memory" in source]
    tags = set(NUMBERS[NUMBERS.value != ""].tag)
    assert tags <= {"memory", "readme", "code", "second", "rerun", "other"}
    assert ("niid_cifar10-dirichlet-0-5-niid-bench", "NIID-Bench (readme)") in claimed
    cell = NUMBERS[(NUMBERS.table == "niid_cifar10") & (NUMBERS.setting == "Dirichlet(0.5)")]
    own = cell[cell.tag == "readme"].set_index("method").value.to_dict()
    assert own == {"fedavg": "68.2", "fedprox": "67.9", "scaffold": "69.8", "fednova": "66.8"}


def _first(scale: str, accuracies: list[float], **columns: object) -> Way:
    """The first cell of FedAvg's 68.2 % on CIFAR-10, from runs with these accuracies."""
    claim = next(claim for claim in CLAIMS if claim.name == "niid_cifar10-dirichlet-0-5-niid-bench")
    runs = pd.DataFrame({"final_accuracy": accuracies, "seed": range(len(accuracies))})
    runs = runs.assign(dir=runs.seed.map(str), algorithm="fedavg", status="completed", partition="dirichlet")
    runs = runs.assign(**{"clients.total": 10}, **columns)
    return ways(claim, {claim.figures[0]: Evidence(runs, made={"scale": scale})})[0]


def test_a_smaller_setting_than_the_sources_has_no_word() -> None:
    """Within a point, and far below, of three seeds: the numbers stand there all the same."""
    near, far = [0.68, 0.682, 0.684], [0.5, 0.51, 0.52]
    assert [_first("paper", one).word for one in (near, far)] == [AGREES, DISAGREES]
    assert [_first("cpu", one).word for one in (near, far)] == [TOO_FEW, TOO_FEW]
    assert _first("cpu", far).detail == "-17.2 points (near: 2.0)"


def test_runs_that_diverged_are_said_beside_their_0() -> None:
    """A diverged run counts as 0 %."""
    found = _first("cpu", [math.nan, 0.6], status=["diverged", "completed"])
    assert found.ours == "30.0% +- 42.4% (2), 1 diverged"


def test_rounds_to_a_target_are_interpolated_on_the_best_so_far() -> None:
    """0.4, 0.8, 0.6, 1.0: 0.5 is reached a quarter behind round 1, 0.9 half a round behind round 3."""
    curve = pd.DataFrame({"dir": "a", "round": [1, 2, 3, 4], "test_accuracy": [0.4, 0.8, 0.6, 1.0]})
    flat = pd.DataFrame({"dir": "b", "round": [1, 2], "test_accuracy": [0.1, 0.2]})
    both = pd.concat([curve, flat])
    assert rounds_to(0.5, both).to_dict() == {"a": pytest.approx(1.25), "b": np.inf}
    assert rounds_to(0.9, both)["a"] == pytest.approx(3.5)
    assert rounds_to(0.3, both)["a"] == 1
