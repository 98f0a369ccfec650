"""The style sheet: one style per algorithm, told apart by colour, in grey, and by colour-blind readers."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from matplotlib import rc_params_from_file

from fedbench.figures import style

# the table of algorithms of the design
# fmt: off
NAMES = {
    "fedavg", "fedbn", "vrl_sgd", "ca2fl", "dude_asgd", "defedavg_iid", "defedavg_niid", "masfl",
    "adamasfl", "scaffold_m", "scaffold_m_vr", "fedavg_m", "fedcm", "padamfed", "padamfed_vr",
    "scaffold", "fedprox", "feddyn", "fedadagrad", "fedadam", "fedyogi", "fedavgm", "slowmo", "fednova",
    "fedams", "local_amsgrad", "fedadt", "led", "mime", "mimelite", "fedsps", "fafed", "fedexp",
    "fedproxvr", "fedasync", "fedbuff", "fadas", "area", "ace", "asyncfeded", "fedexp_m", "scaffold_exp",
    "delta_sgd", "fedhyper", "fedlada", "fedadamw", "ringmaster_asgd", "local",
}
# fmt: on
# and a wine red of Paul Tol
OKABE_ITO = {
    "#882255",
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
}
TOL = {"#882255"}
# compared with each other in a paper's figure, or by most users
SETS = [
    "fedavg scaffold scaffold_m padamfed padamfed_vr",
    "adamasfl masfl fedbuff ca2fl fadas defedavg_iid fedasync",
]


def rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def test_every_algorithm_of_the_design_has_a_style() -> None:
    assert set(style.ALGORITHMS) == NAMES


def test_no_two_methods_share_dash_and_marker_so_grey_prints_can_be_read() -> None:
    looks = [*style.ALGORITHMS.values(), *style.READINGS.values()]
    pairs = [(str(look.dash), look.marker) for look in looks]
    assert len(set(pairs)) == len(pairs)


def test_labels_are_unique() -> None:
    assert len({look.label for look in style.ALGORITHMS.values()}) == len(style.ALGORITHMS)


def test_colours_are_okabe_ito() -> None:
    assert {look.colour for look in style.ALGORITHMS.values()} <= OKABE_ITO | TOL


@pytest.mark.parametrize("names", SETS)
def test_algorithms_of_one_paper_differ_in_colour(names: str) -> None:
    colours = [style.of_algorithm(name).colour for name in names.split()]
    assert len(set(colours)) == len(colours)


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


def test_variants_keep_the_colour_and_change_dash_and_marker() -> None:
    base = style.of_algorithm("scaffold")
    looks = [style.variant(base, rank, str(rank)) for rank in range(5)]
    assert {look.colour for look in looks} == {base.colour}
    assert len({(str(look.dash), look.marker) for look in looks}) == 5


def test_print_sizes_and_fonts() -> None:
    assert style.WIDTHS == {"one": 3.25, "two": 6.75}
    settings = dict(dict.items(rc_params_from_file(style.SHEET, use_default_template=False)))
    sizes = [value for key, value in settings.items() if re.search(r"(label|title|font)\.?size$", key)]
    assert len(sizes) == 7
    assert min(sizes) >= 8
    assert settings["pdf.fonttype"] == 42
    assert settings["savefig.dpi"] == 300
