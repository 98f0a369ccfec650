"""Partitions by label: Dirichlet proportions, a number of labels for each client, FedProxVR's users.

Dirichlet: Hsu, Qi, Brown, "Measuring the effects of non-identical data distribution for federated visual
classification", arXiv:1909.06335; in the per-class form of Yurochkin et al., ICML 2019 (arXiv:1905.12022),
which is the usual one. By default, moving samples ensures the minimum size, without a second draw.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from fedbench.errors import ConfigError


@dataclass(frozen=True)
class Problem:
    """The samples to partition, and the random generator to use."""

    labels: np.ndarray
    classes: int
    clients: int
    rng: np.random.Generator
    natural: np.ndarray | None


def split_by_weight(total: int, weights: np.ndarray) -> np.ndarray:
    """Integers (k,) of sum `total`, each within 1 of total * weights / sum(weights): largest remainders."""
    exact = total * (weights / weights.sum())
    sizes: np.ndarray = np.floor(exact).astype(np.int64)
    largest = np.argsort(-(exact - sizes), kind="stable")
    sizes[largest[: total - sizes.sum()]] += 1
    return sizes


def surplus(sizes: np.ndarray, minimum: int) -> np.ndarray:
    """How many samples to take from each client (k,) to lift every client below `minimum` exactly to it.

    Samples are taken one at a time from the largest client, so donors end within 1 of a common level. No
    client below `minimum` gives, and no donor falls below it. Needs minimum * k <= sum(sizes).
    """
    needed = int(np.maximum(minimum - sizes, 0).sum())
    if needed == 0:
        return np.zeros_like(sizes)
    low, high = minimum, int(sizes.max())  # the highest level that cuts off enough
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(sizes - level, 0).sum() >= needed else (low, level - 1)
    taken: np.ndarray = np.maximum(sizes - low, 0)
    donors = np.flatnonzero(taken)
    taken[donors[: taken.sum() - needed]] -= 1  # cut off too much, by less than 1 per donor
    return taken


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


def proportions(rng: np.random.Generator, alpha: float, classes: int, clients: int) -> np.ndarray:
    """Rows p_c ~ Dir(alpha, ..., alpha): (classes, clients), each row sums to 1, for any alpha > 0.

    A Dirichlet vector is normalised gammas, but Gamma(alpha) underflows for small alpha (at 0.001 half of
    the draws are below 1e-308, so a whole row can be 0). With G ~ Gamma(alpha + 1) and E ~ Exp(1),
    log G - E / alpha is distributed as the logarithm of a Gamma(alpha); so the row is a softmax of that.
    """
    return _softmax(_log_gammas(rng, alpha, classes, clients))


def _log_gammas(rng: np.random.Generator, alpha: float, rows: int, columns: int) -> np.ndarray:
    alpha = min(max(alpha, 1e-300), 1e300)  # beyond this, a row is one-hot or flat to the last bit anyway
    gamma = rng.standard_gamma(alpha + 1, (rows, columns))
    logs: np.ndarray = np.log(gamma) - rng.standard_exponential((rows, columns)) / alpha
    return logs


def _softmax(logs: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.exp(logs - logs.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


TRIES = 10_000
"""Number of draws to meet a minimum size before the partition is refused."""


def dirichlet(p: Problem, alpha: float, min_size: int, balance: bool, redraw: bool) -> np.ndarray:
    """Client of every sample (n,): for each class, shuffle its samples and cut them by p_c ~ Dir(alpha).

    The cuts are the cumulative proportions times n_c, rounded, so each count is within 1 of n_c p_c. Then
    every client below `min_size` is filled up to it with random samples of the clients that are largest at
    that moment. Nothing is drawn again. Only the missing samples move, so the law is unchanged if none is
    missing. Needs min_size * clients <= n.

    `balance` and `redraw` are as in NIID-Bench (Li, Diao, Chen, He, ICDE 2022), whose cuts are rounded down.
    `balance`: a client that already holds n / N samples gets share 0; the other shares are renormalised.
    `redraw`: all shares are drawn again instead of moving samples. Raises ConfigError if TRIES draws fail.
    """
    rng, labels, clients = p.rng, p.labels, p.clients
    n_c = np.bincount(labels, minlength=p.classes)
    cut = np.floor if balance or redraw else np.rint
    counts = np.zeros((p.classes, clients), dtype=np.int64)
    for _ in range(TRIES if redraw else 1):
        logs = _log_gammas(rng, alpha, p.classes, clients)
        for c in np.flatnonzero(n_c).tolist():
            full = counts[:c].sum(axis=0) >= len(labels) / clients
            share = _softmax(np.where(full, -np.inf, logs[c]) if balance else logs[c])
            cuts = cut(np.cumsum(share)[:-1] * n_c[c]).astype(np.int64)
            counts[c] = np.diff(cuts, prepend=0, append=n_c[c])
        if not redraw or counts.sum(axis=0).min() >= min_size:
            break
    else:
        raise _never(min_size)
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


def shards(rng: np.random.Generator, labels: np.ndarray, clients: int, per_client: int) -> np.ndarray:
    """Client of every sample (n,): each client holds exactly `per_client` labels, each sample is used once.

    After McMahan, Moore, Ramage, Hampson, Agueera y Arcas, AISTATS 2017 (shards of the sorted data, 2 per
    client), but no shard straddles two classes and no client gets two of one class: class c is cut into m_c
    shards that differ by at most 1 sample, and m_c, in 1..N, grows with the class's size so that the largest
    shard is as small as possible.
    Needs: per_client <= classes that occur <= N * per_client <= sum_c min(N, n_c).
    """
    present, sizes = np.unique(labels, return_counts=True)
    order = rng.permutation(len(present))
    present, sizes = present[order], sizes[order]
    holders = share_out(sizes, clients * per_client, clients)
    dealt = deal(rng, holders, clients, per_client)
    client = np.empty(len(labels), dtype=np.int64)
    first = 0
    for c, count in zip(present, holders, strict=True):
        samples = rng.permutation(np.flatnonzero(labels == c))
        for part, k in zip(np.array_split(samples, count), dealt[first : first + count], strict=True):
            client[part] = k
        first += count
    return client


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


def dirichlet_clients(
    rng: np.random.Generator, labels: np.ndarray, sizes: np.ndarray, alpha: float
) -> np.ndarray:
    """Client of every sample (n,): each client draws its own label shares p_i ~ Dir(alpha) over the classes.

    Acar et al., FedDyn, ICLR 2021, as in its code. In each turn a client below its size (`sizes` (N,), of sum
    n) draws a label from its shares, again while that label has no sample left, and gets one of its samples.
    Drawing again equals drawing from the shares of the labels that are left. Therefore turns are drawn in
    blocks, each cut off where a label is used up.
    """
    members = [rng.permutation(np.flatnonzero(labels == c)) for c in range(int(labels.max()) + 1)]
    left = np.array([len(samples) for samples in members])
    logs, turns = _log_gammas(rng, alpha, len(sizes), len(members)), _turns(rng, sizes)
    client = np.empty(len(labels), dtype=np.int64)
    while len(turns):
        cumulated = np.cumsum(_softmax(np.where(left > 0, logs, -np.inf)), axis=1)
        block = cumulated[turns[:_BLOCK]]
        label = (block <= block[:, -1:] * rng.random((len(block), 1))).sum(axis=1)
        places = [np.flatnonzero(label == c) for c in range(len(members))]
        taken = min([len(label), *(at[n] for at, n in zip(places, left, strict=True) if len(at) > n)])
        for c, at in enumerate(places):
            who = turns[at[at < taken]]
            client[members[c][left[c] - len(who) : left[c]]] = who
            left[c] -= len(who)
        turns = turns[taken:]
    return client


_BLOCK = 1 << 16  # turns that are drawn together


def _turns(rng: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
    """Client of each turn (n,), drawn uniformly from those with turns left; client i has `sizes[i]`."""
    left, turns = sizes.copy(), np.zeros(0, dtype=np.int64)
    while left.any():
        drawn = rng.choice(np.flatnonzero(left), left.sum())
        order = np.argsort(drawn, kind="stable")
        counts = np.bincount(drawn, minlength=len(left))
        before = np.empty_like(drawn)  # how often each client was drawn before
        before[order] = np.arange(len(drawn)) - np.repeat(np.cumsum(counts) - counts, counts)
        turns = np.concatenate([turns, drawn[before < left[drawn]]])
        left -= np.minimum(counts, left)
    return turns


def by_classes(rng: np.random.Generator, labels: np.ndarray, clients: int, per_client: int) -> np.ndarray:
    """Client of every sample (n,): client i holds label i mod C and per_client - 1 others, drawn uniformly.
    A label's shuffled samples are cut into equal parts, one for each of its holders. NIID-Bench's #C = k.

    C: how many labels occur. Raises ConfigError if one has no holder, or fewer samples than holders.
    """
    present = np.unique(labels)
    held = np.zeros((clients, len(present)), dtype=bool)
    for i in range(clients):
        others = np.delete(np.arange(len(present)), i % len(present))
        held[i, [i % len(present), *rng.choice(others, per_client - 1, replace=False)]] = True
    client = np.empty(len(labels), dtype=np.int64)
    for c, holders in zip(present, held.T, strict=True):
        samples, who = rng.permutation(np.flatnonzero(labels == c)), np.flatnonzero(holders)
        if not 0 < len(who) <= len(samples):
            why = f"with clients.total={clients}, label {c} has {len(who)} holders and {len(samples)} samples"
            raise ConfigError("partition.per_client", per_client, why)
        client[samples] = np.repeat(who, [len(part) for part in np.array_split(samples, len(who))])
    return client


def similarity(rng: np.random.Generator, labels: np.ndarray, clients: int, random: int) -> np.ndarray:
    """Client of every sample (n,): `random` of the n samples are dealt at random. The rest is sorted by
    label, one run for each client. Karimireddy et al., SCAFFOLD, ICML 2020. Sizes differ by at most 1."""
    order = rng.permutation(len(labels))
    rest = order[random:]
    sizes, dealt = (np.bincount(np.arange(n) % clients, minlength=clients) for n in (len(labels), random))
    client = np.empty(len(labels), dtype=np.int64)
    client[order[:random]] = np.repeat(np.arange(clients), dealt)
    client[rest[np.argsort(labels[rest], kind="stable")]] = np.repeat(np.arange(clients), sizes - dealt)
    return client


def quantity(rng: np.random.Generator, n: int, clients: int, alpha: float, min_size: int) -> np.ndarray:
    """Client of every sample (n,): the shuffled samples cut by q ~ Dir(alpha), drawn again until n min(q) is
    at least `min_size` and no client is empty (NIID-Bench). Raises ConfigError if TRIES draws fail."""
    order, client = rng.permutation(n), np.empty(n, dtype=np.int64)
    for _ in range(TRIES):
        q = proportions(rng, alpha, 1, clients)[0]
        sizes = np.diff(np.floor(np.cumsum(q)[:-1] * n).astype(np.int64), prepend=0, append=n)
        if n * q.min() >= min_size and sizes.min() > 0:
            client[order] = np.repeat(np.arange(clients), sizes)
            return client
    raise _never(min_size)


def _never(min_size: int) -> ConfigError:
    allowed = f"none of {TRIES:,} draws gave every client that many; use a larger alpha or fewer clients"
    return ConfigError("partition.min_size", min_size, allowed)


UNUSED = -1
"""Stands for the client of a sample that belongs to no client."""

_FIRST = 10  # samples of each of its labels that a client gets before sizes are drawn
_SPARED = 1000  # samples of a class that are not shared out
_FEW = 20  # with at most this many clients, all drawn sizes are doubled


def lognormal_labels(
    rng: np.random.Generator, labels: np.ndarray, classes: int, clients: int, per_client: int
) -> np.ndarray:
    """Client (n,) of every sample, UNUSED if no client gets it: FedProxVR's users (Dinh et al., ICPP 2020).

    As in the authors' scripts, which extend FedProx's. Client u holds the labels (u + j) mod `classes`,
    j < `per_client`. It gets 10 samples of each and then, client by client and label by label,

        floor(share * (n_class - 1000)) * r + q,    r uniform on 1..9, q uniform on 10..199

    more (twice that with at most 20 clients). `share` is an entry of a table exp(2 z), z standard normal,
    normalised over the N * per_client entries of a class. Its row is floor(u / (N / 10)), or u with fewer
    than 10 clients. A draw is dropped unless the class has more samples than that left. So a good part of the
    data stays unused, and sizes span two decades.

    Raises ConfigError if a class has too few samples for the first 10 of each of its clients.
    """
    members = [rng.permutation(np.flatnonzero(labels == c)) for c in range(classes)]
    left = np.array([len(samples) for samples in members])
    shares = rng.lognormal(0.0, 2.0, (classes, clients, per_client))
    shares /= shares.sum(axis=(1, 2), keepdims=True)
    spread = np.maximum(left - _SPARED, 0)[:, None, None] * shares
    held = [(u, j, (u + j) % classes) for u in range(clients) for j in range(per_client)]
    needed = _FIRST * np.bincount([c for _, _, c in held], minlength=classes)
    if (needed > left).any():
        short = int(np.argmax(needed - left))
        why = f"too many: class {short} has {left[short]} samples, its clients need {needed[short]}"
        raise ConfigError("partition.labels", per_client, why)
    client = np.full(len(labels), UNUSED, dtype=np.int64)
    for u, _, c in held:
        client[members[c][left[c] - _FIRST : left[c]]] = u
        left[c] -= _FIRST
    for u, j, c in held:
        row = u if clients < 10 else 10 * u // clients
        count = int(spread[c, row, j]) * int(rng.integers(1, 10)) + int(rng.integers(10, 200))
        if clients <= _FEW:
            count *= 2
        if count < left[c]:
            client[members[c][left[c] - count : left[c]]] = u
            left[c] -= count
    return client
