"""Mini-batches: every sample once per pass, by address, whatever the company."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import fedbench.engine.batches as module
from fedbench.api import compose_config
from fedbench.engine.batches import (
    Batch,
    BatchIndices,
    BatchPlanner,
    ClientIndex,
    batches_of_share,
    local_steps,
)
from fedbench.engine.objective import DeviceData, Objective
from fedbench.rng import Stream, fold, make_key
from fedbench.runs.run import Run
from fedbench.runs.run_directory import RunDirectory

SIZES = (1, 7, 20, 33)


def planner(
    batch: int | None, steps: int | None = None, epochs: int | None = None, seed: int = 0
) -> BatchPlanner:
    assignment = np.repeat(np.arange(len(SIZES)), SIZES)[::-1].copy()  # not sorted by client
    index = ClientIndex(assignment, len(SIZES))
    return BatchPlanner(index, seed, batch, local_steps(index.sizes, steps, epochs, batch))


def draw(p: BatchPlanner, clients: list[int], n: list[int]) -> BatchIndices:
    jobs = p.jobs(np.array(clients), np.array(n))
    return p.draw(Stream.BATCH, jobs)


def batches(plan: BatchIndices, c: int) -> list[list[int]]:
    counts = [plan.index.shape[2]] * plan.length if plan.count is None else plan.count[:, c].tolist()
    rows = zip(plan.index[: int(plan.steps[c]), c].tolist(), counts, strict=False)
    return [row[:count] for row, count in rows]


@pytest.mark.parametrize("batch", [1, 5, 8, 64])
def test_a_pass_takes_every_own_sample_once(batch: int) -> None:
    p = planner(batch, epochs=3)
    plan = draw(p, [0, 1, 2, 3], [0, 4, 2, 9])
    for client in range(4):
        own = set(
            torch.nonzero(torch.from_numpy(np.repeat(np.arange(4), SIZES)[::-1].copy()) == client)
            .flatten()
            .tolist()
        )
        parts = batches(plan, client)
        per_pass = -(-SIZES[client] // batch)
        assert len(parts) == 3 * per_pass
        passes = [[s for b in parts[i * per_pass : (i + 1) * per_pass] for s in b] for i in range(3)]
        for one in passes:
            assert sorted(one) == sorted(own)
        assert all(len(b) == min(batch, SIZES[client]) for b in parts[: per_pass - 1])
        if SIZES[client] > 5:
            assert passes[0] != passes[1]


def test_a_job_sees_the_same_batches_in_any_company() -> None:
    p = planner(5, steps=9)
    together = draw(p, [0, 1, 2, 3], [3, 1, 4, 1])
    alone = draw(p, [2], [4])
    assert batches(together, 2) == batches(alone, 0)
    assert batches(draw(p, [2], [5]), 0) != batches(alone, 0)
    assert batches(draw(planner(5, steps=9, seed=1), [2], [4]), 0) != batches(alone, 0)
    longer = draw(planner(5, steps=30), [2], [4])
    assert batches(longer, 0)[:9] == batches(alone, 0)


@pytest.mark.parametrize("most", [1, 70, 150])
@pytest.mark.parametrize("batch", [1, 5, 33])
def test_many_samples_are_drawn_job_by_job(batch: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same batches, and no sort of more than `most` samples, but for a single job with more."""
    p, order, sorted_at_once = planner(batch, epochs=3), module.order_of, list[int]()
    given = [0, 3, 1, 2, 3], [0, 4, 2, 9, 5]
    whole = draw(p, *given)
    monkeypatch.setattr(module, "DRAWN", most)
    monkeypatch.setattr(
        module, "order_of", lambda keys: (sorted_at_once.append(keys.numel()), order(keys))[1]
    )
    parts = draw(p, *given)
    assert parts.index.shape == whole.index.shape
    assert all(batches(parts, c) == batches(whole, c) for c in range(5))
    assert np.array_equal(parts.known.count, whole.known.count)
    assert len(sorted_at_once) > 1
    assert max(sorted_at_once) <= max(most, 3 * 33)


@pytest.mark.parametrize("largest", [5, 2**32, 2**53, 2**54, 2**62])
def test_samples_are_in_the_order_of_torchs_stable_sort(largest: int) -> None:
    """Of 600 numbers, whose places take ten bits; many are equal if there are few to choose from."""
    numbers = torch.randint(largest, (3, 600), generator=torch.Generator().manual_seed(0))
    assert torch.equal(module.order_of(numbers), torch.argsort(numbers, dim=1, stable=True))


def test_runs_do_not_depend_on_how_their_samples_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unequal clients, whose steps beyond their own see other samples then."""
    words = ["rounds=3", "clients.total=6", "clients.per_round=4", "local.epochs=2", "partition=dirichlet"]
    words += ["local.batch_size=7", "model=cnn", "model.norm=batch", "engine=vmap", "progress=none"]
    found = []
    for most in (2**21, 1):
        monkeypatch.setattr("fedbench.engine.batches.DRAWN", most)
        Run(compose_config(words)).go(tmp_path / str(most))
        found.append(RunDirectory(tmp_path / str(most)).metrics.drop(columns="wall_seconds"))
    assert found[0].equals(found[1])


def test_full_batch_is_the_whole_client() -> None:
    plan = draw(planner(None, steps=2), [1, 3], [0, 0])
    assert sorted(batches(plan, 0)[1]) == sorted(batches(plan, 0)[0])
    assert [len(b) for b in batches(plan, 1)] == [33, 33]


def test_full_pass_covers_everything_with_shares() -> None:
    p = planner(5, steps=1)
    plan, share = p.full_pass(p.jobs(np.array([1, 3]), np.zeros(2, dtype=np.int64)), 8)
    torch.testing.assert_close(share.sum(0), torch.ones(2, dtype=torch.float64))
    assert plan.count is not None
    assert plan.count.sum(0).tolist() == [7, 33]
    assert share[:, 1].tolist() == [8 / 33] * 4 + [1 / 33]  # the last block is as heavy as its one sample


@pytest.mark.parametrize("epochs", [1, 3])
def test_whole_batches_of_equal_clients_are_what_a_sort_of_the_keys_gives(epochs: int) -> None:
    sizes = [12, 12, 12]
    assignment = np.repeat(np.arange(3), sizes)
    p = BatchPlanner(ClientIndex(assignment, 3), 7, 4, np.full(3, 3 * epochs))
    drawn = draw(p, [2, 0], [5, 1])
    assert drawn.count is None
    assert drawn.index.is_contiguous()
    for c, (client, n) in enumerate([(2, 5), (0, 1)]):
        key = make_key(7, Stream.BATCH, client, n)
        passes = [
            sorted(range(12), key=lambda i, key=key, at=turn: fold(key, at * 2**32 + i)[0])
            for turn in range(epochs)
        ]
        expected = torch.tensor(passes).view(3 * epochs, 4) + 12 * client
        assert torch.equal(drawn.index[:, c], expected)


def test_no_order_bias() -> None:
    """The first sample of a pass is uniform over the client's samples (chi-square, 20 cells, 2000 jobs)."""
    p = planner(20, steps=1)
    plan = draw(p, [2] * 2000, list(range(2000)))
    counts = torch.bincount(plan.index[0, :, 0] - plan.index.min(), minlength=20).double()
    assert float(((counts - 100) ** 2 / 100).sum()) < 45  # 99.9 % quantile of chi-square(19) is 43.8


def test_a_step_draws_one_of_the_blocks_and_some_are_empty() -> None:
    """floor(n / B) whole blocks, the rest, and one without samples, all equally often."""
    assignment = np.repeat(np.arange(len(SIZES)), SIZES)[::-1].copy()
    index = ClientIndex(assignment, len(SIZES))
    steps = np.full(len(SIZES), 3000)
    p = BatchPlanner(index, 0, 8, steps, blocks=True)
    jobs = p.jobs(np.arange(4), np.zeros(4, dtype=np.int64))
    plan = p.draw(Stream.BATCH, jobs)
    for client, n in enumerate(SIZES):
        own = index.order[index.start[client] : index.start[client] + n].tolist()
        blocks = [tuple(own[i * 8 : i * 8 + 8]) for i in range(n // 8 + 2)]
        drawn = [tuple(batch) for batch in batches(plan, client)]
        assert set(drawn) == set(blocks)
        for block in set(blocks):
            expected = 3000 * blocks.count(block) / len(blocks)
            assert drawn.count(block) == pytest.approx(expected, abs=5 * expected**0.5)


def test_blocks_of_a_job_are_the_same_in_any_company() -> None:
    index = ClientIndex(np.repeat(np.arange(len(SIZES)), SIZES), len(SIZES))
    p = BatchPlanner(index, 0, 8, np.full(len(SIZES), 9), blocks=True)
    together, alone = draw(p, [0, 1, 2, 3], [3, 1, 4, 1]), draw(p, [2], [4])
    assert batches(together, 2) == batches(alone, 0)
    assert batches(draw(p, [2], [5]), 0) != batches(alone, 0)


@pytest.mark.parametrize("estimator", ["svrg", "sarah"])
def test_engines_agree_where_batches_are_empty(estimator: str, tmp_path: Path) -> None:
    """Batches of 64 of clients with 14 samples: blocks of 14, and empty ones, half of each."""
    path = {}
    for engine in ("loop", "vmap"):
        words = ["algorithm=fedproxvr", f"algorithm.estimator={estimator}", f"engine={engine}", "rounds=3"]
        words += ["local.sampler=blocks", "local.batch_size=64", "clients.total=100", "dtype=float64"]
        Run(compose_config(words)).go(tmp_path / engine)
        rows = (tmp_path / engine / "metrics.csv").read_text().splitlines()
        path[engine] = [float(row.split(",")[3]) for row in rows[1:]]
    assert path["loop"] == pytest.approx(path["vmap"], rel=1e-12)
    assert path["loop"][-1] < path["loop"][0]


def test_an_empty_batch_has_the_gradient_zero() -> None:
    model = torch.nn.Linear(3, 2)
    data = DeviceData(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64), lambda x: x)
    objective = Objective(model, data)
    theta = torch.ones(8)
    empty = Batch(torch.tensor([0, 1]), torch.tensor(0), None)
    loss, grad, _ = objective.loss_and_grad(theta, {}, empty)
    assert loss == 0
    assert torch.equal(grad, torch.zeros(8))


def test_a_share_of_each_clients_samples_is_its_batch() -> None:
    """ceil(0.3 n): 1 of 1, 3 of 7, 6 of 20, 10 of 33; the last one of a pass has what is left."""
    assignment = np.repeat(np.arange(len(SIZES)), SIZES)
    index = ClientIndex(assignment, len(SIZES))
    share = batches_of_share(index.sizes, 0.3)
    p = BatchPlanner(index, 0, share, local_steps(index.sizes, None, 2, share))
    plan = draw(p, [0, 1, 2, 3], [0, 4, 2, 9])
    expected = [[1], [3, 3, 1], [6, 6, 6, 2], [10, 10, 10, 3]]
    for client, lengths in enumerate(expected):
        parts = batches(plan, client)
        assert [len(b) for b in parts] == 2 * lengths
        own = np.flatnonzero(assignment == client).tolist()
        for one in (parts[: len(lengths)], parts[len(lengths) :]):
            assert sorted(s for b in one for s in b) == own


@pytest.mark.parametrize(
    ("share", "n", "expected"), [(0.2, 1128, 226), (0.07, 100, 7), (0.1, 30, 3), (1 / 3, 9, 3)]
)
def test_a_share_is_of_decimals(share: float, n: int, expected: int) -> None:
    """0.07 times 100 is 7.000000000000001 in binary."""
    assert batches_of_share(np.array([n]), share).tolist() == [expected]
    assert -(-n // expected) == round(1 / share + 0.49)  # an epoch has ceil(1 / share) steps


def test_runs_with_a_share(tmp_path: Path) -> None:
    """Engines agree; a share of 1 is the full local batch; an epoch costs ceil(n / B) gradients."""
    words = ["dtype=float64", "rounds=3", "clients.total=8", "clients.per_round=8", "partition=dirichlet"]
    words += ["progress=none", "threads=1", "algorithm=scaffold", "dataset.train_samples=300"]
    ways = {
        "loop": ["engine=loop", "local.epochs=1", "local.batch_share=0.2"],
        "vmap": ["engine=vmap", "local.epochs=1", "local.batch_share=0.2"],
        "one": ["engine=vmap", "local.steps=2", "local.batch_share=1"],
        "full": ["engine=vmap", "local.steps=2", "local.batch_size=null"],
    }
    rows = {}
    for name, way in ways.items():
        run = Run(compose_config([*words, *way]))
        run.go(tmp_path / name)
        rows[name] = RunDirectory(tmp_path / name).metrics
    np.testing.assert_allclose(rows["loop"].test_loss, rows["vmap"].test_loss, rtol=1e-12)
    np.testing.assert_allclose(rows["one"].test_loss, rows["full"].test_loss, rtol=1e-12)
    assert rows["one"].test_loss[3] < rows["one"].test_loss[0]
    sizes = np.bincount(np.load(tmp_path / "vmap" / "partition.npz")["client"])
    assert len({*sizes}) > 3
    a_pass = sum(math.ceil(n / math.ceil(n / 5)) for n in sizes.tolist())
    assert rows["vmap"].gradient_evaluations.tolist() == [0, a_pass, 2 * a_pass, 3 * a_pass]
