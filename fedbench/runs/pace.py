"""How long a run takes, from rounds of it that are computed for this and not kept."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from fedbench.runs.evaluation import Measurement
from fedbench.runs.run import Run
from fedbench.runs.session import Session

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


def measure(run: Run, session: Session, threads: int | None = None) -> Pace:
    """Compute the first rounds of a run: one to warm up (and compile), then more until there are enough.

    `threads`: where the run's configuration says none. Raises RunError, and what a run raises.
    """
    run.session = session
    run.set_numerics(threads)

    def timed(what: Callable[[], object]) -> float:
        begin = time.perf_counter()
        what()
        if run.device.type == "cuda":
            torch.cuda.synchronize(run.device)
        return time.perf_counter() - begin

    with tempfile.TemporaryDirectory(prefix="fedbench-pace-") as place:  # for clients' state on disk
        return _measured(run, Path(place), timed)


def _measured(run: Run, place: Path, timed: Callable[[Callable[[], object]], float]) -> Pace:
    begin = time.perf_counter()
    run.prepare(directory=place)
    run.start()
    started = time.perf_counter() - begin
    recorder = Measurement(run)
    evaluation = min(timed(lambda: recorder.row(0, lambda: 0.0)) for _ in range(2))
    rounds: list[float] = []
    all_rounds = run.trace.updates
    first = timed(run.loop.update) if all_rounds else 0.0
    while run.loop.version < all_rounds and len(rounds) < MOST and sum(rounds) < ENOUGH:
        rounds.append(timed(run.loop.update))
    compiling = run.loop.trainer.executor.compile_seconds
    if not rounds:
        rounds = [max(first - compiling, 0.0)]
    return Pace(started, compiling, statistics.median(rounds), evaluation, len(rounds))
