"""Runs whose rates change over rounds: given in a theorem's place, and one program for all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedbench.api import compose_config
from fedbench.runs.run import Run
from fedbench.runs.session import Session

BASE = [
    "rounds=6", "clients.total=6", "clients.per_round=3", "local.steps=2", "local.batch_size=8",
    "engine=vmap", "partition=dirichlet", "progress=none", "checkpoint.seconds=0",
]  # fmt: skip
COSINE = ["lr_schedule=cosine", "lr_schedule.warmup=2"]
DECAY = ["lr_schedule=exponential", "lr_schedule.factor=0.9"]


def plan(*words: str, session: Session | None = None) -> Run:
    return Run(compose_config([*BASE, *words]), session)


def test_a_method_with_a_theorem_takes_a_schedule_of_a_rate_that_is_given() -> None:
    run = plan("algorithm=padamfed", "algorithm.lr=0.1", *DECAY)
    assert run.problem.rates["lr"](2) == pytest.approx(0.81)


def test_nothing_is_compiled_for_the_rate_of_a_round(tmp_path: Path, packed: list[Callable]) -> None:
    """One program for a grid of schedules and rates, for all of their rounds."""
    session = Session()
    for number, words in enumerate([["algorithm.lr=0.1"], [*DECAY, "algorithm.lr=0.2"], COSINE]):
        plan("engine=compile", *words, session=session).go(tmp_path / str(number))
        assert len(packed) == 1, words
