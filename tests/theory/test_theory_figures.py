"""The figures that need no runs: their tables and their files."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from fedbench.errors import ConfigError
from fedbench.figures import theory
from fedbench.figures.page import Panel, Trace, draw_grid
from fedbench.figures.style import of_algorithm, of_rank
from fedbench.figures.theory import AXES, BASE, METHODS, axes_of, draw_reduction_cost, stepsize_table


@pytest.fixture(scope="module")
def tables():
    return {kind: stepsize_table(kind) for kind in BASE}


def test_stepsize_tables_are_complete(tables):
    for kind, table in tables.items():
        expected = len(METHODS[kind]) * sum(len(AXES[axis][1]) for axis in axes_of(kind))
        assert len(table) == expected
        assert ((table.lr.notna() | table.reach.notna()) == (table.void == "")).all()
    with pytest.raises(ConfigError, match="kind=both"):
        stepsize_table("both")


def test_masfl_is_void_up_to_its_least_number_of_updates(tables):
    rows = tables["async"].query("algorithm == 'masfl' and axis == 'T'")
    least = 100 * (1 + math.sqrt(1 + 16 * 16)) ** 2 / 4  # S K = 100, tau_max = 4
    assert ((rows.x <= least) == (rows.void != "")).all()
    assert rows.void.str.contains("no local step").any()


@pytest.mark.parametrize(
    ("algorithm", "column", "axis", "power"),
    [
        ("padamfed", "lr", "T", -0.5),
        ("padamfed", "reach", "T", -0.75),  # gamma/K
        ("padamfed", "reach", "K", -0.75),
        ("padamfed", "beta", "S", 0.5),
        ("padamfed_vr", "lr", "K", -1.0),
        ("padamfed_vr", "reach", "S", 1 / 3),
        ("scaffold", "reach", "S", 2 / 3),  # eta gamma = (S/N)^(2/3) / (24 K L)
        ("scaffold", "lr", "loss", -1.0),
        ("mime", "lr", "T", -0.5),
        ("fafed", "lr", "T", -1 / 3),
        ("fedbuff", "reach", "tau_max", -1.5),
        ("ca2fl", "reach", "S", 1.0),
        ("defedavg_niid", "lr", "tau_max", 0.0),
        ("adamasfl", "lr", "loss", 0.0),
    ],
)
def test_drawn_lines_have_the_rules_powers(tables, algorithm, column, axis, power):
    rows = pd.concat(tables.values()).query("algorithm == @algorithm and axis == @axis and clamped == ''")
    slopes = np.diff(np.log(rows[column].to_numpy(float))) / np.diff(np.log(rows.x.to_numpy(float)))
    assert slopes == pytest.approx(power, abs=1e-5)  # the axes' values are rounded to six digits


def test_files_of_a_figure(tmp_path):
    files = draw_reduction_cost().save(tmp_path / "cost.png")
    assert [file.name for file in files] == ["cost.png", "cost.pdf", "cost.csv", "cost.json", "cost.md"]
    assert min(file.stat().st_size for file in (files[0], *files[2:4])) > 300
    assert "FedProxVR's training time" in files[4].read_text()
    table = pd.read_csv(files[2])
    assert len(table) == 100
    assert (table.ratio >= 1 - 1e-9).all()  # the reduced problem is the full one with beta fixed
    assert table.ratio.max() > 1.3


@pytest.fixture
def drawn(monkeypatch):
    """What the figures hand over to be drawn, instead of the drawing."""
    calls = []

    def keep(panels, columns, width, data, said):
        calls.append((panels, columns, data, said))

    monkeypatch.setattr(theory, "draw_grid", keep)
    return calls


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_stepsize_panels_show_their_column_of_the_table(tables, drawn, kind):
    """eta, eta gamma and beta in the rows, an axis in each column, every method under its own name."""
    theory.draw_stepsizes(kind)
    shown = [(panel.y_label, panel.x) for panel in drawn[0][0]]
    assert shown == [
        (label, axis) for label in ("$\\eta$", "$\\eta\\gamma$", "$\\beta$") for axis in axes_of(kind)
    ]
    columns = {"$\\eta$": "lr", "$\\eta\\gamma$": "reach", "$\\beta$": "beta"}
    for panel in drawn[0][0]:
        for name, trace in zip(METHODS[kind], panel.traces, strict=True):
            rows = tables[kind].query("algorithm == @name and axis == @panel.x")
            assert trace.style.label == of_algorithm(name).label
            np.testing.assert_array_equal(trace.x, AXES[panel.x][1])
            np.testing.assert_array_equal(trace.y, rows[columns[panel.y_label]].to_numpy(float))


def test_optimum_panels_show_their_column_of_the_table(drawn):
    """One line per sigma^2, in rising order, against gamma; the ratio panel too."""
    theory.draw_optimum(form="full")
    theory.draw_reduction_cost()
    cost, full = drawn[1], drawn[0]
    for (panels, _, data, _), columns in ((full, list(theory.QUANTITIES)), (cost, ["ratio"])):
        for panel, column in zip(panels, columns, strict=True):
            for sigma2, trace in zip((0.1, 0.5, 1.0, 5.0), panel.traces, strict=True):
                part = data[data.sigma2 == sigma2]
                assert trace.style.label.endswith(f"= {sigma2:g}")
                np.testing.assert_array_equal(trace.x, part.gamma)
                np.testing.assert_array_equal(trace.y, part[column])


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
