"""Axes: in which unit a column is drawn, limits around values, and ticks that stay apart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, ScalarFormatter

from fedbench.figures import names
from fedbench.figures.read.statistics import Floats

ALIASES = {"updates": "round", "server_updates": "round"}
"""Other names of metrics columns: a round is a server update."""
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LEAST_GAP = 0.1  # between two ticks, of the axis' length
_COUNTS = ((1e9, "10⁹"), (1e6, "10⁶"), (1e3, "10³"))


@dataclass(frozen=True)
class Axis:
    """A column as an axis: its label, and the divisor from the column's unit to the unit drawn."""

    label: str
    divisor: float = 1.0


def axis(name: str, values: Iterable[Floats], metric: str = "accuracy") -> Axis:
    """The axis of column `name` with these values on it. `metric`: what accuracies are."""
    label = names.axis(name, metric)
    largest = max((float(np.nanmax(np.abs(part), initial=0.0)) for part in values), default=0.0)
    if name.endswith("_bytes"):
        divisor, unit = next(((size, unit) for size, unit in _BYTES if largest >= size), _BYTES[-1])
        return Axis(f"{label} ({unit})", divisor)
    if name == "gradient_evaluations":
        divisor, unit = next(((size, unit) for size, unit in _COUNTS if largest >= 10 * size), (1.0, ""))
        return Axis(f"{label} ({unit})" if unit else label, divisor)
    return Axis(label)


def log_worthy(values: Floats, span: float) -> bool:
    """Whether positive values spread over at least this factor."""
    return len(values) > 1 and bool((values > 0).all()) and float(values.max() / values.min()) >= span


def limit(
    ax: Axes, which: str, values: Floats, *, log: bool, margin: float, given: tuple[float, float] | None
) -> None:
    """Scale and limits of axis `which` ("x", "y"): those `given`, or around `values` with a margin relative
    to their range."""
    if log:
        values = values[values > 0]
        getattr(ax, f"set_{which}scale")("log")
    if given:
        getattr(ax, f"set_{which}lim")(*given)
        return
    if not len(values):
        return
    low, high = float(values.min()), float(values.max())
    if log:
        pad = (high / low) ** margin if high > low else 2.0
        ends = (low / pad, high * pad)
    else:
        pad = margin * (high - low) if high > low else max(abs(high) * 0.1, 0.5 if which == "x" else 0.05)
        ends = (low - pad, high + pad)
    getattr(ax, f"set_{which}lim")(*ends)


def ticks(ax: Axes, *, x: int = 6, y: int = 6) -> None:
    """At most about `x` and `y` ticks, written plainly."""
    for dimension, count in ((ax.xaxis, x), (ax.yaxis, y)):
        low, high = sorted(dimension.get_view_interval())
        if dimension.get_scale() == "log":
            places = log_places(low, high, count)
            dimension.set_major_locator(FixedLocator(list(places)))
            dimension.set_minor_formatter(NullFormatter())
            write = _plain if places.min() >= 1e-3 and places.max() <= 1e4 else _power
            dimension.set_major_formatter(FuncFormatter(lambda value, _, write=write: write(value)))
            continue
        dimension.set_major_locator(MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]))
        if 1e-2 <= max(abs(low), abs(high)) < 1e6:
            formatter = ScalarFormatter(useOffset=False)
            formatter.set_scientific(False)
            dimension.set_major_formatter(formatter)
        else:
            dimension.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))


def log_places(low: float, high: float, count: int) -> Floats:
    """At most `count` tick places in [low, high] for a logarithmic axis: decades, or finer where few fit."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), tuple(range(1, 10))):
        fine = np.array([digit * 10.0**e for e in range(first - 1, last + 1) for digit in digits])
        fine = fine[(fine >= low * (1 - 1e-9)) & (fine <= high * (1 + 1e-9))]
        if len(fine) >= min(count, 3):
            return fine[:: -(-len(fine) // count)]
    if len(fine) > 1:
        return fine
    unit = 10.0 ** (math.floor(math.log10(low)) - 2)  # the ends, rounded inwards to three digits
    return np.array([math.ceil(low / unit - 1e-9), math.floor(high / unit + 1e-9)]) * unit


def _plain(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _power(value: float) -> str:
    """3×10⁻⁵ with real superscripts, which need no formula and can be measured as text."""
    exponent = math.floor(math.log10(value) + 1e-9)
    factor = value / 10.0**exponent
    power = "10" + str(exponent).translate(_SUPERSCRIPT)
    return power if abs(factor - 1) < 1e-6 else f"{factor:g}×{power}"


def apart(values: Floats, *, log: bool) -> bool:
    """Whether ticks at these rising values have room for what is written below them."""
    if log and not (values > 0).all():
        return False
    places = np.log(values) if log else values
    return len(places) < 2 or float(np.diff(places).min()) >= _LEAST_GAP * float(np.ptp(places))


def exact_ticks(ax: Axes, values: Floats) -> None:
    """Ticks along x at the given values, written as they are."""
    ax.xaxis.set_major_locator(FixedLocator(list(values)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    ax.xaxis.set_minor_locator(FixedLocator([]))
