"""Cumulative communication and gradient evaluations at every server version, from the trace alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbench.algorithms.cost import Cost
from fedbench.schedule.trace import APPLIED, DISCARDED, FAILED, Trace


@dataclass(frozen=True)
class Ledger:
    """Arrays of length updates + 1: what has been spent when version t exists. Row 0 holds the survey."""

    uplink_bytes: np.ndarray
    downlink_bytes: np.ndarray
    gradient_evaluations: np.ndarray


def ledger(
    trace: Trace, cost: Cost, item_bytes: int, steps: np.ndarray, passes: np.ndarray, first_step: int
) -> Ledger:
    """Add up `cost` over the trace.

    `steps`: (N,) K_i; `passes`: (N,) mini-batches in one full local pass; `first_step`: local steps whose
    gradient is the full one. A dispatched job costs its download; a received one (applied, or discarded on
    arrival) its upload and all its gradients; a failed one floor(u K) of its local steps.
    """
    versions = trace.updates + 1
    up = down = evaluations = 0.0
    if cost.survey_uplink:
        n = trace.clients
        up, down = n * cost.survey_uplink, n * cost.survey_downlink
        evaluations = float(steps.sum())
    per_job = cost.calls_per_step * (steps - first_step) + cost.full_passes * passes
    received = np.flatnonzero((trace.status == APPLIED) | (trace.status == DISCARDED))
    when = (
        trace.arrival_version[received] + 1
    )  # an applied job arrives at the version that its update replaces
    died = np.flatnonzero(trace.status == FAILED)
    lost = np.floor(trace.work[died] * steps[trace.client[died]]) * cost.calls_per_step
    spent = _cumulative(when, per_job[trace.client[received]], versions)
    spent += _cumulative(trace.arrival_version[died] + 1, lost, versions)
    dispatched = _cumulative(trace.start_version + 1, np.ones(len(trace.client)), versions)
    return Ledger(
        uplink_bytes=item_bytes * (up + cost.uplink * _cumulative(when, np.ones(len(when)), versions)),
        downlink_bytes=item_bytes * (down + cost.downlink * dispatched),
        gradient_evaluations=evaluations + spent,
    )


def _cumulative(version: np.ndarray, amount: np.ndarray, versions: int) -> np.ndarray:
    """Sum of the amounts spent by the time each version exists; later versions than the last do not count."""
    inside = version < versions
    return np.cumsum(np.bincount(version[inside], weights=amount[inside], minlength=versions))
