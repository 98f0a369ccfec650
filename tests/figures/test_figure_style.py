"""The style sheet: one style per algorithm, told apart by colour, in grey, and by colour-blind readers."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from make_results import rows, write_run

from fedbench.algorithms import every
from fedbench.figures import style


def rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def test_every_algorithm_has_a_style() -> None:
    assert set(style.ALGORITHMS) == {method.name for method in every()}


def test_no_two_methods_share_dash_and_marker_so_grey_prints_can_be_read() -> None:
    looks = [*style.ALGORITHMS.values(), *style.READINGS.values()]
    pairs = [(str(look.dash), look.marker) for look in looks]
    assert len(set(pairs)) == len(pairs)


def test_deuteranopes_can_tell_the_colours_apart() -> None:
    """Viénot, Brettel and Mollon (1999): the deuteranope's view of linear RGB."""
    view = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])
    seen = [np.clip(view @ rgb(colour) ** 2.2, 0, 1) ** (1 / 2.2) for colour in style.COLOURS]
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert nearest > 0.15


def test_an_unknown_algorithm_keeps_one_hollow_style() -> None:
    mine = style.of_algorithm("my_method")
    assert mine == style.of_algorithm("my_method")
    assert mine.label == "my_method"
    assert not mine.filled
    assert mine.line()["markerfacecolor"] == "white"


def test_numbers_in_a_heat_map_are_readable_on_every_shade(tmp_path: Path) -> None:
    """By the contrast that WCAG asks of text: 4.5."""
    pytest.importorskip("plotly", reason="plotly is not installed (the extra `report` has it)")
    from fedbench.report.plots import heat_map
    from fedbench.report.runs import gather, settings

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    for alpha in (0.5, 2.0):
        write_run(tmp_path / str(alpha), rows(0.7, 0.8, 0), config={"partition.alpha": alpha})
    found = settings(gather(tmp_path))
    heat = heat_map(found, "partition.alpha", "algorithm", "accuracy")[1].data[0]
    for _, shade in heat.colorscale:
        assert (light(shade) + 0.05) / (light(heat.textfont.color) + 0.05) > 4.5
