"""The winners of a tuning, run again: `fedbench tune DIR KEY=VALUE...`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config.identity import digest
from fedbench.config.overrides import Value, parse, typed
from fedbench.errors import ConfigError, UsageError
from fedbench.figures.results import FINAL, TUNING
from fedbench.files import read_json
from fedbench.sweeps.launch import asked
from fedbench.sweeps.plan import preview
from fedbench.tuning.search import TuningRuns
from fedbench.tuning.tune import Tuned, final_row, write_table

_LONGEST = 100  # letters of a directory's name


@dataclass(frozen=True)
class _Again:
    """What is run: the winners' grids, the overrides of all of them, the directory, and tune.json."""

    grids: list[dict[str, list[Value]]]
    words: list[str]
    place: Path
    said: dict[str, Any]

    @property
    def runs(self) -> Path | None:
        """Where the runs lie; None: in the directories of their sweeps."""
        return Path(self.said["runs"]) if self.said["runs"] else None


def forecast_again(directory: Path, overrides: Sequence[str]) -> Iterator[str]:
    """Yield lines that say what `again` would run, and what is finished. Writes nothing. Raises UserError."""
    plan = _read(directory, overrides)
    with asked(plan.words, plan.grids, plan.place, plan.runs, plan.said["config_dir"]) as sweep:
        yield from preview(sweep.plan())


def again(directory: Path, overrides: Sequence[str]) -> Tuned:
    """Run the winners of a tuning again, each with its own values, and with further `overrides`: for longer,
    with other seeds, without held-out samples. The runs and their results.csv lie beside those of the tuning,
    in `final-...`. Raises UserError; a run that fails does not stop the others."""
    plan = _read(directory, overrides)
    stages = TuningRuns(plan.words, plan.runs, plan.said["config_dir"])
    runs = stages.run(plan.place, plan.grids)
    tasks, metric = plan.said["tasks"], plan.said["metric"]
    rows = [final_row(named, grid, runs, metric) for named, grid in zip(tasks, plan.grids, strict=True)]
    write_table(plan.place / "results.csv", pd.DataFrame(rows))
    return Tuned(plan.place, stages.failures, pd.DataFrame(rows))


def _read(directory: Path, overrides: Sequence[str]) -> _Again:
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
    name = re.sub(r"[^\w.,=()\[\]-]+", "_", "-".join([FINAL, *sorted(overrides)]))
    place = directory / (name if len(name) <= _LONGEST else f"{FINAL}-{digest(sorted(overrides))}")
    return _Again(grids, [*words, *further], place, said)
