"""The order in which the workers of a pool take jobs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from fedbench.sweeps.alike import program_of


class Queue:
    """Jobs by number, in their order, but that two workers do not start with what both would compile: one of
    them would wait. It takes a job of another step meanwhile, as far as the overrides say."""

    def __init__(self, jobs: Sequence[Sequence[str]]) -> None:
        self._programs = [program_of(job) for job in jobs]
        self._waiting = list(range(len(jobs)))
        self._under_way: list[int] = []
        self._compiled: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> int | None:
        """The next job; None where there is none."""
        if not self._waiting:
            return None
        busy = {self._programs[job] for job in self._under_way} - self._compiled
        job = next((job for job in self._waiting if self._programs[job] not in busy), self._waiting[0])
        self._waiting.remove(job)
        self._under_way.append(job)
        return job

    def end(self, job: int) -> None:
        """It is done, so that what it needed is compiled."""
        self._under_way.remove(job)
        self._compiled.add(self._programs[job])
