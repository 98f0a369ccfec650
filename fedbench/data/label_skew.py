"""Partitions by label: Dirichlet proportions, a number of labels for each client, FedProxVR's users.

Dirichlet: Hsu, Qi, Brown, "Measuring the effects of non-identical data distribution for federated visual
classification", arXiv:1909.06335; in the per-class form of Yurochkin et al., ICML 2019 (arXiv:1905.12022),
which is the usual one. By default, moving samples ensures the minimum size, without a second draw.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from fedbench.counting import exact, running_index
from fedbench.data.division import (
    TRIES,
    UNUSED,
    PartitionOptions,
    ToPartition,
    checked_min_size,
    log_gammas,
    min_size_option,
    never,
    refuse_more,
    softmax,
    split_by_weight,
    surplus,
)
from fedbench.errors import ConfigError
from fedbench.fields import choice, integer, number, positive, switch


@dataclass(frozen=True)
class Dirichlet(PartitionOptions):
    """Label skew: the samples of each class are divided among the clients in proportions from Dir(alpha)."""

    name = "dirichlet"
    by_class = True
    alpha: float = positive(0.5, help="smaller: more skewed")
    min_size: int = min_size_option()
    balance: bool = switch(
        False, help="a client that holds n/N samples gets none of the next labels (NIID-Bench)"
    )
    redraw: bool = switch(
        False, help="draw all again until every client has min_size samples; false: move samples"
    )

    def draw(self, p: ToPartition) -> np.ndarray:
        """Client of every sample (n,): for each class, shuffle its samples and cut them by p_c ~ Dir(alpha).

        The cuts are the cumulative proportions times n_c, rounded, so each count is within 1 of n_c p_c. Then
        every client below `min_size` is filled up to it with random samples of the clients that are largest
        at that moment. Nothing is drawn again. Only the missing samples move, so the law is unchanged if none
        is missing.

        `balance` and `redraw` are as in NIID-Bench (Li, Diao, Chen, He, ICDE 2022), whose cuts are rounded
        down. `balance`: a client that already holds n / N samples gets share 0; the other shares are
        renormalised. `redraw`: all shares are drawn again instead of moving samples. Raises ConfigError if
        TRIES draws fail.
        """
        rng, labels, clients, min_size = p.rng, p.labels, p.clients, checked_min_size(self, p)
        n_c = np.bincount(labels, minlength=p.classes)
        cut = np.floor if self.balance or self.redraw else np.rint
        counts = np.zeros((p.classes, clients), dtype=np.int64)
        for _ in range(TRIES if self.redraw else 1):
            logs = log_gammas(rng, self.alpha, p.classes, clients)
            for c in np.flatnonzero(n_c).tolist():
                full = counts[:c].sum(axis=0) >= len(labels) / clients
                share = softmax(np.where(full, -np.inf, logs[c]) if self.balance else logs[c])
                cuts = cut(np.cumsum(share)[:-1] * n_c[c]).astype(np.int64)
                counts[c] = np.diff(cuts, prepend=0, append=n_c[c])
            if not self.redraw or counts.sum(axis=0).min() >= min_size:
                break
        else:
            raise never(min_size)
        client = np.empty(len(labels), dtype=np.int64)
        for c in range(p.classes):
            client[rng.permutation(np.flatnonzero(labels == c))] = np.repeat(np.arange(clients), counts[c])
        _fill_up(rng, client, clients, min_size)
        return client


def _fill_up(rng: np.random.Generator, client: np.ndarray, clients: int, min_size: int) -> None:
    sizes = np.bincount(client, minlength=clients)
    taken = surplus(sizes, min_size)
    if not taken.any():
        return
    order = np.argsort(client, kind="stable")
    own = np.split(order, np.cumsum(sizes)[:-1])  # samples of each client
    moved = [rng.choice(own[k], taken[k], replace=False) for k in np.flatnonzero(taken)]
    client[np.concatenate(moved)] = np.repeat(np.arange(clients), np.maximum(min_size - sizes, 0))


class _Piles:
    """The samples of each class in random order, dealt to clients from the last one on. `left` (classes,):
    how many are not dealt. `client` (n,): of every sample, UNUSED until it is dealt."""

    def __init__(self, rng: np.random.Generator, labels: np.ndarray, classes: int) -> None:
        self.members = [rng.permutation(np.flatnonzero(labels == c)) for c in range(classes)]
        self.left = np.array([len(samples) for samples in self.members])
        self.client = np.full(len(labels), UNUSED, dtype=np.int64)

    def deal(self, c: int, count: int, who: int | np.ndarray) -> None:
        """Give `count` samples of class c to the client `who`, or one to each of them (count,)."""
        self.client[self.members[c][self.left[c] - count : self.left[c]]] = who
        self.left[c] -= count


@dataclass(frozen=True)
class DirichletClients(PartitionOptions):
    """Label skew: every client draws its own label shares from Dir(alpha), as in FedDyn."""

    name = "dirichlet_clients"
    by_class = True
    alpha: float = positive(0.5, help="smaller: more skewed")
    sizes: str = choice("equal", ("equal", "lognormal"), help="how many samples a client has")
    sigma: float | None = positive(
        None, null="0.3", help="of sizes=lognormal: standard deviation of the logarithm of a size"
    )

    def draw(self, p: ToPartition) -> np.ndarray:
        """Client of every sample (n,): each draws its own label shares p_i ~ Dir(alpha) over the classes.

        Acar et al., FedDyn, ICLR 2021, as in its code. In each turn a client below its size draws a label
        from its shares, again while that label has no sample left, and gets one of its samples. Drawing again
        equals drawing from the shares of the labels that are left. Therefore turns are drawn in blocks, each
        cut off where a label is used up.
        """
        rng, labels = p.rng, p.labels
        sigma, weights = self.sigma, np.ones(p.clients)
        if self.sizes == "lognormal":
            weights = rng.lognormal(0.0, 0.3 if sigma is None else sigma, p.clients)
        elif sigma is not None:
            raise ConfigError("partition.sigma", sigma, "must be null: sizes=equal has none")
        sizes = split_by_weight(len(labels), weights)
        sizes = np.maximum(sizes, 1) - surplus(sizes, 1)
        classes = int(labels.max()) + 1
        piles = _Piles(rng, labels, classes)
        logs, turns = log_gammas(rng, self.alpha, p.clients, classes), _turns(rng, sizes)
        while len(turns):
            cumulated = np.cumsum(softmax(np.where(piles.left > 0, logs, -np.inf)), axis=1)
            block = cumulated[turns[:_BLOCK]]
            label = (block <= block[:, -1:] * rng.random((len(block), 1))).sum(axis=1)
            places = [np.flatnonzero(label == c) for c in range(classes)]
            ends = [at[n] for at, n in zip(places, piles.left, strict=True) if len(at) > n]
            taken = min([len(label), *ends])
            for c, at in enumerate(places):
                who = turns[at[at < taken]]
                piles.deal(c, len(who), who)
            turns = turns[taken:]
        return piles.client


_BLOCK = 1 << 16  # turns that are drawn together


def _turns(rng: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
    """Client of each turn (n,), drawn uniformly from those with turns left; client i has `sizes[i]`."""
    left, turns = sizes.copy(), np.zeros(0, dtype=np.int64)
    while left.any():
        drawn = rng.choice(np.flatnonzero(left), left.sum())
        turns = np.concatenate([turns, drawn[running_index(drawn) < left[drawn]]])
        left -= np.minimum(np.bincount(drawn, minlength=len(left)), left)
    return turns


@dataclass(frozen=True)
class Shards(PartitionOptions):
    """Label skew: every client holds exactly this many labels."""

    name = "shards"
    by_class = True
    labels: int = integer(2, low=1, help="labels per client")

    def draw(self, p: ToPartition) -> np.ndarray:
        """Client of every sample (n,): each client holds exactly `labels` labels, each sample is used once.

        After McMahan, Moore, Ramage, Hampson, Agueera y Arcas, AISTATS 2017 (shards of the sorted data, 2 per
        client), but no shard straddles two classes and no client gets two of one class: class c is cut into
        m_c shards that differ by at most 1 sample, and m_c, in 1..N, grows with the class's size so that the
        largest shard is as small as possible.
        Raises ConfigError unless labels <= classes that occur <= N * labels <= sum_c min(N, n_c).
        """
        rng, clients, slots = p.rng, p.clients, p.clients * self.labels
        present, sizes = np.unique(p.labels, return_counts=True)
        refuse_more("labels", self.labels, len(sizes))
        possible = int(np.minimum(sizes, clients).sum())
        if not len(sizes) <= slots <= possible:
            few = f"too few to cover the {len(sizes)} classes with clients.total={clients}"
            many = f"clients.total={clients} times that many shards are {slots}, the data allow {possible}"
            raise ConfigError("partition.labels", self.labels, many if slots > possible else few)
        order = rng.permutation(len(present))
        present, sizes = present[order], sizes[order]
        holders = share_out(sizes, slots, clients)
        dealt = deal(rng, holders, clients, self.labels)
        client = np.empty(len(p.labels), dtype=np.int64)
        first = 0
        for c, count in zip(present, holders, strict=True):
            samples = rng.permutation(np.flatnonzero(p.labels == c))
            for part, k in zip(np.array_split(samples, count), dealt[first : first + count], strict=True):
                client[part] = k
            first += count
        return client


def share_out(sizes: np.ndarray, slots: int, most: int) -> np.ndarray:
    """Divide `slots` among classes of the given `sizes`, to minimise the largest number of samples per slot.

    Every class gets at least 1 slot and at most min(most, its size). Each next slot goes to the class with
    the most samples per slot (Adams's rule). Needs len(sizes) <= slots <= sum of the bounds.
    """
    given = np.ones(len(sizes), dtype=np.int64)
    bound = np.minimum(most, sizes)
    heap = [(-float(size), c) for c, size in enumerate(sizes) if bound[c] > 1]
    heapq.heapify(heap)
    for _ in range(slots - len(sizes)):
        _, c = heapq.heappop(heap)
        given[c] += 1
        if given[c] < bound[c]:
            heapq.heappush(heap, (-float(sizes[c] / given[c]), c))
    return given


def deal(rng: np.random.Generator, holders: np.ndarray, clients: int, per_client: int) -> np.ndarray:
    """Client of each slot (clients * per_client,); slots are grouped by class, `holders` (<= N) per class.

    Slots are dealt in rows of N, one to each client, in random order. A class spans at most two rows. In the
    second row it is dealt first, among the clients that did not get it in the first. So no client gets a
    class twice.
    """
    slot_class = np.repeat(np.arange(len(holders)), holders).reshape(per_client, clients)
    dealt = np.empty((per_client, clients), dtype=np.int64)
    for row, classes in enumerate(slot_class):
        shuffled = rng.permutation(clients)
        if row and classes[0] == slot_class[row - 1, -1]:
            had_it = dealt[row - 1, slot_class[row - 1] == classes[0]]
            again = int((classes == classes[0]).sum())
            free = shuffled[~np.isin(shuffled, had_it)][:again]
            shuffled = np.concatenate([free, shuffled[~np.isin(shuffled, free)]])
        dealt[row] = shuffled
    return dealt.ravel()


@dataclass(frozen=True)
class Classes(PartitionOptions):
    """Label skew: client i holds label i mod C and random others; a label's holders share it equally
    (NIID-Bench's #C=k)."""

    name = "classes"
    by_class = True
    per_client: int = integer(2, low=1, help="labels per client")

    def draw(self, p: ToPartition) -> np.ndarray:
        """Client of every sample (n,): client i holds label i mod C and per_client - 1 others, drawn
        uniformly. A label's shuffled samples are cut into equal parts, one for each of its holders.

        C: how many labels occur. Raises ConfigError if one has no holder, or fewer samples than holders.
        """
        rng, labels, clients, present = p.rng, p.labels, p.clients, np.unique(p.labels)
        refuse_more("per_client", self.per_client, len(present))
        held = np.zeros((clients, len(present)), dtype=bool)
        for i in range(clients):
            others = np.delete(np.arange(len(present)), i % len(present))
            held[i, [i % len(present), *rng.choice(others, self.per_client - 1, replace=False)]] = True
        client = np.empty(len(labels), dtype=np.int64)
        for c, holders in zip(present, held.T, strict=True):
            samples, who = rng.permutation(np.flatnonzero(labels == c)), np.flatnonzero(holders)
            if not 0 < len(who) <= len(samples):
                both = f"label {c} has {len(who)} holders and {len(samples)} samples"
                allowed = f"with clients.total={clients}, {both}"
                raise ConfigError("partition.per_client", self.per_client, allowed)
            client[samples] = np.repeat(who, [len(part) for part in np.array_split(samples, len(who))])
        return client


@dataclass(frozen=True)
class Similarity(PartitionOptions):
    """Label skew: a share of every client's samples is random, the rest sorted by label (SCAFFOLD's s %)."""

    name = "similarity"
    by_class = True
    share: float = number(0.1, low=0, high=1, help="of random samples; 0: all sorted, 1: iid")

    def draw(self, p: ToPartition) -> np.ndarray:
        """Client of every sample (n,): the share of random samples is dealt at random. The rest is sorted by
        label, one run for each client. Karimireddy et al., SCAFFOLD, ICML 2020. Sizes differ by at most 1."""
        labels, clients, random = p.labels, p.clients, round(exact(self.share) * len(p.labels))
        order = p.rng.permutation(len(labels))
        rest = order[random:]
        sizes, dealt = (np.bincount(np.arange(n) % clients, minlength=clients) for n in (len(labels), random))
        client = np.empty(len(labels), dtype=np.int64)
        client[order[:random]] = np.repeat(np.arange(clients), dealt)
        client[rest[np.argsort(labels[rest], kind="stable")]] = np.repeat(np.arange(clients), sizes - dealt)
        return client


_FIRST = 10  # samples of each of its labels that a client gets before sizes are drawn
_SPARED = 1000  # samples of a class that are not shared out
_FEW = 20  # with at most this many clients, all drawn sizes are doubled


@dataclass(frozen=True)
class LognormalLabels(PartitionOptions):
    """FedProxVR's users: few labels each, sizes over two decades, a good part of the data unused."""

    name = "lognormal_labels"
    by_class = True
    labels: int = integer(2, low=1, help="labels per client: (client + j) mod classes")

    def draw(self, p: ToPartition) -> np.ndarray:
        """Client (n,) of every sample, UNUSED if none gets it: FedProxVR's users (Dinh et al., ICPP 2020).

        As in the authors' scripts, which extend FedProx's. Client u holds the labels (u + j) mod `classes`,
        j < `labels`. It gets 10 samples of each and then, client by client and label by label,

            floor(share * (n_class - 1000)) * r + q,    r uniform on 1..9, q uniform on 10..199

        more (twice that with at most 20 clients). `share` is an entry of a table exp(2 z), z standard normal,
        normalised over the N * labels entries of a class. Its row is floor(u / (N / 10)), or u with fewer
        than 10 clients. A draw is dropped unless the class has more samples than that left. So a good part of
        the data stays unused, and sizes span two decades.

        Raises ConfigError if a class has too few samples for the first 10 of each of its clients.
        """
        rng, labels, classes, clients = p.rng, p.labels, p.classes, p.clients
        refuse_more("labels", self.labels, classes)
        piles = _Piles(rng, labels, classes)
        left = piles.left
        shares = rng.lognormal(0.0, 2.0, (classes, clients, self.labels))
        shares /= shares.sum(axis=(1, 2), keepdims=True)
        spread = np.maximum(left - _SPARED, 0)[:, None, None] * shares
        held = [(u, j, (u + j) % classes) for u in range(clients) for j in range(self.labels)]
        needed = _FIRST * np.bincount([c for _, _, c in held], minlength=classes)
        if (needed > left).any():
            short = int(np.argmax(needed - left))
            why = f"too many: class {short} has {left[short]} samples, its clients need {needed[short]}"
            raise ConfigError("partition.labels", self.labels, why)
        for u, _, c in held:
            piles.deal(c, _FIRST, u)
        for u, j, c in held:
            row = u if clients < 10 else 10 * u // clients
            count = int(spread[c, row, j]) * int(rng.integers(1, 10)) + int(rng.integers(10, 200))
            if clients <= _FEW:
                count *= 2
            if count < left[c]:
                piles.deal(c, count, u)
        return piles.client
