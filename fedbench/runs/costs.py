"""What a run costs, by its sizes and its trace alone: what it has sent and computed when a version exists,
and how often it is evaluated."""

from __future__ import annotations

import math

import numpy as np

from fedbench.data.division import UNUSED
from fedbench.runs.problem import Problem
from fedbench.schedule import report

SHARE = 10
"""Training costs at least so many times what evaluating does, if `eval.every` is null."""
GRADIENT = 3
"""What a sample's gradient costs, in forward passes: the backward pass takes two. Measured on a CPU: 4 to 18,
since mini-batches are small."""
SMALL = 2**26
"""Samples of an evaluation times parameters up to which every round is evaluated: some hundredths of a
second."""


def spent_by(problem: Problem) -> dict[str, np.ndarray]:
    """What has been spent when version t exists, in arrays of length updates + 1 by column: the run's `Cost`,
    added up over the trace. Entry 0 is the survey.

    A dispatched job costs its download. A received job (applied, or discarded on arrival) costs its upload
    and all its gradients. A job that failed or was stopped after the part u of its work costs
    floor(u (K - first_step)) local steps and floor(u passes) mini-batches of a full local pass.
    """
    trace, cost, steps = problem.trace, problem.cost, problem.steps
    sizes, B = problem.division.sizes, problem.batch
    passes = np.ones_like(sizes) if B is None else -(-sizes // B)  # mini-batches in a full local pass
    item = problem.dtype.itemsize
    evaluations = cost.calls_per_step * report.cumulative_steps(trace, steps, problem.method.first_step)
    evaluations = evaluations + cost.full_passes * report.cumulative_passes(trace, passes)
    up, down = cost.uplink_bytes * report.received(trace), item * cost.downlink * report.dispatched(trace)
    if cost.survey_uplink:
        each_up, each_down = item * cost.survey_uplink, item * cost.survey_downlink
        up, down = up + trace.clients * each_up, down + trace.clients * each_down
        evaluations = evaluations + int(steps.sum())
    return {"uplink_bytes": up, "downlink_bytes": down, "gradient_evaluations": evaluations}


def rounds_between(problem: Problem) -> int:
    """Rounds from one evaluation to the next: `eval.every`. If that is null, the fewest with which evaluating
    costs at most a part of SHARE of training, in forward passes of samples.

    It follows from sizes that methods, seeds and machines share: clients, local work (steps or epochs),
    samples (whose mean counts as every client's) and what is measured.
    """
    config, asked, N, division = problem.config, problem.config.eval, problem.counts.N, problem.division
    if asked.every is not None:
        return asked.every
    n, m = int(np.count_nonzero(division.partition != UNUSED)), len(problem.dataset.y_test)
    share, size, (steps, epochs) = config.local.batch_share, config.local.batch_size, problem.steps_or_epochs
    batch = n / N * share if share else min(size or math.inf, n / N)
    work = batch * steps if steps else n / N * (epochs or 1)
    owned = division.test_client is not None and bool((division.test_client >= 0).any())
    passes: float = m * (N if problem.method.is_personal and not owned else 1) + len(division.validation)
    passes += n * (asked.train + asked.objective) + GRADIENT * n * asked.grad_norm * (1 + asked.objective)
    if asked.finetune_steps:
        passes += m * (1 if owned else N) + GRADIENT * N * asked.finetune_steps * batch
    if passes * problem.layout.d <= SMALL:
        return 1
    return math.ceil(SHARE * passes / (GRADIENT * problem.counts.S * work))
