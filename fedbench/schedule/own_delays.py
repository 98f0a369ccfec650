"""Delay models that a user's module registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fedbench.errors import DataError
from fedbench.own_options import Registered, call_registered, registering
from fedbench.rng import Stream, fold, make_key
from fedbench.schedule.laws import Bits, Delay
from fedbench.schedule.options import DELAYS
from fedbench.schedule.trace import Floats, Ints

F = TypeVar("F", bound=Callable[..., Floats])


def register_delay(name: str) -> Callable[[F], F]:
    """Decorator: register a function that returns the durations of jobs under `delay=<name>`.

    It returns the time >= 0 (m,) that the `n`-th job (m,) of each `client` (m,) takes, where m is any number
    of jobs. The run passes these, `clients` (N), `bits` (`fedbench.schedule.laws.Bits`: uniform(), normal(),
    exponential() of each job) and `own`, the same of each job's client, equal in all its jobs. All other
    parameters are options, keys under `delay`. A duration depends on its client and n alone; that is tried
    before the run. Raises ValueError if the name is one of fedbench's own.
    """
    return registering("delay", name, ("client", "n", "clients", "bits", "own"), DELAYS)


@dataclass(frozen=True)
class UserDelay(Registered, Delay):  # type: ignore[override]  # whose name is its own
    """A law that a module named by `imports` registers."""

    def check(self, clients: int) -> None:
        """Compare durations of some jobs at once and one by one. Raises ConfigError and DataError."""
        client, n = np.divmod(np.arange(3 * min(clients, 4), dtype=np.int64), 3)
        drawn = self.per_client(0, clients)

        def durations(jobs: np.ndarray) -> Floats:
            bits = Bits(make_key(0, Stream.DURATION, client[jobs], n[jobs]))
            return self.sample(client[jobs], n[jobs], bits, drawn)

        every = np.arange(len(client))
        alone = [durations(every[job : job + 1])[0] for job in every[::-1]]
        if not np.allclose(durations(every)[::-1], alone, rtol=1e-9, atol=0):
            why = "a job's duration depends on other jobs, or differs when it is asked for again"
            raise DataError(f"delay={self.name}: {why}; it is that of (client, n), with numbers from bits")

    def per_client(self, seed: int, clients: int) -> Any:
        return clients, fold(make_key(seed, Stream.CLASS, np.arange(clients, dtype=np.int64)), 2)

    def sample(self, client: Ints, n: Ints, bits: Bits, drawn: Any) -> Floats:
        clients, (low, high) = drawn
        here = {"client": client.copy(), "n": n.copy(), "clients": clients, "bits": bits}
        here["own"] = Bits((low[client], high[client]))
        made = call_registered("delay", self.chosen, here, DELAYS)
        why = None
        if not isinstance(made, np.ndarray) or made.shape != client.shape or made.dtype.kind not in "fiu":
            why = f"{getattr(made, 'shape', type(made).__name__)}; numbers, one for each of {len(n)} jobs,"
        elif not (fine := np.isfinite(made) & (made >= 0)).all():
            at = int(fine.argmin())
            why = f"{made[at]} for job {n[at]} of client {client[at]}; times >= 0"
        if why:
            raise DataError(f"delay={self.name}: its function returned {why} are expected")
        durations: Floats = made.astype(np.float64)
        return durations
