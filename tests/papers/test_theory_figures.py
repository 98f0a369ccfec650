"""The figures that need no runs: their tables, and the lines that show them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from figures.look_at import laid_out, overlaps

from fedbench.figures.style import of_algorithm, of_rank
from fedbench.papers import theory
from fedbench.papers.grid import Panel, Trace, draw_grid
from fedbench.papers.theory import AXES, BASE, METHODS, axes_of, stepsize_table


@pytest.fixture(scope="module")
def tables():
    return {kind: stepsize_table(kind) for kind in BASE}


def test_stepsize_tables_are_complete(tables):
    for kind, table in tables.items():
        expected = len(METHODS[kind]) * sum(len(AXES[axis][1]) for axis in axes_of(kind))
        assert len(table) == expected
        assert ((table.lr.notna() | table.reach.notna()) == (table.void == "")).all()


@pytest.mark.parametrize(
    ("algorithm", "column", "axis", "power"),
    [
        ("padamfed", "lr", "T", -0.5),
        ("padamfed", "reach", "K", -0.75),  # gamma/K
        ("scaffold", "reach", "S", 2 / 3),  # eta gamma = (S/N)^(2/3) / (24 K L)
        ("scaffold", "lr", "loss", -1.0),
        ("fedbuff", "reach", "tau_max", -1.5),
    ],
)
def test_lines_against_every_axis_have_the_rules_powers(tables, algorithm, column, axis, power):
    rows = pd.concat(tables.values()).query("algorithm == @algorithm and axis == @axis and clamped == ''")
    slopes = np.diff(np.log(rows[column].to_numpy(float))) / np.diff(np.log(rows.x.to_numpy(float)))
    assert slopes == pytest.approx(power, abs=1e-5)  # the axes' values are rounded to six digits


def test_stepsize_panels_show_their_column_of_the_table(tables):
    """eta, eta gamma and beta in the rows, an axis in each column, every method with its own look."""
    drawing = theory.draw_stepsizes("async")
    panels = iter(drawing.figure.axes)
    for column, label in (("lr", "$\\eta$"), ("reach", "$\\eta\\gamma$"), ("beta", "$\\beta$")):
        for rank, axis in enumerate(axes_of("async")):
            ax = next(panels)
            assert ax.get_ylabel() == ("" if rank else label)
            for name, line in zip(METHODS["async"], ax.lines, strict=True):
                rows = tables["async"].query("algorithm == @name and axis == @axis")
                np.testing.assert_array_equal(line.get_xdata(), AXES[axis][1])
                np.testing.assert_array_equal(line.get_ydata(), rows[column].to_numpy(float))
                assert line.get_marker() == of_algorithm(name).marker


def test_optimum_panels_show_their_column_of_the_table():
    """One line per sigma^2, in rising order, against gamma; the ratio panel too. The paper's problem is (20)
    with beta fixed, so it costs time."""
    full, cost = theory.draw_optimum(form="full"), theory.draw_reduction_cost()
    assert full.said["feasible"]
    assert (cost.points.ratio >= 1 - 1e-9).all()
    assert cost.points.ratio.max() > 1.3
    for drawing, columns in ((full, theory.QUANTITIES), (cost, ["ratio"])):
        for ax, column in zip(drawing.figure.axes, columns, strict=True):
            for sigma2, line in zip((0.1, 0.5, 1.0, 5.0), ax.lines, strict=True):
                part = drawing.points[drawing.points.sigma2 == sigma2]
                np.testing.assert_array_equal(line.get_xydata(), part[["gamma", column]])


def test_panels_share_only_what_they_say():
    x, y = np.array([1.0, 10.0, 100.0]), np.array([1.0, np.nan, 3.0])
    traces = [Trace(of_rank("one", 0), x, y), Trace(of_rank("two", 1), x, 2 * x)]
    panels = [Panel("x", "x", label, traces, log_y=False) for label in ("a", "a", "b", "c")]
    figure = draw_grid(panels, 2, "two", pd.DataFrame(), {}).figure
    axes = figure.axes
    assert axes[0].get_ylim() == axes[1].get_ylim()
    assert [ax.get_ylabel() for ax in axes] == ["a", "", "b", "c"]
    np.testing.assert_array_equal(axes[0].lines[0].get_ydata(), y)
    np.testing.assert_array_equal(axes[0].lines[1].get_ydata(), 2 * x)
    colours = [handle.get_color() for handle in figure.legends[0].legend_handles]
    assert (
        colours
        == [line.get_color() for line in axes[0].lines]
        == [of_rank("", rank).colour for rank in (0, 1)]
    )
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]


@pytest.mark.parametrize("estimator", ["sarah", "svrg"])
@pytest.mark.parametrize("form", ["reduced", "full"])
def test_labels_of_an_axis_of_few_decades_do_not_overlap(estimator, form):
    drawing = theory.draw_optimum(estimator, form)
    assert overlaps(laid_out(drawing)) == []
    for ax in drawing.figure.axes:
        low, high = ax.get_ylim()
        labels = [
            text.get_text()
            for text in ax.get_yticklabels(which="both")
            if low <= text.get_position()[1] <= high
        ]
        assert len([text for text in labels if text]) >= 2
