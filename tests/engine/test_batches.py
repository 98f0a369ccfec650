"""Mini-batches: every sample once per pass, by address, whatever the company."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedbench.engine.batches import BatchIndices, BatchPlanner, ClientIndex, local_steps
from fedbench.rng import Stream

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


def test_full_batch_is_the_whole_client() -> None:
    plan = draw(planner(None, steps=2), [1, 3], [0, 0])
    assert sorted(batches(plan, 0)[1]) == sorted(batches(plan, 0)[0])
    assert [len(b) for b in batches(plan, 1)] == [33, 33]


def test_full_pass_covers_everything_with_shares() -> None:
    p = planner(5, steps=1)
    plan, share = p.full_pass(p.jobs(np.array([1, 3]), np.zeros(2, dtype=np.int64)), 8)
    torch.testing.assert_close(share.sum(0), torch.ones(2))
    assert plan.count is not None
    assert plan.count.sum(0).tolist() == [7, 33]


def test_no_order_bias() -> None:
    """The first sample of a pass is uniform over the client's samples (chi-square, 20 cells, 2000 jobs)."""
    p = planner(20, steps=1)
    plan = draw(p, [2] * 2000, list(range(2000)))
    counts = torch.bincount(plan.index[0, :, 0] - plan.index.min(), minlength=20).double()
    assert float(((counts - 100) ** 2 / 100).sum()) < 45  # 99.9 % quantile of chi-square(19) is 43.8
