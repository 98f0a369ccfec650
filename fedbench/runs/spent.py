"""Cumulative communication and gradient evaluations at every server version, from the trace alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbench import schedule
from fedbench.method.cost import Cost


@dataclass(frozen=True)
class Spent:
    """Arrays of length updates + 1: what has been spent when version t exists. Row 0 holds the survey."""

    uplink_bytes: np.ndarray
    downlink_bytes: np.ndarray
    gradient_evaluations: np.ndarray


def spent(
    trace: schedule.Trace,
    cost: Cost,
    item_bytes: int,
    steps: np.ndarray,
    passes: np.ndarray,
    first_step: int,
) -> Spent:
    """Add up `cost` over the trace.

    `steps`: (N,) K_i; `passes`: (N,) mini-batches in one full local pass; `first_step`: local steps whose
    gradient is the full one. A dispatched job costs its download; a received one (applied, or discarded on
    arrival) its upload and all its gradients; one that failed after the part u of its work, floor(u K).
    """
    counts = schedule.counters(trace)
    evaluations = cost.calls_per_step * schedule.cumulative_steps(trace, steps - first_step)
    evaluations = evaluations + cost.full_passes * schedule.cumulative_steps(trace, passes)
    up, down = cost.uplink * counts.received, cost.downlink * counts.dispatched
    if cost.survey_uplink:
        up, down = up + trace.clients * cost.survey_uplink, down + trace.clients * cost.survey_downlink
        evaluations = evaluations + int(steps.sum())
    return Spent(item_bytes * up, item_bytes * down, evaluations)
