"""What stands under a drawing, and beside it as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from make_results import comparison, exact, write_run

from fedbench.errors import ConfigError
from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions
from fedbench.sweeps.tables import write_manifest

LR = "algorithm.lr"


def caption(*places: Path, **options: Any) -> str:
    """The caption, which is one paragraph."""
    (text,) = draw(places, PlotOptions(**options)).said["text"]
    return str(text)


def test_a_caption_says_settings_seeds_band_losses_and_source(tmp_path: Path) -> None:
    """Word for word; the lines are in the data, each with its choices, hyper-parameters in use, seeds, ends
    and places."""
    for name, lr in (("fedavg", 0.25), ("scaffold", 0.5)):
        for seed in (4, 7):
            lost = (name, seed) == ("scaffold", 7)
            config = {LR: lr, "clients.per_round": 10 if name == "fedavg" else 20, "dataset.validation": 0.1}
            more = {"hyper": {"lr": lr}, "status": "diverged" if lost else "completed", "config": config}
            place = tmp_path / "s" / f"{name}{seed}"
            write_run(place, exact([0.1, 0.5]), seed=seed, algorithm=name, **more)
    said = draw([tmp_path / "s"], PlotOptions()).said
    assert said["text"] == [
        "Fashion-MNIST, CNN, Dirichlet(0.5), N=100, K=5, B=32, 0.1 of the training samples held out. Mean"
        " over n = 2 seeds (4, 7), without diverged runs (×); band: smallest to largest. Of 4 runs: 1"
        f" diverged. Data: {tmp_path.name}/s."
    ]
    assert [
        (one["label"], one["hyper"], one["seeds"], one["n"], one["status"]) for one in said["series"]
    ] == [
        ("FedAvg", {"lr": 0.25}, [4, 7], 2, ["completed"] * 2),
        ("SCAFFOLD", {"lr": 0.5}, [4, 7], 2, ["completed", "diverged"]),
    ]
    assert [Path(run).name for run in said["series"][1]["runs"]] == ["scaffold4", "scaffold7"]
    shared = said["settings"]
    assert not {"algorithm", LR, "clients.per_round", "seed"} & set(shared)
    assert (shared["clients.total"], shared["rounds"], shared["model"]) == (100, 100, "cnn")


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        (((0,), (0,)), "n = 1 seed (0); no band."),
        (((0,), (0, 1, 2)), "Mean over n = 1 to 3 seeds; band: ±1 sample standard deviation."),
        (((0, 1), (0, 1, 2)), "Mean over n = 2 to 3 seeds; band: smallest to largest or ±1 sample standard"),
    ],
)
def test_seeds_are_counted_line_by_line(tmp_path: Path, seeds: Any, words: str) -> None:
    for name, own in zip(("fedavg", "scaffold"), seeds, strict=True):
        for seed in own:
            config = {LR: 0.1}
            write_run(tmp_path / f"{name}{seed}", exact([0.1, 0.5]), seed=seed, algorithm=name, config=config)
    assert words in caption(tmp_path)


@pytest.mark.parametrize(
    ("key", "values"), [("init_from", [None, "m.pt"]), ("eval.model", ["last", "mean_of_two"])]
)
def test_a_key_that_a_sweep_varies_makes_lines_and_runs_left_out_are_said(
    tmp_path: Path, key: str, values: list[object]
) -> None:
    """Of a key that says how a run starts or is measured. Without the sweep's word, a seed counts once."""
    for rank, value in enumerate(values):
        for seed in (0, 1):
            rows = exact([0.1, 0.5 + rank / 4])
            write_run(tmp_path / f"{rank}{seed}", rows, seed=seed, config={key: value})
    said = draw([tmp_path], PlotOptions()).said
    assert [line["n"] for line in said["series"]] == [2]
    assert " 2 further runs with a seed that their line already has: left out. " in said["text"][0]
    write_manifest(tmp_path, swept=["seed", key])
    drawing = draw([tmp_path], PlotOptions())
    assert [line["choices"][key] for line in drawing.said["series"]] == values
    assert drawing.points.test_accuracy_mean.tolist() == [0.1, 0.5, 0.1, 0.75]
    assert set(drawing.points.n) == {2}
    assert "left out" not in drawing.said["text"][0]


def test_runs_without_a_number_on_the_axis_are_said(tmp_path: Path) -> None:
    for size in (16, 32, None):
        write_run(tmp_path / str(size), exact([0.1, 0.5]), config={"local.batch_size": size})
    drawing = draw([tmp_path], PlotOptions("local.batch_size", "final_accuracy"))
    assert drawing.points["local.batch_size"].tolist() == [16, 32]
    assert "Not drawn: 1 run without a number for local.batch_size." in drawing.said["text"][0]
    with pytest.raises(ConfigError, match=r"^where seed=1: must be a list of values"):
        PlotOptions(where={"seed": 1})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("ends", "choices", "status", "words"),
    [
        (((1, 2, 3),), {"target": 0.5}, "completed",
         "n falls after round 5 and is 1 at the end, as runs stop at the target."),
        (((2, 2), (2, 3)), {"target": 0.5, "patience": 4}, "completed",
         "n of SCAFFOLD falls after round 10 and is 1 at the end, as runs stop at the target or without"
         " further improvement."),
        (((2, 2, 3), (3, 4, 5)), {}, "starved",
         "n of 2 lines falls after round 10 at the earliest and is 1 at the lowest. Of 6 runs: 6 starved."),
        (((3, 3), (2, 2)), {"target": 0.5}, "completed", ""),
    ],
)  # fmt: skip
def test_a_mean_over_fewer_seeds_is_told(
    tmp_path: Path, ends: Any, choices: Any, status: str, words: str
) -> None:
    """Where the number of runs first falls, to how many, and why, if all of them ended as they were asked to.
    `ends`: the last evaluation of every seed of every line; evaluations are five rounds apart."""
    for name, lasts in zip(("fedavg", "scaffold"), ends, strict=False):
        for seed, last in enumerate(lasts):
            more = {"algorithm": name, "status": status, "config": choices}
            write_run(tmp_path / f"{name}{seed}", exact([0.1] * (last + 1)), seed=seed, **more)
    text = caption(tmp_path)
    assert words in text
    assert ("falls" in text) == bool(words)
    assert "falls" not in caption(tmp_path, x="rounds", y="best_accuracy")


def test_a_mean_that_ends_with_its_first_run_is_told(tmp_path: Path) -> None:
    """Clocks differ from seed to seed. Of several lines, the largest part that is left out: a quarter."""
    for name, clocks in {"fedavg": ([0, 2, 4], [1, 3, 5]), "scaffold": ([0, 3], [0, 4])}.items():
        for seed, clock in enumerate(clocks):
            made = exact([0.1] * len(clock), virtual_time=clock)
            write_run(tmp_path / name / str(seed), made, algorithm=name, seed=seed, config={"target": 0.1})
    line = (
        "The mean covers virtual time 1 to 4, as all its runs do; they end at 5 at the latest, as runs stop"
    )
    assert line in caption(tmp_path / "fedavg", x="virtual_time")
    line = (
        "A mean covers the virtual time that all runs of its line cover, up to 25% less than the longest of"
    )
    assert line in caption(tmp_path, x="virtual_time")
    assert "cover" not in caption(tmp_path)


def test_data_that_is_not_official_and_runs_that_did_not_complete_are_named(tmp_path: Path) -> None:
    """One note, or the first two of several; the data have all."""
    place = comparison(tmp_path / "sweep", ["fedavg", "padamfed"])
    files = sorted(place.rglob("summary.json"))

    def rewrite(*notes: str) -> None:
        for rank, file in enumerate(files):
            file.write_text(
                json.dumps(json.loads(file.read_text()) | {"data_note": notes[rank % len(notes)]})
            )

    rewrite("a.npz was used")
    assert "deviation. a.npz was used. Data:" in caption(place)
    rewrite("a was used", "b was used", "c was used")
    assert " a was used. b was used (and 1 more note like this). Data:" in caption(place)
    assert draw([place], PlotOptions()).said["data_notes"] == [f"{name} was used" for name in "abc"]
    files[0].write_text(files[0].read_text().replace("completed", "starved", 1))
    assert " Of 6 runs: 1 starved. a was used." in caption(place)


def test_a_picture_holds_no_paragraph_unless_asked(tmp_path: Path) -> None:
    write_run(tmp_path, exact([0.1, 0.5]))
    for asked in (False, True):
        drawing = draw([tmp_path], PlotOptions(caption=asked))
        drawn = next(text.get_text() for text in drawing.figure.texts if text.get_gid() == "caption")
        assert drawn.replace("\n", " ") == (drawing.said["text"][0] if asked else "")
