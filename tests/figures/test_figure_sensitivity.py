"""Accuracy against a swept number: means, diverged runs in their strip, the theorem's value."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from look_at import caption_of, outside, overlaps, texts
from make_results import rows, write_run, write_sweep
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from fedbench.errors import ConfigError, DataError
from fedbench.figures import style
from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Page

GRID = (0.001, 0.01, 0.1, 1.0)
FROM_THEOREM = 0.0047


def runs_of(
    names: list[str], theorem: tuple[str, ...] = ("padamfed",), seeds: int = 3
) -> list[dict[str, Any]]:
    """At lr 1 all seeds diverge, at 0.1 seed 1 does; algorithms of `theorem` never, and run with null too."""
    runs = []
    for rank, name in enumerate(names):
        for lr in (*GRID, *((None,) if name in theorem else ())):
            for seed in range(seeds):
                lost = name not in theorem and (lr == 1.0 or (lr == 0.1 and seed == 1))
                top = 0.8 + 0.003 * rank - 0.05 * abs(np.log10((lr or FROM_THEOREM) / 0.01))
                runs.append(
                    {
                        "metrics": rows(top, 1.0, seed, last=40, stop=20 if lost else None),
                        "algorithm": name,
                        "seed": seed,
                        "status": "diverged" if lost else "completed",
                        "config": {"algorithm.lr": lr},
                        "hyper": {"lr": FROM_THEOREM if lr is None else lr},
                    }
                )
    return runs


def sweep(path: Path, names: list[str], **more: Any) -> Path:
    return write_sweep(path, runs_of(names, **more), ["algorithm", "algorithm.lr", "seed"])


def lines(page: Page, gid: str) -> dict[str, np.ndarray]:
    """Drawn lines with this id: colour -> points, one after the other."""
    found: dict[str, list[np.ndarray]] = {}
    for ax in page.figure.axes:
        for line in ax.lines:
            if line.get_gid() == gid:
                colour = to_hex(line.get_markerfacecolor() if gid == "theorem" else line.get_color()).upper()
                found.setdefault(colour, []).append(np.asarray(line.get_xydata()))
    return {colour: np.concatenate(parts) for colour, parts in found.items()}


def accuracies(path: Path, name: str, lr: str) -> list[float]:
    """Final accuracies in runs.csv, diverged runs left out."""
    with (path / "runs.csv").open() as file:
        kept = [row for row in csv.DictReader(file) if row["algorithm"] == name and row["algorithm.lr"] == lr]
    return [float(row["final_accuracy"]) for row in kept if row["status"] == "completed"]


def test_points_are_the_means_of_the_runs_that_did_not_diverge(
    tmp_path: Path, drawn: Callable[..., Page]
) -> None:
    path = sweep(tmp_path, ["fedavg", "padamfed"])
    page = drawn([path], x="algorithm.lr")
    assert page.figure.axes[0].get_xscale() == "log"
    for name in ("fedavg", "padamfed"):
        line = lines(page, "mean")[style.ALGORITHMS[name].colour]
        assert line[:, 0].tolist() == list(GRID)
        for (_, value), lr in zip(line, GRID, strict=True):
            kept = accuracies(path, name, str(lr))
            assert (np.isnan(value) and not kept) or value == pytest.approx(np.mean(kept), rel=1e-12)
    assert len(accuracies(path, "fedavg", "0.1")) == 2


def test_diverged_points_stand_in_a_strip_below_all_others(
    tmp_path: Path, drawn: Callable[..., Page]
) -> None:
    page = drawn([sweep(tmp_path, ["fedavg", "scaffold", "padamfed"])], x="algorithm.lr")
    ax = page.figure.axes[0]
    (strip,) = (patch for patch in ax.patches if patch.get_gid() == "strip")
    box = strip.get_window_extent()
    crosses = [line for line in ax.lines if line.get_gid() == "diverged"]
    places = [line.get_transform().transform(line.get_xydata())[0] for line in crosses]
    assert sorted(float(line.get_xdata()[0]) for line in crosses) == [0.1, 0.1, 1.0, 1.0]
    assert all(box.contains(*place) for place in places)
    assert len({round(y) for _, y in places}) == 2  # a row for each algorithm
    lowest = min(
        ax.transData.transform(line)[:, 1][~np.isnan(line[:, 1])].min()
        for line in lines(page, "mean").values()
    )
    assert lowest > box.y1
    bold = {float(line.get_xdata()[0]): line.get_markeredgewidth() for line in crosses}
    assert bold[1.0] > bold[0.1]  # all seeds, some seeds
    assert lines(page, "partial")[style.ALGORITHMS["fedavg"].colour][:, 0].tolist() == [0.1]


def test_what_a_cross_and_a_hollow_point_are_stands_in_the_picture(
    tmp_path: Path, drawn: Callable[..., Page]
) -> None:
    said = {text for text, _ in texts(drawn([sweep(tmp_path / "a", ["fedavg"])], x="algorithm.lr"))}
    assert {"diverged", "some seeds diverged"} <= said
    many = drawn([sweep(tmp_path / "b", list(style.ALGORITHMS)[:9])], x="algorithm.lr", caption=True)
    assert "×: diverged (thin: only some seeds" in caption_of(many)
    assert {"diverged", "some seeds diverged", "n = 3 seeds"} <= {text for text, _ in texts(many)}


def test_the_theorem_has_a_star_of_its_own(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    path = sweep(tmp_path, ["fedavg", "padamfed"])
    page = drawn([path], x="algorithm.lr")
    stars = lines(page, "theorem")
    assert list(stars) == [style.ALGORITHMS["padamfed"].colour]
    ((x, y),) = stars[style.ALGORITHMS["padamfed"].colour]
    assert x == FROM_THEOREM
    assert y == pytest.approx(np.mean(accuracies(path, "padamfed", "")), rel=1e-12)
    assert "theorem" in {text for text, _ in texts(page)}


@pytest.mark.parametrize(
    ("swept", "written"),
    [
        ((10, 20, 50, 100), ["10", "20", "50", "100"]),  # logarithmic
        ((5, 10, 20), ["5", "10", "20"]),
        ((10, 11, 100), ["10", "30", "100"]),  # no room for 10 beside 11
    ],
)
def test_few_swept_values_are_written_below_the_axis(
    tmp_path: Path, drawn: Callable[..., Page], swept: tuple[int, ...], written: list[str]
) -> None:
    for clients in swept:
        write_run(tmp_path / f"{clients}", rows(0.7, 1.0, 0), config={"clients.per_round": clients})
    ax = drawn([tmp_path], x="clients.per_round").figure.axes[0]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == written


@pytest.mark.parametrize("width", ["one", "two"])
@pytest.mark.parametrize("count", [3, 8, 15])
def test_no_text_overlaps(tmp_path: Path, drawn: Callable[..., Page], count: int, width: str) -> None:
    names = list(style.ALGORITHMS)[:count]
    page = drawn([sweep(tmp_path, names, seeds=2)], x="algorithm.lr", width=width)
    assert overlaps(page) == []
    assert outside(page) == []
    assert page.figure.get_figheight() < 9.5
    for ax in page.figure.findobj(Axes):
        assert ax.get_window_extent().height > 0.4 * page.figure.dpi
    assert {style.ALGORITHMS[name].label for name in names} <= {text for text, _ in texts(page)}


def test_files_beside_the_figure(tmp_path: Path) -> None:
    files = draw([sweep(tmp_path / "s", ["fedavg", "padamfed"])], PlotOptions(x="algorithm.lr")).save(
        tmp_path / "lr.pdf"
    )
    assert [file.name for file in files] == ["lr.png", "lr.pdf", "lr.csv", "lr.json", "lr.md"]
    assert b"/Type3" not in files[1].read_bytes()
    with files[2].open() as file:
        table = list(csv.DictReader(file))
    assert [row["diverged"] for row in table if row["algorithm"] == "fedavg"] == ["0", "0", "1", "3"]
    assert [row["n"] for row in table if row["algorithm"] == "fedavg"] == ["3", "3", "2", "0"]
    assert [row["algorithm.lr"] for row in table if row["theorem"] == "True"] == [str(FROM_THEOREM)]


def test_other_keys_and_results(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    for seed in (0, 1):
        for clients in (5, 10, 20):
            made = rows(0.7 + clients / 100, 1.0, seed)
            write_run(tmp_path / f"{seed}-{clients}", made, seed=seed, config={"clients.per_round": clients})
    page = drawn([tmp_path], x="clients.per_round", y="test_loss")
    ax = page.figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale()) == ("Clients per round", "Test loss", "linear")
    (line,) = lines(page, "mean").values()
    last = [
        np.mean([rows(0.7 + clients / 100, 1.0, seed)[-1]["test_loss"] for seed in (0, 1)])
        for clients in (5, 10, 20)
    ]
    np.testing.assert_allclose(line, np.column_stack([(5, 10, 20), last]))


def test_when_everything_diverged_there_is_still_a_figure(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    for lr in (0.1, 1.0):
        write_run(
            tmp_path / str(lr), rows(0.8, 1.0, 0, stop=20), status="diverged", config={"algorithm.lr": lr}
        )
    page = drawn([tmp_path], x="algorithm.lr")
    assert sum(line.get_gid() == "diverged" for line in page.figure.axes[0].lines) == 2


def test_bad_keys_are_named(tmp_path: Path) -> None:
    path = sweep(tmp_path / "s", ["fedavg"], seeds=1)
    with pytest.raises(ConfigError, match=r"did you mean 'algorithm\.lr'"):
        draw([path], PlotOptions(x="algorithm.lrr")).save(tmp_path / "f")
    with pytest.raises(DataError, match="x=partition: no run has a number"):
        draw([path], PlotOptions(x="partition")).save(tmp_path / "f")
    with pytest.raises(ConfigError, match="y=nothing"):
        draw([path], PlotOptions(y="nothing")).save(tmp_path / "f")
    assert not list(tmp_path.glob("f*"))


def test_the_caption_says_what_a_missing_point_is(tmp_path: Path) -> None:
    """SCAFFOLD was not run at 0.1; FedAvg's runs there diverged, which its cross says."""
    cases = [("fedavg", 0.01, "completed"), ("fedavg", 0.1, "diverged"), ("scaffold", 0.01, "completed")]
    runs = [
        {"metrics": rows(0.7, 0.6, 0), "algorithm": name, "status": status, "config": {"algorithm.lr": lr}}
        for name, lr, status in cases
    ]
    draw([write_sweep(tmp_path / "sweep", runs, ["algorithm.lr"])], PlotOptions(x="algorithm.lr")).save(
        tmp_path / "f"
    )
    notes = json.loads((tmp_path / "f.json").read_text())["notes"]
    assert "No mark at a value: not run there (SCAFFOLD)." in notes


def test_a_theorems_value_beyond_the_swept_ones_stands_at_the_side(
    tmp_path: Path, drawn: Callable[..., Page]
) -> None:
    """The axis begins at the data: at 0.1 less its margin, however small the theorem's 1e-4 is."""
    for lr in (None, 0.1, 1.0):
        given = {"config": {"algorithm.lr": lr}, "hyper": {"lr": lr or 1e-4}}
        write_run(tmp_path / str(lr), rows(0.7, 0.6, 0), algorithm="padamfed", **given)
    page = drawn([tmp_path], x="algorithm.lr", caption=True, levels=(0.95,))
    (ax,) = page.figure.axes
    low = ax.get_xlim()[0]
    assert 0.08 < low < 0.1
    ((x, _),) = lines(page, "theorem")[style.ALGORITHMS["padamfed"].colour]
    assert x == pytest.approx(low)
    assert "one at the side lies beyond" in caption_of(page)
    (level,) = (line for line in ax.lines if line.get_gid() == "level")
    assert set(level.get_ydata()) == {0.95}
    assert ax.get_ylim()[1] > 0.95
    assert "Dashed: 0.95." in caption_of(page)


def test_seeds_are_points_where_that_is_asked(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    path = sweep(tmp_path, ["fedavg"])
    page = drawn([path], x="algorithm.lr", spread="points", caption=True)
    points = lines(page, "seed")[style.ALGORITHMS["fedavg"].colour]
    expected = [[lr, value] for lr in GRID for value in accuracies(path, "fedavg", str(lr))]
    assert len(expected) == 8  # of 12 runs four diverged
    np.testing.assert_allclose(sorted(points.tolist()), sorted(expected))
    assert not any(isinstance(part, PolyCollection) for part in page.figure.axes[0].collections)
    assert "Mean over n = 3 seeds (0, 1, 2); small points: the seeds." in caption_of(page)
