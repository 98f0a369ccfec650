"""The one style sheet: print sizes, fonts, and a fixed colour, dash and marker for every algorithm.

Colours are those of Okabe and Ito (2008), which colour-blind readers can tell apart; their yellow is left
out because a thin yellow line vanishes on white paper. Seven colours cannot name 37 algorithms, so dash
and marker carry the name as well: no two algorithms share that pair, and a figure printed in grey still
says which line is which.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
WINE = "#882255"  # Paul Tol's; only where a picture needs an eighth colour
COLOURS = (BLUE, VERMILLION, GREEN, BLACK, ORANGE, SKY, PURPLE, WINE)
SOLID: Any = "solid"
DASHED, DOTTED, DASHDOT, LONG = (
    (0, (4, 1.5)),
    (0, (1, 1.2)),
    (0, (4, 1.2, 1, 1.2)),
    (0, (8, 1.5, 1, 1.5, 1, 1.5)),
)
DASHES: tuple[Any, ...] = (SOLID, DASHED, DASHDOT, DOTTED, LONG)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

WIDTHS = {"one": 3.25, "two": 6.75}
"""Widths in inches of a figure in one column and across two columns."""
FONT = 8.0
"""Size in points of all text; nothing in a figure is smaller."""
MUTED, FAINT = "#555555", "#C8C8C8"
STRIP = "#EFEFEF"
"""Behind the crosses of diverged runs."""
BAND = 0.16
"""Opacity of the band around a line."""
SPREADS = {
    "std": "±1 sample standard deviation",
    "sem": "±1 standard error of the mean",
    "minmax": "smallest to largest",
}
"""What a band shows, by the name of the choice."""
AUTO = "auto"
"""The choice of a band that fits the number of seeds."""

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so a figure looks the same everywhere
    "font.size": FONT,
    "axes.labelsize": FONT,
    "axes.titlesize": FONT,
    "xtick.labelsize": FONT,
    "ytick.labelsize": FONT,
    "legend.fontsize": FONT,
    "mathtext.fontset": "dejavusans",
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "ps.fonttype": 42,
    "savefig.dpi": 300,
    "figure.dpi": 300,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "axes.labelpad": 2.5,
    "legend.frameon": False,
    "svg.hashsalt": "fedbench",  # the same picture has the same bytes
}


@dataclass(frozen=True)
class LineStyle:
    """How one line looks, and what it is called. `filled` markers are for the algorithms named here."""

    label: str
    colour: str
    dash: Any
    marker: str
    filled: bool = True

    def line(self) -> dict[str, Any]:
        """Keyword arguments for Axes.plot."""
        face = self.colour if self.filled else "white"
        return {
            "color": self.colour,
            "linestyle": self.dash,
            "marker": self.marker,
            "markerfacecolor": face,
            "markeredgecolor": self.colour,
            "markeredgewidth": 0.7,
        }

    @property
    def text_colour(self) -> str:
        """The colour, darkened so that text in it is readable on white."""
        rgb = [int(self.colour[i : i + 2], 16) for i in (1, 3, 5)]
        return "#" + "".join(f"{int(channel * 0.62):02X}" for channel in rgb)


ALGORITHMS: dict[str, LineStyle] = {
    name: LineStyle(label, colour, dash, marker)
    for name, label, colour, dash, marker in (
        ("fedavg", "FedAvg", BLACK, DASHED, "s"),
        ("scaffold", "SCAFFOLD", BLUE, DASHDOT, "^"),
        ("scaffold_m", "SCAFFOLD-M", SKY, DASHED, "D"),
        ("scaffold_m_vr", "SCAFFOLD-M-VR", GREEN, DOTTED, "v"),
        ("padamfed", "PAdaMFed", VERMILLION, SOLID, "o"),
        ("padamfed_vr", "PAdaMFed-VR", PURPLE, SOLID, "X"),
        ("fedavg_m", "FedAvg-M", ORANGE, DASHDOT, "s"),
        ("fedcm", "FedCM", GREEN, LONG, "P"),
        ("fedavgm", "FedAvgM", ORANGE, DOTTED, "D"),
        ("slowmo", "SlowMo", PURPLE, DASHED, "P"),
        ("fednova", "FedNova", GREEN, DASHDOT, "o"),
        ("fedprox", "FedProx", GREEN, DASHED, "v"),
        ("fedproxvr", "FedProxVR", VERMILLION, DASHED, "^"),
        ("feddyn", "FedDyn", SKY, DOTTED, "s"),
        ("fedexp", "FedExP", BLACK, DOTTED, "X"),
        ("fedsps", "FedSPS", PURPLE, DOTTED, "o"),
        ("led", "LED", VERMILLION, DOTTED, "P"),
        ("mime", "MIME", BLUE, LONG, "D"),
        ("mimelite", "MIMELite", SKY, LONG, "X"),
        ("vrl_sgd", "VRL-SGD", BLACK, DASHDOT, "D"),
        ("fedbn", "FedBN", BLUE, DOTTED, "*"),
        ("fedadagrad", "FedAdagrad", GREEN, DASHED, "X"),
        ("fedadam", "FedAdam", ORANGE, SOLID, "^"),
        ("fedyogi", "FedYogi", PURPLE, DASHDOT, "v"),
        ("fedams", "FedAMS", SKY, DASHDOT, "P"),
        ("local_amsgrad", "Local AMSGrad", BLACK, LONG, "s"),
        ("fedadt", "FedADT", VERMILLION, LONG, "v"),
        ("fafed", "FAFED", ORANGE, LONG, "o"),
        ("adamasfl", "AdaMasFL", VERMILLION, SOLID, "D"),
        ("masfl", "MasFL", BLUE, SOLID, "s"),
        ("fedbuff", "FedBuff", BLACK, DASHED, "o"),
        ("ca2fl", "CA2FL", GREEN, SOLID, "v"),
        ("fadas", "FADAS", ORANGE, DASHDOT, "X"),
        ("defedavg_iid", "DeFedAvg-iid", SKY, SOLID, "P"),
        ("defedavg_niid", "DeFedAvg-niid", SKY, DOTTED, "^"),
        ("fedasync", "FedAsync", PURPLE, LONG, "^"),
        ("dude_asgd", "DuDe-ASGD", BLACK, SOLID, "*"),
    )
}


def of_algorithm(name: str) -> LineStyle:
    """The style of an algorithm, the same in every figure. One that is not in the table (the user's own)
    gets a style that follows from its name, with hollow markers."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    number = zlib.crc32(name.encode())
    colours = COLOURS[:7]
    dash = DASHES[number // len(colours) % len(DASHES)]
    marker = MARKERS[number // (len(colours) * len(DASHES)) % len(MARKERS)]
    return LineStyle(name, colours[number % len(colours)], dash, marker, filled=False)


def of_rank(label: str, rank: int) -> LineStyle:
    """The style of the line with this rank among lines that stand for no algorithm (values of a key)."""
    return LineStyle(
        label, COLOURS[rank % len(COLOURS)], DASHES[rank % len(DASHES)], MARKERS[rank % len(MARKERS)]
    )


def variant(style: LineStyle, rank: int, label: str) -> LineStyle:
    """The line with this rank among several of one algorithm: its colour, another dash and marker."""
    dash = DASHES[(DASHES.index(style.dash) + rank) % len(DASHES)]
    marker = MARKERS[(MARKERS.index(style.marker) + rank) % len(MARKERS)]
    return replace(style, label=label, dash=dash, marker=marker)


def apart(lines: Sequence[tuple[str | None, str, str]]) -> list[LineStyle]:
    """Looks of the lines of one picture, each given as (algorithm, method, label); algorithm None: a value.

    Every algorithm has its own style; but no two methods of a picture have one colour while there are enough,
    so the later one takes the next that is free. Further lines of a method change their dash and marker.
    """
    methods = {method: of_algorithm(algorithm) for algorithm, method, _ in lines if algorithm is not None}
    colours: dict[str, str] = {}
    for method, look in methods.items():
        if look.colour not in colours.values() or len(methods) > len(COLOURS):
            colours[method] = look.colour
    free = [colour for colour in COLOURS if colour not in colours.values()]
    colours |= zip((method for method in methods if method not in colours), free, strict=False)
    looks, ranks = [], Counter[str]()
    for rank, (algorithm, method, label) in enumerate(lines):
        if algorithm is None:
            looks.append(of_rank(label, rank))
            continue
        look = variant(of_algorithm(algorithm), ranks[algorithm], label)
        looks.append(replace(look, colour=colours[method]))
        ranks[algorithm] += 1
    return looks
