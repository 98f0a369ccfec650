"""The event simulation: virtual time goes from tick to tick; jobs end, updates close, slots are refilled.

Nothing that an algorithm computes enters here, so a trace is a pure function of the schedule, the delays and
the seed.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from itertools import takewhile

import numpy as np

from fedbench.errors import ConfigError
from fedbench.schedule.client_files import Rows
from fedbench.schedule.delays import BlockwiseDraws, Delays
from fedbench.schedule.options import Async
from fedbench.schedule.selection import ANYONE, NEVER, Pool
from fedbench.schedule.trace import DISCARDED, FAILED, INTERRUPTED, Floats, Ints, Ledger, Trace

DRAW = 1 << 53  # draws in [0, 1) are multiples of 1 / DRAW


class Clock:
    """Times as the simulation adds and compares them: integer ticks, `unit` of them per unit of virtual time.

    If all durations are given, every time is a sum of decimal numbers: three times 0.1 and 0.3 are one
    instant, but two different floats. If some are drawn, floats are kept with `unit` 1: ties of given ones
    (constant classes of delay=bands beside drawn ones) are then those of floats. Whole numbers also stay
    floats, which add them exactly.
    """

    def __init__(self, durations: Iterable[float] | None, others: Iterable[float], failing: bool) -> None:
        """`durations`: all that occur, None if they are drawn. `others`: further times added to or compared
        with them. `failing`: jobs may end after a drawn part."""
        self.exact, self.unit = False, 1
        self._known: dict[float, float] = {}
        if durations is None:
            return
        given = {_decimal(value) for value in durations}
        fractions = [Fraction(repr(value)) for value in given | {_decimal(value) for value in others}]
        unit = math.lcm(*(value.denominator for value in fractions))
        if unit == 1 and (not failing or len(given) == 1):
            return
        self.exact, self.unit = True, unit * (DRAW if failing else 1)

    def ticks(self, time: float) -> float:
        """A given time or duration, in ticks."""
        if not self.exact:
            return time
        if time not in self._known:
            self._known[time] = round(Fraction(repr(_decimal(time))) * self.unit)
        return self._known[time]

    def many(self, times: Floats) -> np.ndarray:
        """The same for an array. Ticks are Python's integers here, which do not overflow."""
        if not self.exact:
            return times
        values, index = np.unique(times, return_inverse=True)
        return np.array([self.ticks(value) for value in values.tolist()], dtype=object)[index]

    def part(self, work: float, duration: float) -> float:
        """The ticks of the fraction `work` of a duration, which is given in ticks."""
        return int(work * DRAW) * int(duration) // DRAW if self.exact else work * duration


def _decimal(value: float) -> float:
    """A number without the rounding noise of a product: 0.1 * 3 becomes 0.3."""
    short = float(f"{value:.15g}")
    return short if abs(short - value) <= 2 * math.ulp(value) else value


Draw = Callable[[Ints, Ints], Floats]

PATIENCE = 200_000
"""Jobs without an update, plus 20 times those expected, after which the simulation gives up."""


class Simulation:
    """One pass over the events; `run` returns the trace."""

    def __init__(
        self, policy: Async, per_update: int, rounds: int, durations: Delays, work: Draw,
        windows: Rows | None,
    ) -> None:  # fmt: skip
        """`durations` and `work` map (client, n) to the duration and to the fraction of the work done.
        `windows`: of each client, those in which it can start jobs; none: always."""
        clients, seed = durations.clients, durations.seed
        leave, join = dict(policy.leave or ()), dict(policy.join or ())
        self.concurrency = policy.concurrency or 0
        times = {time for part in windows or () for window in part for time in window if time < NEVER}
        others = [*leave.values(), *join.values(), policy.timeout, policy.period or 0.0, *times]
        self.clock = Clock(durations.all_given(), others, policy.p_fail > 0)
        ticks, self.unit = self.clock.ticks, self.clock.unit
        leave, join = ({client: ticks(time) for client, time in times.items()} for times in (leave, join))
        self.timeout = ticks(policy.timeout)
        self.policy, self.clients, self.per_update, self.rounds = policy, clients, per_update, rounds
        expected = rounds * per_update + self.concurrency
        self.durations = BlockwiseDraws(durations, clients, expected)
        self.failures = BlockwiseDraws(work, clients, expected) if policy.p_fail > 0 else None
        self.period = ticks(policy.period) if policy.period else NEVER
        openings = [self._openings(part) for part in windows or ()]
        self.pool = Pool(policy, clients, seed, leave, join, openings)
        self.begun: float = 0  # when a job was last dispatched
        self.immediate, self.queueing = policy.refill == "immediate", policy.pool == "queue"
        self.interrupts = policy.interrupt
        self.ledger = Ledger()
        self.now: float = 0  # in ticks, like all times except the ledger's
        self.version = 0
        self.ends: dict[float, list[int]] = {}  # time -> the jobs that end then
        self.times: list[float] = []  # the keys of `ends`, as a heap, some of them gone
        self.dying: dict[int, float] = {}  # job -> the part of its work that it does before it fails
        self.running: dict[int, tuple[float, float, float]] = {}  # interrupt: job -> its begin, duration, end
        self.queues: dict[int, deque[int]] = {}  # pool=queue: the jobs waiting at each busy client
        self.buffer: list[int] = []
        self.in_flight = 0
        self.parked = 0  # slots without a client
        self.waiting: list[int] = []  # at_aggregation: slots of failed and discarded jobs
        # mean number of jobs per update at most: all jobs under way may be discarded
        per_version = (per_update + self.concurrency) / (1 - policy.p_fail)
        self.patience = PATIENCE + round(20 * per_version)
        self.last_attempt = self.patience  # the number of jobs by which an update must be made

    def run(self) -> Trace:
        """Simulate until `rounds` updates are made or nothing more can happen."""
        if self.rounds > 0:
            self._fill([ANYONE] * self.concurrency, distinct=True)
        times, pool = self.times, self.pool
        horizon = pool.next_change()  # the next time that is not a job's end
        while self.version < self.rounds:
            while times and times[0] not in self.ends:
                heappop(times)  # a time that is over, or at which only stopped jobs would have ended
            self.now = now = times[0] if times and times[0] < horizon else horizon
            if now == NEVER or (not self.ends and now - self.begun > self.period):
                break  # starved: no job can end, and nobody joins, or whoever can start has been passed by
            if now == horizon:
                pool.change(now)
            slots = self._tick()
            if self.version == self.rounds:
                break
            if slots:
                self._fill(slots, self.policy.draw == "without_replacement")
            if len(self.ledger.client) > self.last_attempt:
                waits = f"{self.per_update - len(self.buffer)} of its {self.per_update} arrivals"
                tried = f"after {len(self.ledger.client):,} jobs"
                allowed = f"no progress: {tried}, update {self.version} still waits for {waits}"
                raise ConfigError("schedule.p_fail", self.policy.p_fail, allowed)
            if now == horizon:
                horizon = pool.next_change()
        return self.ledger.trace(self.rounds, self.clients, self.per_update, self.concurrency)

    def _openings(self, windows: Sequence[tuple[float, ...]]) -> Iterator[tuple[float, bool]]:
        """When a client begins and ceases to be available, in ticks."""
        ends = [(self.clock.ticks(time), opens) for window in windows
                for time, opens in zip(window, (True, False), strict=True) if time < NEVER]  # fmt: skip
        for turn in itertools.count():
            yield from ((time + (turn * self.period if turn else 0), opens) for time, opens in ends)
            if self.period == NEVER:
                return

    def _tick(self) -> list[int]:
        """Handle all events of this instant, in job order; return the slots to refill now."""
        tick = sorted(self.ends.pop(self.now, []))  # removed: jobs that the tick starts are not part of it
        client_of, start, tau_cut = self.ledger.client, self.ledger.start, self.policy.tau_cut
        freed: list[int] = []
        aggregated: list[int] = []
        for job in tick:
            client = client_of[job]
            if self.interrupts:
                del self.running[job]
            self.in_flight -= 1
            if self.queues.get(client):
                self._begin(self.queues[client].popleft(), client)
            else:
                self.queues.pop(client, None)  # nothing waits at this client
            if job in self.dying:
                self._reject(job, client, FAILED, freed)
            elif tau_cut is not None and self.version - start[job] > tau_cut:
                self._reject(job, client, DISCARDED, freed)
            else:
                self.buffer.append(job)
                if self.pool.returns_at_end:
                    self.pool.back(client)
                freed.append(client)
                if len(self.buffer) == self.per_update:
                    aggregated += self._close()
                    if self.version == self.rounds:
                        break
        if self.interrupts and self.version < self.rounds:
            self._interrupt(freed)
        if not self.immediate:
            return self._at_aggregation(aggregated)
        return self._all_parked(freed) if self.parked else freed

    def _close(self) -> list[int]:
        """Make the next version from the full buffer; return the clients of its jobs."""
        clients = [self.ledger.client[job] for job in self.buffer]
        self.ledger.update(self.buffer, self.now / self.unit, self.in_flight, self.parked)
        if self.pool.returns_at_update:
            for client in clients:
                self.pool.back(client)
        self.buffer = []
        self.version += 1
        self.last_attempt = len(self.ledger.client) + self.patience
        return clients

    def _interrupt(self, freed: list[int]) -> None:
        """Stop the jobs that have become too stale to count; the oldest come first."""
        assert self.policy.tau_cut is not None
        ledger, oldest = self.ledger, self.version - self.policy.tau_cut
        for job in list(takewhile(lambda job: ledger.start[job] < oldest, self.running)):
            begin, duration, end = self.running.pop(job)
            self.ends[end].remove(job)
            if not self.ends[end]:
                del self.ends[end]
            if duration:
                self.dying[job] = min(self.dying.get(job, 1.0), (self.now - begin) / duration)
            ledger.finish_time[job] = self.now / self.unit
            self.in_flight -= 1
            self._reject(job, ledger.client[job], INTERRUPTED, freed)

    def _reject(self, job: int, client: int, status: int, freed: list[int]) -> None:
        self.ledger.rejected.append((job, self.version, status, self.dying.pop(job, 1.0)))
        if self.pool.returns_at_end or self.pool.returns_at_update:
            self.pool.back(client)
        (freed if self.immediate else self.waiting).append(client)

    def _all_parked(self, slots: list[int]) -> list[int]:
        slots += [ANYONE] * self.parked
        self.parked = 0
        return slots

    def _at_aggregation(self, aggregated: list[int]) -> list[int]:
        """The slots to refill now. After an update: those of its jobs and all that wait. Between updates:
        only as many as are needed for the jobs under way to fill the buffer."""
        if aggregated:
            slots, self.waiting = aggregated + self.waiting, []
            return self._all_parked(slots)
        missing = max(0, self.per_update - self.in_flight - len(self.buffer))
        slots, self.waiting = self.waiting[:missing], self.waiting[missing:]
        unparked = min(missing - len(slots), self.parked)
        self.parked -= unparked
        return slots + [ANYONE] * unparked

    def _fill(self, slots: list[int], distinct: bool) -> None:
        """Dispatch one job for each slot; park the slots that find no client."""
        chosen = self.pool.choose(slots, distinct)
        self.parked += len(slots) - len(chosen)
        self.in_flight += len(chosen)
        self.begun = self.now if chosen else self.begun
        for client in chosen:
            job = self.ledger.dispatch(client, self.version, self.now / self.unit)
            if self.queueing:
                if client in self.queues:
                    self.queues[client].append(job)
                    continue
                self.queues[client] = deque()
            self._begin(job, client)

    def _begin(self, job: int, client: int) -> None:
        """Start the job's clock. It ends after its duration, unless it dies or its client leaves before."""
        duration = self.clock.ticks(self.durations.next(client))
        work = 1.0 if self.failures is None else self.failures.next(client)
        end = self.now + (duration if work == 1.0 else self.clock.part(work, duration))
        leave = self.pool.leave.get(client, NEVER)
        if end > leave or self.now >= leave:  # or it waited in the queue of a client that left
            self.dying[job] = (leave - self.now) / duration if leave > self.now else 0.0
            end = max(self.now, leave + self.timeout)
        elif work < 1.0:
            self.dying[job] = work
            end += self.timeout
        if self.interrupts:
            self.running[job] = self.now, duration, end
        self.ledger.begin_time[job], self.ledger.finish_time[job] = self.now / self.unit, end / self.unit
        if end in self.ends:
            self.ends[end].append(job)
        else:
            self.ends[end] = [job]
            heappush(self.times, end)
