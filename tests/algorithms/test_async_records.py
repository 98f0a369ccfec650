"""What an asynchronous server keeps is the mean of what it last received from every client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from async_runs import FAILURES, HALF_NORMAL, count, make_async_walk, make_trace, problem, staleness

from fedbench import algorithms

T = 14
LOCAL = {"lr": 0.2, "server_lr": 0.7}
MOMENTUM = {"lr": 0.15, "server_lr": 0.3, "beta": 0.4}


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize(
    ("name", "values", "kept", "server"),
    [
        ("masfl", MOMENTUM, "c", "c"),
        ("adamasfl", MOMENTUM, "c", "c"),
        ("dude_asgd", {"server_lr": 0.4}, "G", "g"),
        ("area", {"lr": 0.2}, "w", "theta"),
    ],
)
def test_server_record_is_the_mean_of_the_last_received_ones(
    name: str, values: dict[str, Any], kept: str, server: str, failing: bool
) -> None:
    """A client's record changes when its upload is applied; lost and outstanding jobs change none."""
    trace = make_trace(T, 2, HALF_NORMAL, concurrency=4, **(FAILURES if failing else {}))
    assert staleness(trace).max() >= 2
    assert (count(trace, "failed") > 0) == failing
    steps = algorithms.get(name).fixed_steps or 3
    run = make_async_walk(problem(), name, trace, values, steps=steps, batch=2)
    records = run.trainer.store.tensors[kept].clone()
    uploads: dict[int, torch.Tensor] = {}
    for t in range(T):
        run.update()
        for j in trace.training(t):  # trained just now; applied now or later
            uploads[int(j)] = run.trainer.store.tensors[kept][trace.client[j]].clone()
        for j in trace.applied(t):
            records[trace.client[j]] = uploads.pop(int(j))
        torch.testing.assert_close(run.server[server], records.mean(0), rtol=1e-12, atol=1e-14)
    assert run.server[server].norm() > 1e-2


@pytest.mark.parametrize("keys", [{}, FAILURES, {"pool": "all"}])
def test_the_record_of_ca2fl_is_the_mean_of_the_last_arrived_uploads(keys: dict[str, Any]) -> None:
    """Its server keeps them in the order of arrival, also where that is not the order of the starts."""
    trace = make_trace(T, 2, HALF_NORMAL, concurrency=4, **keys)
    run = make_async_walk(problem(), "ca2fl", trace, LOCAL, steps=3, batch=2)
    records = torch.zeros(len(problem().sizes), len(run.theta), dtype=torch.float64)
    uploads: dict[int, torch.Tensor] = {}
    train, sent = run.trainer.executor.run, list[torch.Tensor]()

    def remember(work: Any) -> Any:
        result = train(work)
        sent.extend(result[0]["delta"])
        return result

    run.trainer.executor.run = remember
    for t in range(T):
        sent.clear()
        run.update()
        jobs = trace.training(t)
        order = jobs[np.argsort(trace.earlier[jobs], kind="stable")].tolist()
        uploads |= dict(zip(order, sent, strict=True))
        for j in trace.applied(t):
            records[trace.client[j]] = uploads.pop(int(j))
        torch.testing.assert_close(run.server["h"], records.mean(0), rtol=1e-12, atol=1e-14)
    assert run.server["h"].norm() > 1e-2
