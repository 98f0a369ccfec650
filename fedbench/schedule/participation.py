"""Which clients take part in a synchronous round (`participation=`), and how much of its work a job does.

Every draw has its own address (round and place in it, or client and job), so it does not depend on other
rounds or on their number.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedbench.counting import running_index, share_of
from fedbench.errors import ConfigError
from fedbench.fields import choice, integer, number, text
from fedbench.rng import Stream, fold, make_key, uniform
from fedbench.schedule.client_files import lines_of, whole
from fedbench.schedule.selection import select_draws, select_uniforms
from fedbench.schedule.trace import DISCARDED, Floats, Ints, Trace

GOOD = int(np.iinfo(np.int64).max)  # the end of a presence for good
_BLOCK = 1 << 21  # numbers that Bernoulli draws at once


class Participants(NamedTuple):
    """The jobs of all rounds, round by round; arrays of length J."""

    client: Ints
    round: Ints
    copies: Ints | None = None  # weight of each in its round's mean; None: as algorithm.weighting says


@dataclass(frozen=True)
class Participation:
    """clients.per_round clients, uniform without replacement."""

    name: ClassVar[str] = "uniform"
    stragglers: float = number(
        0.0, low=0.0, high=1.0, help="share of a round's clients that do not finish their work"
    )
    straggler_work: str = choice(
        "partial",
        ("partial", "drop"),
        help="what a straggler does; partial: a random number >= 1 of its local epochs (or steps), and it "
        "sends the result (FedProx); drop: as much, and it sends the result (which costs its bytes), but the "
        "server drops it, and what the client keeps stays as it was before",
    )

    attack: str = choice(
        "none",
        ("none", "label_flip", "sign_flip"),
        help="what the attackers do; label_flip: they train with label C - 1 - y in place of y (of C "
        "classes), so these are training labels in all that is measured; sign_flip: they send the negative "
        "of what the method has them send",
    )
    attackers: float = number(
        0.2, low=0.0, high=1.0, help="share of all clients that attack: those with the lowest numbers"
    )

    def check(self, clients: int, per_round: int) -> None:
        """Raise ConfigError if the option does not fit N = `clients` and S = `per_round`."""

    def draw(self, seed: int, clients: int, per_round: int, rounds: int, sizes: Ints | None) -> Participants:
        """The participants of rounds 0 to `rounds` - 1. `sizes`: (N,) training samples of each client."""
        ranks = without_replacement(seed, np.full(rounds, clients, dtype=np.int64), per_round)
        return Participants(ranks.reshape(-1), _rounds(rounds, per_round))


@dataclass(frozen=True)
class Bernoulli(Participation):
    """Each client independently with probability clients.per_round / clients.total. A round without clients
    leaves the model as it is."""

    name: ClassVar[str] = "bernoulli"

    def draw(self, seed: int, clients: int, per_round: int, rounds: int, sizes: Ints | None) -> Participants:
        step = max(1, _BLOCK // clients)
        drawn = []
        for first in range(0, rounds, step):
            number = np.arange(first * clients, min(first + step, rounds) * clients, dtype=np.int64)
            drawn.append(number[select_uniforms(seed, number) < per_round / clients])
        number = np.concatenate([np.empty(0, dtype=np.int64), *drawn])
        return Participants(number % clients, number // clients)


@dataclass(frozen=True)
class Weighted(Participation):
    """clients.per_round draws with replacement; the probability of a client is its share of the training
    samples. The mean weighs all draws equally, whatever algorithm.weighting says. A client drawn twice works
    once and counts twice (Li et al., FedProx)."""

    name: ClassVar[str] = "weighted"

    def draw(self, seed: int, clients: int, per_round: int, rounds: int, sizes: Ints | None) -> Participants:
        assert sizes is not None
        edges = np.cumsum(sizes) / np.sum(sizes)
        u = select_uniforms(seed, np.arange(rounds * per_round, dtype=np.int64))
        drawn = np.minimum(np.searchsorted(edges, u, side="right"), clients - 1)
        each, copies = np.unique(_rounds(rounds, per_round) * clients + drawn, return_counts=True)
        return Participants(each % clients, each // clients, copies.astype(np.int64))


@dataclass(frozen=True)
class Cyclic(Participation):
    """Groups of clients take turns (Cho et al., ICML 2023): round t has clients.per_round clients of group t
    mod G, uniform without replacement. Group g has the clients i with floor(i G / N) = g."""

    name: ClassVar[str] = "cyclic"
    groups: int = integer(2, low=1, help="G, number of groups")

    def check(self, clients: int, per_round: int) -> None:
        most = clients // per_round
        if self.groups > most:
            allowed = f"must be at most {most}, so that every group has clients.per_round={per_round} of the "
            allowed += f"clients.total={clients} clients"
            raise ConfigError("participation.groups", self.groups, allowed)

    def draw(self, seed: int, clients: int, per_round: int, rounds: int, sizes: Ints | None) -> Participants:
        edges = -(-np.arange(self.groups + 1, dtype=np.int64) * clients // self.groups)  # of floor(i G / N)
        turn = np.arange(rounds, dtype=np.int64) % self.groups
        ranks = without_replacement(seed, np.diff(edges)[turn], per_round)
        client = ranks + edges[turn][:, None]
        return Participants(client.reshape(-1), _rounds(rounds, per_round))


@dataclass(frozen=True)
class File(Participation):
    """Clients that come and go: clients.per_round of those present, uniform without replacement, or all of
    them if fewer are present. A round without clients leaves the model as it is."""

    name: ClassVar[str] = "file"
    path: str = text(
        None,
        words="the path of a CSV",
        help="columns client, from, to: the client is present in rounds t = 0, 1, ... with from <= t < to; "
        "an empty `to` means for good; a client may have several rows",
    )

    def check(self, clients: int, per_round: int) -> None:
        intervals(self.path, clients)

    def draw(self, seed: int, clients: int, per_round: int, rounds: int, sizes: Ints | None) -> Participants:
        client, begin, end = intervals(self.path, clients)
        there = [np.unique(client[(begin <= t) & (t < end)]) for t in range(rounds)]
        count = np.array([len(present) for present in there], dtype=np.int64)
        ranks = without_replacement(seed, count, per_round)
        cohorts = [present[row[: len(present)]] for present, row in zip(there, ranks, strict=True)]
        every = np.concatenate([np.empty(0, dtype=np.int64), *cohorts])
        return Participants(every, _rounds(rounds, np.minimum(count, per_round)))


UNIFORM = Participation()
PARTICIPATIONS: dict[str, type[Participation]] = {
    cls.name: cls for cls in (Participation, Bernoulli, Weighted, Cyclic, File)
}


def _rounds(rounds: int, jobs: int | Ints) -> Ints:
    """The round of every job; `jobs`: their number in each round."""
    return np.repeat(np.arange(rounds, dtype=np.int64), jobs)


def without_replacement(seed: int, sizes: Ints, per_round: int) -> Ints:
    """For each round t, `per_round` distinct numbers below sizes[t], uniform, in the order drawn; shape
    (rounds, per_round). Entries of a round after the first sizes[t] have no meaning.

    Draw number t * per_round + k picks among the numbers that round t has not drawn yet, in ascending order.
    The event simulation makes the same draws if all jobs of a round end at once.
    """
    result = np.empty((len(sizes), per_round), dtype=np.int64)
    draws = select_draws(seed)
    for t, size in enumerate(sizes.tolist()):
        drawn: list[int] = []  # ascending; drawn[i] - i of the numbers before drawn[i] are left
        for k in range(per_round):
            rank = int(next(draws) * max(size - k, 1))
            smaller = bisect_right(range(k), rank, key=lambda i: drawn[i] - i)
            drawn.insert(smaller, rank + smaller)
            result[t, k] = rank + smaller
    return result


def ranging(trace: Trace, seed: int, low: int, high: int) -> Trace:
    """Every job does a number of epochs drawn uniformly from {low, ..., high} instead of `high` (FedNova,
    Wang et al., NeurIPS 2020). A job that fails does its part of them."""
    epochs = low + np.floor(_uniforms(trace, seed, 0) * (high - low + 1))
    return dataclasses.replace(trace, work=trace.work * epochs / high)


def straggling(trace: Trace, seed: int, participation: Participation, units: int) -> Trace:
    """In each round with m jobs, floor(stragglers m + 1/2) drawn ones do only u of `units` parts of their
    work (local epochs, else steps), u uniform on {1, ..., units} (Li et al., FedProx, MLSys 2020). With
    `drop` the server discards what they send, on arrival. A job that does less anyway (`ranging`) does no
    more than that."""
    place = np.lexsort((_uniforms(trace, seed, 1), trace.applied_update))
    jobs = np.bincount(trace.applied_update, minlength=trace.updates)
    late = share_of(participation.stragglers, jobs)
    slow = place[running_index(trace.applied_update[place]) < late[trace.applied_update[place]]]
    work = trace.work.copy()
    part = (1 + np.floor(_uniforms(trace, seed, 2)[slow] * units)) / units
    work[slow] = np.minimum(work[slow], part)
    if participation.straggler_work != "drop":
        return dataclasses.replace(trace, work=work)
    update, status = trace.applied_update.copy(), trace.status.copy()
    update[slow], status[slow] = -1, DISCARDED
    kept = update >= 0
    position = np.full_like(update, -1)
    position[kept] = running_index(update[kept])
    return dataclasses.replace(trace, work=work, applied_update=update, status=status, position=position)


def _uniforms(trace: Trace, seed: int, word: int) -> Floats:
    """A number in [0, 1) for each job, drawn at its address (client, n) and a `word`."""
    return np.asarray(uniform(fold(make_key(seed, Stream.WORK, trace.client, trace.n), word)))


def intervals(path: str, clients: int) -> tuple[Ints, Ints, Ints]:
    """Rows of a participation=file CSV: client, from, to (exclusive), each (rows,). Raises ConfigError."""
    presences = []
    for line, row in lines_of("participation.path", path):
        try:
            client, begin = whole(row["client"]), whole(row["from"])
            end = whole(row["to"]) if (row["to"] or "").strip() else GOOD
        except (KeyError, TypeError, ValueError):
            allowed = f"line {line} must have the columns client, from, to: whole numbers (or an empty `to`)"
            raise ConfigError("participation.path", path, allowed) from None
        if not 0 <= client < clients or not 0 <= begin < end <= GOOD:
            allowed = f"line {line} must have a client from 0 to {clients - 1}, and 0 <= from < to"
            raise ConfigError("participation.path", path, allowed)
        presences.append((client, begin, end))
    if not presences:
        allowed = "must have a row for each interval in which a client is present"
        raise ConfigError("participation.path", path, allowed)
    client, begin, end = np.array(presences, dtype=np.int64).T
    return client, begin, end
