"""Mini-batches of small cohorts, drawn for many cohorts at once. The trace says which jobs come next, and the
draw of a job depends on its address alone, so it is the same alone and among others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.batches import HOST_DRAW, BatchIndices, BatchPlanner, Jobs, Masks
from fedbench.rng import Stream

MOST = 128
"""Most jobs whose mini-batches are drawn at once ahead of time."""


@dataclass(frozen=True)
class Planned:
    """All jobs (J,) of a run in the order in which they are trained."""

    job: np.ndarray  # ascending numbers in the trace
    client: np.ndarray
    n: np.ndarray  # how many jobs the client has had before
    parts: np.ndarray  # the fraction of its local steps that each job takes


class Ahead:
    """Draws the mini-batches of jobs in the order in which they are trained, or of any others."""

    def __init__(self, planner: BatchPlanner, planned: Planned) -> None:
        self.planner, self.planned = planner, planned
        self._drawn: tuple[int, BatchIndices, Tensor] | None = None  # first job's place, and what is drawn

    def draw(self, job: np.ndarray, jobs: Jobs, masks: Masks | None) -> tuple[BatchIndices, Tensor]:
        """Mini-batches of a chunk of jobs, as `BatchPlanner.draw` makes them, and their uniforms. `job`:
        their numbers in the trace."""
        place = np.searchsorted(self.planned.job, job)
        if self._drawn is None or not self._has(place):
            self._drawn = self._from(int(place.min()), masks)
        if self._drawn is None or not self._has(place):
            return self.planner.draw(Stream.BATCH, jobs, masks), self.planner.uniforms(jobs)
        first, batches, uniforms = self._drawn
        at = torch.from_numpy(place - first)
        return batches.upto(int(jobs.steps.max())).of_jobs(at), uniforms[at]

    def _has(self, place: np.ndarray) -> bool:
        assert self._drawn is not None
        first, batches, _ = self._drawn
        return first <= int(place.min()) and int(place.max()) < first + len(batches.steps)

    def _from(self, first: int, masks: Masks | None) -> tuple[int, BatchIndices, Tensor] | None:
        """The mini-batches of the jobs from place `first` on; None: there are too few to gain by it."""
        planned, upto = self.planned, slice(first, first + MOST)
        jobs = self.planner.jobs(planned.client[upto], planned.n[upto], planned.parts[upto])
        samples = np.maximum(jobs.sizes, jobs.steps * self.planner.width)
        room = int(np.searchsorted(np.cumsum(samples), HOST_DRAW, side="right"))
        if room < 2:
            return None
        few = Jobs(jobs.client[:room], jobs.n[:room], jobs.sizes[:room], jobs.steps[:room])
        return first, self.planner.draw(Stream.BATCH, few, masks), self.planner.uniforms(few)
