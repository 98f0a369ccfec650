"""The partition in which every client holds a given number of labels."""

from __future__ import annotations

import numpy as np

from fedbench.data.apportion import share_out


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
    """Who holds each slot (clients * per_client,); slots are grouped by class, `holders` (<= N) per class.

    Slots are dealt in rows of N, one to each client, in random order. A class spans two rows at most; in the
    second one it is dealt first, among the clients that did not get it in the first. So nobody gets a class
    twice.
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
