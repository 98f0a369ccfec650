"""What a run has sent and computed when each of its versions exists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbench import schedule
from fedbench.method.cost import Cost


@dataclass(frozen=True)
class Spent:
    """Arrays of length updates + 1: what has been spent when version t exists. Entry 0 is the survey."""

    uplink_bytes: np.ndarray
    downlink_bytes: np.ndarray
    gradient_evaluations: np.ndarray


def spent(
    trace: schedule.Trace, cost: Cost, item_bytes: int, steps: np.ndarray, passes: np.ndarray, first_step: int
) -> Spent:
    """Add up `cost` over the trace.

    `steps`: (N,) K_i; `passes`: (N,) mini-batches in one full local pass; `first_step`: local steps whose
    gradient is the full one. A dispatched job costs its download. A received job (applied, or discarded on
    arrival) costs its upload and all its gradients. A job that failed or was stopped after the part u of its
    work costs floor(u (K - first_step)) local steps and floor(u passes) mini-batches of a full pass.
    """
    counts = schedule.counters(trace)
    evaluations = cost.calls_per_step * schedule.cumulative_steps(trace, steps, first_step)
    evaluations = evaluations + cost.full_passes * schedule.cumulative_passes(trace, passes)
    up, down = cost.uplink * counts.received, cost.downlink * counts.dispatched
    if cost.survey_uplink:
        up, down = up + trace.clients * cost.survey_uplink, down + trace.clients * cost.survey_downlink
        evaluations = evaluations + int(steps.sum())
    return Spent(item_bytes * up, item_bytes * down, evaluations)
