"""What a user chooses beside the data: order, names, colours, limits, SVG, settings of matplotlib, rows."""

from __future__ import annotations

import csv
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from look_at import outside, overlaps, texts
from make_results import comparison, rows, write_run, write_sweep
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

from fedbench.errors import UserError
from fedbench.figures import style
from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Page, sheet
from fedbench.figures.plot import main

FEW = ["fedavg", "scaffold", "padamfed"]


def split_runs(path: Path) -> Path:
    """Three methods on two partitions; SCAFFOLD diverges at the higher rate with seed 0."""
    runs = [
        {
            "metrics": rows(0.7 + 0.1 * rank, 0.6, seed, stop=40 if lost else None),
            "algorithm": name,
            "seed": seed,
            "config": {"partition": split, "partition.alpha": alpha, "algorithm.lr": lr},
            "status": "diverged" if lost else "completed",
        }
        for split, alpha in (("iid", None), ("dirichlet", 1.0))
        for rank, name in enumerate(FEW)
        for lr in (0.1, 1.0)
        for seed in (0, 1)
        for lost in [name == "scaffold" and lr == 1.0 and seed == 0]
    ]
    return write_sweep(path, runs, ["algorithm", "partition", "partition.alpha", "algorithm.lr", "seed"])


def test_columns_of_a_legend_are_as_wide_as_their_own_names() -> None:
    """Two long names leave room for short ones beside them; what fits nowhere else has a row for itself."""
    names = ["FedAvg", "SCAFFOLD", "SCAFFOLD-M", "PAdaMFed (vector)", "PAdaMFed-VR (vector)", "diverged"]
    for long, columns in (("PAdaMFed-VR (tensor)", 2), ("PAdaMFed-VR, the norm of a tensor", 1)):
        with sheet():
            page = Page("one", 2.0)
            page.legend({name: Line2D([], []) for name in [*names, long]})
            page.settle()
        boxes = [box.x0 for _, box in texts(page)]
        assert len({round(x) for x in boxes}) == columns
        assert outside(page) == []
        assert overlaps(page) == []


def test_limits_are_the_ends_of_the_axes_and_nothing_is_drawn_beyond(
    tmp_path: Path, drawn: Callable[..., Page]
) -> None:
    with pytest.raises(UserError, match="ylim=0,1: must be two numbers, the lower first, above 0"):
        PlotOptions(limits={"y": (0.0, 1.0)}, log="y")
    page = drawn([comparison(tmp_path, FEW)], limits={"x": (0, 50), "y": (0.5, 0.9)})
    (ax,) = page.figure.axes
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 50), (0.5, 0.9))
    assert all(line.get_clip_on() for line in ax.lines if line.get_gid() == "mean")
    assert outside(page) == []


def test_a_row_for_each_value_of_a_key(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    """Panels share their axes, a method looks the same in both, and the legend names it once."""
    where = {"algorithm.lr": [0.1]}
    for width, columns in (("one", 1), ("two", 2)):
        path = split_runs(tmp_path / width)
        page = drawn([path], where=where, rows="partition", width=width)
        iid, dirichlet = page.figure.axes
        assert [ax.get_title() for ax in (iid, dirichlet)] == ["iid", "Dirichlet(1)"]
        assert iid.get_ylim() == dirichlet.get_ylim()
        assert (iid.get_position().y0 == pytest.approx(dirichlet.get_position().y0)) == (columns == 2)
        looks = [
            [(to_hex(line.get_color()), line.get_marker()) for line in ax.lines] for ax in (iid, dirichlet)
        ]
        assert looks[0] == looks[1]
        assert [text.get_text() for text in page.figure.legends[0].get_texts()] == [
            *(style.ALGORITHMS[name].label for name in FEW),
            "n = 2 seeds",
        ]
        assert overlaps(page) == []
        assert outside(page) == []


def test_rows_of_a_sweep_and_their_table(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    path = split_runs(tmp_path / "s")
    page = drawn([path], x="algorithm.lr", rows="partition", width="two")
    assert len(page.figure.axes) == 2
    crosses = [[line for line in ax.lines if line.get_gid() == "diverged"] for ax in page.figure.axes]
    assert [len(marks) for marks in crosses] == [1, 1]
    assert {"diverged", "some seeds diverged"} <= {text for text, _ in texts(page)}
    assert overlaps(page) == []
    draw([path], PlotOptions(x="algorithm.lr", rows="partition")).save(tmp_path / "f")
    with (tmp_path / "f.csv").open() as file:
        table = list(csv.DictReader(file))
    assert {(row["partition"], row["algorithm"]) for row in table} == {
        (split, name) for split in ("iid", "dirichlet") for name in FEW
    }


def test_panels_of_different_tasks_have_a_y_axis_each(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    """The harder task's accuracies are 0.4 lower: neither panel leaves room for the other's."""
    runs = [
        {"metrics": rows(0.8 - drop, 0.6, seed), "algorithm": "fedavg", "seed": seed,
         "config": {"partition": split, "partition.alpha": None, "algorithm.lr": lr}}
        for split, drop in (("iid", 0.0), ("shards", 0.4)) for lr in (0.1, 1.0) for seed in (0, 1)
    ]  # fmt: skip
    path = write_sweep(tmp_path / "s", runs, ["partition", "algorithm.lr", "seed"])
    for own_y in (False, True):
        own = {"rows": "partition", "width": "two", "own_y": own_y}
        page = drawn([path], x="algorithm.lr", **own)
        easy, hard = page.figure.axes
        assert (easy.get_ylim()[0] > hard.get_ylim()[1]) == own_y
        assert (easy.get_ylim() == hard.get_ylim()) != own_y
        assert easy.get_xlim() == hard.get_xlim()
        assert overlaps(page) == []
        assert outside(page) == []
        where = {"algorithm.lr": [0.1]}
        page = drawn([path], where=where, **own)
        easy, hard = page.figure.axes
        assert (easy.get_ylim()[1] > hard.get_ylim()[1]) == own_y


def test_a_matplotlibrc_is_respected(
    tmp_path: Path, drawn: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes over our style; what it does not name is ours, also as a notebook shows the figure."""
    sweep = comparison(tmp_path / "s", FEW)
    monkeypatch.chdir(tmp_path)
    for settings, width, small in (
        ("axes.linewidth: 2.5\naxes.grid: False\nbackend: TkAgg\n", 2.5, False),
        ("axes.linewidth: 3.5\naxes.grid: False\nsavefig.dpi: 72\n", 3.5, True),
    ):
        (tmp_path / "matplotlibrc").write_text(settings)
        figure = drawn([sweep]).figure
        (ax,) = figure.axes
        shown = struct.unpack(">I", figure._repr_png_()[16:20])[0]  # as a notebook shows it: pixels
        assert (shown < 72 * figure.get_size_inches()[0] * 1.2) == small
        assert ax.spines["left"].get_linewidth() == width
        assert not any(line.get_visible() for line in ax.get_xgridlines())
        assert not ax.spines["top"].get_visible()


def test_a_matplotlibrc_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "matplotlibrc").write_bytes(b"axes.linewidth: \xff\n")
    monkeypatch.chdir(tmp_path)
    sweep = comparison(tmp_path / "s", FEW, seeds=1)
    with pytest.raises(UserError, match=r"^matplotlibrc=.*: must be a file of matplotlib settings"):
        draw([sweep], PlotOptions())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--where", "seed"], "--where seed: must be KEY=VALUE"),
        (["--rows", "partitio"], "did you mean 'partition'"),
        (["--width", "three"], "--width"),
    ],
)
def test_looks_that_cannot_be_are_one_line(tmp_path: Path, argv: list[str], message: str) -> None:
    sweep = comparison(tmp_path / "s", FEW, seeds=1)
    with pytest.raises(UserError) as caught:
        main([str(sweep), "--out", str(tmp_path / "f"), *argv])
    assert caught.value.exit_code == 2
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("f*"))


def test_one_value_of_the_key_of_rows_is_one_picture(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    write_run(tmp_path / "a", rows(0.8, 0.6, 0))
    page = drawn([tmp_path], rows="partition")
    assert len(page.figure.axes) == 1
    assert np.isfinite(page.figure.get_figheight())
