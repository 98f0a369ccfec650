"""Every number that a picture shows, against the same number computed another way."""

from __future__ import annotations

import csv
import json
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from make_results import METRICS, comparison, rows, write_csv, write_run, write_sweep
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from scipy.stats import linregress

import fedbench
from fedbench.errors import DataError
from fedbench.figures import style
from fedbench.figures.comparisons import draw_settings, draw_speedup, draw_untuned
from fedbench.papers.claims import slope

FEW = ["fedavg", "scaffold", "padamfed"]


def colour(name: str) -> str:
    return style.ALGORITHMS[name].colour


def hexed(value: Any) -> str:
    return matplotlib.colors.to_hex(value).upper()


def marked(ax: Axes, gid: str) -> list[Any]:
    return [line for line in ax.lines if line.get_gid() == gid]


def mean_of(ax: Axes, name: str) -> np.ndarray:
    """The drawn mean line of an algorithm, (points, 2)."""
    (line,) = (line for line in marked(ax, "mean") if hexed(line.get_color()) == colour(name))
    return np.asarray(line.get_xydata())


def exact(accuracies: list[float], every: int = 5, **more: list[float]) -> list[dict[str, Any]]:
    """Rows of metrics.csv with these accuracies; `more`: further columns."""
    made = rows(0.5, 0.6, 0, last=every * (len(accuracies) - 1), every=every)
    for rank, row in enumerate(made):
        row.update(test_accuracy=accuracies[rank], test_loss=1 - accuracies[rank])
        row.update({name: values[rank] for name, values in more.items()})
    return made


def table(file: Path) -> list[dict[str, str]]:
    with file.open() as stream:
        return list(csv.DictReader(stream))


SHORTER = ([0.1, 0.5, 0.7, 0.9], [0.2, 0.4, 0.75], [0.15, 0.65])


@pytest.mark.parametrize("spread", ["std", "sem", "minmax"])
def test_bands_count_the_runs_that_are_there(tmp_path: Path, spread: str) -> None:
    """Three seeds, then two, then one: the deviation divides by n - 1, its error by the root of that n."""
    for seed, accuracies in enumerate(SHORTER):
        write_run(tmp_path / str(seed), exact(accuracies), seed=seed)
    fedbench.plot(tmp_path, spread=spread, out=tmp_path / "f")
    found = table(tmp_path / "f.csv")
    assert [row["n"] for row in found] == ["3", "3", "2", "1"]
    for at, row in enumerate(found):
        values = [accuracies[at] for accuracies in SHORTER if at < len(accuracies)]
        assert float(row["test_accuracy_mean"]) == pytest.approx(statistics.mean(values), rel=1e-12)
        if len(values) == 1:
            assert row["test_accuracy_low"] == row["test_accuracy_high"] == ""
            continue
        half = statistics.stdev(values) / (len(values) ** 0.5 if spread == "sem" else 1)
        ends = [statistics.mean(values) - half, statistics.mean(values) + half]
        ends = [min(values), max(values)] if spread == "minmax" else ends
        assert [float(row[f"test_accuracy_{end}"]) for end in ("low", "high")] == pytest.approx(ends)
    said = json.loads((tmp_path / "f.json").read_text())
    words = {"std": "±1 sample standard deviation", "sem": "±1 standard error of the mean"}
    assert said["band"] == f"band: {words.get(spread, 'smallest to largest')}"
    assert "n falls along the line: FedAvg (3 to 1)." in said["notes"]


@pytest.mark.parametrize("spread", ["std", "sem", "minmax"])
def test_spreads_of_results_count_the_runs_that_are_there(tmp_path: Path, spread: str) -> None:
    """Of four seeds at one rate one diverged, and one was not run at the other."""
    results = {0.1: [0.5, 0.62, 0.7, None], 1.0: [0.4, 0.8, 0.6]}
    for lr, accuracies in results.items():
        for seed, accuracy in enumerate(accuracies):
            status = "completed" if accuracy else "diverged"
            config = {"algorithm.lr": lr}
            made = exact([0.1, accuracy or 0.3])
            write_run(tmp_path / f"{lr}-{seed}", made, seed=seed, status=status, config=config)
    fedbench.plot(tmp_path, x="algorithm.lr", spread=spread, out=tmp_path / "f")
    for row in table(tmp_path / "f.csv"):
        values = [value for value in results[float(row["algorithm.lr"])] if value]
        assert (row["n"], row["diverged"]) == ("3", "1" if row["algorithm.lr"] == "0.1" else "0")
        mean, half = statistics.mean(values), statistics.stdev(values) / (3**0.5 if spread == "sem" else 1)
        ends = [min(values), max(values)] if spread == "minmax" else [mean - half, mean + half]
        names = [f"final_accuracy_{name}" for name in ("mean", "low", "high")]
        assert [float(row[name]) for name in names] == pytest.approx([mean, *ends], rel=1e-12)


def test_the_band_that_is_drawn_is_the_table_s(tmp_path: Path) -> None:
    """Of curves and of results: the corners of the band are (x, low) and (x, high)."""
    sweep = comparison(tmp_path / "s", FEW)
    by_lr = [
        {"metrics": rows(0.5 + 0.1 * rate + 0.01 * seed, 0.6, seed, last=20), "algorithm": name, "seed": seed,
         "config": {"algorithm.lr": rate}}
        for name in FEW for rate in (1.0, 2.0, 3.0) for seed in range(3)
    ]  # fmt: skip
    results = write_sweep(tmp_path / "r", by_lr, ["algorithm.lr"])
    for x, y, place in (("round", "test_accuracy", sweep), ("algorithm.lr", "final_accuracy", results)):
        (ax,) = fedbench.plot(place, x=x, out=tmp_path / "f").axes
        bands = {hexed(band.get_facecolor()[0]): band.get_paths()[0].vertices for band in ax.collections}
        for name in FEW:
            corners = {(round(at, 6), round(up, 9)) for at, up in bands[colour(name)]}
            for row in table(tmp_path / "f.csv"):
                if row["algorithm"] == name:
                    for end in ("low", "high"):
                        corner = (round(float(row[x]), 6), round(float(row[f"{y}_{end}"]), 9))
                        assert corner in corners


def test_runs_of_two_precisions_are_two_lines(tmp_path: Path) -> None:
    """0.6 and 0.8, and no line at 0.7; against a key too."""
    for dtype, accuracy in (("float32", 0.6), ("float64", 0.8)):
        for seed in (0, 1):
            config = {"dtype": dtype, "algorithm.lr": 0.1}
            write_run(tmp_path / f"{dtype}{seed}", exact([0.1, accuracy]), seed=seed, config=config)
    for x in ("round", "algorithm.lr"):
        figure = fedbench.plot(tmp_path, x=x, out=tmp_path / "f")
        ends = [line.get_ydata()[-1] for line in marked(figure.axes[0], "mean")]
        assert ends == [0.6, 0.8]
        assert {row["series"] for row in table(tmp_path / "f.csv")} == {
            "FedAvg, dtype=float32",
            "FedAvg, dtype=float64",
        }


def test_a_cross_stands_where_its_run_diverged(tmp_path: Path) -> None:
    """At the last finite point of that run, whatever the others did; the mean is without it."""
    runs = [
        {"metrics": exact([0.1, 0.3, 0.5, 0.7]), "algorithm": "fedavg", "seed": 0},
        {"metrics": exact([0.1, 0.4, 0.2]), "algorithm": "fedavg", "seed": 1, "status": "diverged"},
        {"metrics": exact([0.1, 0.35]), "algorithm": "scaffold", "seed": 0, "status": "diverged"},
        {"metrics": exact([0.1, 0.3, 0.6, 0.65]), "algorithm": "scaffold", "seed": 1},
    ]
    (ax,) = fedbench.plot(write_sweep(tmp_path, runs, ["algorithm", "seed"])).axes
    crosses = {hexed(mark.get_color()): mark.get_xydata()[0].tolist() for mark in marked(ax, "diverged")}
    assert crosses == {colour("fedavg"): [10, 0.2], colour("scaffold"): [5, 0.35]}
    np.testing.assert_array_equal(mean_of(ax, "fedavg")[:, 1], [0.1, 0.3, 0.5, 0.7])
    np.testing.assert_array_equal(mean_of(ax, "scaffold")[:, 1], [0.1, 0.3, 0.6, 0.65])


def test_a_cross_of_a_result_stands_at_its_value(tmp_path: Path) -> None:
    for lr, status in ((0.1, "completed"), (1.0, "completed"), (3.0, "diverged")):
        write_run(tmp_path / str(lr), exact([0.1, 0.5]), status=status, config={"algorithm.lr": lr})
    (ax,) = fedbench.plot(tmp_path, x="algorithm.lr").axes
    (cross,) = marked(ax, "diverged")
    assert cross.get_xdata()[0] == 3.0
    strip = next(patch for patch in ax.patches if patch.get_gid() == "strip").get_window_extent()
    assert strip.contains(*cross.get_transform().transform(cross.get_xydata())[0])


def test_every_line_bears_its_own_name(tmp_path: Path) -> None:
    """In the legend, in the colour and with the marker of the line."""
    heights = {"fedavg": 0.3, "scaffold": 0.9, "padamfed": 0.6}
    runs = [
        {"metrics": exact([0.1, 0.2 + top, top]), "algorithm": name, "config": {"algorithm.lr": lr}}
        for name, top in heights.items()
        for lr in (1.0, 2.0)
    ]
    path = write_sweep(tmp_path, runs, ["algorithm", "algorithm.lr"])
    figure = fedbench.plot(path, x="algorithm.lr")
    named = legend(figure)
    for name, top in heights.items():
        look = style.ALGORITHMS[name]
        assert (hexed(named[look.label].get_color()), named[look.label].get_marker()) == (
            look.colour,
            look.marker,
        )
        assert mean_of(figure.axes[0], name)[:, 1].tolist() == [top, top]


def legend(figure: Figure) -> dict[str, Any]:
    """Name -> the mark beside it."""
    (found,) = figure.legends
    return dict(zip([text.get_text() for text in found.get_texts()], found.legend_handles, strict=True))


def test_results_are_the_final_the_best_or_the_last_as_asked(tmp_path: Path) -> None:
    """The final accuracy is that of the summary (a mean of evaluations, say), not the last row's."""
    for lr, top in ((1.0, 0.9), (2.0, 0.8)):
        summary = write_run(tmp_path / str(lr), exact([0.1, top, 0.5]), config={"algorithm.lr": lr})
        summary = {**summary, "final_accuracy": (top + 0.5) / 2}
        (tmp_path / str(lr) / "summary.json").write_text(json.dumps(summary))
    expected = {
        "final_accuracy": [0.7, 0.65],
        "test_accuracy": [0.7, 0.65],
        "best_accuracy": [0.9, 0.8],
        "best_round": [5, 5],
        "test_loss": [0.5, 0.5],
        "round": [10, 10],
    }
    for y, values in expected.items():
        (ax,) = fedbench.plot(tmp_path, x="algorithm.lr", y=y).axes
        np.testing.assert_allclose(mean_of(ax, "fedavg"), np.column_stack([[1, 2], values]))


def test_panels_have_their_own_runs(tmp_path: Path) -> None:
    """A panel for each partition, of curves and of results, with that partition's values."""
    tops = {"iid": 0.9, "shards(2)": 0.5}
    runs = [
        {"metrics": exact([0.1, top]), "algorithm": "fedavg",
         "config": {"partition": name.partition("(")[0], "partition.alpha": None, "algorithm.lr": lr}}
        for name, top in tops.items() for lr in (1.0, 2.0)
    ]  # fmt: skip
    path = write_sweep(tmp_path, runs, ["partition", "algorithm.lr"])
    for more in ({"where": {"algorithm.lr": [1.0]}}, {"x": "algorithm.lr"}):
        figure = fedbench.plot(path, rows="partition", **more)
        assert {ax.get_title(): mean_of(ax, "fedavg")[-1, 1] for ax in figure.axes} == tops


@pytest.mark.parametrize(
    ("column", "values", "label", "last"),
    [
        ("uplink_bytes", [0, 4e9], "Uplink (bytes)", "4 G"),
        ("downlink_bytes", [0, 4e5], "Downlink (bytes)", "400 k"),
        ("gradient_evaluations", [0, 3e7], "Gradient evaluations", "30 M"),
        ("gradient_evaluations", [0, 900], "Gradient evaluations", "800"),
        ("wall_seconds", [0, 8000.0], "Wall-clock time (s)", "8000"),
        ("staleness_mean", [0, 2.5], "Mean staleness", "2.5"),
        ("virtual_time", [0, 2.5], "Virtual time", "2.5"),
    ],
)
def test_large_counts_are_written_shortly(
    tmp_path: Path, column: str, values: list[float], label: str, last: str
) -> None:
    write_run(tmp_path, exact([0.1, 0.5], **{column: values}))
    (ax,) = fedbench.plot(tmp_path, x=column, out=tmp_path / "f").axes
    assert ax.get_xlabel() == label
    np.testing.assert_allclose(mean_of(ax, "fedavg")[:, 0], values)
    ax.figure.draw_without_rendering()
    assert last in [tick.get_text() for tick in ax.get_xticklabels()]
    assert [float(row[column]) for row in table(tmp_path / "f.csv")] == values
    (ax,) = fedbench.plot(tmp_path, y=column).axes
    assert ax.get_ylabel() == label
    np.testing.assert_allclose(mean_of(ax, "fedavg")[:, 1], values)


def test_small_multiples_show_each_line_before_all_others(tmp_path: Path) -> None:
    """Nine lines in three rows of three, in their order, the others behind in grey."""
    names = list(style.ALGORITHMS)[:9]
    runs = [
        {"metrics": exact([0.1, 0.9, 0.3 + 0.05 * rank + 0.02 * seed]), "algorithm": name, "seed": seed}
        for rank, name in enumerate(names)
        for seed in (0, 1)
    ]
    figure = fedbench.plot(write_sweep(tmp_path, runs, ["algorithm", "seed"]), width="two")
    assert [ax.get_title() for ax in figure.axes] == [style.ALGORITHMS[name].label for name in names]
    assert len({round(ax.get_position().x0, 6) for ax in figure.axes}) == 3
    for rank, (ax, name) in enumerate(zip(figure.axes, names, strict=True)):
        assert mean_of(ax, name)[-1, 1] == pytest.approx(0.31 + 0.05 * rank)
        (behind,) = (part for part in ax.collections if isinstance(part, LineCollection))
        assert [line[-1, 1] for line in behind.get_segments()] == pytest.approx(
            [0.31 + 0.05 * rank for rank in range(9)]
        )


def test_a_repeated_seed_is_the_run_that_finished(tmp_path: Path) -> None:
    """Whichever comes first; else the first one. It is in no mean twice, and the caption says so."""
    for name, accuracy, status in (("a", 0.2, "failed"), ("b", 0.6, "completed"), ("c", 0.9, "completed")):
        write_run(tmp_path / name, exact([0.1, accuracy]), status=status, config={"algorithm.lr": 0.1})
    for x, y in (("round", "test_accuracy"), ("algorithm.lr", "final_accuracy")):
        fedbench.plot(tmp_path, x=x, out=tmp_path / "f")
        last = table(tmp_path / "f.csv")[-1]
        assert (float(last[f"{y}_mean"]), last["n"]) == (0.6, "1")
        assert "epeated run" in (tmp_path / "f.md").read_text()


def test_interpolated_seeds_divide_by_n_minus_1(tmp_path: Path) -> None:
    """y = 0.1 x, 0.2 x and 0.3 x at other times: mean 0.2 x and deviation 0.1 x where all three are."""
    for seed, times in enumerate(([0, 1, 3], [0, 2, 4], [0, 2.5, 5])):
        made = exact([0.1 * (seed + 1) * time for time in times], virtual_time=times)
        write_run(tmp_path / str(seed), made, seed=seed)
    fedbench.plot(tmp_path, x="virtual_time", out=tmp_path / "f")
    found = table(tmp_path / "f.csv")
    assert [float(row["virtual_time"]) for row in found] == [0, 1, 2, 2.5, 3]
    for row in found:
        at = float(row["virtual_time"])
        ends = [float(row[f"test_accuracy_{end}"]) for end in ("mean", "low", "high")]
        assert ends == pytest.approx([0.2 * at, 0.1 * at, 0.3 * at])


def test_the_speed_ups_intervals_are_students(tmp_path: Path) -> None:
    """Three S, one seed: n - 2 = 1 degree of freedom, and scipy's own regression; grey: the theorems' slopes
    from the highest start."""
    from fedbench.papers.across import POWERS, by_work

    norms = {1: 0.9, 2: 0.8, 4: 0.62}
    runs = []
    for name, (S, norm) in product(("padamfed", "masfl"), norms.items()):
        config = {"clients.per_round": S, "local.steps": 2, "rounds": 20}
        norm /= 1 if name == "padamfed" else 2
        metrics = [{**row, "grad_norm": norm} for row in rows(0.7, 0.6, 0, last=20)]
        metrics[-1]["grad_norm"] = 100.0  # of the last round, which the theorems' mean leaves out
        runs.append({"metrics": metrics, "algorithm": name, "config": config})
    write_sweep(tmp_path / "final", runs, ["clients.per_round"])
    by_work(tmp_path, tmp_path / "out")
    points = pd.read_csv(tmp_path / "out" / "speedup.csv").query("algorithm == 'padamfed'")
    assert points.work.tolist() == [40, 80, 160]
    assert points.grad_norm.tolist() == pytest.approx(list(norms.values()))
    fit = linregress(np.log([40, 80, 160]), np.log(list(norms.values())))
    assert points.slope.tolist() == pytest.approx([fit.slope] * 3)
    assert points.slope_half.tolist() == pytest.approx([12.7062 * fit.stderr] * 3, rel=1e-4)
    (ax,) = draw_speedup([tmp_path / "final"], POWERS, slope).figure.axes
    x, grey = np.array([40, 80, 160]), [mark for mark in ax.lines if hexed(mark.get_color()) == style.MUTED]
    for mark, power in zip(grey, (-1 / 3, -1 / 4), strict=True):
        np.testing.assert_allclose(mark.get_xydata(), np.column_stack([x, 0.9 * (x / 40) ** power]))


def test_relative_rates_of_a_line_that_lacks_one(tmp_path: Path) -> None:
    """All runs at FedAvg's lowest rate failed: its others stand where they belong. Where nothing says which
    rate is missing, it is said instead of guessed."""
    from fedbench.papers.across import FACTORS, by_relative_lr

    runs = [
        {"metrics": rows(0.5, 0.6, 0, last=10), "algorithm": name, "config": {"algorithm.lr": own * factor},
         "status": "failed" if (name, factor) == ("fedavg", FACTORS[0]) else "completed"}
        for name, own in (("fedavg", 0.1), ("scaffold", 3.0)) for factor in FACTORS
    ]  # fmt: skip
    path = write_sweep(tmp_path / "final", runs, ["algorithm", "algorithm.lr"])
    by_relative_lr(tmp_path, tmp_path / "out")
    points = pd.read_csv(tmp_path / "out" / "lr_relative.csv")
    for name, own, factors in (("fedavg", 0.1, FACTORS[1:]), ("scaffold", 3.0, FACTORS)):
        part = points[points.algorithm == name]
        assert part.factor.tolist() == pytest.approx(factors)
        assert part.reference.tolist() == pytest.approx([own] * len(factors))
    lines = [line for line in (path / "runs.csv").read_text().splitlines() if ",failed," not in line]
    (path / "runs.csv").write_text("\n".join(lines) + "\n")
    for file in ("summary.json", "metrics.csv"):
        (path / "fedavg-0" / file).unlink()
    with pytest.raises(DataError, match=r"FedAvg: 8 learning rates, but 9 factors"):
        by_relative_lr(tmp_path, tmp_path / "out")


def test_metrics_are_read_in_order_of_the_round(tmp_path: Path) -> None:
    made = exact([0.1, 0.5, 0.7])
    write_run(tmp_path, made)
    write_csv(tmp_path / "metrics.csv", METRICS, [made[2], made[0], made[1]])
    (ax,) = fedbench.plot(tmp_path).axes
    np.testing.assert_array_equal(mean_of(ax, "fedavg"), [[0, 0.1], [5, 0.5], [10, 0.7]])


def test_default_steps_are_stated(tmp_path: Path) -> None:
    """10 local steps where neither steps nor epochs are given; epochs where those are."""
    for config, said in (
        ({"local.steps": None}, "K=10"),
        ({"local.steps": None, "local.epochs": 3}, "epochs=3"),
    ):
        write_run(tmp_path, exact([0.1, 0.5]), config=config)
        fedbench.plot(tmp_path, out=tmp_path / "f")
        text = (tmp_path / "f.md").read_text()
        assert f"S=10, {said}, B=32" in text


def test_a_star_has_the_spread_of_its_own_runs(tmp_path: Path) -> None:
    """The error bar reaches from the smallest to the largest of two seeds, at the theorem's rate."""
    accuracies = [0.5, 0.7]
    for seed, accuracy in enumerate(accuracies):
        for lr in (0.01, None, 1.0):
            more = {"hyper": {"lr": lr or 0.2, "server_lr": 7.0}}
            more["config"] = {"algorithm.lr": lr, "algorithm.server_lr": None}
            write_run(
                tmp_path / f"{seed}{lr}", exact([0.1, accuracy if lr is None else 0.3]), seed=seed, **more
            )
    (ax,) = fedbench.plot(tmp_path, x="algorithm.lr", out=tmp_path / "f").axes
    (bars,) = (part for part in ax.collections if isinstance(part, LineCollection))
    np.testing.assert_allclose(bars.get_segments(), [[[0.2, 0.5], [0.2, 0.7]]])
    star = next(row for row in table(tmp_path / "f.csv") if row["theorem"] == "True")
    assert [float(star[f"final_accuracy_{end}"]) for end in ("mean", "low", "high")] == [0.6, 0.5, 0.7]
    assert float(star["algorithm.lr"]) == 0.2
    (ax,) = fedbench.plot(tmp_path, x="algorithm.server_lr").axes
    assert np.unique(np.concatenate([mark.get_xdata() for mark in marked(ax, "theorem")])).tolist() == [7.0]


def test_a_share_of_variance_may_be_negative(tmp_path: Path) -> None:
    """A band of accuracies stays above 0, one of R² does not."""
    for metric, low in (("accuracy", 0.0), ("R2", -0.4)):
        for seed, value in enumerate((-0.2, 0.0, 0.5)):
            place = tmp_path / metric / str(seed)
            summary = write_run(place, exact([0.0, value]), seed=seed)
            (place / "summary.json").write_text(json.dumps({**summary, "metric": metric}))
        fedbench.plot(tmp_path / metric, out=tmp_path / "f")
        found = float(table(tmp_path / "f.csv")[-1]["test_accuracy_low"])
        deviation = statistics.stdev((-0.2, 0.0, 0.5))
        assert found == pytest.approx(max(0.1 - deviation, -1.0 if metric == "R2" else low))


def test_the_captions_data_are_those_of_the_lines(tmp_path: Path) -> None:
    """Choices, hyper-parameters in use, seeds, ends and places of every line; what all share, and no more."""
    for name, lr in (("fedavg", 0.25), ("scaffold", 0.5)):
        for seed in (4, 7):
            config = {"algorithm.lr": lr, "clients.per_round": 10 if name == "fedavg" else 20}
            place = tmp_path / f"{name}{seed}"
            status = "diverged" if (name, seed) == ("scaffold", 7) else "completed"
            more = {"algorithm": name, "config": config, "hyper": {"lr": lr}, "status": status}
            write_run(place, exact([0.1, 0.5]), seed=seed, **more)
    fedbench.plot(tmp_path, out=tmp_path / "f")
    said = json.loads((tmp_path / "f.json").read_text())
    assert [
        (one["label"], one["hyper"], one["seeds"], one["n"], one["status"]) for one in said["series"]
    ] == [
        ("FedAvg", {"lr": 0.25}, [4, 7], 2, ["completed"] * 2),
        ("SCAFFOLD", {"lr": 0.5}, [4, 7], 2, ["completed", "diverged"]),
    ]
    assert [Path(run).name for run in said["series"][1]["runs"]] == ["scaffold4", "scaffold7"]
    shared = said["settings"]
    assert {"algorithm", "algorithm.lr", "clients.per_round", "seed"} & set(shared) == set()
    assert (shared["clients.total"], shared["rounds"], shared["model"]) == (100, 100, "cnn")
    assert "N=100, K=5" in said["text"][0]
    assert "n = 2 seeds (4, 7); band: smallest to largest." in said["text"][0]
    assert "Diverged (×), not in the mean: SCAFFOLD (1 of 2)." in said["notes"]


def test_seeds_are_counted_line_by_line(tmp_path: Path) -> None:
    for name, seeds in (("fedavg", (0,)), ("scaffold", (0, 1, 2))):
        for seed in seeds:
            write_run(tmp_path / f"{name}{seed}", exact([0.1, 0.5]), seed=seed, algorithm=name)
    fedbench.plot(tmp_path, out=tmp_path / "f")
    text = (tmp_path / "f.md").read_text()
    assert "Mean over n = 1 to 3 seeds; band: ±1 sample standard deviation." in text


def test_settings_stand_in_their_rows(tmp_path: Path) -> None:
    """Accuracy, spread and the tick without noise of every setting at the height of its name."""
    results = {(10, 0): 0.5, (10, 1): 0.6, (20, 0): 0.7, (20, 1): 0.9}
    runs = []
    for (S, seed), accuracy in results.items():
        runs.append({"clients.per_round": S, "seed": seed, "accuracy": accuracy, "server_lr": 0.01 * S})
    runs += [
        {"clients.per_round": 1, "clients.total": 1, "seed": 0, "accuracy": 0.95, "server_lr": 0.01 * S}
        for S in (10,)
    ]
    made = []
    for one in runs:
        accuracy, server_lr = one.pop("accuracy"), one.pop("server_lr")
        config = {"algorithm.norm": "vector", "rounds": 400, **one}
        made.append({"metrics": exact([0.1, accuracy]), "algorithm": "padamfed", "seed": one["seed"],
                     "config": config, "hyper": {"server_lr": server_lr}})  # fmt: skip
    path = write_sweep(tmp_path / "s", made, ["clients.per_round", "clients.total"])
    (ax,) = draw_settings([path], {"padamfed": 1 / 4}, (0.8,)).figure.axes
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["Dirichlet(0.5)", "S=20"]
    (dots,) = marked(ax, "accuracy")
    np.testing.assert_allclose(dots.get_xydata(), [[0.55, -0.24], [0.8, 0.76]])  # of one method
    (spread,) = (part for part in ax.collections if part.get_gid() == "spread")
    np.testing.assert_allclose(
        spread.get_segments(), [[[0.5, -0.24], [0.6, -0.24]], [[0.7, 0.76], [0.9, 0.76]]]
    )
    (ticks,) = marked(ax, "bound")
    np.testing.assert_allclose(ticks.get_xydata(), [[0.95, -0.24], [np.nan, 0.76]])
    (level,) = marked(ax, "level")
    assert set(level.get_xdata()) == {0.8}


def test_tasks_medians_and_worst_cases_stand_at_their_methods(tmp_path: Path) -> None:
    """FedAvg is best on every task but one, and SCAFFOLD's shares are 0.5, 0.75 and 1: median 0.75, worst
    0.5."""
    accuracies = {"fedavg": (0.8, 0.8, 0.6), "scaffold": (0.4, 0.6, 0.8)}
    runs = [
        {"metrics": exact([0.1, value]), "algorithm": name, "seed": seed,
         "config": {"partition": task, "partition.alpha": None}}
        for name, values in accuracies.items()
        for task, value in zip(("iid", "shards", "powerlaw"), values, strict=True)
        for seed in (0, 1)
    ]  # fmt: skip
    (ax,) = draw_untuned([write_sweep(tmp_path / "s", runs, ["partition"])]).figure.axes
    rows = {"FedAvg": [1.0, 1.0, 0.75], "SCAFFOLD": [0.5, 0.75, 1.0]}
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list(rows)
    for rank, (name, values) in enumerate(rows.items()):
        points = next(mark for mark in marked(ax, "task") if round(mark.get_ydata().mean()) == rank)
        assert points.get_ydata() - rank == pytest.approx([-0.3, 0.0, 0.3])  # a task's height in every row
        assert points.get_xdata().tolist() == pytest.approx(values)
        assert hexed(points.get_color()) == colour(name.lower())
        bar = [part for part in ax.collections if part.get_gid() == "median"][rank].get_segments()[0]
        assert bar.mean(axis=0) == pytest.approx([statistics.median(values), rank])
        said = [text.get_text() for text in ax.texts if text.get_gid() == "numbers"]
        assert said[rank] == f"{statistics.median(values):.2f}, {min(values):.2f}"


def test_a_row_of_results_has_each_outcome_under_its_own_name(tmp_path: Path) -> None:
    """Of a finished run as its summary says; of one under way as far as its rows go."""
    summary = write_run(tmp_path / "run", exact([0.1, 0.9, 0.5], wall_seconds=[0.0, 2.0, 3.0]), seed=4)
    own = {"final_accuracy": 0.7, "best_accuracy": 0.9, "best_round": 5, "final_test_loss": 0.25}
    own["wall_seconds"] = 8.0
    (tmp_path / "run" / "summary.json").write_text(json.dumps({**summary, **own, "error": None}))
    row = fedbench.results(tmp_path / "run").iloc[0].to_dict()
    assert {name: row[name] for name in own} == own
    assert (row["status"], row["rounds_done"], row["seed"], row["algorithm"]) == (
        "completed",
        10,
        4,
        "fedavg",
    )
    sweep = comparison(tmp_path / "sweep", ["led"], seeds=1)
    row = fedbench.results(sweep).iloc[0].to_dict()
    with (sweep / "runs.csv").open() as file:
        (listed,) = csv.DictReader(file)
    assert row["final_accuracy"] == float(listed["final_accuracy"])
    assert row["best_accuracy"] == float(listed["best_accuracy"])


def test_tables_alone_give_the_same_figure(tmp_path: Path) -> None:
    """runs.csv and rounds.csv without the runs' directories: the same means, spreads, n and seeds."""
    found = []
    for whole in (True, False):
        runs = [
            {"metrics": rows(0.6 + 0.1 * rank + 0.02 * seed, 0.6, seed, last=20), "algorithm": name,
             "seed": seed + 5, "config": {"algorithm.lr": 0.1}}
            for rank, name in enumerate(FEW) for seed in range(3)
        ]  # fmt: skip
        path = write_sweep(
            tmp_path / str(whole), runs, ["algorithm", "seed", "algorithm.lr"], summaries=whole
        )
        for x in ("round", "algorithm.lr"):
            fedbench.plot(path, x=x, out=tmp_path / "f")
            said = json.loads((tmp_path / "f.json").read_text())
            found.append(((tmp_path / "f.csv").read_text(), [one["seeds"] for one in said["series"]]))
    assert found[:2] == found[2:]
    assert found[0][1] == [[5, 6, 7]] * 3
