"""Methods that keep state at their clients need clients that work on one job after the other (what makes two
at once is refused: test_refused_runs)."""

from __future__ import annotations

import pytest

from fedbench.api import compose_config
from fedbench.runs.run import Run


def plan(algorithm: str, *words: str) -> Run:
    given = ["schedule=async", "clients.total=6", "clients.per_round=2", "rounds=10", "device=cpu"]
    return Run(compose_config([f"algorithm={algorithm}", *given, *words]))


@pytest.mark.parametrize(
    "words",
    [
        ["schedule.pool=queue", "delay=exponential"],
        ["schedule.pool=self", "delay=exponential"],
        ["schedule.pool=idle_incl_buffered", "delay=exponential"],
        ["schedule.staleness=0"],
        ["schedule.staleness=2", "clients.total=1000", "rounds=3"],
    ],
)
def test_one_job_after_the_other_is_not(words: list[str]) -> None:
    assert len(plan("masfl", *words).problem.trace.parallel) == 0


def test_clients_that_keep_nothing_may_work_on_any_number() -> None:
    assert len(plan("ca2fl", "schedule.staleness=4").problem.trace.parallel) > 0
    at_once = ["schedule.pool=all", "schedule.concurrency=6", "delay=exponential"]
    assert len(plan("fedbuff", *at_once).problem.trace.parallel) > 0
