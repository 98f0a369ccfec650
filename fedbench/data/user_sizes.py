"""The partition of FedProxVR's experiments: few labels per client, very unequal sizes, not all data used."""

from __future__ import annotations

import numpy as np

UNUSED = -1
"""The client of a sample that nobody got."""

_FIRST = 10  # samples of each of its labels that every client gets before sizes are drawn
_SPARED = 1000  # samples of a class that the shares do not count
_FEW = 20  # with at most so many clients, all drawn sizes are doubled


def lognormal_labels(
    rng: np.random.Generator, labels: np.ndarray, classes: int, clients: int, per_client: int
) -> np.ndarray:
    """Client (n,) of every sample, UNUSED where nobody got it: FedProxVR's users (Dinh et al., ICPP 2020).

    The law of the authors' scripts, which extend FedProx's. Client u holds the labels (u + j) mod `classes`,
    j < `per_client`. It gets 10 samples of each, and then, label after label and client after client,

        floor(share * (n_class - 1000)) * r + q,    r uniform on 1..9, q uniform on 10..199

    more (twice that with at most 20 clients), `share` being an entry of a table exp(2 z), z standard normal,
    normalised over the N * per_client entries of a class, in row floor(u / (N / 10)), or u where there are
    fewer than 10 clients. A draw that the class has no samples left for is dropped. So a good part of the
    data stays unused, and sizes span two decades.

    Raises ValueError where a class has too few samples for the first 10 of each of its clients.
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
        raise ValueError(f"class {short} has {left[short]} samples, its clients need {needed[short]}")
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
