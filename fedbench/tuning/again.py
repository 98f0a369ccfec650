"""The winners of a tuning, run again: `fedbench tune DIR KEY=VALUE...`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config.identity import counts, digest
from fedbench.config.overrides import Value, parse, typed
from fedbench.errors import ConfigError, UsageError
from fedbench.figures.results import FINAL, TUNING
from fedbench.files import read_json
from fedbench.sweeps.plan import preview
from fedbench.tuning.selection import result_row
from fedbench.tuning.tune import Tuned, write_table
from fedbench.tuning.tuning import TuningRuns

_LONGEST = 100  # letters of a directory's name


def forecast_again(directory: Path, overrides: Sequence[str]) -> Iterator[str]:
    """Yield lines that say what `again` would run, and what is finished. Writes nothing. Raises UserError."""
    sweeps, place, grids, _ = _read(directory, overrides)
    yield from preview(sweeps.plan(place, grids))


def again(directory: Path, overrides: Sequence[str]) -> Tuned:
    """Run the winners of a tuning again, each with its own values, and with further `overrides`: for longer,
    with other seeds, without held-out samples. The runs and their results.csv lie beside those of the tuning,
    in `final-...`. Raises UserError; a run that fails does not stop the others."""
    sweeps, place, grids, said = _read(directory, overrides)
    runs = sweeps.run(place, grids)
    of_tasks = zip(said["tasks"], grids, strict=True)
    results = pd.DataFrame([result_row(named, grid, runs, said["metric"]) for named, grid in of_tasks])
    write_table(place / "results.csv", results)
    return Tuned(place, sweeps.failures, results)


def _read(
    directory: Path, overrides: Sequence[str]
) -> tuple[TuningRuns, Path, list[dict[str, list[Value]]], dict[str, Any]]:
    """What runs the winners, the directory of their list, their grids, and the tuning's tune.json."""
    said = read_json(directory / TUNING)
    winners: list[dict[str, list[Value]]] | None = (said or {}).get("winners")
    if said is None or not winners:
        allowed = (
            "must be a tuning's directory, whose search has ended" if said is None else "has no winners yet"
        )
        raise UsageError(f"tune: {directory}: {allowed}")
    parsed = parse(overrides)
    own = dict.fromkeys(key for grid in winners for key in grid if key != "seed")
    for item in parsed:
        key = item.get_key_element().lstrip("+")
        if key in own:
            raise ConfigError(key, item.get_value_string(), "every winner has a value of its own here")
        if item.is_sweep_override() and key != "seed":
            raise ConfigError(
                key, item.get_value_string(), "must be one value; only the seed may have several"
            )
    seeds = next((typed(item) for item in parsed if item.get_key_element() == "seed"), None)
    further = [str(item.input_line) for item in parsed if item.get_key_element() != "seed"]
    new = {item.get_key_element().lstrip("+") for item in parsed}
    words = [text for text in said["words"] if text.partition("=")[0].lstrip("+") not in new]
    grids = [{**grid, "seed": seeds or grid["seed"]} for grid in winners]
    named = [item for item in parsed if counts(item.get_key_element().lstrip("+"))]
    telling = [str(item.input_line) for item in named if not item.is_hydra_override()]
    runs = Path(said["runs"]) if said["runs"] else None  # None: in the directories of their sweeps
    return TuningRuns([*words, *further], runs, said["config_dir"]), directory / _name(telling), grids, said


def _name(words: Sequence[str]) -> str:
    """The directory's name for these words."""
    name = re.sub(r"[^\w.,=()\[\]-]+", "_", "-".join([FINAL, *sorted(words)]))
    return name if len(name) <= _LONGEST else f"{FINAL}-{digest(sorted(words))}"
