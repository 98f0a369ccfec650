"""Where asynchronous methods coincide: without delays with synchronous ones, on any trace with each other."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from async_runs import (
    CONSTANT,
    HALF_NORMAL,
    SIZES,
    make_async_walk,
    make_trace,
    models,
    problem,
    staleness,
)
from oracle import Batches
from problem import relative_error

from fedbench import algorithms
from fedbench.engine.cohort import Sums
from fedbench.method import Counts, Record
from fedbench.runs.server_loop import ServerLoop
from fedbench.schedule.trace import Trace

N, T, K, BATCH = len(SIZES), 12, 3, 2
LOCAL = {"lr": 0.2, "server_lr": 0.7}
MOMENTUM = {"lr": 0.15, "server_lr": 0.3, "beta": 0.4}
ADAM = {"lr": 0.2, "server_lr": 0.05, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}
SAME = 1e-11


@cache
def equal_durations(per_round: int) -> tuple[Trace, Trace]:
    """As many jobs at once as the server waits for, all equally long; and rounds of the same size."""
    return make_trace(T, per_round, CONSTANT, concurrency=per_round), make_trace(T, per_round, CONSTANT)


@cache
def stale(per_round: int = 2, concurrency: int = 4, **schedule: Any) -> Trace:
    trace = make_trace(T, per_round, HALF_NORMAL, concurrency=concurrency, **schedule)
    assert staleness(trace).max() >= (2 if concurrency > 1 else 0)
    return trace


def walk(name: str, values: dict[str, Any], trace: Trace, **options: Any) -> ServerLoop:
    """Mini-batches of 2; every walk sees the same ones in the n-th job of a client."""
    return make_async_walk(problem(), name, trace, values, **{"steps": K, "batch": BATCH, **options})


def path(name: str, values: dict[str, Any], trace: Trace, **options: Any) -> list[np.ndarray]:
    found = models(walk(name, values, trace, **options))
    assert np.linalg.norm(found[-1] - found[0]) > 0.1
    return found


# ---- no delays: the synchronous methods ------------------------------------------------------------


@pytest.mark.parametrize("per_round", [1, 3, N])
def test_equal_durations_make_rounds(per_round: int) -> None:
    trace, rounds = equal_durations(per_round)
    assert staleness(trace).max() == 0
    cohorts = [trace.client[trace.applied(t)].tolist() for t in range(T)]
    assert cohorts == [rounds.client[rounds.applied(t)].tolist() for t in range(T)]
    assert all(len(set(cohort)) == per_round for cohort in cohorts)


@pytest.mark.parametrize("per_round", [3, N])
@pytest.mark.parametrize(
    ("name", "values", "twin", "more"),
    [
        ("fedbuff", LOCAL, "fedavg", {"weighting": "uniform"}),
        ("fedbuff", {**LOCAL, "staleness_power": 0.5}, "fedavg", {"weighting": "uniform", **LOCAL}),
        ("fedbuff", {**LOCAL, "momentum": 0.6}, "fedavgm", {"weighting": "uniform"}),
        ("adamasfl", MOMENTUM, "padamfed", {}),
        ("adamasfl", {}, "padamfed", {}),
        ("fadas", ADAM, "fedams", {"weighting": "uniform"}),
        ("fadas", {**ADAM, "bias_correction": True}, "fedams", {"weighting": "uniform"}),
        ("fadas", {**ADAM, "delay_threshold": 0.0}, "fedams", {"weighting": "uniform", **ADAM}),
    ],
)
def test_without_delays_it_is_the_synchronous_method(
    name: str, values: dict[str, Any], twin: str, more: dict[str, Any], per_round: int
) -> None:
    trace, rounds = equal_durations(per_round)
    known = set(algorithms.get(twin).options())
    shared = {key: value for key, value in values.items() if key in known}
    assert relative_error(path(name, values, trace), path(twin, {**shared, **more}, rounds)) < SAME


@pytest.mark.parametrize("per_round", [3, N])
def test_without_delays_masfl_is_scaffold_m_from_its_start(per_round: int) -> None:
    trace, rounds = equal_durations(per_round)
    masfl, scaffold_m = walk("masfl", MOMENTUM, trace), walk("scaffold_m", MOMENTUM, rounds)
    scaffold_m.server.update(c=masfl.server["c"], g=masfl.server["g"])  # SCAFFOLD-M itself starts at 0
    scaffold_m.trainer.store.tensors["c"] = masfl.trainer.store.tensors["c"].clone()
    assert relative_error(models(masfl), models(scaffold_m)) < SAME


def test_full_participation_makes_ca2fl_fedbuff() -> None:
    trace, _ = equal_durations(N)
    assert relative_error(path("ca2fl", LOCAL, trace), path("fedbuff", LOCAL, trace)) < SAME


def test_full_participation_makes_dude_asgd_mini_batch_sgd() -> None:
    """Equal batches: the mean over clients is the mean over the union of their samples."""
    p, (trace, _) = problem(), equal_durations(N)
    batches = Batches(p, [list(range(N))] * T, 1, BATCH)
    theta = p.theta0
    expected = [theta]
    for t in range(T):
        union = np.concatenate([batches.samples[i, t, 0] for i in range(N)])
        assert len(union) == N * BATCH
        error = p.probabilities(theta, p.x[union]) - np.eye(3)[p.y[union]]
        theta = theta - 0.4 * np.concatenate([(error.T @ p.x[union]).ravel(), error.sum(0)]) / len(union)
        expected.append(theta)
    found = path("dude_asgd", {"server_lr": 0.4}, trace, steps=1)
    assert relative_error(found, expected) < SAME
    fedbuff = path("fedbuff", {"lr": 0.5, "server_lr": 0.8}, trace, steps=1)
    assert relative_error(found, fedbuff) < SAME


def test_full_participation_makes_area_fedavg() -> None:
    trace, rounds = equal_durations(N)
    fedavg = path("fedavg", {"lr": 0.2, "server_lr": 1.0, "weighting": "uniform"}, rounds)
    assert relative_error(path("area", {"lr": 0.2}, trace), fedavg) < SAME


# ---- any trace: each other -------------------------------------------------------------------------


def test_ca2fl_with_caches_held_at_zero_is_fedbuff() -> None:
    trace = stale()
    frozen = walk("ca2fl", LOCAL, trace)
    found = [frozen.theta.numpy().copy()]
    for _ in range(T):
        frozen.update()
        found.append(frozen.theta.numpy().copy())
        frozen.server["h"] = torch.zeros_like(frozen.theta)
        for sums in frozen.pending.values():
            sums.uploads.pop("cached_delta", None)
    fedbuff = path("fedbuff", LOCAL, trace)
    assert relative_error(found, fedbuff) < SAME
    calibrated = path("ca2fl", LOCAL, trace)
    assert relative_error(calibrated[:2], fedbuff[:2]) < SAME  # the caches start at zero
    assert relative_error(calibrated, fedbuff) > 1e-2


def test_fadas_without_its_moments_is_fedbuff() -> None:
    """b1 = 0, b2 = 1, v = vhat = 1, no epsilon."""
    trace = stale()
    fadas = walk("fadas", {**LOCAL, "beta1": 0.0, "beta2": 1.0, "epsilon": 0.0}, trace)
    one = torch.ones_like(fadas.theta)
    fadas.server.update(v=one, vhat=one)
    assert relative_error(models(fadas), path("fedbuff", LOCAL, trace)) < SAME


@pytest.mark.parametrize("form", ["scale", "min"])
def test_fadas_adapts_to_delays_beyond_its_threshold_only(form: str) -> None:
    trace = stale()
    values = {**ADAM, "server_lr": 0.6}  # so large that `min` binds too
    plain = path("fadas", values, trace)
    largest = float(staleness(trace).max())
    for threshold in (largest, 1e300):
        found = path("fadas", {**values, "delay_threshold": threshold, "da_form": form}, trace)
        assert all((a == b).all() for a, b in zip(found, plain, strict=True))
    found = path("fadas", {**values, "delay_threshold": largest - 1, "da_form": form}, trace)
    assert relative_error(found, plain) > 1e-3


def test_masfl_of_one_step_without_momentum_is_ca2fl_with_matched_caches() -> None:
    trace, lr = stale(), 0.25
    masfl = walk("masfl", {"lr": 0.1, "server_lr": lr * 0.8, "beta": 1.0}, trace, steps=1)
    ca2fl = walk("ca2fl", {"lr": lr, "server_lr": 0.8}, trace, steps=1)
    ca2fl.server["h"] = -lr * masfl.server["c"]
    for i, cached in enumerate(-lr * masfl.trainer.store.tensors["c"]):  # the server looks at it again when
        jobs = np.flatnonzero((trace.client == i) & (trace.applied_update >= 0))
        first = jobs[np.lexsort((trace.position[jobs], trace.applied_update[jobs]))][:1]  # i arrives first
        for t, weight in zip(trace.applied_update[first], ca2fl.weight[first], strict=True):
            kept = ca2fl.pending.setdefault(int(t), Sums()).uploads
            kept["cached_delta"] = kept.get("cached_delta", 0.0) + weight * cached
    assert relative_error(models(masfl), models(ca2fl)) < SAME


@pytest.mark.parametrize(("concurrency", "equal"), [(1, True), (4, False)])
def test_fedasync_is_fedbuff_only_one_job_at_a_time(concurrency: int, equal: bool) -> None:
    trace = stale(per_round=1, concurrency=concurrency)
    values = {"lr": 0.2, "alpha": 0.7, "rho": 0.0, "staleness": "constant"}
    error = relative_error(path("fedasync", values, trace), path("fedbuff", LOCAL, trace))
    assert error < SAME if equal else error > 1e-2


def test_ace_is_dude_asgd_with_an_update_on_every_arrival() -> None:
    own = make_trace(T, 1, HALF_NORMAL, algorithms.get("ace").dispatch, pool=None)
    assert staleness(own).max() >= N - 1
    values = {"server_lr": 0.4}
    for trace in (stale(per_round=1), own):
        found, expected = (path(name, values, trace, steps=1) for name in ("ace", "dude_asgd"))
        assert all((a == b).all() for a, b in zip(found, expected, strict=True))


def test_asyncfeded_without_staleness_is_fedbuff_with_the_largest_weight() -> None:
    trace = stale(per_round=1, concurrency=1)
    values = {"lr": 0.2, "server_lr": 0.35, "epsilon": 0.5}
    assert relative_error(path("asyncfeded", values, trace), path("fedbuff", LOCAL, trace)) < SAME


def test_asyncfeded_of_a_large_epsilon_is_fedbuff() -> None:
    """The distance counts ever less beside it: lambda = c epsilon gives server_lr c as epsilon grows."""
    trace = stale(per_round=1)
    fedbuff = path("fedbuff", LOCAL, trace)
    errors = [
        relative_error(path("asyncfeded", {"lr": 0.2, "server_lr": 0.7 * e, "epsilon": e}, trace), fedbuff)
        for e in (1.0, 1e3, 1e6)
    ]
    assert errors[0] > 1e-2
    assert errors[1] < 1e-2
    assert errors[2] < 1e-5


def test_the_farther_the_model_has_gone_the_less_a_change_weighs_in_asyncfeded() -> None:
    method = algorithms.get("asyncfeded").create({"server_lr": 0.8, "epsilon": 0.5})
    h = Record({"server_lr": torch.tensor(0.8), "epsilon": torch.tensor(0.5)})
    counts, change = Counts(S=1, N=2, K=1, T=1), torch.tensor([3.0, 4.0])

    def weight(gone: float, scale: float = 1.0) -> float:
        start = torch.tensor([gone * scale, 0.0])
        received = Record({"delta": scale * change, "sent_theta": start})
        theta = method.server_step(Record({"theta": torch.zeros(2)}), received, counts, h)["theta"]
        return float(theta[1] / (scale * change[1]))

    weights = [weight(gone) for gone in (0.0, 1.0, 5.0, 50.0)]
    assert weights == pytest.approx([0.8 / (s + 0.5) for s in (0.0, 0.2, 1.0, 10.0)])
    assert weights[0] == pytest.approx(0.8 / 0.5)  # the largest there is
    assert weight(5.0, scale=100.0) == pytest.approx(weights[2])  # no unit of length
    received = Record({"delta": 0 * change, "sent_theta": change})
    theta = method.server_step(Record({"theta": torch.ones(2)}), received, counts, h)["theta"]
    assert theta.tolist() == [1.0, 1.0]  # nothing sent, nothing moved: no 0 / 0


@pytest.mark.parametrize("name", ["defedavg_iid", "defedavg_niid"])
def test_defedavg_is_fedbuff_on_the_same_trace(name: str) -> None:
    """What distinguishes its variants is the trace that each brings along."""
    own = make_trace(T, 2, HALF_NORMAL, algorithms.get(name).dispatch, pool=None)
    assert staleness(own).max() >= 2
    for trace in (stale(), own):
        assert relative_error(path(name, LOCAL, trace), path("fedbuff", LOCAL, trace)) < SAME
