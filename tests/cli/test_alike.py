"""Which runs of a sweep are told to share a compiled step."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fedbench.api import compose_config
from fedbench.sweeps import job as jobs
from fedbench.sweeps.job import RunJob, program
from fedbench.sweeps.launch import sweep

BASE = ["algorithm=padamfed", "progress=none"]


def name(*overrides: str) -> str:
    return program(compose_config([*BASE, *overrides]))


@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm.lr=0.3",),
        ("algorithm.lr=0.3", "algorithm.beta=0.5"),
        ("seed=4",),
        ("rounds=7",),
        ("clients.total=31",),
        ("threads=1",),
        ("engine=compile",),
        ("eval.every=2",),
        ("partition=dirichlet",),
    ],
)
def test_numbers_and_seeds_share_a_step(overrides: tuple[str, ...]) -> None:
    assert name(*overrides) == name()


@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm=scaffold",),
        ("algorithm.normalise=false",),
        ("algorithm.norm=tensor",),
        ("model=mlp",),
        ("dataset=synthetic",),
        ("local.batch_size=7",),
        ("clients.per_round=6",),
        ("loss.weight_decay=0.1",),
        ("dtype=float64",),
    ],
)
def test_variants_and_shapes_do_not(overrides: tuple[str, ...]) -> None:
    assert name(*overrides) != name()


def test_a_worker_knows_how_many_are_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are not finished; also in a process that was sent the job."""
    seen: list[tuple[str, int]] = []

    def count(self: RunJob, config: object, directory: Path) -> float:
        sent = pickle.loads(pickle.dumps(self))
        seen.append((config.algorithm.name, sent._alike[program(config)]))  # type: ignore[attr-defined]
        return whole(self, config, directory)  # type: ignore[arg-type]

    whole = RunJob._run
    monkeypatch.setattr(RunJob, "_run", count)
    common = ["rounds=1", "local.steps=1", "progress=none"]
    grid = {"algorithm": ["fedavg", "scaffold"], "algorithm.lr": [0.1, 0.2]}
    sweep(common, [{**grid, "seed": [0]}], tmp_path)
    assert sorted(seen) == [("fedavg", 2), ("fedavg", 2), ("scaffold", 2), ("scaffold", 2)]
    assert jobs.session().runs_to_come == 2
    seen.clear()
    sweep(common, [{**grid, "seed": [0, 1, 2]}], tmp_path)
    assert sorted(set(seen)) == [("fedavg", 4), ("scaffold", 4)]
    assert len(seen) == 8
