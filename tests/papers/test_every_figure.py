"""Every figure and table at smoke scale, from one command and nothing else: made once, looked at from all
sides."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from run_files import Call

from fedbench.papers import CLAIMS, FIGURES
from fedbench.papers.figure import lists_of, shown

pytestmark = pytest.mark.slow
TUNED = "padamfed/cifar10"
REDRAWN = "speedup"
WITHOUT_RUNS = {"theory/optimum": 20, "theory/stepsizes": 10, "theory/comparison": 2}
"""Files: five a picture (PNG, PDF, CSV, JSON, caption); the comparison is a table, as CSV and Markdown."""


def test_every_figure_is_made_at_smoke_scale_and_reported(fedbench: Call) -> None:
    """Tuned, run, drawn, kept with its provenance, current, in the report; no claim is decided by smoke."""
    assert fedbench("figures", "--all", "--scale", "smoke")[0] == 0
    each_has_its_files()
    what_the_report_says()
    assert sorted(os.listdir("outputs")) == ["runs", "smoke", "sweeps"]  # nothing to commit
    said = fedbench.done("figures", "--check")
    assert "no results" not in said
    assert f"current     {TUNED} --scale smoke" in said
    one_is_tuned_and_run_as_it_says()
    what_is_searched_is_run()
    the_same_again_computes_nothing(fedbench)
    a_table_has_the_published_numbers_beside_ours()
    a_table_of_curves_has_a_panel_for_each_setting()
    one_is_drawn_again_without_runs(fedbench)


def each_has_its_files() -> None:
    for name, figure in FIGURES.items():
        out = shown(name, "smoke")
        made = json.loads((out / "made.json").read_text())
        assert made["files"], name
        assert all((out / file).stat().st_size > 0 for file in made["files"]), name
        pictures = {Path(file).stem for file in made["files"] if file.endswith(".png")}
        for stem in pictures:
            assert {f"{stem}.{end}" for end in ("csv", "json", "pdf", "png")} <= set(made["files"]), name
        if figure.runs:
            runs = pd.read_csv(out / "runs.csv")
            assert set(runs.status) <= {"completed", "diverged"}, name
            assert made["runs"] == runs.status.value_counts().to_dict(), name
        else:
            assert len(made["files"]) == WITHOUT_RUNS[name], name
        assert (out / "tuning.csv").is_file() == bool(figure.tuned or figure.search), name


def what_the_report_says() -> None:
    claims = pd.read_csv("outputs/smoke/claims.csv")
    assert list(claims.claim.unique()) == [claim.name for claim in CLAIMS]
    needs_more = [claim.name for claim in CLAIMS if claim.scale != "smoke"]
    assert set(claims[claims.claim.isin(needs_more)].word) == {"too few"}
    linked = {
        (page.parent / link).resolve()
        for page in Path("outputs/smoke").glob("*/README.md")
        for link in re.findall(r"\]\((\S+?/README\.md)", page.read_text())
    }
    assert {(shown(name, "smoke") / "README.md").resolve() for name in FIGURES} <= linked


def one_is_tuned_and_run_as_it_says() -> None:
    """CIFAR-10's figure on digits: 3 baselines x 2 rates tuned, 7 methods x 2 seeds."""
    out = shown(TUNED, "smoke")
    runs = pd.read_csv(out / "runs.csv")
    methods = ("fedavg", "scaffold", "scaffold_m", "padamfed", "padamfed_vr")
    ours = runs.algorithm.str.startswith("padamfed")
    norms = ("vector", "tensor")
    assert runs[~ours].groupby("algorithm").seed.apply(sorted).to_dict() == {
        name: [0, 1] for name in methods[:3]
    }
    read = runs[ours].groupby(["algorithm", "algorithm.norm"]).seed.apply(sorted).to_dict()
    assert read == {(method, norm): [0, 1] for method in methods[3:] for norm in norms}
    assert set(runs[runs.algorithm == "fedavg"]["algorithm.weighting"]) == {"uniform"}
    tuning = pd.read_csv(out / "tuning.csv")
    winners = tuning[tuning.role == "winner"].set_index("algorithm")
    for algorithm, part in tuning.groupby("algorithm"):
        assert winners.loc[algorithm, "mean"] == part["mean"].max()
        used = runs[runs.algorithm == algorithm]["algorithm.lr"]
        assert set(used) == {winners.loc[algorithm, "algorithm.lr"]}
    assert runs[runs.algorithm == "padamfed"]["algorithm.lr"].isna().all()  # the theorem's
    points = pd.read_csv(out / "accuracy.csv")
    at = {"algorithm": "padamfed", "algorithm.norm": "tensor", "round": 10}
    final = points.loc[(points[list(at)] == pd.Series(at)).all(axis=1), "test_accuracy_mean"].item()
    rounds = pd.read_csv(out / "rounds.csv").merge(runs, on="run")
    rows = rounds[(rounds[list(at)] == pd.Series(at)).all(axis=1)]
    assert final == pytest.approx(rows.test_accuracy.mean(), abs=1e-12)
    made = json.loads((out / "made.json").read_text())
    assert made["validation"] == 0.1
    caption = json.loads((out / "accuracy.json").read_text())["text"][-1]
    assert "chosen by the accuracy on held-out training samples (dataset.validation=0.1)" in caption
    assert "with seeds that are not evaluated." in caption
    (searched,) = lists_of(TUNED, "smoke").glob("*/tuning/runs.csv")
    assert set(pd.read_csv(searched).seed) == {100}
    assert "validation_accuracy" not in rounds  # the chosen ones are trained on all samples
    assert "data.root" not in made["shared"]  # where this machine keeps its data is nobody's business
    assert all(Path(file["path"]).name == file["path"] for files in made["data"] for file in files)


def what_is_searched_is_run() -> None:
    """Three methods, two readings, two draws each: the table's runs have the winners' values."""
    out = shown("fedproxvr/table1_searched", "smoke")
    tuning, runs = pd.read_csv(out / "tuning.csv"), pd.read_csv(out / "runs.csv")
    assert len(tuning) == 12
    winners = tuning[tuning.role == "winner"]
    assert winners.groupby("search").size().to_dict() == {"free": 3, "rule": 3}
    for key in ("local.steps", "local.batch_size"):
        for search, part in winners.groupby("search"):
            assert set(runs[runs.dir.str.startswith(f"final-{search}/")][key]) == set(part[key])


def the_same_again_computes_nothing(fedbench: Call) -> None:
    before = {file: file.stat().st_mtime_ns for file in Path("outputs/runs").rglob("metrics.csv")}
    assert before
    assert fedbench("figures", TUNED, "--scale", "smoke")[0] == 0
    assert before == {file: file.stat().st_mtime_ns for file in before}


def a_table_has_the_published_numbers_beside_ours() -> None:
    """NIID-Bench on digits: four methods."""
    out = shown("peers/niid_fmnist", "smoke")
    table = pd.read_csv(out / "table.csv")
    assert list(table.method) == ["FedAvg", "FedProx", "SCAFFOLD", "FedNova"]
    assert table["ours (n)"].str.fullmatch(r"\d+\.\d% \(1\)").all()
    assert "from memory, not checked" in table.published[0]
    text = (out / "table.md").read_text()
    assert "rounds=2 (50)" in text
    assert "decide no verdict" in text


def a_table_of_curves_has_a_panel_for_each_setting() -> None:
    """FedProx's synthetic data: FedAvg and two values of mu, with and without stragglers."""
    out = shown("peers/fedprox_synthetic", "smoke")
    runs, rounds = pd.read_csv(out / "runs.csv"), pd.read_csv(out / "rounds.csv")
    for y in ("train_loss", "test_accuracy"):
        drawn = pd.read_csv(out / f"{y}.csv")
        late = [float(value) for value in drawn["participation.stragglers"].unique()]
        assert (sorted(late), len(drawn.groupby(["participation.stragglers", "series"]))) == ([0, 0.9], 6)
        assert sorted(drawn[f"{y}_mean"]) == sorted(rounds[y]), y
    assert len(runs) == 6  # one seed, so a mean is a run's own value


def one_is_drawn_again_without_runs(fedbench: Call) -> None:
    """Bytes of all files as they were, after all runs and its pictures are gone; it stays current."""
    out = shown(REDRAWN, "smoke")
    before = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}
    shutil.rmtree("outputs/runs")
    for file in out.glob("speedup.*"):
        file.unlink()
    again = ["figures", REDRAWN, "--scale", "smoke", "--redraw"]
    fedbench.done(*again)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    assert not Path("outputs/runs").exists()
    assert fedbench("figures", "--check")[0] == 0
    (out / "runs.csv").unlink()
    assert "no runs here" in fedbench.refused(*again)
    assert "nothing is computed" in fedbench.refused(*again, "threads=1")
    shutil.rmtree(shown("loss_scale", "smoke"))
    assert "no results are kept" in fedbench.refused("figures", "loss_scale", "--scale", "smoke", "--redraw")
