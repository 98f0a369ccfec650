"""The generator of FedProx's synthetic(alpha, beta): a softmax regression of its own for every user."""

from __future__ import annotations

import numpy as np

from fedbench.data.dataset import Dataset, of_users
from fedbench.rng import Stream, host_generator

FEATURES, CLASSES = 60, 10


def user_data(
    seed: int, user: int, alpha: float, beta: float, iid: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Samples x (n, 60) float32, labels y (n,), and the labelling model W (10, 60), b (10,) of one user.

    Everything is drawn at the address (seed, user), so it does not depend on how many users there are. The
    iid variant's common W, b ~ N(0, 1) are drawn at the address (seed).
    """
    rng = host_generator(seed, Stream.SYNTHETIC, user)
    n = int(rng.lognormal(4.0, 2.0)) + 50
    u, centre = rng.normal(0.0, alpha), rng.normal(0.0, beta)
    if iid:
        v = np.full(FEATURES, centre)
        model = host_generator(seed, Stream.SYNTHETIC).normal(0.0, 1.0, (CLASSES, FEATURES + 1))
    else:
        v = rng.normal(centre, 1.0, FEATURES)
        model = rng.normal(u, 1.0, (CLASSES, FEATURES + 1))
    scale = np.arange(1, FEATURES + 1) ** -0.6  # standard deviations: the variances are j^-1.2
    x = rng.normal(v, scale, (n, FEATURES)).astype(np.float32)
    weight, bias = model[:, :FEATURES], model[:, FEATURES]
    return x, np.argmax(x @ weight.T + bias, axis=1), weight, bias


def synthetic(
    alpha: float, beta: float, iid: bool, test_fraction: float, *, seed: int, users: int
) -> Dataset:
    """synthetic(alpha, beta) for `users` users; `Dataset.client` is its natural partition.

    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated optimization in heterogeneous networks", MLSys
    2020, as its public code has it: alpha and beta are STANDARD DEVIATIONS (the paper writes variances).
    User k: u_k ~ N(0, alpha), B_k ~ N(0, beta); W_k, b_k ~ N(u_k, 1); v_k ~ N(B_k, 1) per feature;
    x ~ N(v_k, diag(j^-1.2)), j = 1..60; y = argmax(W_k x + b_k) over 10 classes;
    n_k = floor(lognormal(4, 2)) + 50.
    iid: all users share one W, b ~ N(0, 1), and v_k = B_k in every feature.
    The last max(1, round(test_fraction * n_k)) samples of every user go to the common test set.
    """
    drawn = [user_data(seed, user, alpha, beta, iid)[:2] for user in range(users)]
    return of_users("synthetic", drawn, test_fraction, classes=CLASSES)
