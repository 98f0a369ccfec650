"""What of a method can be searched: its keys with their defaults, and the values that are usually tried."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

from fedbench import fields
from fedbench.config.options import option_file, option_keys, read_file
from fedbench.config.overrides import Grid, Value

SMALL = 20
"""The most points of a small grid."""
_OWN = "own_method"  # of conf/grid: the values for a user's method without a file of its own
_GROUP = "algorithm"


def defaults_of(method: str, searchpath: Sequence[Path]) -> dict[str, Value]:
    """The keys of a method, without `name`, with their defaults. Raises ConfigError for an unknown method."""
    found: dict[str, Value] = dict.fromkeys(option_keys(_GROUP, method, searchpath))
    own = fields.REGISTERED.get((_GROUP, method))
    found |= fields.defaults(own) if own else {}
    found |= _file(_GROUP, method, searchpath) or {}
    return {key: value for key, value in found.items() if key not in ("name", "defaults")}


def usual_values(method: str, searchpath: Sequence[Path]) -> dict[str, list[Value]]:
    """The values to try of a method's keys: those of grid/METHOD.yaml. A method of the user's own without
    such a file has those of conf/grid/own_method.yaml, by its keys' names. Empty if nothing is tuned."""
    content = _file("grid", method, searchpath)
    if content is None and option_file(_GROUP, method):
        return {}  # ours: its theorem gives all step sizes
    if content is None:
        keys = defaults_of(method, searchpath)
        content = {key: values for key, values in (_file("grid", _OWN, ()) or {}).items() if key in keys}
    return {f"{_GROUP}.{key}": list(values) for key, values in content.items()}


def smaller(grid: Grid, defaults: Mapping[str, Value]) -> dict[str, list[Value]]:
    """A grid of at most SMALL points: the value farthest from its default goes, of the key that has most
    values, until few enough are left. Of equals, the last one goes."""
    left = {key: list(values) for key, values in grid.items()}
    while math.prod(map(len, left.values())) > SMALL:
        key = max(reversed(left), key=lambda name: len(left[name]))
        default = defaults.get(key.removeprefix(f"{_GROUP}."))
        centre = default if is_number(default) else left[key][len(left[key]) // 2]
        distances = [distance(value, centre) for value in left[key]]
        del left[key][max(range(len(distances)), key=lambda at: (distances[at], at))]
    return left


def distance(value: Value, centre: Value) -> float:
    """How far a value is from another one: logarithmically if both are positive; 1 if one is no number."""
    if not (is_number(value) and is_number(centre)):
        return float(value != centre)
    return abs(math.log(value / centre)) if value > 0 and centre > 0 else abs(value - centre)


def is_number(value: Value) -> TypeGuard[float]:
    """Whether a value has a place on a scale; true and false have none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _file(group: str, name: str, searchpath: Sequence[Path]) -> dict[str, Value] | None:
    """The content of the first file of that name; None if there is none."""
    file = option_file(group, name, searchpath)
    return None if file is None else dict(read_file(file))
