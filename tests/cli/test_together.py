"""Runs of a sweep that are computed together write what each of them writes alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedbench.cli import main
from fedbench.errors import ConfigError
from fedbench.sweeps.together import Group, Kind, Seating, checked, groups

SMALL = [
    "-m", "dtype=float64", "rounds=6", "clients.total=8", "clients.per_round=3", "local.steps=4",
    "local.batch_size=16", "model=mlp", "model.hidden=[12]", "progress=none", "eval.train=true", "seed=0,1",
]  # fmt: skip
ASYNC = ["schedule=async", "schedule.concurrency=5", "delay=exponential"]
CASES = {
    "fedavg": ["algorithm=fedavg", "algorithm.lr=0.05,0.2"],
    "masked steps": ["algorithm=fednova", "local.epochs=1", "local.steps=null", "partition=dirichlet",
                     "partition.alpha=0.5", "algorithm.lr=0.05,0.2"],
    "a survey": ["algorithm=scaffold", "algorithm.lr=0.05,0.2"],
    "padamfed": ["algorithm=padamfed", "algorithm.norm=tensor"],
    "two gradients": ["algorithm=padamfed_vr", "algorithm.norm=vector"],
    "full gradients": ["algorithm=fedproxvr", "partition=dirichlet", "partition.alpha=0.5"],
    "a survey of the cohort": ["algorithm=mime", "algorithm.lr=0.05,0.1"],
    "asynchronous": ["algorithm=adamasfl", *ASYNC],
    "arrivals one by one": ["algorithm=fedasync", *ASYNC, "clients.per_round=1", "algorithm.lr=0.05,0.1"],
    "an optimizer": ["algorithm=fedavg", "optimizer=adam", "optimizer.keep=true", "local.clip_norm=1",
                     "lr_schedule=cosine", "algorithm.lr=0.01,0.02"],
    "dropout": ["algorithm=fedprox", "model.dropout=0.3", "algorithm.lr=0.05,0.1"],
    "batch norm": ["algorithm=fedbn", "model=conv", "model.norm=batch", "model.channels=[2]", "model.pools=[1]", "model.padding=[1]",
                   "algorithm.lr=0.05,0.1"],
}  # fmt: skip


def tables(place: Path) -> dict[str, pd.DataFrame]:
    """metrics.csv of every run, without the time that it took."""
    return {
        file.parent.name: pd.read_csv(file).drop(columns="wall_seconds")
        for file in sorted(place.glob("*/metrics.csv"))
    }


def summaries(place: Path) -> dict[str, dict[str, object]]:
    return {file.parent.name: json.loads(file.read_text()) for file in place.glob("*/summary.json")}


@pytest.mark.parametrize("case", CASES)
def test_runs_computed_together_are_those_computed_alone(case: str, tmp_path: Path) -> None:
    words = [*SMALL, *CASES[case]]
    assert main([*words, f"hydra.sweep.dir={tmp_path}/together"]) == 0
    assert main([*words, f"hydra.sweep.dir={tmp_path}/alone", "hydra/launcher=basic"]) == 0
    together, alone = tables(tmp_path / "together"), tables(tmp_path / "alone")
    assert together.keys() == alone.keys()
    assert len(together) >= 2
    for name, table in together.items():
        assert len(table) == 7
        for column in table:
            np.testing.assert_allclose(table[column], alone[name][column], rtol=1e-10, atol=1e-12, err_msg=column)
    for name, summary in summaries(tmp_path / "together").items():
        assert summary["together"] == len(together), name
        assert summary["notes"] == summaries(tmp_path / "alone")[name]["notes"]
    assert {summary["together"] for summary in summaries(tmp_path / "alone").values()} == {1}
