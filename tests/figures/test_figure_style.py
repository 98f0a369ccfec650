"""The style sheet: one style per algorithm, told apart by colour, in grey, and by colour-blind readers."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from make_results import rows, write_run
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
