"""What is drawn for many cohorts at once is what each would draw by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedbench.engine.ahead import MOST, Ahead, Planned
from fedbench.engine.batches import BatchPlanner, ClientIndex, Masks
from fedbench.rng import Stream

SIZES = np.array([3, 40, 14, 8, 21])
MASKS: Masks = (Stream.MASKS, (0, 1))


@pytest.mark.parametrize(
    ("batch", "blocks", "masks", "cohort"),
    [(4, False, None, 1), (14, False, MASKS, 3), (None, False, MASKS, 1), (4, True, MASKS, 3)],
    ids=["passes", "wide", "whole", "blocks"],
)
def test_jobs_are_drawn_as_each_by_itself(
    monkeypatch: pytest.MonkeyPatch, batch: int | None, blocks: bool, masks: Masks | None, cohort: int
) -> None:
    """Of unequal clients with unequal work, in the trace's order, backwards, and again from the middle on."""
    rng, jobs = np.random.default_rng(0), 60
    steps = np.array([1, 9, 4, 4, 7])
    index = ClientIndex(np.repeat(np.arange(5), SIZES), 5)
    planner = BatchPlanner(index, 7, batch, steps, blocks, equal_steps=False)
    number = np.cumsum(rng.integers(1, 3, jobs))  # some jobs of the trace are never trained
    client, n, parts = rng.integers(0, 5, jobs), rng.integers(0, 9, jobs), rng.choice([1, 0.3], jobs)
    ahead = Ahead(planner, Planned(number, client, n, parts))
    drawn: list[int] = []
    real = planner.draw

    def counted(stream: Stream, jobs: Any, masks: Masks | None = None) -> Any:
        drawn.append(len(jobs.client))
        return real(stream, jobs, masks)

    forwards = np.arange(jobs).reshape(-1, cohort)
    for at in [*forwards, *forwards[::-1][:3], *forwards[7:9]]:
        chunk = planner.jobs(client[at], n[at], parts[at])
        monkeypatch.setattr(planner, "draw", counted)
        found, uniforms = ahead.draw(number[at], chunk, masks)
        monkeypatch.setattr(planner, "draw", real)
        alone = real(Stream.BATCH, chunk, masks)
        assert torch.equal(uniforms, planner.uniforms(chunk))
        np.testing.assert_array_equal(found.known.steps, alone.known.steps)
        np.testing.assert_array_equal(found.known.count, alone.known.count)
        for ours, theirs in zip(found.tensors, alone.tensors, strict=True):
            assert (ours is None) == (theirs is None)
            assert ours is None or theirs is None or ours.shape == theirs.shape
        for k in range(len(alone)):
            for c, count in enumerate(alone.known.count[k]):  # beyond them any sample will do
                assert torch.equal(found.index[k, c, :count], alone.index[k, c, :count])
        assert masks is None or torch.equal(found.keys, alone.keys)  # type: ignore[arg-type]
    assert len(drawn) < 9
    assert max(drawn) == min(jobs, MOST)
