"""Every figure's drawing on invented sweeps that have the columns of its branches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from figures.make_results import rows, write_sweep
from papers.keep import keep_runs

from fedbench.figures import comparisons
from fedbench.figures.page import Drawing
from fedbench.figures.results import read
from fedbench.figures.style import of_algorithm
from fedbench.papers import FIGURES, across, fedproxvr
from fedbench.papers.claims import slope
from fedbench.papers.figure import experiment, runs_in


def invented(name: str, root: Path) -> Path:
    """The kept tables of a figure's branches: two values along each swept key, two seeds."""
    made = experiment(FIGURES[name], "smoke")
    stages: dict[str, list[dict[str, Any]]] = {}
    for rank, branch in enumerate(made.branches):
        points: list[dict[str, Any]] = [{}]
        for key, values in branch.along.items():
            points = [{**point, key: value} for point in points for value in values[:2]]
        if made.figure.factors:
            points = [{"algorithm.lr": 0.1 * factor} for factor in made.figure.factors]
        for point in points:
            for seed in (0, 1):
                config = {**branch.context, **point}
                metrics = [{**row, "grad_norm": 1 / (1 + row["round"]), "train_loss": 0.5} for row in
                           rows(0.7 + 0.01 * rank, 0.6, seed, last=20)]  # fmt: skip
                stages.setdefault(branch.stage, []).append(
                    {
                        "metrics": metrics,
                        "algorithm": branch.algorithm,
                        "seed": seed,
                        "config": config,
                        "hyper": {"server_lr": 0.03},
                    }
                )
    for stage, runs in stages.items():
        write_sweep(root / "sweeps" / stage, runs, [])
    return keep_runs(root)


@pytest.mark.parametrize(
    "name",
    ["adamasfl/fig1", "fedproxvr/mu", "padamfed/settings", "padamfed/fig2_average", "untuned",
     "peers/niid_fmnist"],
)  # fmt: skip
def test_a_figure_of_some_kinds_is_drawn(name: str, tmp_path: Path) -> None:
    """All files exist; a picture has its points and its caption beside it. test_every_figure.py draws every
    one, from runs."""
    files = FIGURES[name].draw(invented(name, tmp_path))
    assert files
    assert all(file.is_file() for file in files)
    for picture in (file for file in files if file.suffix == ".png"):
        assert len(pd.read_csv(picture.with_suffix(".csv")))
        assert json.loads(picture.with_suffix(".json").read_text())["text"]


def test_the_speed_up_is_drawn_against_the_work(tmp_path: Path) -> None:
    """S = 1 and 2 at K = 5, T = 100: S K T = 500 and 1000; mean of 1/(1+t) over t = 0, 5, 10, 15. PAdaMFed
    and AdaMasFL have the same colour in pictures of one of them; PAdaMFed keeps it here."""
    drawing = comparisons.draw_speedup(runs_in(invented("speedup", tmp_path)), across.POWERS, slope)
    mine = drawing.points.query("algorithm == 'padamfed' and varied == 'S'")
    assert list(mine.work) == [500.0, 1000.0]
    assert mine.grad_norm.tolist() == pytest.approx([(1 + 1 / 6 + 1 / 11 + 1 / 16) / 4] * 2, rel=1e-12)
    colours = {name.split(",")[0]: colour for name, colour in legend(drawing).items()}
    looks = {name: colours[name] for name in ("PAdaMFed", "PAdaMFed-VR", "MasFL", "AdaMasFL")}
    assert len(set(looks.values())) == 4
    assert looks["PAdaMFed"] == of_algorithm("padamfed").colour


def legend(drawing: Drawing) -> dict[str, Any]:
    """The names in its legend, with their colours."""
    (found,) = drawing.figure.legends
    return {text.get_text(): line.get_color()
            for text, line in zip(found.get_texts(), found.get_lines(), strict=True)}  # fmt: skip


def test_relative_rates_are_1_at_each_lines_own(tmp_path: Path) -> None:
    """The factors come back whatever the reference is, also where two readings of a norm have two."""
    out = invented("lr_relative", tmp_path)
    listed = out / "runs.csv"
    runs = pd.read_csv(listed)
    runs.loc[runs["algorithm.norm"] == "tensor", "algorithm.lr"] *= 2
    runs.to_csv(listed, index=False)
    points = comparisons.draw_relative(runs_in(out), out, across.FACTORS).points
    assert len(set(points.series)) == 9  # five baselines, PAdaMFed and PAdaMFed-VR in two readings
    for _, part in points.groupby("series"):
        assert sorted(part.factor) == pytest.approx(sorted(across.FACTORS))
        assert set(part.reference.round(12)) == {0.2 if set(part["algorithm.norm"]) == {"tensor"} else 0.1}


def test_the_table_has_a_row_for_every_method(tmp_path: Path) -> None:
    """FedAvg and both estimators in each of three readings, with accuracies of two seeds averaged."""
    out = invented("fedproxvr/table1_searched", tmp_path)
    runs = pd.read_csv(out / "runs.csv").assign(**{"hyper.lr": 0.0025, "dataset.train_samples": 20000})
    runs.to_csv(out / "runs.csv", index=False)
    fedproxvr.best_table(out, smoothness=40)
    table = pd.read_csv(out / "table.csv")
    assert list(table.method) == ["fedavg", "fedproxvr svrg", "fedproxvr sarah"] * 3
    assert list(table.reading.unique()) == ["paper's rows", "one rule, searched", "tuned freely"]
    assert list(table.B[:3]) == [16, 32, 32]  # as in the paper's table
    assert list(table.beta) == pytest.approx([10] * 9, rel=1e-12)  # 1 / (0.0025 * 40)
    expected = runs[runs.dir.str.startswith("final/") & (runs.algorithm == "fedavg")].best_accuracy.mean()
    assert table["best accuracy"][0] == pytest.approx(expected, rel=1e-12)
    text = (out / "table.md").read_text()
    assert "| paper's rows | fedavg |" in text
    what = "fmnist (20,000 of its training samples), cnn, 100"  # of the invented runs
    assert f"Data, model, rounds: {what}." in text


def test_comparison_is_written(tmp_path: Path) -> None:
    """Both papers' tables in one file."""
    files = across.comparison(tmp_path)
    assert len(pd.read_csv(files[0])) == 14
    lines = files[1].read_text().splitlines()
    assert sum(line.startswith("| ---") for line in lines) == 2


def test_the_speed_ups_slopes_stand_beside_the_names(tmp_path: Path) -> None:
    """Norms of 3 (S K T)^(-1/4) at three S, one seed each: slope -0.25 with an interval of 0; K does not
    vary; MasFL, at two values, has no slope."""
    base = {"clients.per_round": 1, "local.steps": 2, "rounds": 20}
    runs = []
    for name, values in (("padamfed", (1, 2, 4)), ("masfl", (1, 2))):
        for S in values:
            norm = 3 * (S * 2 * 20) ** -0.25
            metrics = [{**row, "grad_norm": norm} for row in rows(0.7, 0.6, 0, last=20)]
            config = {**base, "clients.per_round": S}
            runs.append({"metrics": metrics, "algorithm": name, "config": config})
    write_sweep(tmp_path / "sweeps" / "final", runs, [])
    drawing = comparisons.draw_speedup(read([tmp_path]), across.POWERS, slope)
    points = drawing.points.set_index("algorithm")
    assert set(points.varied) == {"S"}
    assert points.loc["padamfed", "slope"].tolist() == pytest.approx([-0.25] * 3, rel=1e-9)
    assert points.loc["padamfed", "slope_half"].tolist() == pytest.approx([0.0] * 3, abs=1e-9)
    assert points.loc["masfl", "slope"].isna().all()
    assert {"PAdaMFed, S \N{MINUS SIGN}0.25 \N{PLUS-MINUS SIGN} 0.00", "MasFL"} <= {*legend(drawing)}
