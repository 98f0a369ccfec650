"""FedHyper's rates, by hand."""

from __future__ import annotations

import numpy as np
import quadratics

from fedbench.fields import read_named
from fedbench.optimizer import OPTIMIZERS


def test_by_default_a_clients_rate_falls_to_a_tenth() -> None:
    """A step of 10 at curvature 1 turns back at once: products of neighbouring steps are below -1."""
    values = {"lr": 10.0, "variant": "CL"}
    path = quadratics.path(
        "fedhyper", values, 1, h=np.ones((1, 1)), a=np.zeros((1, 1)), start=(1.0,), steps=3
    )
    y = 1 - 10.0  # k = 0
    y -= 10.0 * y  # k = 1: s' is still D' = 0, so b stays 1
    y -= 10.0 * y
    np.testing.assert_allclose(path, [[y]], rtol=1e-12)
    four = quadratics.path(
        "fedhyper", values, 1, h=np.ones((1, 1)), a=np.zeros((1, 1)), start=(1.0,), steps=4
    )
    np.testing.assert_allclose(four, [[y - 10.0 * 0.1 * y]], atol=1e-9)


def test_each_clients_rate_is_of_the_steps_that_the_optimizer_makes() -> None:
    """Constant gradients -x with momentum 1/2: steps 1, 3/2, 7/4 times eta x, in units of the rate."""
    momentum = read_named(OPTIMIZERS, {"name": "sgd", "momentum": 0.5}, "optimizer")
    values = {"lr": 0.1, "variant": "CL"}
    walk = quadratics.linear("fedhyper", values, np.array([[1.0, 1.0]]), 1, steps=4, optimizer=momentum)
    walk.update()
    s2, s3 = 0.15, 0.175  # of each coordinate; b is still 1, as last is D' = 0 in the second step
    b = min(1.1, 1 + 2 * s3 * s2)
    np.testing.assert_allclose(walk.theta.numpy(), 0.1 + s2 + s3 + b * 0.1875, rtol=1e-12)
