"""Moving labels apart: spacing, order, bounds, and least displacement."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_results import rows, write_run
from sklearn.isotonic import IsotonicRegression

from fedbench.errors import ConfigError
from fedbench.figures.drawing import apart, draw
from fedbench.figures.options import PlotOptions
from fedbench.figures.page import log_places, stem_of, text_width, unit, wrap

numbers = st.lists(st.floats(0, 100), min_size=1, max_size=12)


@given(numbers)
def test_labels_keep_their_distance_order_and_bounds(targets: list[float]) -> None:
    places = apart(np.array(targets), 5.0, 0.0, 100.0)
    order = np.argsort(targets, kind="stable")
    assert (np.diff(places[order]) >= 5.0 - 1e-9).all()
    assert places.min() >= -1e-9
    assert places.max() <= 100.0 + 1e-9


@given(numbers)
def test_labels_move_as_little_as_possible(targets: list[float]) -> None:
    """The least-squares solution is a bounded monotone regression of the targets less their ranks' room."""
    order = np.argsort(targets, kind="stable")
    room = 5.0 * np.arange(len(targets))
    fit = IsotonicRegression(y_min=0.0, y_max=100.0 - room[-1])
    best = fit.fit_transform(np.arange(len(targets)), np.array(targets)[order] - room) + room
    np.testing.assert_allclose(apart(np.array(targets), 5.0, 0.0, 100.0)[order], best, atol=1e-6)


def test_labels_that_are_apart_stay() -> None:
    np.testing.assert_array_equal(apart(np.array([30.0, 10.0, 20.0]), 5.0, 0.0, 100.0), [30.0, 10.0, 20.0])


@given(st.text("ab cd", max_size=80), st.floats(0.2, 3.0))
def test_wrapped_lines_fit_and_keep_all_letters(text: str, width: float) -> None:
    lines = wrap(text, width)
    assert all(text_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_a_long_path_is_broken_between_its_parts() -> None:
    lines = wrap("Data: outputs/runs/padamfed/fig1/cpu/0123456789abcdef/final.", 1.5)
    assert all(line.endswith("/") for line in lines[:-1])
    assert "".join(lines) == "Data: outputs/runs/padamfed/fig1/cpu/0123456789abcdef/final."


@pytest.mark.parametrize(
    ("low", "high", "count"),
    [(1e-4, 1.0, 6), (1e-4, 1.0, 3), (0.02, 0.4, 6), (3, 4, 6), (1e-12, 1e12, 4), (2, 2.1, 5)],
)
def test_logarithmic_ticks_are_few_within_limits_and_at_least_two(
    low: float, high: float, count: int
) -> None:
    places = log_places(low, high, count)
    assert 2 <= len(places) <= count
    assert (np.diff(places) > 0).all()
    assert places[0] >= low * (1 - 1e-6)
    assert places[-1] <= high * (1 + 1e-6)


def test_bytes_are_drawn_in_a_fitting_unit() -> None:
    assert unit("uplink_bytes", [np.array([1.0, 2.5e7])]) == ("Uplink (MB)", 1e6)
    assert unit("uplink_bytes", [np.array([900.0])]) == ("Uplink (B)", 1.0)


@pytest.mark.parametrize("name", ["a.svg", "metrics", "metrics.png", "summary.pdf", "runs", "x.csv"])
def test_an_out_that_cannot_be_or_would_replace_results_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="out="):
        stem_of(f"somewhere/{name}")


@pytest.mark.parametrize("name", ["a", "a.png", "a.PDF"])
def test_out_with_or_without_an_ending(name: str) -> None:
    assert stem_of(f"dir/{name}").name == "a"


def test_a_name_with_a_dot_is_kept() -> None:
    assert stem_of("dir/lr_0.1").name == "lr_0.1"


@pytest.mark.parametrize(
    ("metrics", "label"),
    [
        (["accuracy", "accuracy"], "Test accuracy"),
        (["R2", "R2"], "Test R²"),
        (["subset accuracy"] * 2, "Test share with all labels right"),
        (["accuracy", "R2"], "Test score"),
    ],
)
def test_axes_say_what_the_accuracies_are(tmp_path: Path, metrics: list[str], label: str) -> None:
    """As summary.json says; in rows of curves and against a key alike."""
    for seed, metric in enumerate(metrics):
        place = tmp_path / str(seed)
        config = {"algorithm.lr": 0.1 + seed}
        summary = write_run(place, rows(0.8, 1.0, seed), seed=seed, config=config)
        (place / "summary.json").write_text(json.dumps({**summary, "metric": metric}))
    for x, expected in (("round", label), ("algorithm.lr", label.replace("Test", "Final test"))):
        figure = draw([tmp_path], PlotOptions(x, "test_accuracy")).figure
        assert [ax.get_ylabel() for ax in figure.axes] == [expected]
