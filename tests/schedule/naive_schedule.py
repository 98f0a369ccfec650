"""A second, naive simulation written from the specification's pseudo-code (11.4, 11.7), for comparison.

Plain lists, no shared code with the package but the addressed random numbers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from option_helpers import Config, config, durations

from fedbench.rng import Stream, fold, make_key, threefry2x32, uniform
from fedbench.schedule.options import Async

__all__ = ["Naive", "config"]

INF = float("inf")


def draw(seed: int, m: int) -> float:
    return uniform(threefry2x32(make_key(seed, Stream.SELECT), (m, 0)))


class Naive:
    """All pools and refills."""

    def __init__(self, cfg: Config, longest: int = 400) -> None:
        self.seed, self.T = cfg.seed, cfg.rounds
        self.N, self.S = cfg.clients.total, cfg.clients.per_round
        keys = cfg.schedule
        assert isinstance(keys, Async)
        self.M = keys.concurrency
        self.refill, self.pool = keys.refill or "immediate", keys.pool or "idle"
        self.lowest, self.distinct = keys.select == "lowest", keys.draw == "without_replacement"
        self.tau_cut, self.p_fail, self.interrupt = keys.tau_cut, keys.p_fail, keys.interrupt
        # given durations: fractions of the decimal numbers, so nothing is rounded before it is compared
        self.exact = cfg.delay.name in ("constant", "table", "none")
        whole = cfg.delay.name == "none" and float(keys.timeout).is_integer()
        if whole and all(float(time).is_integer() for _, time in (*(keys.leave or []), *(keys.join or []))):
            self.exact = False  # whole numbers are exact in floats
        self.timeout = self.number(keys.timeout)
        self.leave = {client: self.number(time) for client, time in keys.leave or []}
        self.join = {client: self.number(time) for client, time in keys.join or []}
        who, n = np.divmod(np.arange(self.N * longest), longest)
        self.D = durations(cfg, who, n).reshape(self.N, longest)
        self.jobs: list[dict[str, Any]] = []
        self.updates: list[list[int]] = []
        self.times: list[float] = []
        self.in_flight_at: list[int] = []
        self.parked_at: list[int] = []
        self.buffer: list[int] = []
        self.now, self.m, self.parked, self.pending = self.number(0.0), 0, 0, []

    def number(self, value: float) -> Any:
        return Fraction(str(value)) if self.exact else value

    def here(self, i: int) -> bool:
        return self.join.get(i, 0.0) <= self.now < self.leave.get(i, INF)

    def live(self) -> list[int]:
        return [j for j, job in enumerate(self.jobs) if job["live"]]

    def candidates(self, taken: list[int]) -> list[int]:
        flying = {self.jobs[j]["client"] for j in self.live()}
        buffered = {self.jobs[j]["client"] for j in self.buffer}
        if self.pool == "idle":
            out = flying | buffered
        elif self.pool == "idle_incl_buffered":
            out = flying
        elif self.pool == "self":
            out = set(self.owners)
        else:
            out = set(taken) if self.distinct or not self.started else set()
        return [i for i in range(self.N) if self.here(i) and i not in out]

    def refill_slots(self, slots: list[int | None]) -> None:
        taken: list[int] = []
        for slot in slots:
            if self.pool == "self" and slot is not None and self.here(slot):
                self.assign(slot)
                continue
            among = self.candidates(taken)
            if not among:
                self.parked += 1
                continue
            if self.lowest:
                client = among[0]
            else:
                client = among[int(draw(self.seed, self.m) * len(among))]
                self.m += 1
            if self.pool == "self":
                self.owners.append(client)
            taken.append(client)
            self.assign(client)

    def assign(self, i: int) -> None:
        n = sum(job["client"] == i for job in self.jobs)
        job = {"client": i, "n": n, "v": len(self.updates), "begin": self.now, "live": True}
        job.update(clock=None, end=np.nan)
        job.update(status="outstanding", at=-1, position=-1, arrival=-1, work=1, u=1, fails=False)
        if self.p_fail > 0:
            key = make_key(self.seed, Stream.FAILURE, i, n)
            if uniform(key) < self.p_fail:
                u = uniform(fold(key, 1))
                job["u"] = Fraction(u) if self.exact else u
        self.jobs.append(job)
        busy = any(other["live"] and other["client"] == i for other in self.jobs[:-1])
        if self.pool != "queue" or not busy:
            self.start_clock(job)

    def start_clock(self, job: dict[str, Any]) -> None:
        d, leave = self.number(self.D[job["client"], job["n"]]), self.leave.get(job["client"], INF)
        job.update(clock=self.now, d=d)
        if self.now >= leave:  # the client left while the job waited
            job.update(fails=True, u=0, end=max(self.now, leave + self.timeout))
        elif self.now + job["u"] * d > leave:
            job.update(fails=True, u=(leave - self.now) / d, end=leave + self.timeout)
        elif job["u"] < 1:
            job.update(fails=True, end=self.now + job["u"] * d + self.timeout)
        else:
            job.update(end=self.now + d)

    def run(self) -> Naive:
        self.started, self.owners = False, []
        self.refill_slots([None] * self.M)
        self.started = True
        while len(self.updates) < self.T:
            ends = [self.jobs[j]["end"] for j in self.live() if self.jobs[j]["clock"] is not None]
            times = [*self.join.values(), *self.leave.values()]
            coming = ends + [time for time in times if time > self.now]
            if not coming:
                break
            self.now = min(coming)
            tick = [j for j in self.live() if self.jobs[j]["end"] == self.now]
            freed, closed, rejected = [], [], []
            for j in tick:
                job = self.jobs[j]
                job["live"] = False
                waiting = [o for o in self.jobs if o["live"] and o["client"] == job["client"]]
                if self.pool == "queue" and waiting:
                    self.start_clock(waiting[0])
                version = len(self.updates)
                if job["fails"] or (self.tau_cut is not None and version - job["v"] > self.tau_cut):
                    job.update(status="failed" if job["fails"] else "discarded", arrival=version)
                    job["work"] = job["u"] if job["fails"] else 1.0
                    freed.append(job["client"])
                    rejected.append(job["client"])
                    continue
                self.buffer.append(j)
                freed.append(job["client"])
                if len(self.buffer) == self.S:
                    for position, k in enumerate(self.buffer):
                        self.jobs[k].update(status="applied", at=version, position=position, arrival=version)
                        closed.append(self.jobs[k]["client"])
                    self.updates.append(self.buffer)
                    self.times.append(self.now)
                    self.in_flight_at.append(len(self.live()))
                    self.parked_at.append(self.parked)
                    self.buffer = []
                    if len(self.updates) == self.T:
                        return self
            version = len(self.updates)
            for j in self.live() if self.interrupt else []:
                job = self.jobs[j]
                if version - job["v"] > self.tau_cut:
                    done = (self.now - job["clock"]) / job["d"] if job["d"] else 1
                    job.update(status="interrupted", arrival=version, live=False, end=self.now)
                    job["work"] = min(done, job["u"])
                    freed.append(job["client"])
                    rejected.append(job["client"])
            self.pending += rejected
            if self.refill == "immediate":
                slots: list[int | None] = [*freed, *[None] * self.parked]
                self.parked, self.pending = 0, []
            elif closed:
                slots = [*closed, *self.pending, *[None] * self.parked]
                self.parked, self.pending = 0, []
            else:
                missing = max(0, self.S - len(self.live()) - len(self.buffer))
                slots, self.pending = list(self.pending[:missing]), self.pending[missing:]
                more = min(missing - len(slots), self.parked)
                self.parked -= more
                slots += [None] * more
            self.refill_slots(slots)
        return self
