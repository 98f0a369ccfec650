"""Comparisons of runs for the papers' figures: numbers by hand, and where they stand in the picture."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figures.make_results import CONFIG, rows, write_sweep
from matplotlib.colors import to_hex
from papers.keep import keep_runs
from scipy.stats import linregress

from fedbench.errors import DataError
from fedbench.figures import style
from fedbench.figures.results import read
from fedbench.papers.claims import AGREES, DISAGREES
from fedbench.papers.evidence import Evidence, Untested, frame, name_of
from fedbench.papers.measures import Leads
from fedbench.papers.relative import draw_relative
from fedbench.papers.scores import OverTasks
from fedbench.papers.settings import settings_table, write_settings
from fedbench.papers.slopes import slopes
from fedbench.papers.speedup import draw_speedup
from fedbench.papers.untuned import by_task, scores, write_untuned
from fedbench.runs.records import Run

POWERS = {"padamfed": 1 / 4, "padamfed_vr": 1 / 3}
FEDAVG = {("iid", 0.1): 0.8, ("iid", 1.0): 0.9, ("shards", 0.1): 0.6, ("shards", 1.0): None}
THEOREM = {("iid", "vector"): 0.72, ("iid", "tensor"): 0.5,
           ("shards", "vector"): 0.5, ("shards", "tensor"): 0.3}  # fmt: skip


def test_the_speed_up_and_its_slopes(tmp_path: Path) -> None:
    """Three S, one seed, norms of the rounds before the last: n - 2 = 1 degree of freedom, and scipy's own
    regression; another K is in another panel, and two values, as there, have no slope. Grey: the theorems'
    slopes from the highest start. PAdaMFed keeps the colour that AdaMasFL has in pictures without it."""
    from fedbench.papers.across import POWERS

    norms = {1: 0.9, 2: 0.8, 4: 0.62}
    runs = []
    for name, (S, K) in product(("padamfed", "adamasfl", "masfl"), ((1, 2), (2, 2), (4, 2), (1, 6))):
        norm = norms[S] if K == 2 else 0.5
        config = {"clients.per_round": S, "local.steps": K, "rounds": 20}
        norm /= 1 if name == "padamfed" else 2
        metrics = [{**row, "objective_grad_norm": norm * (1 + 0.1 * (-1) ** rank)}
                   for rank, row in enumerate(rows(0.7, 0.6, 0, last=20))]  # fmt: skip
        metrics[-1]["objective_grad_norm"] = 100.0  # of the last round, which the theorems' mean leaves out
        runs += [{"metrics": metrics, "algorithm": name, "config": config}] * (name != "masfl" or S < 4)
    drawing = draw_speedup(read([write_sweep(tmp_path, runs, ["clients.per_round"])]), POWERS)
    points = drawing.points.query("algorithm == 'padamfed' and varied == 'S'")
    assert points.work.tolist() == [40, 80, 160]
    assert points.grad_norm.tolist() == pytest.approx(list(norms.values()))
    fit = linregress(np.log([40, 80, 160]), np.log(list(norms.values())))
    assert points.slope.tolist() == pytest.approx([fit.slope] * 3)
    assert points.slope_half.tolist() == pytest.approx([12.7062 * fit.stderr] * 3, rel=1e-4)
    few = drawing.points.query("algorithm == 'masfl' or varied == 'K'")
    assert (len(few), few.slope.isna().all()) == (2 + 2 * 3, True)
    (ax, _), (legend,) = drawing.figure.axes, drawing.figure.legends
    grey = [mark for mark in ax.lines if to_hex(mark.get_color()).upper() == style.MUTED]
    x = np.array([40, 80, 160])
    for mark, power in zip(grey, (-1 / 3, -1 / 4), strict=True):
        np.testing.assert_allclose(mark.get_xydata(), np.column_stack([x, 0.9 * (x / 40) ** power]))
    colours = {text.get_text(): line.get_color()
               for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)}  # fmt: skip
    said = f"PAdaMFed, S {fit.slope:.3f} ± {12.7062 * fit.stderr:.3f}".replace("-", "−")
    assert colours[said] == style.of_algorithm("padamfed").colour
    assert len({colours[name] for name in colours if not name.startswith("slope")}) == 3
    assert "MasFL" in colours


def test_a_slope_has_the_interval_of_lines_at_each_seeds_own_level(tmp_path: Path) -> None:
    """Least squares with a column for each of three seeds, whose levels lie far apart: 12 - 3 - 1 degrees of
    freedom."""
    from fedbench.papers.across import POWERS

    rng, runs = np.random.default_rng(1), []
    for seed, S in product(range(3), (1, 2, 4, 8)):
        norm = (0.9 + 0.4 * seed) * S**-0.25 * np.exp(0.01 * rng.standard_normal())
        metrics = [{**row, "objective_grad_norm": norm} for row in rows(0.7, 0.6, seed, last=20)]
        config = {"clients.per_round": S, "local.steps": 2, "rounds": 20, "seed": seed}
        runs.append({"metrics": metrics, "algorithm": "padamfed", "config": config, "norm": norm})
    kept = [{key: value for key, value in run.items() if key != "norm"} for run in runs]
    points = draw_speedup(read([write_sweep(tmp_path, kept, ["clients.per_round", "seed"])]), POWERS).points
    of_seed = np.kron(np.eye(3), np.ones((4, 1)))
    x = np.column_stack([of_seed, np.tile(np.log([1, 2, 4, 8]), 3)])
    y = np.log([run["norm"] for run in runs])
    found, (rest,), *_ = np.linalg.lstsq(x, y, rcond=None)
    error = np.sqrt(rest / 8 * np.linalg.inv(x.T @ x)[3, 3])
    assert points.n.tolist() == [3] * 4
    assert points.slope.tolist() == pytest.approx([found[3]] * 4)
    assert points.slope_half.tolist() == pytest.approx([2.306004 * error] * 4, rel=1e-5)


def test_relative_rates_are_1_at_each_lines_own(tmp_path: Path) -> None:
    """Whatever the reference is, also where two readings of a norm have two. All runs at FedAvg's lowest rate
    failed: its others stand where they belong. Where nothing says which rate is missing, it is said instead
    of guessed."""
    from fedbench.papers.across import FACTORS

    lines = {"FedAvg": ("fedavg", 0.1, {}),
             "PAdaMFed (vector)": ("padamfed", 3.0, {"algorithm.norm": "vector"}),
             "PAdaMFed (tensor)": ("padamfed", 6.0, {"algorithm.norm": "tensor"})}  # fmt: skip
    runs = [
        {"metrics": rows(0.5, 0.6, 0, last=10), "algorithm": name,
         "config": {"algorithm.lr": own * factor, **norm},
         "status": "failed" if (name, factor) == ("fedavg", FACTORS[0]) else "completed"}
        for name, own, norm in lines.values() for factor in FACTORS
    ]  # fmt: skip
    found = read([write_sweep(tmp_path, runs, ["algorithm", "algorithm.lr"])])
    points = draw_relative(found, tmp_path, FACTORS).points
    assert {*points.series} == {*lines}
    for label, (name, own, _) in lines.items():
        part = points[points.series == label]
        assert part.factor.tolist() == pytest.approx(FACTORS[1:] if name == "fedavg" else FACTORS)
        assert part.reference.tolist() == pytest.approx([own] * len(part))
    with pytest.raises(DataError, match=r"FedAvg: 8 learning rates, but 9 factors"):
        draw_relative([run for run in found if run.status != "failed"], tmp_path, FACTORS)


def ended(accuracy: float | None, seed: int, hyper: dict[str, float], **choices: object) -> Run:
    """A run with these choices (with __ for a dot); without an accuracy it has diverged."""
    said = CONFIG | {"seed": seed} | {key.replace("__", "."): value for key, value in choices.items()}
    status = "completed" if accuracy else "diverged"
    summary = {"status": status, "final_accuracy": accuracy, "hyper": hyper}
    return Run(Path("run"), said, summary, pd.DataFrame())


def test_the_pictures_slope_is_that_of_the_claims_seeds() -> None:
    """Each seed its own line, as scipy fits it; one slope with a level for each seed, as least squares with a
    column for each seed; the mean of the first is the second, where seeds have the same runs."""
    rng = np.random.default_rng(0)
    cases = [(seed, work, (1 + seed) * work**-0.25 * np.exp(0.05 * rng.normal()))
             for seed in (0, 1, 2) for work in (10.0, 20.0, 40.0, 80.0)]  # fmt: skip
    table = pd.DataFrame(cases, columns=["seed", "work", "grad_norm"])
    each, slope, half = slopes(table)
    x, y = np.log(table.work), np.log(table.grad_norm)
    assert each.tolist() == pytest.approx([linregress(x[part], y[part]).slope
                                           for part in table.groupby("seed").groups.values()])  # fmt: skip
    design = np.column_stack([x, *(table.seed == seed for seed in (0, 1, 2))])
    found, rest, *_ = np.linalg.lstsq(design, y, rcond=None)
    assert (slope, slope) == pytest.approx((found[0], each.mean()))
    error = np.sqrt(rest[0] / 8 * np.linalg.inv(design.T @ design)[0, 0])
    assert half == pytest.approx(2.30600 * error, rel=1e-5)  # Student's 97.5 % point of 8 degrees


# ---- settings ------------------------------------------------------------------------------------------


def run(accuracy: float | None, gamma: float, seed: int = 0, **choices: object) -> Run:
    own = {"rounds": 400, "algorithm": "padamfed", "algorithm__norm": "vector"}
    return ended(accuracy, seed, {"server_lr": gamma}, **own | choices)


def without_noise(accuracy: float, gamma: float, **choices: object) -> Run:
    alone = {"clients__total": 1, "clients__per_round": 1, "local__steps": 1, "local__batch_size": None}
    return run(accuracy, gamma, **alone, dataset__train_samples=1000, **choices)


def test_each_setting_has_the_bound_of_its_own_path_length_split_and_cell() -> None:
    """gamma T is (S K T)^(1/4), for the variance-reduced variant (S K T)^(1/3), by hand at T = 400."""
    gamma, wider, vr = 11.8921 / 400, 14.1421 / 400, 27.1442 / 400  # 20000^(1/4), 40000^(1/4), 20000^(1/3)
    found = settings_table(
        [
            run(0.6, gamma),
            run(0.7, gamma, seed=1),
            run(0.5, gamma, partition="iid", partition__alpha=None),
            run(0.65, wider, clients__per_round=20),
            run(None, vr, algorithm="padamfed_vr"),
            run(0.2, gamma, dataset__split="balanced"),
            without_noise(0.79, gamma),
            without_noise(0.85, wider),
            without_noise(0.9, vr, algorithm="padamfed_vr"),
        ],
        POWERS,
    )
    rows = found.set_index(["setting", "algorithm"])
    assert rows.work.tolist() == [50, 50, 100, 50, 50]
    assert rows.path.tolist() == [11.89, 11.89, 14.14, 27.14, 11.89]
    first = rows.loc[("Dirichlet(0.5)", "padamfed")]
    assert (first.accuracy, first.n, first.without_noise) == (pytest.approx(0.65), 2, 0.79)
    assert (first.low, first.high) == (0.6, 0.7)
    assert rows.loc[("iid", "padamfed"), "without_noise"] == 0.79
    assert rows.loc[("S=20", "padamfed"), "without_noise"] == 0.85
    diverged = rows.loc[("Dirichlet(0.5)", "padamfed_vr")]
    assert (diverged.accuracy, diverged.without_noise) == (0.0, 0.9)
    assert pd.isna(rows.loc[("EMNIST balanced", "padamfed"), "without_noise"])


def test_runs_without_noise_alone_are_refused() -> None:
    with pytest.raises(DataError, match="no run has more than one client"):
        settings_table([without_noise(0.8, 0.03)], POWERS)


def test_the_table_of_settings_has_a_row_for_each(tmp_path: Path) -> None:
    """Mean, smallest and largest of two seeds, and the steps without noise, which one setting lacks."""
    results = {(10, 0): 0.5, (10, 1): 0.6, (20, 0): 0.7, (20, 1): 0.9}
    own = {"rounds": 400, "local.steps": 5, "algorithm.norm": "vector"}
    runs: list[dict[str, Any]] = [
        {"metrics": rows(0.7, score, seed, last=20), "algorithm": "padamfed", "seed": seed,
         "config": {**own, "clients.per_round": S}} for (S, seed), score in results.items()
    ]  # fmt: skip
    alone = {"clients.total": 1, "clients.per_round": 1, "local.steps": 1, "dataset.train_samples": 1000}
    runs.append({"metrics": rows(0.7, 0.95, 0, last=20), "algorithm": "padamfed", "config": {**own, **alone}})
    write_sweep(tmp_path / "sweeps" / "final", runs, ["clients.per_round", "seed"])
    out = keep_runs(tmp_path)
    kept = pd.read_csv(out / "runs.csv")
    gamma = kept["clients.per_round"].map({10: 0.1, 20: 0.2, 1: 0.1})
    accuracy = [results.get(pair, 0.95) for pair in zip(kept["clients.per_round"], kept.seed, strict=True)]
    kept.assign(**{"hyper.server_lr": gamma, "final_accuracy": accuracy}).to_csv(
        out / "runs.csv", index=False
    )
    write_settings(out, {"padamfed": 1 / 4})
    text = (out / "settings.md").read_text()
    assert "| 55.0% (50.0% to 60.0%); 95.0% |" in text
    assert "| S=20 | 80.0% (70.0% to 90.0%) |" in text
    assert "gradients of 1,000 training samples. Where a row says nothing else: " in text


# ---- one setting for all tasks -------------------------------------------------------------------------


def on_task(name: str, task: str, accuracy: float | None, seed: int = 0, **choices: object) -> Run:
    """A run on a task, which is a partition."""
    return ended(accuracy, seed, {}, algorithm=name, partition=task, partition__alpha=None, **choices)


def tasks() -> list[Run]:
    """FedAvg with two rates and PAdaMFed with two norms on two tasks, two seeds; accuracies as above."""
    cases = [("fedavg", "algorithm__lr", FEDAVG), ("padamfed", "algorithm__norm", THEOREM)]
    return [on_task(name, task, accuracy, seed, **{key: value}) for name, key, table in cases
            for (task, value), accuracy in table.items() for seed in (0, 1)]  # fmt: skip


def test_a_method_keeps_the_setting_that_is_best_on_the_first_task() -> None:
    """FedAvg keeps lr = 1, which diverges on the second task; its best there, 0.6 at 0.1, is what all are
    measured by. The two norms are two methods, neither of them tuned. An asynchronous task has its own best
    method, however good the synchronous ones are."""
    slow = [on_task("fedbuff", "iid", 0.4, seed, schedule="async") for seed in (0, 1)]
    table = scores([*tasks(), *slow])
    found = by_task(table)["sync"]
    assert found.to_dict() == pytest.approx({
        ("fedavg", "iid"): 1.0, ("fedavg", "shards"): 0.0,
        ("padamfed vector", "iid"): 0.72 / 0.9, ("padamfed vector", "shards"): 0.5 / 0.6,
        ("padamfed tensor", "iid"): 0.5 / 0.9, ("padamfed tensor", "shards"): 0.5,
    })  # fmt: skip
    assert by_task(table)["async"].tolist() == [1.0]
    assert set(table[table.method == "fedavg"].setting) == {"lr=1"}
    assert table.groupby("method").tuned.first().to_dict() == {
        "fedavg": True, "padamfed vector": False, "padamfed tensor": False, "fedbuff": False,
    }  # fmt: skip


def test_a_seed_is_compared_with_the_same_seed() -> None:
    """Seed 1 divides the data into a harder task, which is no difference between methods. Where the best
    method of a task has diverged the mean over its seeds, 0.45, stands in."""
    runs = [
        on_task(name, task, None if (name, task, seed) == ("fedavg", "shards", 1) else accuracy, seed)
        for name, accuracies in (("fedavg", (0.9, 0.6)), ("padamfed", (0.6, 0.2)))
        for task in ("iid", "shards")
        for seed, accuracy in enumerate(accuracies)
    ]
    table = scores(runs)
    found = table[table.method == "padamfed"].set_index(["task", "seed"]).relative
    assert found.to_dict() == pytest.approx({
        ("iid", 0): 0.6 / 0.9, ("iid", 1): 0.2 / 0.6,
        ("shards", 0): 0.6 / 0.9, ("shards", 1): 0.2 / 0.45,
    })  # fmt: skip
    mean = by_task(table)["sync"]["padamfed"]  # over seeds
    assert mean.tolist() == pytest.approx([(0.6 / 0.9 + 0.2 / 0.6) / 2, (0.6 / 0.9 + 0.2 / 0.45) / 2])


def test_the_median_and_the_worst_are_those_of_each_seed(tmp_path: Path) -> None:
    """SCAFFOLD's shares are 0.5, 0.8, 1 and 1, 0.5, 0.5: medians 0.8 and 0.5, worst 0.5 and 0.5. Means over
    the seeds have the median 0.75 and the worst 0.65."""
    shares = {("iid", 0): 0.5, ("shards", 0): 0.8, ("powerlaw", 0): 1.0,
              ("iid", 1): 1.0, ("shards", 1): 0.5, ("powerlaw", 1): 0.5}  # fmt: skip
    own = {"partition.alpha": None}
    runs = [
        {"metrics": rows(0.7, 0.8 * (value if name == "scaffold" else 1), seed, last=20), "algorithm": name,
         "seed": seed, "config": {**own, "partition": task}}
        for name in ("fedavg", "scaffold") for (task, seed), value in shares.items()
    ]  # fmt: skip
    write_sweep(tmp_path / "sweeps" / "final", runs, ["algorithm", "partition", "seed"])
    out = keep_runs(tmp_path)
    kept = pd.read_csv(out / "runs.csv")
    accuracy = [0.8 * (shares[task, seed] if name == "scaffold" else 1)
                for name, task, seed in kept[["algorithm", "partition", "seed"]].to_numpy()]  # fmt: skip
    kept.assign(final_accuracy=accuracy).to_csv(out / "runs.csv", index=False)
    write_untuned(out)
    table = pd.read_csv(out / "tasks.csv").set_index("task")
    assert table.fedavg.tolist() == [1.0] * 5
    assert table.scaffold.tolist() == pytest.approx(
        [0.75, 0.65, 0.75, 0.65, 0.5]
    )  # the last two: median, worst
    runs = read([out])
    found = OverTasks("min")(Evidence(frame(runs), records=runs), ("scaffold", "fedavg"), {})
    assert found.pairs["fedavg"][0].tolist() == pytest.approx([0.5, 0.5])
    with pytest.raises(DataError, match="no finished run"):
        scores([])


def test_a_claim_over_tasks_compares_the_median_or_the_worst() -> None:
    """MIME is best on all tasks, with 1. Worst: 0.7 against 0.2 in all seeds; median: 0.8 against 0.9. Two
    tasks are no range. FedAvg keeps the rate that is best on the first task; its other runs do not count."""
    cases = [("mime", (1.0, 1.0, 1.0), {}), ("padamfed", (0.8, 0.7, 0.9), {}),
             ("fedavg", (0.98, 0.9, 0.2), {"algorithm__lr": 0.1}),
             ("fedavg", (0.9, 0.95, 0.9), {"algorithm__lr": 1.0})]  # fmt: skip
    runs = [on_task(name, task, value + 0.001 * seed * (name != "mime"), seed, **more).but(
                directory=Path(f"final/{name}-{task}-{seed}-{more}"))
            for name, values, more in cases
            for task, value in zip(("iid", "shards", "powerlaw"), values, strict=True)
            for seed in (0, 1, 2)]  # fmt: skip
    data = Evidence(frame(runs), records=runs)
    (worst,) = Leads("padamfed", ("fedavg",), OverTasks("min"))(data)
    assert (worst.word, worst.ours, worst.other) == (
        AGREES, "0.701 +- 0.001 (3)", "FedAvg 0.201 +- 0.001 (3)",
    )  # fmt: skip
    assert worst.chosen == "3 tasks; FedAvg: the best of 2 settings on the first task, by the same seeds"
    behind = [run for run in runs if run.choices["algorithm"] == "padamfed"
              or run.choices.get("algorithm.lr") == 0.1]  # fmt: skip
    assert sorted(worst.runs) == sorted(map(name_of, behind))
    (median,) = Leads("padamfed", ("fedavg",), OverTasks("median"))(data)
    assert (median.word, median.detail) == (DISAGREES, "behind FedAvg")
    few = Evidence(records=[run for run in runs if run.choices["partition"] != "powerlaw"])
    with pytest.raises(Untested, match="fewer than 3 tasks"):
        list(Leads("padamfed", ("fedavg",), OverTasks("min"))(few))
    with pytest.raises(Untested, match="no runs of scaffold"):
        list(Leads("padamfed", ("scaffold",), OverTasks("min"))(data))
