"""The numbers of a figure of runs, as the table beside it has them, against the same numbers computed in
another way. test_figure_artists.py compares what is drawn with that table."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from make_results import exact, rows, write_run, write_sweep

from fedbench.errors import DataError
from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions
from fedbench.runs.metrics import ends

FEW = ["fedavg", "scaffold", "padamfed"]
LR = "algorithm.lr"
ENDS = ("mean", "low", "high")
SHORTER = ([0.1, 0.5, 0.7, 0.9], [0.2, 0.4, 0.75], [0.15, 0.65])


def points(path: Path, x: str = "round", y: str = "test_accuracy", **options: object) -> pd.DataFrame:
    return draw([path], PlotOptions(x, y, **options)).points


def spread_of(values: list[float], kind: str) -> list[float]:
    """Mean and ends of the spread, by the standard library."""
    mean = statistics.mean(values)
    if len(values) == 1:
        return [mean, np.nan, np.nan]
    half = statistics.stdev(values) / (len(values) ** 0.5 if kind == "sem" else 1)
    return [mean, min(values), max(values)] if kind == "minmax" else [mean, mean - half, mean + half]


@pytest.mark.parametrize("kind", ["std", "sem", "minmax"])
def test_spreads_count_the_runs_that_are_there(tmp_path: Path, kind: str) -> None:
    """Of curves: three seeds, then two, then one. Of results: of four seeds at one rate one diverged, and one
    was not run at the other. The deviation divides by n - 1, its error by the root of that n."""
    for seed, accuracies in enumerate(SHORTER):
        write_run(tmp_path / "curves" / str(seed), exact(accuracies), seed=seed)
    found = points(tmp_path / "curves", spread=kind)
    assert found.n.tolist() == [3, 3, 2, 1]
    for at, row in enumerate(found[[f"test_accuracy_{end}" for end in ENDS]].to_numpy()):
        values = [accuracies[at] for accuracies in SHORTER if at < len(accuracies)]
        np.testing.assert_allclose(row, spread_of(values, kind), rtol=1e-12)
    results = {0.1: [0.5, 0.62, 0.7, None], 1.0: [0.4, 0.8, 0.6]}
    for lr, accuracies in results.items():
        for seed, accuracy in enumerate(accuracies):
            write_run(tmp_path / "results" / f"{lr}-{seed}", exact([0.1, accuracy or 0.3]), seed=seed,
                      status="completed" if accuracy else "diverged", config={LR: lr})  # fmt: skip
    found = points(tmp_path / "results", LR, "final_accuracy", spread=kind)
    assert found[[LR, "n", "diverged"]].to_numpy().tolist() == [[0.1, 3, 1], [1.0, 3, 0]]
    for (_, values), row in zip(results.items(), found[[f"final_accuracy_{end}" for end in ENDS]].to_numpy(),
                                strict=True):  # fmt: skip
        np.testing.assert_allclose(row, spread_of([one for one in values if one], kind), rtol=1e-12)


def test_a_diverged_run_is_in_no_mean_and_has_rows_of_its_own(tmp_path: Path) -> None:
    for seed, (values, status) in enumerate((([0.1, 0.3, 0.5], "completed"), ([0.1, 0.4], "diverged"))):
        write_run(tmp_path / str(seed), exact(values), seed=seed, status=status)
    found = points(tmp_path)
    assert found.part.tolist() == ["mean"] * 3 + ["diverged"] * 2
    assert found.test_accuracy_mean.tolist() == [0.1, 0.3, 0.5, 0.1, 0.4]
    assert found.n.tolist() == [1, 1, 1, 0, 0]


def test_seeds_at_other_times_are_interpolated_where_all_are(tmp_path: Path) -> None:
    """y = 0.1 x, 0.2 x and 0.3 x: mean 0.2 x and deviation 0.1 x."""
    for seed, times in enumerate(([0, 1, 3], [0, 2, 4], [0, 2.5, 5])):
        made = exact([0.1 * (seed + 1) * time for time in times], virtual_time=times)
        write_run(tmp_path / str(seed), made, seed=seed)
    found = points(tmp_path, "virtual_time")
    at = found.virtual_time.to_numpy()
    assert at.tolist() == [0, 1, 2, 2.5, 3]
    for end, factor in (("mean", 0.2), ("low", 0.1), ("high", 0.3)):
        np.testing.assert_allclose(found[f"test_accuracy_{end}"], factor * at, atol=1e-15)


def test_over_an_x_that_does_not_rise_there_is_no_mean_but_a_single_run_is_drawn(tmp_path: Path) -> None:
    """Two arrivals at one time are no fall: the accuracy after both counts."""
    for seed, times in enumerate(([0, 1, 1, 3], [0, 2, 2, 3])):
        made = exact(
            [0.1, 0.2, 0.5, 0.7], virtual_time=times, staleness_mean=[0, 2, 1, 2], staleness_max=[0] * 4
        )
        write_run(tmp_path / str(seed), made, seed=seed)
    found = points(tmp_path, "virtual_time")
    assert found.virtual_time.tolist() == [0, 1, 2, 3]
    second = [0.1, (0.5 + 0.3) / 2, (0.6 + 0.5) / 2, 0.7]  # halves of the ways from 0.1 to 0.5 and 0.5 to 0.7
    np.testing.assert_allclose(found.test_accuracy_mean, second, rtol=1e-12)
    for x in ("staleness_mean", "test_loss", "staleness_max"):
        line = f"x={x}: does not rise from one evaluation to the next, so there is no mean over seeds at an x"
        with pytest.raises(DataError, match=f"^{line}; --where seed=0 draws a single run$"):
            points(tmp_path, x)
    alone = points(tmp_path, "staleness_mean", where={"seed": [0]})
    assert alone[["staleness_mean", "test_accuracy_mean"]].to_numpy().tolist() == [
        [0, 0.1], [2, 0.2], [1, 0.5], [2, 0.7],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "metric", "least", "most"),
    [
        ("test_loss", "accuracy", 0, math.inf), ("test_accuracy", "accuracy", 0, 1),
        ("test_accuracy", "R2", -math.inf, 1), ("client_accuracy_worst", "subset accuracy", 0, 1),
        ("finetuned_accuracy_std", "accuracy", 0, 0.5), ("client_accuracy_std", "R2", 0, math.inf),
        ("test_recall_at_3", "accuracy", 0, 1), ("final_validation_macro_f1", "accuracy", 0, 1),
        ("test_auroc", "accuracy", 0, 1), ("best_test_average_precision", "accuracy", 0, 1),
        ("test_perplexity", "accuracy", 1, math.inf), ("grad_norm", "R2", 0, math.inf),
        ("rounds_to_0.9", "R2", 0, math.inf), ("accuracy_at_best_validation", "R2", -math.inf, 1),
    ],
)  # fmt: skip
def test_a_band_ends_at_what_a_number_can_be(name: str, metric: str, least: float, most: float) -> None:
    assert ends(name, metric) == (least, most)


def test_the_band_of_a_loss_stays_above_0(tmp_path: Path) -> None:
    for seed, loss in enumerate((0.01, 0.02, 0.9)):
        made = exact([0.5])
        made[0]["test_loss"] = loss
        write_run(tmp_path / str(seed), made, seed=seed)
    (row,) = points(tmp_path, y="test_loss").to_dict("records")
    assert row["test_loss_low"] == 0.0
    assert row["test_loss_high"] == pytest.approx(0.31 + statistics.stdev([0.01, 0.02, 0.9]))


def test_results_are_the_final_the_best_or_the_last_as_asked(tmp_path: Path) -> None:
    """The final accuracy is that of the summary (a mean of evaluations, say), not the last row's."""
    for lr, top in ((1.0, 0.9), (2.0, 0.8)):
        summary = write_run(tmp_path / str(lr), exact([0.1, top, 0.5]), config={LR: lr})
        summary = {**summary, "final_accuracy": (top + 0.5) / 2}
        (tmp_path / str(lr) / "summary.json").write_text(json.dumps(summary))
    expected = {"final_accuracy": [0.7, 0.65], "test_accuracy": [0.7, 0.65], "best_round": [5, 5],
                "best_accuracy": [0.9, 0.8], "test_loss": [0.5, 0.5], "round": [10, 10]}  # fmt: skip
    for y, values in expected.items():
        found = points(tmp_path, LR, y)
        np.testing.assert_allclose(found.filter(like="_mean").to_numpy()[:, 0], values)


def test_a_theorems_value_has_a_row_of_its_own(tmp_path: Path) -> None:
    """At the rate in use where the choice is null, with the spread of its own two seeds."""
    for seed, accuracy in enumerate((0.5, 0.7)):
        for lr in (0.01, None, 1.0):
            more = {"hyper": {"lr": lr or 0.2, "server_lr": 7.0}, "config": {LR: lr, "algorithm.beta": None}}
            write_run(tmp_path / f"{seed}{lr}", exact([0.1, 0.3 if lr else accuracy]), seed=seed, **more)
    found = points(tmp_path, LR, "final_accuracy")
    assert found[LR].tolist() == [0.01, 0.2, 1.0]
    assert found.theorem.tolist() == [False, True, False]
    assert found.loc[1, [f"final_accuracy_{end}" for end in ENDS]].tolist() == [0.6, 0.5, 0.7]


def test_a_repeated_seed_is_the_run_that_finished(tmp_path: Path) -> None:
    """Whichever comes first; else the first one. It is in no mean twice."""
    for name, accuracy, status in (("a", 0.2, "failed"), ("b", 0.6, "completed"), ("c", 0.9, "completed")):
        write_run(tmp_path / name, exact([0.1, accuracy]), status=status, config={LR: 0.1})
    for x, y in (("round", "test_accuracy"), (LR, "final_accuracy")):
        drawing = draw([tmp_path], PlotOptions(x, y))
        last = drawing.points.iloc[-1]
        assert (last[f"{y}_mean"], last.n) == (0.6, 1)
        assert drawing.said["series"][0]["repeated"] == 2


def test_a_share_of_variance_may_be_negative(tmp_path: Path) -> None:
    """A band of accuracies stays above 0, one of R² does not."""
    for metric, low in (("accuracy", 0.0), ("R2", -1.0)):
        for seed, value in enumerate((-0.2, 0.0, 0.5)):
            place = tmp_path / metric / str(seed)
            summary = write_run(place, exact([0.0, value]), seed=seed)
            (place / "summary.json").write_text(json.dumps({**summary, "metric": metric}))
        deviation = statistics.stdev((-0.2, 0.0, 0.5))
        assert points(tmp_path / metric).test_accuracy_low.iloc[-1] == pytest.approx(
            max(0.1 - deviation, low)
        )


def test_tables_alone_give_the_same_figure(tmp_path: Path) -> None:
    """runs.csv and rounds.csv without the runs' directories: the same points and seeds."""
    found = []
    for whole in (True, False):
        runs = [
            {"metrics": rows(0.6 + 0.1 * rank + 0.02 * seed, 0.6, seed, last=20), "algorithm": name,
             "seed": seed + 5, "config": {LR: 0.1}}
            for rank, name in enumerate(FEW) for seed in range(3)
        ]  # fmt: skip
        path = write_sweep(tmp_path / str(whole), runs, ["algorithm", "seed", LR], summaries=whole)
        drawings = [draw([path], PlotOptions(x)) for x in ("round", LR)]
        found.append(drawings)
        assert [line["seeds"] for line in drawings[0].said["series"]] == [[5, 6, 7]] * 3
    for first, second in zip(*found, strict=True):
        pd.testing.assert_frame_equal(first.points, second.points)
