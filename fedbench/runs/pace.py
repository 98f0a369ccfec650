"""How long a run takes, from rounds of it that are computed for this and not kept."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from fedbench.engine.malloc import keep_memory
from fedbench.runs.numerics import set_numerics
from fedbench.runs.plan import Plan
from fedbench.runs.record import Recorder
from fedbench.runs.session import Session
from fedbench.runs.setup import make_ready

ENOUGH = 1.0  # seconds of measured rounds
MOST = 20  # measured rounds


@dataclass(frozen=True)
class Pace:
    """Seconds: before the first round, to compile, of a round (a median), of an evaluation; rounds
    measured."""

    start: float
    compiling: float
    round: float
    evaluation: float
    measured: int

    def seconds(self, rounds: int, every: int) -> float:
        """Of a whole run of so many rounds, evaluated so often, without compiling."""
        evaluations = 1 + -(-rounds // every)
        return self.start + rounds * self.round + evaluations * self.evaluation


def measure(plan: Plan, session: Session, threads: int | None = None) -> Pace:
    """Compute the first rounds of a run: one to warm up (and compile), then more until there are enough.

    `threads`: where the run's configuration says none. Raises RunError, and what a run raises.
    """
    keep_memory()
    config = plan.config
    set_numerics(config.threads or threads, config.deterministic, plan.device, config.precision == "tf32")

    def timed(what: Callable[[], object]) -> float:
        begin = time.perf_counter()
        what()
        if plan.device.type == "cuda":
            torch.cuda.synchronize(plan.device)
        return time.perf_counter() - begin

    with tempfile.TemporaryDirectory(prefix="fedbench-pace-") as place:  # for clients' state on disk
        return _measured(plan, session, Path(place), timed)


def _measured(
    plan: Plan, session: Session, place: Path, timed: Callable[[Callable[[], object]], float]
) -> Pace:
    begin = time.perf_counter()
    ready = make_ready(plan, session, directory=place)
    ready.walk.start(ready.measured())
    started = time.perf_counter() - begin
    recorder = Recorder(ready)
    evaluation = min(timed(lambda: recorder.row(0, lambda: 0.0)) for _ in range(2))
    rounds: list[float] = []
    all_rounds = ready.trace.updates
    first = timed(ready.walk.update) if all_rounds else 0.0
    while ready.walk.version < all_rounds and len(rounds) < MOST and sum(rounds) < ENOUGH:
        rounds.append(timed(ready.walk.update))
    compiling = ready.walk.trainer.executor.compile_seconds
    if not rounds:
        rounds = [max(first - compiling, 0.0)]
    return Pace(started, compiling, statistics.median(rounds), evaluation, len(rounds))
