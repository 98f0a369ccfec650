"""Runs whose rates change over rounds: what names them, what refuses them, going on, one program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedbench.api import compose_config
from fedbench.config.identity import identity, run_hash
from fedbench.errors import ConfigError
from fedbench.runs.run import Run
from fedbench.runs.run_directory import RunDirectory
from fedbench.runs.session import Session

BASE = [
    "rounds=6", "clients.total=6", "clients.per_round=3", "local.steps=2", "local.batch_size=8",
    "engine=vmap", "partition=dirichlet", "progress=none", "checkpoint.seconds=0",
]  # fmt: skip
COSINE = ["lr_schedule=cosine", "lr_schedule.warmup=2"]
DECAY = ["lr_schedule=exponential", "lr_schedule.factor=0.9"]


def plan(*words: str, session: Session | None = None) -> Run:
    return Run(compose_config([*BASE, *words]), session)


def test_a_constant_rate_is_no_part_of_the_identity_and_another_is(tmp_path: Path) -> None:
    plain = compose_config(BASE)
    same = compose_config([*BASE, "lr_schedule=constant", "server_lr_schedule.warmup=0"])
    assert run_hash(plain) == run_hash(same)
    assert not [key for key in identity(plain) if "lr_schedule" in key]
    other = compose_config([*BASE, "lr_schedule=step", "lr_schedule.milestones=[2,4]"])
    said = {key: value for key, value in identity(other).items() if "lr_schedule" in key}
    assert said == {"lr_schedule": "step", "lr_schedule.milestones": [2, 4]}
    Run(other).go(tmp_path / "run")
    again = RunDirectory(tmp_path / "run").config()  # from config.yaml
    assert again == other
    assert "lr_schedule.milestones=[2,4]" in (tmp_path / "run" / "reproduce").read_text()
    assert RunDirectory(tmp_path / "run").choices["server_lr_schedule"] == "constant"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "algorithm=padamfed lr_schedule=cosine",
            "lr_schedule=cosine: must be constant, or algorithm.lr given",
        ),
        ("algorithm=masfl algorithm.lr=null lr_schedule=cosine", "algorithm.lr=null"),
        ("algorithm=fedsps lr_schedule=exponential", "fedsps has no algorithm.lr"),
        ("algorithm=fedexp server_lr_schedule=exponential", "fedexp has no algorithm.server_lr"),
        ("lr_schedule=step", "lr_schedule.milestones=null: must be a list of different rounds"),
        ("lr_schedule=linear", "lr_schedule=linear: must be one of constant, cosine, exponential, step"),
        (
            "lr_schedule=exponential lr_schedule.factor=1e60",
            "lr_schedule.factor=1e+60: must be smaller: the rate would be above 3.4e+38, the largest number",
        ),
        ("lr_schedule=cosine algorithm.lr=1e60", "algorithm.lr=1e+60: must be at most 3.4e+38, the largest"),
        ("lr_schedule.factor=0.9", "lr_schedule.factor=0.9: no such key; lr_schedule=constant has warmup"),
    ],
)
def test_what_cannot_change_is_refused_in_one_line(words: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        plan(*words.split())
    assert says in str(refused.value)


def test_the_largest_rate_that_fits_is_computed_and_the_next_one_is_refused() -> None:
    """0.1 f^5 in the sixth round is 2^128 - 2^104, the largest float32, at f = (10 (2^128 - 2^104))^(1/5)."""
    largest = float(np.exp2(128) - np.exp2(104))
    edge = (10 * largest) ** 0.2
    words = ["algorithm.lr=0.1", "lr_schedule=exponential"]
    plan(*words, f"lr_schedule.factor={edge * (1 - 1e-9)!r}")
    with pytest.raises(ConfigError, match="in round 6"):
        plan(*words, f"lr_schedule.factor={edge * (1 + 1e-9)!r}")
    plan(*words, f"lr_schedule.factor={edge * 2!r}", "dtype=float64")
    plan(*words, "lr_schedule.factor=1e-80")  # a rate of 0 is one
    step = ["lr_schedule=step", f"lr_schedule.factor={edge**2!r}"]
    plan(*step, "lr_schedule.milestones=[1,4]")  # edge^4
    with pytest.raises(ConfigError, match=r"^lr_schedule\.factor="):
        plan(*step, "lr_schedule.milestones=[1,2,4]")


def test_a_method_with_a_theorem_takes_a_schedule_of_a_rate_that_is_given() -> None:
    run = plan("algorithm=padamfed", "algorithm.lr=0.1", *DECAY)
    assert run.problem.rates["lr"](2) == pytest.approx(0.81)


def test_nothing_is_compiled_for_the_rate_of_a_round(tmp_path: Path, packed: list[Callable]) -> None:
    """One program for a grid of schedules and rates, for all of their rounds."""
    session = Session()
    for number, words in enumerate([["algorithm.lr=0.1"], [*DECAY, "algorithm.lr=0.2"], COSINE]):
        plan("engine=compile", *words, session=session).go(tmp_path / str(number))
        assert len(packed) == 1, words
