"""From a configuration to its trace, and the checks that need none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.errors import ConfigError
from fedbench.schedule.clockless import prescribed, synchronous
from fedbench.schedule.delays import Delays, Payload, failures
from fedbench.schedule.policy import Policy, read_policy
from fedbench.schedule.simulate import Simulation
from fedbench.schedule.trace import Floats, Ints, Trace

Dispatch = Mapping[str, str]
"""What an algorithm brings along for keys left null: `pool`, `refill`, `concurrency` ("all" = N)."""


def check(cfg: Any, dispatch: Dispatch | None = None) -> None:
    """Read all keys of schedule and delay without building anything. Raises ConfigError."""
    _read(cfg, dispatch, None)


def overlaps(cfg: Any, dispatch: Dispatch | None = None) -> bool:
    """Whether a client may start a job while an earlier one of its own is not applied (`Trace.earlier`)."""
    policy = read_policy(cfg, dispatch)
    return policy is not None and policy.overlaps


def build_trace(cfg: Any, dispatch: Dispatch | None = None, payload: Payload | None = None) -> Trace:
    """The trace of a configuration: a pure function of `schedule`, `delay`, `clients`, `rounds` and `seed`.

    `dispatch`: the algorithm's own policy. `payload`: what a job moves and computes; needed, and only looked
    at, where `delay.transfer` is used. Raises ConfigError.
    """
    policy, delays = _read(cfg, dispatch, payload)
    clients, per_update = int(cfg["clients"]["total"]), int(cfg["clients"]["per_round"])
    rounds, seed = int(cfg["rounds"]), int(cfg["seed"])
    if policy is None:
        return synchronous(seed, clients, per_update, rounds, delays)
    if policy.staleness is not None:
        return prescribed(seed, clients, per_update, rounds, policy.staleness)
    simulation = Simulation(policy, clients, per_update, rounds, seed, delays, failures(cfg, policy.p_fail))
    return simulation.run()


def durations(cfg: Any, client: Ints, n: Ints, payload: Payload | None = None) -> Floats:
    """Durations (m,) of the n-th jobs of `client` (int64 arrays of shape (m,)), whatever the schedule."""
    return Delays(cfg, payload)(client, n)


def survey_offset(cfg: Any, payload: Payload | None = None) -> float:
    """Virtual time of the exchange with all clients before round 0: the slowest one's (11.8)."""
    return Delays(cfg, payload).survey()


def _read(cfg: Any, dispatch: Dispatch | None, payload: Payload | None) -> tuple[Policy | None, Delays]:
    policy, delays = read_policy(cfg, dispatch), Delays(cfg, payload)
    if policy is not None and policy.staleness is not None and cfg["delay"]["name"] != "none":
        raise ConfigError(
            "delay", cfg["delay"]["name"], "must be none where schedule.staleness is prescribed"
        )
    return policy, delays
