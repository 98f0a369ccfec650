"""How long a sweep will take, before it starts: from runs that have ended there, else from arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedbench.config.stored_run import FINISHED, summary
from fedbench.sweeps.plan import Job

_START = 3.0  # seconds before a run's first round
_STEP = 3e-3  # seconds of a vectorised step beside its arithmetic
_FLOPS = {"cpu": 2e10, "cuda": 5e12}  # per second and process; half of it in unvectorised gradients


def seconds(pending: Sequence[Job], ended: Sequence[Job], directory: Path) -> float:
    """Computing time of the pending runs, one after another. Within a factor of about three where nothing
    has ended yet."""
    known = _known(ended, directory)
    fixed: dict[tuple[str, ...], tuple[float, int]] = {}
    total = 0.0
    for job in pending:
        kind = _kind(job.cfg)
        if kind in known:
            total += known[kind] * max(int(job.cfg.rounds), 1)
            continue
        model = kind[:3]
        if model not in fixed:
            fixed[model] = _measured(job.cfg)
        total += _arithmetic(job.cfg, *fixed[model])
    return total


def _kind(cfg: DictConfig) -> tuple[str, ...]:
    return (str(cfg.dataset.name), str(cfg.model.name), str(cfg.device), str(cfg.algorithm.name))


def _known(ended: Sequence[Job], directory: Path) -> dict[tuple[str, ...], float]:
    """Seconds per round of the kinds of runs that have ended."""
    found: dict[tuple[str, ...], list[float]] = {}
    for job in ended:
        content: dict[str, Any] = summary(directory / job.name) or {}
        if content.get("status") in FINISHED and content.get("rounds") and content.get("wall_seconds"):
            rate = (_START + content["wall_seconds"]) / content["rounds"]
            found.setdefault(_kind(job.cfg), []).append(rate)
    return {kind: math.fsum(rates) / len(rates) for kind, rates in found.items()}


def _measured(cfg: DictConfig) -> tuple[float, int]:
    """Floating-point operations of one sample, forward and backward, and the number of test samples."""
    import torch

    from fedbench.engine.load import measure_model
    from fedbench.runs.plan import make_plan

    plan = make_plan(cfg)
    cost = measure_model(plan.model, torch.zeros(1, *plan.dataset.shape))
    return cost.flops, len(plan.dataset.y_test)


def _arithmetic(cfg: DictConfig, flops: float, tests: int) -> float:
    import torch

    speed = _FLOPS["cuda" if cfg.device != "cpu" and torch.cuda.is_available() else "cpu"]
    steps = int(cfg.local.steps or 10 * (cfg.local.epochs or 1))
    batch = int(cfg.local.batch_size or 100)
    samples = cfg.clients.per_round * steps * batch
    per_round = steps * _STEP + samples * flops / speed
    evaluations = math.ceil(cfg.rounds / cfg.eval.every) + 1
    return float(_START + cfg.rounds * per_round + evaluations * tests * flops / 3 / speed)
