"""Optimizers and clipping of runs: which methods take which, and the state that clients keep for them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from fedbench import algorithms
from fedbench.api import compose_config
from fedbench.config.config import Config
from fedbench.errors import ConfigError
from fedbench.fields import Choice
from fedbench.optimizer import SGD, Adam, AdamW
from fedbench.runs.run import Run
from fedbench.runs.session import Session
from fedbench.schedule.rates import ExponentialRate

BASE = [
    "rounds=5", "clients.total=5", "clients.per_round=2", "local.steps=2", "local.batch_size=8",
    "engine=vmap", "partition=dirichlet", "progress=none", "checkpoint.seconds=0",
]  # fmt: skip
ASYNC = ["schedule=async", "schedule.concurrency=3", "delay=exponential"]
ADAM = ["optimizer=adam", "optimizer.keep=true", "algorithm.lr=0.01"]
MOMENTUM = ["optimizer.momentum=0.9", "optimizer.keep=true"]

NEED_SGD = {"scaffold", "scaffold_exp", "vrl_sgd"}
OWN_STEPS = {
    "ace", "adamasfl", "delta_sgd", "dude_asgd", "fafed", "fedadamw", "fedadt", "fedavg_m", "fedcm",
    "fedlada", "fednova", "fedproxvr", "fedsps", "local_amsgrad", "masfl", "mime", "mimelite", "padamfed",
    "padamfed_vr", "pfedme", "ringmaster_asgd", "scaffold_m", "scaffold_m_vr",
}  # fmt: skip
NOT_CLIPPED = {
    "ace", "adamasfl", "dude_asgd", "fafed", "fedproxvr", "fedsps", "masfl", "mime", "mimelite", "padamfed",
    "padamfed_vr", "scaffold_m_vr",
}  # fmt: skip
METHODS = [cls.name for cls in algorithms.every() if cls.__module__.startswith("fedbench.")]
EVERYONE = {cls.name for cls in algorithms.every() if cls.full_participation}
ALONE = {cls.name for cls in algorithms.every() if cls.every_arrival}
SHARED = Session()


def plan(*words: str) -> Run:
    return Run(compose_config([*BASE, *words]))


@cache
def composed(method: str) -> Config:
    """A configuration that the method takes."""
    cohort = "1" if method in ALONE else "5" if method in EVERYONE else "2"
    own = ["model=mlp", "model.norm=layer"] if algorithms.get(method)().is_personal else []
    own += ["local.steps=1"] if algorithms.get(method).fixed_steps == 1 else []
    return compose_config([*BASE, f"algorithm={method}", f"clients.per_round={cohort}", *own])


def refused(config: Config, **changes: Any) -> str:
    """Why a run cannot have these options; "" where it can."""
    try:
        Run(replace(config, **changes), SHARED)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("method", METHODS)
def test_which_methods_take_what(method: str) -> None:
    config = composed(method)
    adam, momentum = refused(config, optimizer=Adam()), refused(config, optimizer=SGD(momentum=0.9))
    if method in OWN_STEPS:
        assert adam.startswith(f"optimizer=adam: must be sgd: {method} ")
        assert momentum.startswith(f"optimizer.momentum=0.9: must be 0: {method} ")
        assert adam.partition(method)[2].strip() == algorithms.get(method).own_step
        decayed = refused(config, optimizer=SGD(weight_decay=0.1))
        assert decayed.startswith("optimizer.weight_decay=0.1: must be 0")
        assert decayed.endswith("loss.weight_decay adds it to every gradient")
    else:
        assert momentum == ""
        assert ("needs SGD's sum of directions" in adam) == (method in NEED_SGD)
        assert (adam == "") == (method not in NEED_SGD)
    clipped = refused(config, local=replace(config.local, clip_norm=1.0))
    assert (clipped == "") == (method not in NOT_CLIPPED)
    problem = Run(config, SHARED).problem  # whose clients' rows are known by this
    assert problem.method.keeps_state or problem.cost.client_state == 0


def test_which_options_take_what() -> None:
    scaffold, slowmo = composed("scaffold"), composed("slowmo")
    first = replace(scaffold, algorithm=Choice("scaffold", {**scaffold.algorithm.options, "option": 1}))
    assert refused(first, optimizer=Adam()) == ""
    assert "give algorithm.option=1" in refused(scaffold, optimizer=AdamW())
    assert "local.clip_norm" in refused(first, local=replace(first.local, clip_norm=1.0))
    late = compose_config([*BASE, "algorithm=fedbuff", *ASYNC, "schedule.pool=all"])
    assert "eta" in refused(slowmo, lr_schedule=ExponentialRate(), schedule=late.schedule)
    assert "keeps state at the clients" in refused(late, optimizer=SGD(momentum=0.9, keep=True))
    assert refused(late, optimizer=SGD(momentum=0.9)) == ""


def test_kept_state_counts_as_clients_state() -> None:
    d = plan().problem.layout.d
    assert plan(*MOMENTUM).problem.cost.client_state == d
    assert plan(*ADAM).problem.cost.client_state == 2 * d
    assert plan("optimizer=adam").problem.cost.client_state == 0
    assert plan("algorithm=scaffold", *MOMENTUM).problem.cost.client_state == 2 * d
