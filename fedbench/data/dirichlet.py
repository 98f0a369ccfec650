"""The label-skewed partition by Dirichlet proportions, with a minimum size that needs no second try.

Hsu, Qi, Brown, "Measuring the effects of non-identical data distribution for federated visual
classification", arXiv:1909.06335; in the per-class form of Yurochkin et al., ICML 2019 (arXiv:1905.12022),
which is the usual one.
"""

from __future__ import annotations

import numpy as np

from fedbench.data.apportion import surplus


def proportions(rng: np.random.Generator, alpha: float, classes: int, clients: int) -> np.ndarray:
    """Rows p_c ~ Dir(alpha, ..., alpha): (classes, clients), each row sums to 1, for any alpha > 0.

    A Dirichlet vector is normalised gammas, but Gamma(alpha) underflows for small alpha (at 0.001 half of
    the draws are below 1e-308, so a whole row can be 0). With G ~ Gamma(alpha + 1) and E ~ Exp(1),
    log G - E / alpha is distributed as the logarithm of a Gamma(alpha); so the row is a softmax of that.
    """
    alpha = min(max(alpha, 1e-300), 1e300)  # beyond, a row is one-hot or flat to the last bit anyway
    gamma = rng.standard_gamma(alpha + 1, (classes, clients))
    logs = np.log(gamma) - rng.standard_exponential((classes, clients)) / alpha
    weights: np.ndarray = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def dirichlet(
    rng: np.random.Generator, labels: np.ndarray, classes: int, clients: int, alpha: float, min_size: int
) -> np.ndarray:
    """Client of every sample (n,): for each class, shuffle its samples and cut them by p_c ~ Dir(alpha).

    The cuts are the cumulated proportions times n_c, rounded, so each count is within 1 of n_c p_c. Then
    every client below `min_size` is filled up to it with samples taken at random from the clients that are
    largest at that moment. Nothing is drawn again: exactly the missing samples move, the fewest possible,
    and where none is missing the law is untouched. Needs min_size * clients <= n.
    """
    client = np.empty(len(labels), dtype=np.int64)
    for c, p in enumerate(proportions(rng, alpha, classes, clients)):
        samples = rng.permutation(np.flatnonzero(labels == c))
        cuts = np.rint(np.cumsum(p)[:-1] * len(samples)).astype(np.int64)
        counts = np.diff(cuts, prepend=0, append=len(samples))
        client[samples] = np.repeat(np.arange(clients), counts)
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
