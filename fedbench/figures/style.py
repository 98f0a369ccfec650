"""How things look and what they are called in figures: print sizes, a fixed look for every method, and names
of columns, keys and choices. The tables of looks and names are in looks.yaml.

Colours are those of Okabe and Ito (2008), which colour-blind readers can tell apart; their yellow is left
out because a thin yellow line vanishes on white paper, and a wine red of Paul Tol stands in for it. Eight
colours cannot name all methods, so dash and marker carry the name as well: no two methods share that pair,
and a figure printed in grey still says which line is which.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from fedbench.config.config import GROUPS

SAID: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("looks.yaml").read_text(encoding="utf-8")
)
"""The tables of looks and names."""
_PALETTE: dict[str, str] = SAID["colours"]
_DASHES: dict[str, Any] = {
    name: (0, tuple(lengths)) if lengths else name for name, lengths in SAID["dashes"].items()
}
COLOURS, DASHES = tuple(_PALETTE.values()), tuple(_DASHES.values())
BLUE, VERMILLION = _PALETTE["blue"], _PALETTE["vermillion"]
DASHED, DOTTED = _DASHES["dashed"], _DASHES["dotted"]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

SHEET = Path(__file__).with_name("print.mplstyle")
"""The settings of matplotlib for figures of print size."""
WIDTHS = {"one": 3.25, "two": 6.75}
"""Widths in inches of a figure in one column and across two columns."""
FONT = 8.0
"""Size in points of all text; nothing in a figure is smaller."""
MUTED, FAINT = "#555555", "#C8C8C8"
STRIP = "#EFEFEF"
"""Background colour behind the crosses of diverged runs."""
BAND = 0.16
"""Opacity of the band around a line."""
SPREADS = {
    "std": "±1 sample standard deviation",
    "sem": "±1 standard error of the mean",
    "minmax": "smallest to largest",
}
"""What a band shows, by the name of the choice."""
AUTO, POINTS = "auto", "points"
"""Further values of `spread`: a band that suits the number of seeds, and points instead of a band."""
STAR: dict[str, Any] = {"marker": "*", "markersize": 8.0, "markeredgecolor": "black", "markeredgewidth": 0.6}
"""Mark of a value that a theorem or a search has chosen."""
LEVEL: dict[str, Any] = {"linestyle": "dashed", "linewidth": 0.8}
"""Look of the line that marks a value of an axis."""

# ---- looks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LineStyle:
    """How one line looks, and what it is called. Methods outside the table have markers not `filled`."""

    label: str
    colour: str
    dash: Any
    marker: str
    filled: bool = True

    def line(self) -> dict[str, Any]:
        """Keyword arguments for Axes.plot."""
        face = self.colour if self.filled else "white"
        said = {"color": self.colour, "linestyle": self.dash, "marker": self.marker, "markerfacecolor": face}
        return {**said, "markeredgecolor": self.colour, "markeredgewidth": 0.7}


def _look(label: str, colour: str, dash: str, marker: str) -> LineStyle:
    return LineStyle(label, _PALETTE[colour], _DASHES[dash], marker)


ALGORITHMS = {name: _look(*said) for name, said in SAID["algorithms"].items()}
READINGS = {label: _look(label, *said) for label, said in SAID["readings"].items()}
"""Looks of methods' readings in the papers' figures; a reading not listed has the algorithm's own look."""


def of_algorithm(name: str, title: str = "") -> LineStyle:
    """The style of an algorithm, the same in every figure. An algorithm that is not in the table (the user's
    own) gets a style derived from its name, with hollow markers, and the `title` of its class."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    number = zlib.crc32(name.encode())
    number, colour = divmod(number, 7)
    number, dash = divmod(number, len(DASHES))
    marker = MARKERS[number % len(MARKERS)]
    return LineStyle(title or name, COLOURS[colour], DASHES[dash], marker, filled=False)


def of_rank(label: str, rank: int) -> LineStyle:
    """The style of the line with this rank among lines that represent values of a key, not algorithms."""
    colour, dash, marker = (looks[rank % len(looks)] for looks in (COLOURS, DASHES, MARKERS))
    return LineStyle(label, colour, dash, marker)


def variant(style: LineStyle, rank: int, label: str) -> LineStyle:
    """The style of the line with this rank among several of a method: same colour, other dash and marker."""
    if not rank:
        return replace(style, label=label)
    dash = DASHES[(DASHES.index(style.dash) + rank) % len(DASHES)]
    at = MARKERS.index(style.marker) if style.marker in MARKERS else 0
    return replace(style, label=label, dash=dash, marker=MARKERS[(at + rank) % len(MARKERS)])


def line_styles(lines: Sequence[tuple[str | None, str, str]]) -> list[LineStyle]:
    """Looks of the lines of one picture, each given as (algorithm, method, label). A line whose algorithm is
    None stands for a value of a key.

    Every method has its own style, the same in every figure. If two methods of a picture share a colour and
    there are enough colours, the later method takes the next free one. Further lines of a method change their
    dash and marker.
    """
    own = {
        method: READINGS.get(method, of_algorithm(algorithm)) for algorithm, method, _ in lines if algorithm
    }
    colours: dict[str, str] = {}
    for method, look in own.items():
        if look.colour not in colours.values() or len(own) > len(COLOURS):
            colours[method] = look.colour
    free = [colour for colour in COLOURS if colour not in colours.values()]
    colours |= zip((method for method in own if method not in colours), free, strict=False)
    looks, ranks = [], Counter[str]()
    for rank, (algorithm, method, label) in enumerate(lines):
        if not algorithm:
            looks.append(of_rank(label, rank))
            continue
        kind = method if method in READINGS else algorithm
        looks.append(replace(variant(own[method], ranks[kind], label), colour=colours[method]))
        ranks[kind] += 1
    return looks


# ---- names -----------------------------------------------------------------------------------------------

_AXES: dict[str, str] = SAID["axes"]
_OPTIONS: dict[str, str] = SAID["options"]
_FLAGS: dict[str, str] = SAID["flags"]
SYMBOLS: dict[str, str] = SAID["symbols"]
VARIED = {SYMBOLS[key]: key for key in ("clients.per_round", "local.steps")}
"""The counts that grow in a figure of speed-ups, one in each panel; the other has its most frequent value."""
PARTITION_KEYS = ("partition.alpha", "partition.labels", "partition.per_client", "partition.share")
_WIDTH, _FULL = "model.width", 64  # channels of the standard ResNet-18
_FROM_THEOREM = ("algorithm.lr", "algorithm.server_lr", "algorithm.beta")


def axis(name: str, metric: str = "accuracy") -> str:
    """The axis label of a column or key. `metric`: what accuracies measure."""
    label, (when, _, column) = _AXES.get(name), name.partition("_")
    if label is None and when in ("final", "best") and column in _AXES:
        label = f"{when} {_AXES[column]}".capitalize()
    if label is None:
        words = name.split(".")[-1]
        for one in (one for one in SAID["metrics"] if words.endswith(f"_{one}")):
            words = words.removesuffix(one) + SAID["metrics"][one]
        label = words[:1].upper() + words[1:].replace("_", " ")
    return label.replace("accuracy", str(SAID["metrics"].get(metric, metric)))


def levels_entry(levels: Sequence[float]) -> dict[str, dict[str, Any]]:
    """The legend's entry for lines at these values of an axis; empty without values."""
    return {f"level {', '.join(f'{level:g}' for level in levels)}": LEVEL} if levels else {}


def option(name: object) -> str:
    """The name of an option: `Fashion-MNIST`, `CNN`."""
    return _OPTIONS.get(str(name), str(name))


def dataset(choices: Mapping[str, object]) -> str:
    """The name of the data set, with its split if it has several: `EMNIST (digits)`."""
    split = choices.get("dataset.split")
    return option(choices.get("dataset")) + (f" ({split})" if split else "")


def partition(choices: Mapping[str, object]) -> str:
    """The name of the partition with its parameters: `Dirichlet(0.5)`, `shards(2)`, `iid`."""
    details = [value for key in PARTITION_KEYS if isinstance(value := choices.get(key), int | float)]
    return option(choices.get("partition")) + "".join(f"({value:g})" for value in details)


def model(choices: Mapping[str, object]) -> str:
    """The name of the model, with its width if that is not the usual one: `ResNet-18 (width 8)`."""
    width = choices.get(_WIDTH)
    narrow = isinstance(width, int | float) and width != _FULL
    return option(choices.get("model")) + (f" (width {width:g})" if narrow else "")


def line(shown: Sequence[str], choices: Mapping[str, object], title: str = "") -> str:
    """The name of a line that the keys `shown` distinguish: `SCAFFOLD, lr=0.1`, `FedProxVR (SVRG)`.

    `choices`: the choices of its runs, under dotted keys; `title`: their method's, if it is the user's own.
    """
    parts: list[str] = []
    variants = [key for key in shown if is_variant(key, choices.get(key))]
    if "algorithm" in shown:
        parts.append(of_algorithm(str(choices.get("algorithm")), title).label)
        parts[0] += f" ({', '.join(_variant(choices[key]) for key in variants)})" if variants else ""
    for key in shown:
        if key == "partition" or key in PARTITION_KEYS:
            parts.append(partition(choices))
        elif key in ("model", _WIDTH) and "model" in choices:
            parts.append(model(choices))
        elif key in variants and "algorithm" not in shown:
            parts.append(_variant(choices[key]))
        elif key in choices and key != "algorithm" and key not in variants:
            parts.append(_choice(key, choices[key]))
    return ", ".join(dict.fromkeys(parts))


def line_name(shown: Sequence[str], choices: Mapping[str, object], title: str) -> tuple[str | None, str, str]:
    """The algorithm that a line represents (None if it represents none), its method, and the line's name.
    Named variants of an algorithm are methods of their own."""
    variants = [key for key in shown if is_variant(key, choices.get(key))]
    of_one = "algorithm" in shown or variants
    algorithm = str(choices["algorithm"]) if of_one and "algorithm" in choices else None
    return algorithm, line(["algorithm", *variants], choices, title), line(shown, choices, title)


def is_variant(key: str, value: object) -> bool:
    """Whether a choice names a variant of a method (`algorithm.estimator=svrg`)."""
    return key.startswith("algorithm.") and isinstance(value, str)


def _variant(value: object) -> str:
    return str(value).upper() if value in ("svrg", "sarah", "sgd") else str(value)


def _choice(key: str, value: object) -> str:
    if key in GROUPS and value is not None:
        return option(value)
    if key in _FLAGS:
        return _FLAGS[key] if value else f"not {_FLAGS[key]}"
    name = SYMBOLS.get(key, key.split(".")[-1].replace("_", " "))
    nothing = "theorem" if key in _FROM_THEOREM else "full" if key == "local.batch_size" else "none"
    return f"{name}={nothing if value is None else f'{value:g}' if isinstance(value, float) else value}"
