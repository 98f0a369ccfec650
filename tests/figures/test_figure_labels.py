"""Ticks, names of axes, and the name of the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from make_results import rows, write_run

from fedbench.errors import ConfigError
from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import log_places, stem_of


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
