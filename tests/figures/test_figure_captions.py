"""What stands under a drawing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from make_results import comparison, rows, write_sweep

from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions


@pytest.mark.parametrize("where", ["curves", "sensitivity"])
def test_data_that_is_not_official_is_named_under_the_drawing(tmp_path: Path, where: str) -> None:
    runs = comparison(tmp_path / "sweep", ["fedavg", "padamfed"])
    for file in runs.rglob("summary.json"):
        content = json.loads(file.read_text()) | {"data_note": "emnist.npz was used in place of the files"}
        file.write_text(json.dumps(content))
    if where == "curves":
        files = draw([runs], PlotOptions()).save(tmp_path / "figure")
    else:
        files = draw([runs], PlotOptions(x="seed")).save(tmp_path / "figure")
    text = json.loads(next(file for file in files if file.suffix == ".json").read_text())["text"][0]
    assert text.count("emnist.npz was used in place of the files.") == 1


def test_one_seed_at_several_values_has_no_band(tmp_path: Path) -> None:
    runs = [{"metrics": rows(0.5 + lr, 0.6, 0), "config": {"algorithm.lr": lr}} for lr in (0.01, 0.1)]
    files = draw([write_sweep(tmp_path / "s", runs, ["algorithm.lr"])], PlotOptions(x="algorithm.lr")).save(
        tmp_path / "figure"
    )
    text = json.loads(next(file for file in files if file.suffix == ".json").read_text())["text"][0]
    assert "n = 1 seed (0); no band." in text


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("starved", "ended early, since too few clients were left to fill an update"),
        ("failed", "failed"),
    ],
)
def test_runs_that_stop_early_are_counted(tmp_path: Path, status: str, words: str) -> None:
    runs = comparison(tmp_path / "sweep", ["fedavg", "padamfed"])
    one = sorted(runs.rglob("summary.json"))[0].parent
    for file in (one / "summary.json", runs / "runs.csv"):
        lines = file.read_text().splitlines(keepends=True)
        row = next(i for i, line in enumerate(lines) if "completed" in line)
        lines[row] = lines[row].replace("completed", status)
        file.write_text("".join(lines))
    files = draw([runs], PlotOptions()).save(tmp_path / "figure")
    text = json.loads(next(file for file in files if file.suffix == ".json").read_text())["text"][0]
    total = len(list(runs.rglob("summary.json")))
    assert f"1 of {total} runs {words}." in text


@pytest.mark.parametrize(("partition", "said"), [("dirichlet", True), ("iid", False)])
def test_clients_of_unequal_size_that_are_weighted_differently_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, partition: str, said: bool
) -> None:
    runs = [
        {
            "metrics": rows(0.8, 0.6, 0),
            "config": {"algorithm": name, "partition": partition} | more,
        }
        for name, more in (
            ("fedavg", {"algorithm.weighting": "samples"}),
            ("scaffold", {"algorithm.weighting": None}),
        )
    ]
    files = draw([write_sweep(tmp_path / "s", runs, ["algorithm", "partition"])], PlotOptions()).save(
        tmp_path / "figure"
    )
    text = json.loads(next(file for file in files if file.suffix == ".json").read_text())["text"][0]
    line = "Clients are weighted differently (samples: FedAvg; uniform: SCAFFOLD), so the objectives differ."
    assert (line in text) == said
    assert (line in caplog.text) == said


def test_notes_that_differ_in_numbers_alone_are_one_sentence(tmp_path: Path) -> None:
    notes = (
        "a.npz was used; 36,695 of 60,000 samples are kept",
        "a.npz was used; 8,746 of 60,000 samples are kept",
    )
    runs = comparison(tmp_path / "sweep", ["fedavg"], seeds=2)
    for file, note in zip(sorted(runs.rglob("summary.json")), notes, strict=True):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"data_note": note}))
    draw([runs], PlotOptions()).save(tmp_path / "figure")
    assert (
        " a.npz was used. 8,746 to 36,695 of 60,000 samples are kept. Data:"
        in (tmp_path / "figure.md").read_text()
    )
