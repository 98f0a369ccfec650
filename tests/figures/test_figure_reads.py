"""What a reader of a picture must be able to read: any text as it is, points for seeds, panels in order,
marks that the legend explains, ticks of one kind."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_results import rows, write_sweep
from matplotlib.figure import Figure

from fedbench.figures import style
from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Page, ticks

Drawn = Callable[..., Page]


def sweep(path: Path, key: str, values: list[Any], top: Callable[[Any], float] = lambda value: 0.7) -> Path:
    """Two seeds of FedAvg at each value of a key, in the order given."""
    runs = [
        {"metrics": rows(top(value), 0.8, seed), "seed": seed, "config": {"dataset": "npz", key: value}}
        for value in values
        for seed in (0, 1)
    ]
    return write_sweep(path, runs, [key, "seed"])


def legend(page: Page) -> list[str]:
    return [text.get_text() for text in page.figure.legends[0].get_texts()]


def test_any_text_is_drawn_as_it_is(tmp_path: Path, drawn: Drawn) -> None:
    """Dollars are no formula, and a name may begin with an underscore: one alone, two, or more."""
    names = ["fee$5$.npz", "_a$.npz", "$\\frac{1}$.npz"]
    page = drawn([sweep(tmp_path / "s", "dataset.path", names)], by=("dataset.path",), caption=True)
    assert legend(page)[:3] == [f"path={name}" for name in names]
    assert not any(text.get_parse_math() for text in page.figure.legends[0].get_texts())
    small = drawn([sweep(tmp_path / "m", "dataset.path", [f"${n}$" for n in range(9)])], by=("dataset.path",))
    titles = [ax.title for ax in small.figure.axes]
    assert [title.get_text() for title in titles] == [f"path=${n}$" for n in range(9)]
    assert not any(title.get_parse_math() for title in titles)
    for one in (page, small):
        one.figure.savefig(tmp_path / "figure.pdf")


def test_points_are_the_seeds_and_there_is_no_band(tmp_path: Path) -> None:
    """Of curves: every evaluation of every seed; the legend says what they are."""
    place = sweep(tmp_path / "s", "partition.alpha", [0.5])
    figure = draw([place], PlotOptions(spread="points")).figure
    (ax,) = figure.axes
    assert not ax.collections  # bands are collections
    (points,) = [line for line in ax.lines if line.get_gid() == "seed"]
    shown = sorted(map(tuple, np.round(points.get_xydata(), 12).tolist()))
    expected = [(row["round"], row["test_accuracy"]) for seed in (0, 1) for row in rows(0.7, 0.8, seed)]
    assert shown == sorted(map(tuple, np.round(np.array(expected, dtype=float), 12).tolist()))
    assert "a seed" in [text.get_text() for text in figure.legends[0].get_texts()]
    assert draw([place], PlotOptions()).figure.axes[0].collections


def test_panels_of_a_number_are_in_its_order(tmp_path: Path, drawn: Drawn) -> None:
    """By value, not by the order of runs, nor as text."""
    place = sweep(tmp_path / "s", "partition.alpha", [10.0, 0.1, 2.0])
    page = drawn([place], rows="partition.alpha")
    assert [ax.get_title() for ax in page.figure.axes] == ["Dirichlet(0.1)", "Dirichlet(2)", "Dirichlet(10)"]
    alphas = [float(n) for n in (9, 8, 7, 6, 5, 4, 3, 2, 1, 10)]
    page = drawn([sweep(tmp_path / "many", "partition.alpha", alphas)], by=("partition.alpha",))
    assert [ax.get_title() for ax in page.figure.axes] == [f"Dirichlet({n})" for n in range(1, 11)]


def test_the_legend_explains_levels(tmp_path: Path, drawn: Drawn) -> None:
    page = drawn([sweep(tmp_path / "s", "partition.alpha", [0.5])], levels=(0.8, 0.7))
    assert "level 0.8, 0.7" in legend(page)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("test_macro_f1", "Test macro F1"), ("validation_auroc", "Validation AUROC"),
        ("final_test_macro_f1", "Final test macro F1"), ("test_recall_at_5", "Test recall at 5"),
        ("test_accuracy", "Test accuracy"), ("partition.min_size", "Min size"),
    ],
)  # fmt: skip
def test_axes_name_metrics_as_papers_do(name: str, said: str) -> None:
    assert style.axis(name) == said


@pytest.mark.parametrize(("low", "high"), [(4e3, 3e4), (1e-4, 1.0), (1.0, 900.0), (0.01, 1.0)])
def test_ticks_of_an_axis_are_written_alike(low: float, high: float) -> None:
    """All plain, or all with a power of ten; each is the number at its place."""
    ax = Figure().add_subplot()
    ax.set(xscale="log", xlim=(low, high))
    ticks(ax, x=4)
    places = [at for at in ax.get_xticks() if low <= at <= high]
    shown = [ax.xaxis.get_major_formatter()(at) for at in places]
    assert len(places) > 1
    assert len({"10^" in text for text in shown}) == 1
    for at, text in zip(places, shown, strict=True):
        factor, power = re.fullmatch(r"([\d.]+)?(?:×?\$10\^\{(-?\d+)\}\$)?", text).groups()  # type: ignore[union-attr]
        assert math.isclose(float(factor or 1) * 10.0 ** int(power or 0), at, rel_tol=0.01)


def test_numbers_in_a_heat_map_are_readable_on_every_shade(tmp_path: Path) -> None:
    """By the contrast that WCAG asks of text: 4.5."""
    pytest.importorskip("plotly", reason="plotly is not installed (the extra `report` has it)")
    from fedbench.report.plots import heat_map
    from fedbench.report.runs import gather, settings

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    found = settings(gather(sweep(tmp_path / "s", "partition.alpha", [0.5, 2.0])))
    heat = heat_map(found, "partition.alpha", "algorithm", "accuracy")[1].data[0]
    for _, shade in heat.colorscale:
        assert (light(shade) + 0.05) / (light(heat.textfont.color) + 0.05) > 4.5
