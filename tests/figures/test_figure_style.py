"""The style sheet: one style per algorithm, told apart by colour, in grey, and by colour-blind readers."""

from __future__ import annotations

import itertools

import numpy as np

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
