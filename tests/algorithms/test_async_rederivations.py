"""The asynchronous algorithms against NumPy re-derivations, job by job, on stale, failing and cut traces."""

from __future__ import annotations

from functools import cache
from typing import Any

import async_oracle as oracle
import numpy as np
import pytest
import torch
from async_runs import FAILURES, HALF_NORMAL, SIZES, count, make_async_walk, make_trace, problem, staleness
from problem import models, relative_error, walk_over

from fedbench import algorithms
from fedbench.api import compose_config
from fedbench.engine.compiled import compiler_missing
from fedbench.runs.traces import build_trace
from fedbench.schedule.trace import Trace

T, K = 14, 3
LOCAL = {"lr": 0.2, "server_lr": 0.7}
MOMENTUM = {"lr": 0.15, "server_lr": 0.3, "beta": 0.4}
ADAM = {"lr": 0.2, "server_lr": 0.08, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-4}
ASYNC = {"lr": 0.2, "alpha": 0.6, "rho": 0.3}

# name: method, its re-derivation, hyper-parameters, arrivals per update
CASES: dict[str, tuple[str, type[oracle.Method], dict[str, Any], int]] = {
    "fedasync-constant": ("fedasync", oracle.FedAsync, {**ASYNC, "staleness": "constant"}, 1),
    "fedasync-polynomial": ("fedasync", oracle.FedAsync, {**ASYNC, "staleness": "polynomial", "a": 0.7}, 1),
    "fedasync-hinge": ("fedasync", oracle.FedAsync, {**ASYNC, "staleness": "hinge", "a": 1.5, "b": 1.0}, 1),
    "fedbuff": ("fedbuff", oracle.FedBuff, LOCAL, 3),
    "fedbuff-weighted": ("fedbuff", oracle.FedBuff, {**LOCAL, "staleness_power": 0.5, "momentum": 0.6}, 2),
    "asyncfeded": ("asyncfeded", oracle.AsyncFedED, {"lr": 0.2, "server_lr": 0.9, "epsilon": 0.6}, 1),
    "ca2fl": ("ca2fl", oracle.CA2FL, LOCAL, 2),
    "defedavg_iid": ("defedavg_iid", oracle.FedBuff, LOCAL, 3),
    "defedavg_niid": ("defedavg_niid", oracle.FedBuff, LOCAL, 2),
    "fadas": ("fadas", oracle.FADAS, ADAM, 2),
    "fadas-corrected": ("fadas", oracle.FADAS, {**ADAM, "bias_correction": True}, 3),
    "fadas-delay-adaptive": ("fadas", oracle.FADAS, {**ADAM, "delay_threshold": 2.0}, 2),
    "fadas-delay-adaptive-min": (
        "fadas", oracle.FADAS, {**ADAM, "server_lr": 0.4, "delay_threshold": 1.0, "da_form": "min"}, 2,
    ),
    "area": ("area", oracle.AREA, {"lr": 0.2}, 2),
    "area-3": ("area", oracle.AREA, {"lr": 0.2}, 3),
    "ace": ("ace", oracle.DuDe, {"server_lr": 0.4}, 1),
    "dude_asgd": ("dude_asgd", oracle.DuDe, {"server_lr": 0.4}, 2),
    "masfl": ("masfl", oracle.MasFL, MOMENTUM, 2),
    "masfl-3": ("masfl", oracle.MasFL, MOMENTUM, 3),
    "adamasfl": ("adamasfl", oracle.AdaMasFL, MOMENTUM, 2),
    "adamasfl-tensor": ("adamasfl", oracle.AdaMasFL, {**MOMENTUM, "norm": "tensor"}, 2),
    "adamasfl-3": ("adamasfl", oracle.AdaMasFL, MOMENTUM, 3),
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {"stale": {}, "failing": FAILURES, "cut": {"tau_cut": 2, "p_fail": 0.1}}


@cache
def trace_for(name: str, per_round: int, kind: str) -> Trace:
    """Four jobs at once, or what the method's own dispatch policy says."""
    dispatch = algorithms.get(name).dispatch
    concurrency = {} if "concurrency" in dispatch else {"concurrency": 4}
    return make_trace(T, per_round, HALF_NORMAL, dispatch, pool=None, **concurrency, **KINDS[kind])


def check(case: str, kind: str, **options: Any) -> None:
    name, method, values, per_round = CASES[case]
    trace = trace_for(name, per_round, kind)
    steps = algorithms.get(name).fixed_steps or K
    p = problem()
    expected = oracle.follow(method(p, per_round, steps, **values), trace, T)
    found = models(make_async_walk(p, name, trace, values, steps=steps, **options))
    assert np.linalg.norm(expected[-1] - expected[0]) > 0.2
    assert relative_error(found, expected) < 1e-9


@pytest.mark.parametrize(("kind", "engine"), [("stale", "loop"), ("failing", "vmap"), ("cut", "vmap")])
@pytest.mark.parametrize("case", CASES)
def test_follows_the_equations_job_by_job(case: str, kind: str, engine: str) -> None:
    check(case, kind, engine=engine)


PARALLEL: dict[str, dict[str, Any]] = {
    "all": {"concurrency": 6, "pool": "all", "delay": HALF_NORMAL},
    "more": {"concurrency": 7, "pool": "all", "refill": "at_aggregation", "delay": HALF_NORMAL},
}


@pytest.mark.parametrize("kind", PARALLEL)
@pytest.mark.parametrize("case", ["ca2fl", "fedbuff", "fadas"])
def test_clients_that_keep_nothing_work_on_several_jobs_at_once(case: str, kind: str) -> None:
    """Results arrive in another order than their jobs started; what CA2FL's server keeps is in that order."""
    name, method, values, per_round = CASES[case]
    trace = make_trace(T, per_round, **PARALLEL[kind])
    later = trace.next_applied
    assert ((later >= 0) & (later < np.arange(trace.jobs))).any()
    p = problem()
    expected = oracle.follow(method(p, per_round, K, **values), trace, T)
    found = models(make_async_walk(p, name, trace, values, steps=K))
    assert relative_error(found, expected) < 1e-9


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("case", ["fedbuff-weighted", "ca2fl", "fadas", "masfl", "adamasfl"])
def test_rounds_of_any_size_are_followed_job_by_job(case: str, engine: str) -> None:
    """Under participation=bernoulli each mean is over those who came, and nobody changes nothing."""
    words = ["participation=bernoulli", f"clients.total={len(SIZES)}", "clients.per_round=2", "rounds=14"]
    trace = build_trace(compose_config(words))
    cohorts = [trace.client[trace.applied(t)].tolist() for t in range(T)]
    assert {0, 1, 4} <= {*map(len, cohorts)}
    name, method, values, _ = CASES[case]
    p = problem()
    expected = method(p, 1, K, **values)
    path = [expected.theta]
    for cohort in cohorts:
        sent, expected.S = expected.down(), len(cohort)
        for client in cohort:
            expected.arrive(client, expected.work(client, *sent), 0)
        if cohort:
            expected.update()
        path.append(expected.theta)
    found = models(walk_over(p, name, trace, values, per_round=2, steps=K, engine=engine))
    assert relative_error(found, path) < 1e-9


STEPS = {algorithms.get(case[0]).local_step: name for name, case in CASES.items()}
"""A case for each local step: only this is compiled, and most methods share theirs."""


@pytest.mark.slow
@pytest.mark.parametrize("case", [*STEPS.values(), "adamasfl-tensor"])
def test_compiled_programs_follow_the_equations(case: str) -> None:
    missing = compiler_missing(torch.device("cpu"))
    if missing:
        pytest.skip(missing)
    check(case, "failing", engine="compile", chunk=4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "per_round"), sorted({(case[0], case[3]) for case in CASES.values()}))
def test_the_traces_are_what_they_are_meant_to_be(name: str, per_round: int, kind: str) -> None:
    """Stale, with different staleness inside one buffer, and with lost jobs where they are announced."""
    trace = trace_for(name, per_round, kind)
    tau = staleness(trace)
    assert trace.updates == T >= 12
    assert tau.max() >= (3 if name == "fadas" and kind != "cut" else 2)  # beyond its threshold
    assert len(set(tau.tolist())) >= 3
    assert per_round == 1 or any(len(set(trace.staleness(t).tolist())) > 1 for t in range(T))
    participations = np.bincount(trace.client[trace.applied_update >= 0])
    assert participations.max() >= 2  # so that records of an earlier job are used
    assert (count(trace, "failed") >= 2) == (kind != "stale")
    assert (count(trace, "discarded") >= 1) == (kind == "cut")
    if kind == "failing":
        applied = trace.client[trace.applied_update >= 0]
        assert 1 in applied  # joined late
        assert (trace.dispatch_time[trace.client == 1] >= 1.0).all()
        assert 5 in trace.client  # left early
        assert (trace.dispatch_time[trace.client == 5] < 2.0).all()
        assert trace.update_time[-1] > 2.0
