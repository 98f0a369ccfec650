"""What a user may choose of a figure of runs: what is drawn, and how it is to look."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from matplotlib.colors import is_color_like, to_hex

from fedbench.errors import ConfigError
from fedbench.figures.lines import Series
from fedbench.figures.style import AUTO, SPREADS, WIDTHS

ALIASES = {"updates": "round", "server_updates": "round"}
"""Other names of metrics columns: a round is a server update."""


@dataclass(frozen=True)
class PlotOptions:
    """What is drawn of runs, and how it is to look.

    `x`: a column of metrics.csv, or a swept key; `y`: a column of metrics.csv, against a key also
    best_accuracy. `by`: choices that make a line; `where`: key -> values, only these runs; `spread`: std,
    sem, minmax, or auto (minmax of two seeds, else std); `rows`: a key, with a picture for each value.
    `width`: one or two columns; `caption`: the caption is drawn too; `log`: logarithmic axes ("x", "y").
    `limits`: axis -> its ends; `labels`: axis or line -> its name; `order`: lines that come first; `colours`:
    line -> colour. A line goes by its name in the figure or by its algorithm's (`padamfed`). `svg`: write SVG
    too. `style`: a file of matplotlib settings. `own_y`: pictures have a y axis each, as where they are of
    different tasks. Raises ConfigError for what cannot be.
    """

    x: str = "round"
    y: str = "test_accuracy"
    by: Sequence[str] = ("algorithm",)
    where: Mapping[str, Sequence[object]] = field(default_factory=dict)
    spread: str = AUTO
    rows: str | None = None
    width: str = "one"
    caption: bool = False
    log: Collection[str] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    order: Sequence[str] = ()
    colours: Mapping[str, str] = field(default_factory=dict)
    svg: bool = False
    style: Path | None = None
    own_y: bool = False

    def __post_init__(self) -> None:
        check_choice("width", self.width, WIDTHS)
        check_choice("spread", self.spread, (AUTO, *SPREADS))
        for axis, (low, high) in self.limits.items():
            if not low < high or (axis in self.log and low <= 0):
                allowed = "must be two numbers, the lower first" + (", above 0" if axis in self.log else "")
                raise ConfigError(f"{axis}lim", f"{low:g},{high:g}", allowed)
        for colour in self.colours.values():
            if not is_color_like(colour):
                raise ConfigError("colour", colour, "must be a colour: a name, or #RRGGBB")

    def apply(self, series: Sequence[Series]) -> list[Series]:
        """The lines of a picture in this order, with these names and colours."""
        known = {name: None for line in series for name in _names(line)}
        asked = {"order": self.order, "colour": self.colours, "label": set(self.labels) - {"x", "y"}}
        for option, names in asked.items():
            for name in names:
                if name not in known:
                    raise ConfigError(option, name, f"must be a line: {', '.join(known)}", known)
        rank = {name: place for place, name in enumerate(self.order)}
        first = sorted(series, key=lambda line: min(rank.get(name, len(rank)) for name in _names(line)))
        return [self._dressed(line) for line in first]

    def _dressed(self, line: Series) -> Series:
        label, colour = (
            next((said[name] for name in _names(line) if name in said), usual)
            for said, usual in ((self.labels, line.label), (self.colours, line.style.colour))
        )
        return replace(line, style=replace(line.style, label=label, colour=to_hex(colour).upper()))


def _names(line: Series) -> list[str]:
    """What a user may call a line."""
    return list(dict.fromkeys([line.label, str(line.choices.get("algorithm", line.label))]))


def check_choice(key: str, value: str, allowed: Collection[str]) -> None:
    """ConfigError unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ConfigError(key, value, f"must be one of {', '.join(allowed)}", allowed)
