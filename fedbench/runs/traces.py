"""From a run's configuration to its trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedbench.config.config import Config
from fedbench.errors import ConfigError
from fedbench.schedule.client_files import Rows, windows
from fedbench.schedule.delays import Delays, failures
from fedbench.schedule.options import Async, complete, overlapping
from fedbench.schedule.participation import ranging, straggling
from fedbench.schedule.rounds import prescribed, synchronous
from fedbench.schedule.simulate import Simulation
from fedbench.schedule.trace import Ints, Trace

Dispatch = Mapping[str, str]
"""The algorithm's own values for keys left null: `pool`, `refill`, `concurrency`, `tau_cut` ("all" means
concurrency N and tau_cut N - 1)."""


Names = Sequence[str] | None
"""The clients' names, empty if they have none; None: not known yet."""


def policy_and_delays(
    config: Config, dispatch: Dispatch | None = None, names: Names = None
) -> tuple[Async | None, Delays]:
    """The complete policy of an asynchronous schedule (None: it is synchronous) and the durations of jobs,
    which fit each other and `participation`. Raises ConfigError."""
    N, S, participation = config.clients.total, config.clients.per_round, config.participation
    policy = complete(config.schedule, N, S, dispatch)
    participation.check(N, S)
    if policy is not None and participation.name != "uniform":
        allowed = "is for synchronous rounds only; under schedule=async, schedule.pool says who may be drawn"
        raise ConfigError("participation", participation.name, allowed)
    if policy is not None and participation.stragglers:
        allowed = "must be 0 under schedule=async, where slow clients are late (delay=)"
        raise ConfigError("participation.stragglers", participation.stragglers, allowed)
    if policy is not None and policy.staleness is not None and config.delay.name != "none":
        raise ConfigError("delay", config.delay.name, "must be none where schedule.staleness is prescribed")
    if policy is not None:
        available(policy, N, names)
    return policy, Delays(config.delay, N, config.seed, names)


def available(policy: Async, clients: int, names: Names) -> Rows:
    """Of each client, the windows in which it can start jobs; none: always. Raises ConfigError."""
    return (policy.available and windows(policy.available, clients, names, policy.period)) or []


def overlaps(config: Config, dispatch: Dispatch | None = None) -> bool:
    """Whether a client may start a job before its earlier one has been applied (`Trace.earlier`)."""
    policy, _ = policy_and_delays(config, dispatch)
    return policy is not None and overlapping(policy)


def build_trace(
    config: Config, dispatch: Dispatch | None = None, samples: Ints | None = None, steps: int = 1,
    names: Sequence[str] = (),
) -> Trace:  # fmt: skip
    """The trace of a configuration: a pure function of `schedule`, `participation`, `delay`, `clients`,
    `rounds`, `local` and `seed`.

    `dispatch`: the algorithm's own policy. `samples`: (N,) training samples, for participation=weighted.
    `steps`: K if no epochs are given, of which a straggler does a part. `names`: the clients', if they have
    any, for files that name them. Raises ConfigError.
    """
    policy, delays = policy_and_delays(config, dispatch, names)
    clients, per_update = config.clients.total, config.clients.per_round
    rounds, seed = config.rounds, config.seed
    if policy is None:
        here = config.participation.draw(seed, clients, per_update, rounds, samples)
        trace = synchronous(clients, rounds, per_update, here, delays)
    elif policy.staleness is not None:
        trace = prescribed(seed, clients, per_update, rounds, policy.staleness)
    else:
        there, works = available(policy, clients, names), failures(seed, policy.p_fail)
        trace = Simulation(policy, per_update, rounds, delays, works, there).run()
    epochs = config.local.epochs_range
    if epochs is not None:
        trace = ranging(trace, seed, *epochs)
    if config.participation.stragglers:
        units = config.local.epochs or (epochs[1] if epochs else steps)
        trace = straggling(trace, seed, config.participation, units)
    return trace


def survey_offset(config: Config, names: Sequence[str] = ()) -> float:
    """Virtual time of the exchange with all clients before round 0: that of the slowest client."""
    return Delays(config.delay, config.clients.total, config.seed, names).survey()
