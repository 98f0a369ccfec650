"""Every experiment at every scale composes, and each of its branches is a configuration that validates."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from fedbench.config.compose import compose
from fedbench.config.identity import run_hash
from fedbench.config.options import conf_dir
from fedbench.config.overrides import Value, written
from fedbench.errors import UserError
from fedbench.papers import CLAIMS, FIGURES
from fedbench.papers.evidence import SCALES
from fedbench.papers.fedproxvr import searches
from fedbench.papers.figure import Experiment, MethodRuns, algorithm_file, experiment, shown
from fedbench.papers.figure_page import beside
from fedbench.papers.make import Maker, changes

WITH_RUNS = [name for name, figure in FIGURES.items() if figure.runs]


compose_experiment = functools.cache(lambda name, scale: experiment(FIGURES[name], scale))


def overrides(choices: Mapping[str, Value]) -> list[str]:
    """Choices as the command line writes them."""
    return [f"{key}={written(value)}" for key, value in choices.items()]


def job(made: Experiment, branch: MethodRuns) -> list[str]:
    """The overrides of one run of a branch."""
    first = {key: values[0] for key, values in {**made.params, **branch.along}.items()}
    words = overrides({**first, **branch.context, "algorithm": branch.algorithm})
    return [f"experiment={made.figure.name}", f"scale={made.scale}", *words]


FEW = ("padamfed/fig1", "adamasfl/fig1", "fedproxvr/table1", "speedup", "peers/niid_fmnist")
NAMES = [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in WITH_RUNS]


def test_an_experiments_file_says_whether_its_figure_is_tuned() -> None:
    """The lines on what `fedbench figures` does to a plain sweep; a file without one is another's variant."""
    for name in WITH_RUNS:
        text = (conf_dir() / "experiment" / f"{name}.yaml").read_text()
        figure = FIGURES[name]
        if f"`fedbench figures {name}`" in text:
            assert figure.tuned or figure.search, name
        assert not (figure.tuned and "Nothing is tuned" in text), name


@pytest.mark.parametrize("name", NAMES)
def test_every_branch_validates(name: str) -> None:
    """Every value of a context in a run at scale paper, from which cpu differs in sizes only; all of smoke is
    run by test_every_figure.py. Sizes grow from smoke to paper, with another digest each, unless cpu is the
    paper's size."""
    made = [compose_experiment(name, scale) for scale in SCALES]
    smoke, cpu, paper = (one.base["rounds"] for one in made)
    assert smoke <= 20
    assert smoke < cpu <= paper
    assert len({one.digest for one in made}) == (2 if name == "fedproxvr/table1" else 3)
    compose(job(made[1], made[1].branches[0]))
    seen: set[str] = set()
    for branch in made[2].branches:
        context = {branch.algorithm, *map(repr, branch.context.items()), *branch.along}
        if not context <= seen:
            seen |= context
            compose(job(made[2], branch))


def test_all_methods_of_padamfeds_figures_weight_clients_equally() -> None:
    """The paper's objective is (1/N) sum f_i; FedAvg's own default is another."""
    made = [compose_experiment(name, "paper") for name in WITH_RUNS if name.startswith("padamfed/")]
    for branch in (branch for one in made for branch in one.branches):
        default = algorithm_file(branch.algorithm).get("weighting", "uniform")
        assert branch.context.get("algorithm.weighting", default) == "uniform", branch


def test_steps_without_noise_are_as_long_as_a_theorems() -> None:
    """gamma of the S K of one of the study's settings, from the theorem's own formula."""
    made = compose_experiment("padamfed/settings", "paper")
    base, rounds = made.base, float(made.base["rounds"])
    alone = [branch for branch in made.branches if branch.context.get("clients.total") == 1]
    work = {
        math.prod(int(branch.context.get(key, base[key])) for key in ("local.steps", "clients.per_round"))
        for branch in made.branches
        if branch not in alone
    }
    for branch in alone:
        power = {"padamfed": 1 / 4, "padamfed_vr": 1 / 3}[branch.algorithm]
        gammas = [(sk * rounds) ** power / rounds for sk in work]
        assert min(abs(branch.context["algorithm.server_lr"] / gamma - 1) for gamma in gammas) < 1e-5


SKEWED = ["partition=dirichlet", "partition.alpha=1.0"]


@pytest.mark.parametrize(
    ("one", "other", "context"),
    [
        ("padamfed/fig1", "padamfed/fig2", ["partition=iid"]),
        ("padamfed/fig2", "padamfed/rnn_lr", SKEWED),
        ("adamasfl/fig1", "adamasfl/fig2", []),
        ("loss_scale", "lr_relative", []),
    ],
)
def test_figures_of_one_experiment_share_their_tuning(one: str, other: str, context: list[str]) -> None:
    """The same run has the same identity in both figures, so it is computed once."""

    def tuning_run(name: str) -> str:
        made = compose_experiment(name, "paper")
        params = {key: values[0] for key, values in made.params.items() if len(values) == 1}
        words = overrides({**params, **made.pinned(), "algorithm": "fedavg", "seed": 0})
        return run_hash(compose([f"experiment={name}", "scale=paper", *words, *context]).job)

    assert tuning_run(one) == tuning_run(other)


def test_where_the_server_averages_scale_paper_has_figure_2s_steps_and_seeds() -> None:
    """K = 10 and three seeds; at scale cpu K is another, which the claims' readings say."""
    one, other = (compose_experiment(f"padamfed/{name}", "paper") for name in ("fig2", "fig2_average"))
    assert (one.base["local.steps"], one.params["seed"]) == (10, [0, 1, 2])
    assert (other.base["local.steps"], other.params["seed"]) == (10, [0, 1, 2])
    cpu = compose_experiment("padamfed/fig2_average", "cpu")
    (claim,) = (claim for claim in CLAIMS if claim.name == "padamfed-range-iid")
    words = f"server averages, K = {cpu.base['local.steps']} at scale cpu, eta, one norm"
    assert words in [tested.words for tested in claim.numbers]


def test_a_theorems_learning_rate_is_found_with_settings_of_the_launcher(tmp_path: Path) -> None:
    """lr_relative multiplies it; overrides of hydra.launcher belong to the launcher of the figures."""
    made = experiment(FIGURES["lr_relative"], "smoke")
    branch = next(branch for branch in made.branches if branch.algorithm == "padamfed")
    lr = Maker(made, ["hydra.launcher.processes=1"], tmp_path, tmp_path).theorem_lr(branch)
    assert lr == pytest.approx(1 / (made.base["local.steps"] * made.base["rounds"] ** 0.5))  # Theorem 1


@pytest.mark.parametrize("name", ["fedproxvr/table1_searched", "fedproxvr/table2_searched"])
def test_a_table_has_three_readings_of_every_method(name: str) -> None:
    """The paper's rows as they stand, searched within eta = 1/(beta L), searched freely."""
    made = compose_experiment(name, "cpu")
    readings: dict[str, list[MethodRuns]] = {"final": [], "final-rule": [], "final-free": []}
    for branch in made.branches:
        readings[branch.stage].append(branch)
    assert [len(branches) for branches in readings.values()] == [3, 3, 3]
    smoothness = 40 if "table1" in name else 200
    for branch in made.branches:
        eta = branch.context["algorithm.lr"]
        if branch.search is None:
            assert branch.context["algorithm.lr"] in (None, 1 / (10 * smoothness))
        elif branch.search.name == "rule" and branch.algorithm == "fedavg":
            betas = [1 / (smoothness * float(lr)) for lr in branch.search.space["algorithm.lr"]]
            assert betas == pytest.approx([5, 7, 9, 10, 15], rel=1e-6)
        else:
            assert ("algorithm.beta" in branch.search.space) == (eta is None)
    alone = compose_experiment(name.removesuffix("_searched"), "cpu")
    assert list(alone.branches) == readings["final"]
    less = {"dataset.train_samples": 20000} if "table2" in name else {}
    assert {**alone.base, **less} == made.base
    if less:  # the paper's own network
        assert compose_experiment("fedproxvr/table2_cnn", "cpu").branches == alone.branches


@pytest.mark.parametrize("count", [8, 40])
def test_the_methods_of_a_table_share_the_draws_of_their_searches(count: int) -> None:
    """FedAvg is tried at FedProxVR's learning rates, local steps and batch sizes, without mu, each once."""
    tried = {(one.name, one.where["algorithm"]): one.points(count) for one in searches("table1")}
    for reading in ("rule", "free"):
        assert len(tried[reading, "fedproxvr"]) == count
        shared = []
        for point in tried[reading, "fedproxvr"]:
            lr = point.get("algorithm.lr", 1 / (40 * float(point.get("algorithm.beta", 1))))
            steps, batch = point["local.steps"], point["local.batch_size"]
            shared.append((pytest.approx(lr, rel=1e-6), steps, batch))
        own = [tuple(point.values()) for point in tried[reading, "fedavg"]]
        assert all(point in shared for point in own)
        assert all(point in own for point in shared)
        assert len(set(own)) == len(own) == min(count, 20)  # 5 rates, 2 of steps, 2 of batch sizes
        assert all("algorithm.mu" not in point for point in tried[reading, "fedavg"])


def test_padamfeds_figures_are_searched_at_scale_paper_as_at_scale_cpu(tmp_path: Path) -> None:
    """All grids would be 924 runs of a figure."""
    searched = {}
    for scale in ("cpu", "paper"):
        made = compose_experiment("padamfed/fig1", scale)
        maker = Maker(made, [], tmp_path, tmp_path)
        tuned = [branch for branch in made.branches if made.tuned_keys(branch)]
        searched[scale] = [(branch.method, maker.task(branch).first) for branch in tuned], maker.how
    assert searched["paper"] == searched["cpu"]
    assert sum(math.prod(map(len, grid.values())) for _, first in searched["paper"][0] for grid in first) < 30


@pytest.mark.parametrize("name", ["padamfed/fig1_average", "adamasfl/fig1_average"])
def test_an_eta_of_another_task_is_chosen_on_that_of_untuned(name: str) -> None:
    """Its runs share nothing with the figure but the method; the theorem's eta is not searched."""
    maker = Maker(compose_experiment(name, "cpu"), (), Path(), Path())
    ours = [branch for branch in maker.made.branches if "adam" in branch.algorithm]
    for branch in ours:
        assert branch.context["algorithm.server_lr"] == "average"
        if "algorithm.lr" in branch.context:
            assert branch.context["algorithm.lr"] is None
            assert branch.search is None
            assert branch.stage == "final"
            continue
        assert branch.stage == "final-elsewhere"
        task = maker.task(branch)
        assert (task.fixed["dataset"], task.fixed["model"]) == ("fmnist", "mlp")
        assert task.fixed["algorithm.server_lr"] == "average"
        assert task.fixed.get("schedule", "sync") == maker.made.base["schedule"]
        assert list(task.space) == ["algorithm.lr"]
    assert {branch.stage for branch in ours} == {"final", "final-elsewhere"}


def test_rates_are_chosen_at_the_smallest_concurrency_and_kept() -> None:
    maker = Maker(compose_experiment("adamasfl/fig2_average", "paper"), (), Path(), Path())
    searched = [branch for branch in maker.made.branches if branch.search or maker.made.tuned_keys(branch)]
    assert {maker.task(branch).fixed["schedule.concurrency"] for branch in searched} == {10}
    assert min(map(int, maker.made.params["schedule.concurrency"])) == 10
    assert {branch.algorithm for branch in searched} == {
        "fedbuff", "ca2fl", "defedavg_niid", "fadas", "masfl", "adamasfl",
    }  # fmt: skip


def test_a_setting_of_a_figure_can_be_another_one(tmp_path: Path) -> None:
    """In all of its runs, also where the figure's own grids give the key; what is tuned on another figure's
    task keeps that task. It is another figure, in a directory of its own; how it is computed changes none."""
    usual = compose_experiment("padamfed/fig1", "smoke")
    made = experiment(FIGURES["padamfed/fig1"], "smoke", ["local.steps=7", "seed=5,6"])
    assert (made.base["local.steps"], made.params["seed"]) == (7, [5, 6])
    assert made.digest != usual.digest
    rates = experiment(FIGURES["padamfed/fig2"], "smoke", ["algorithm.server_lr=0.5"])
    swept = [one.along for one in compose_experiment("padamfed/fig2", "smoke").branches]
    assert any("algorithm.server_lr" in along for along in swept)
    assert all("algorithm.server_lr" not in {**one.along, **one.context} for one in rates.branches)
    assert rates.params["algorithm.server_lr"] == [0.5]
    maker = Maker(made, ["local.steps=7", "seed=5,6", "device=cpu"], Path(), Path())
    assert {"local.steps=7", "device=cpu"} <= {*maker.words}
    assert all(grid["seed"] == [5, 6] for grids in maker.stages(()).values() for grid in grids)
    assert changes(["device=cpu", "data.root=x", "hydra.launcher.processes=1", "rounds=3"]) == ["rounds=3"]
    out = shown("padamfed/fig1", "smoke", changed=["local.steps=7", "seed=5,6"])
    assert out == Path("outputs/changed/padamfed/fig1/smoke/local.steps=7_seed=5,6")
    figure = FIGURES["padamfed/fig1"]
    kept = tmp_path / "outputs/figures/padamfed/fig1/cpu"
    kept.mkdir(parents=True)
    (kept / "made.json").write_text('{"scale": "cpu"}')
    assert beside(figure, "cpu", tmp_path) == f"beside the one in {kept}"
    assert beside(figure, "smoke", tmp_path).endswith("is kept at scale smoke, but with --scale cpu")
    with pytest.raises(UserError, match=r"is searched by fedproxvr/table1_searched"):
        experiment(FIGURES["fedproxvr/table1_searched"], "smoke", ["local.steps=7"])
    with pytest.raises(UserError, match=r"local\.stepz"):
        experiment(FIGURES["padamfed/fig1"], "smoke", ["local.stepz=7"])
