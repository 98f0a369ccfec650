"""Which runs of a sweep are told to share a compiled step."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fedbench.api import compose_config
from fedbench.sweeps import job as jobs
from fedbench.sweeps.job import RunJob, program, program_of
from fedbench.sweeps.launch import sweep
from fedbench.sweeps.launcher import Queue

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
    assert jobs.session().alike == 2
    seen.clear()
    sweep(common, [{**grid, "seed": [0, 1, 2]}], tmp_path)
    assert sorted(set(seen)) == [("fedavg", 4), ("scaffold", 4)]
    assert len(seen) == 8


def test_jobs_are_told_apart_by_their_overrides() -> None:
    base = program_of(["algorithm=padamfed", "algorithm.lr=0.1", "seed=0"])
    assert base == program_of(["seed=1", "+algorithm.lr=1e-3", "algorithm=padamfed", "partition.alpha=0.5"])
    assert base != program_of(["algorithm=fedavg", "algorithm.lr=0.1", "seed=0"])
    assert base != program_of(["algorithm=padamfed", "algorithm.norm=tensor"])
    assert base != program_of(["algorithm=padamfed", "local.batch_size=5"])


def test_two_workers_do_not_start_with_the_same_step() -> None:
    """One of them would wait until the other has compiled it."""
    jobs = [[f"algorithm={name}", f"seed={seed}"] for name in ("a", "b") for seed in (0, 1, 2)]
    queue = Queue(jobs)
    assert [queue.take(), queue.take()] == [0, 3]  # a, b
    queue.end(3)
    assert queue.take() == 4  # b is compiled, a is not
    queue.end(0)
    assert [queue.take(), queue.take()] == [1, 2]
    assert (queue.take(), len(queue)) == (5, 0)


def test_a_worker_waits_where_every_job_needs_the_same_step() -> None:
    queue = Queue([["algorithm=a", f"seed={seed}"] for seed in (0, 1, 2)])
    assert [queue.take(), queue.take()] == [0, 1]
    assert len(queue) == 1
