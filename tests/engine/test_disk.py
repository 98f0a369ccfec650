"""Clients' state on disk: the rows of memory, space for who has worked, nothing of a checkpoint lost."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from tests_support import fixed_trace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.engine import choose
from fedbench.engine.choose import choose_state
from fedbench.engine.state import DiskStore, MemoryStore, StateStore
from fedbench.errors import ConfigError, RunError
from fedbench.runs.server_loop import ServerLoop

CPU = torch.device("cpu")
CLIENTS = 6


def ids(*clients: int) -> torch.Tensor:
    return torch.tensor(clients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_any_order_of_reads_and_writes_gives_the_rows_of_memory(tmp_path: Path, dtype: torch.dtype) -> None:
    """With checkpoints at some moments, gone back to at others, in the same process and in a new one."""
    disk: StateStore = DiskStore(CLIENTS, tmp_path / "state")
    memory: StateStore = MemoryStore(CLIENTS, "cpu")
    rng, filled = np.random.default_rng(0), {"a": torch.rand(3, 2, dtype=dtype), "s": torch.tensor(2.0)}
    for store in (disk, memory):
        store.fill(filled)
    saved: tuple[io.BytesIO, dict] | None = None
    for _ in range(300):
        who = torch.from_numpy(rng.permutation(CLIENTS)[: rng.integers(1, 5)])
        match rng.integers(5):
            case 0:
                file = io.BytesIO()
                torch.save(disk.state_dict(), file)
                disk.saved()
                saved = file, {name: value.clone() for name, value in memory.state_dict().items()}
            case 1 if saved is not None:
                saved[0].seek(0)
                disk = DiskStore(CLIENTS, tmp_path / "state")
                disk.load_state_dict(torch.load(saved[0], weights_only=True))
                memory.load_state_dict({name: value.clone() for name, value in saved[1].items()})
            case _:
                rows = {"a": torch.rand(len(who), 3, 2, dtype=dtype), "s": torch.rand(len(who))}
                if rng.integers(2):
                    rows["later"] = torch.rand(len(who), 1)  # first written in the middle of a run
                for store in (disk, memory):
                    store.scatter(who, rows)
        here, there = disk.gather(torch.arange(CLIENTS)), memory.gather(torch.arange(CLIENTS))
        assert set(here) == set(there)
        assert all(torch.equal(here[name], there[name]) for name in there)


def test_space_is_taken_for_clients_that_have_worked(tmp_path: Path) -> None:
    """At most one more row for a client that worked since the last checkpoint."""
    row = 2**18  # numbers, 1 MiB
    store = DiskStore(100_000, tmp_path)
    store.fill({"a": torch.zeros(row)})

    def taken() -> int:
        return sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir()) // (4 * row)

    assert taken() == 0
    for _ in range(4):
        store.scatter(ids(5, 99_999, 7), {"a": torch.ones(3, row)})
    assert taken() == 3
    for _ in range(4):
        store.state_dict()
        store.saved()
        store.scatter(ids(5), {"a": torch.ones(1, row)})
    assert taken() == 4
    store.remove()
    assert not tmp_path.exists()


def walk(store: StateStore | None, name: str, cohorts: list[list[int]]) -> ServerLoop:
    rng = np.random.default_rng(0)
    assignment = np.repeat(np.arange(CLIENTS), (3, 9, 14, 6, 10, 5))
    x, y = rng.normal(size=(len(assignment), 5)), rng.integers(0, 3, len(assignment))
    torch.manual_seed(0)
    return make_walk(
        algorithms.get(name).create({}), nn.Linear(5, 3), x, y, assignment, fixed_trace(cohorts, CLIENTS),
        per_round=3, batch=4, steps=2, chunk=2, store=store,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["scaffold", "padamfed", "feddyn", "local_amsgrad"])
def test_a_run_is_bit_for_bit_that_in_memory(tmp_path: Path, name: str) -> None:
    cohorts = [[0, 1, 3], [1, 2, 3], [1, 4, 3], [0, 4, 5]]
    ours, expected = walk(DiskStore(CLIENTS, tmp_path), name, cohorts), walk(None, name, cohorts)
    for _ in cohorts:
        ours.update()
        expected.update()
        assert torch.equal(ours.theta, expected.theta)


def test_a_checkpoint_outlives_what_is_written_after_it(tmp_path: Path) -> None:
    """A killed process: its rows are newer than its checkpoint."""
    store = DiskStore(CLIENTS, tmp_path)
    store.fill({"a": torch.zeros(2)})
    store.scatter(ids(1, 2), {"a": torch.ones(2, 2)})
    state = store.state_dict()
    store.saved()
    store.scatter(ids(1, 3), {"a": torch.full((2, 2), 5.0)})
    again = DiskStore(CLIENTS, tmp_path)
    again.load_state_dict(state)
    expected = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    assert torch.equal(again.gather(torch.arange(CLIENTS))["a"][:, 0], expected)
    store.state_dict()  # the next checkpoint is written, but not whole: the process dies before `saved`
    store.scatter(ids(1, 2), {"a": torch.full((2, 2), 7.0)})
    again.load_state_dict(state)
    assert torch.equal(again.gather(torch.arange(CLIENTS))["a"][:, 0], expected)


@pytest.mark.parametrize("harm", ["cut", "gone", "newer", "another run's"])
def test_rows_that_are_not_there_are_an_error(tmp_path: Path, harm: str) -> None:
    """Or that no longer are those of the checkpoint, which may be a copy of an older one."""
    store = DiskStore(CLIENTS, tmp_path)
    store.fill({"a": torch.zeros(2)})
    store.scatter(ids(1, 2), {"a": torch.ones(2, 2)})
    state = store.state_dict()
    store.saved()
    (file,) = tmp_path.glob("*.rows")
    match harm:
        case "gone":
            store.remove()
        case "cut":
            file.write_bytes(file.read_bytes()[:-1])
        case "newer":
            store.scatter(ids(1), {"a": torch.zeros(1, 2)})
            store.state_dict()
            store.saved()
        case _:
            other = DiskStore(CLIENTS, tmp_path)
            other.fill({"a": torch.zeros(2)})
            other.scatter(ids(3, 4), {"a": torch.zeros(2, 2)})
            other.state_dict()
            other.saved()
    with pytest.raises(RunError, match=r"clients' state|does not match the checkpoint"):
        DiskStore(CLIENTS, tmp_path).load_state_dict(state)


def test_what_the_disk_has_not_is_refused(tmp_path: Path) -> None:
    store = DiskStore(CLIENTS, tmp_path / "not" / "there")
    store.refuse_too_large(1000)
    with pytest.raises(ConfigError, match=r"needs about .* of disk space, but only .* is free there"):
        store.refuse_too_large(2**80)


def test_auto_takes_no_more_than_half_of_a_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    monkeypatch.setattr(choose, "total_memory", lambda device: 100 if device.type == "cuda" else 1000)
    assert [choose_state("auto", need, CPU) for need in (500, 501)] == ["memory", "disk"]
    assert [choose_state("auto", need, cuda) for need in (50, 51, 501)] == ["memory", "host", "disk"]
    assert choose_state("disk", 1, CPU) == "disk"
    assert choose_state("memory", 10**9, CPU) == "memory"
