"""What a sweep is over: typed grids, from a command line, a file's `hydra.sweeper.params`, and the caller."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader

from fedbench.compose.overrides import Grid, Value, parse, typed
from fedbench.errors import word


def said(
    params: Mapping[str, Any], arguments: Sequence[str], grids: Sequence[Grid], loader: ConfigLoader
) -> tuple[list[str], list[Grid]]:
    """The overrides that all jobs have in common, and the grids of the union.

    `params`: a file's; `arguments` count more than `params` and `grids`, a grid's keys more than `params`.
    """
    given = {item.key_or_group for item in parse(arguments)}
    words = [f"{key}={word(value)}" for key, value in params.items() if key not in given]
    fixed: dict[str, str] = {}
    base: dict[str, list[Value]] = {}
    for item in parse([*words, *arguments], loader):
        key = item.get_key_element()
        fixed.pop(key, None)
        base.pop(key, None)
        if item.is_sweep_override():
            base[key] = typed(item)
        else:
            fixed[key] = str(item.input_line)
    wanted = [{key: values for key, values in grid.items() if key not in given} for grid in grids]
    merged: list[Grid] = []
    for grid in wanted or [{}]:  # the order of keys is the order of jobs
        keys = dict.fromkeys([*(key for key in params if key in base or key in grid), *grid, *base])
        merged.append({key: grid[key] if key in grid else base[key] for key in keys})
    return list(fixed.values()), merged


def of_file(grids: Sequence[Mapping[str, Any]], loader: ConfigLoader | None = None) -> list[Grid]:
    """The grids that a file writes with texts such as `0.1,0.2`."""
    return [
        {key: typed(parse([f"{key}={word(value)}"], loader)[0]) for key, value in grid.items()}
        for grid in grids
    ]


def points(grid: Grid) -> Iterator[dict[str, Value]]:
    """The points of a grid, the last key fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))
