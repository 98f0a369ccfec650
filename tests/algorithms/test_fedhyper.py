"""FedHyper against a NumPy re-derivation, golden paths and its special cases."""

from __future__ import annotations

import numpy as np
import pytest
import quadratics
from oracle import Batches, refusal, weights
from problem import Problem, engine_path, relative_error

from fedbench.errors import ConfigError
from fedbench.fields import read_named
from fedbench.optimizer import OPTIMIZERS

T, S, K = 8, 3, 4
ETA, KAPPA, RHO, LOW, HIGH, BOUND = 0.2, 4.0, 0.6, 0.7, 1.8, 1.5
VARIANTS = ("G", "GM", "SL", "CL", "FULL")
VALUES = {
    "lr": ETA, "kappa": KAPPA, "momentum": RHO, "alpha_min": LOW, "alpha_max": HIGH, "rate_bound": BOUND,
}  # fmt: skip


class Clip:
    """Numbers limited to [low, high]; which of the bounds has limited one."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high, self.met = low, high, set[str]()

    def __call__(self, value: float) -> float:
        self.met |= {"low"} if value < self.low else {"high"} if value > self.high else set()
        return min(max(value, self.low), self.high)


def fedhyper(
    b: Batches,
    cohorts: list[list[int]],
    variant: str,
    weighting: str,
    eta: float = ETA,
    kappa: float = KAPPA,
    servers: Clip | None = None,
    clients: Clip | None = None,
) -> list[np.ndarray]:
    """`servers`, `clients`: what limits their rates."""
    servers, clients = servers or Clip(LOW, HIGH), clients or Clip(1 / BOUND, BOUND)
    theta, path = b.p.theta0, [b.p.theta0]
    last, L, alpha, rates = np.zeros_like(theta), np.zeros_like(theta), 1.0, [1.0]
    seen = []  # every rate in units of what FedAvg has
    for t, cohort in enumerate(cohorts):
        D = np.zeros_like(theta)
        for weight, i in zip(weights(b.p, cohort, weighting), cohort, strict=True):
            y, factor, before = theta, 1.0, last
            for k in range(K):
                rate = {"CL": factor, "FULL": factor}
                if variant == "SL":
                    rate["SL"] = clients(sum(rates))
                s = -eta * rate.get(variant, 1.0) * b.grad(i, t, k, y)
                y = y + s
                seen.append(rate.get(variant, alpha))
                if k > 0:
                    grows = 1 + kappa * (0.1 / len(cohort) * (s @ last) + s @ before)
                    factor, before = clients(factor * min(1.1, grows)), s
            D = D + weight * (y - theta)
        product = kappa * float((L if variant in ("GM", "FULL") else last) @ D)
        rates.append(product)
        alpha = servers(alpha + product)
        if variant in ("GM", "FULL"):
            theta = theta + D + (alpha - 1) * (D + RHO * L)
        else:
            theta = theta + (alpha if variant == "G" else 1.0) * D
        L, last = D + RHO * L, D
        path.append(theta)
    assert len(set(seen)) > 3  # rates have moved
    return path


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_follows_the_pseudo_code(variant: str, engine: str) -> None:
    p = Problem()
    cohorts, batch = p.cohorts(T, S), None if engine == "loop" else 2
    weighting = "samples" if engine == "loop" else "uniform"
    values = {**VALUES, "variant": variant, "weighting": weighting}
    path = engine_path(p, "fedhyper", cohorts, steps=K, batch=batch, engine=engine, values=values)
    expected = fedhyper(Batches(p, cohorts, K, batch), cohorts, variant, weighting)
    assert relative_error(path, expected) < 1e-9


@pytest.mark.parametrize(
    ("variant", "eta", "kappa", "bound"),
    [("G", 3.0, 1.0, None), ("GM", 0.1, 100.0, None), ("SL", 0.3, 2.0, 1.15), ("CL", 0.1, 10.0, 1.15),
     ("FULL", 0.1, 100.0, 1.15)],
)  # fmt: skip
def test_rates_meet_both_of_their_bounds(variant: str, eta: float, kappa: float, bound: float | None) -> None:
    """The server's are those that the variant has by default. In few steps b only meets a narrow bound."""
    p = Problem()
    cohorts = p.cohorts(T, S)
    own = {"lr": eta, "kappa": kappa, "variant": variant, "momentum": RHO, "weighting": "uniform"}
    values = {**own, "rate_bound": bound} if bound else own
    path = engine_path(p, "fedhyper", cohorts, steps=K, batch=2, engine="vmap", values=values)
    servers = Clip(0.8, 5.0) if variant in ("GM", "FULL") else Clip(1 / 3, 3.0)
    clients = Clip(1 / (bound or 10.0), bound or 10.0)
    batches = Batches(p, cohorts, K, 2)
    expected = fedhyper(batches, cohorts, variant, "uniform", eta, kappa, servers, clients)
    assert relative_error(path, expected) < 1e-9
    assert servers.met == {"low", "high"} or variant in ("SL", "CL")
    assert clients.met == {"low", "high"} or variant in ("G", "GM")


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


GOLDEN = {
    "G": [
        (1.1325, 0.4143125), (0.23203559235, -0.173729279857), (-0.125614524768, -0.385556074761),
        (-0.237249625833, -0.443778162922),
    ],
    "GM": [
        (1.1325, 0.4143125), (-0.29328687644, -0.528397641171), (-1.05655839853, -0.998100851454),
        (-0.870290151826, -0.850234957821),
    ],
    "CL": [(1.1325, 0.4143125), (0.580031625, 0.0559726941406), (0.242343639661, -0.152668770462)],
}  # fmt: skip


@pytest.mark.parametrize("variant", GOLDEN)
def test_the_golden_paths(variant: str) -> None:
    path = quadratics.path("fedhyper", {"variant": variant}, len(GOLDEN[variant]))
    np.testing.assert_allclose(path, GOLDEN[variant], rtol=1e-10)


def test_the_golden_rates() -> None:
    golden = {
        "G": [1, 1.67284337982, 1.81956986551, 1.83521959585],
        "GM": [1, 1.67284337982, 1.64684267214, 1.13730458872],
    }
    for variant, expected in golden.items():
        walk, rates = quadratics.walk("fedhyper", {"variant": variant}), []
        for _ in expected:
            walk.update()
            rates.append(float(walk.server["alpha"]))
        np.testing.assert_allclose(rates, expected, rtol=1e-10)


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_a_hypergradient_it_is_fedavg(variant: str) -> None:
    p = Problem()
    cohorts = p.cohorts(T, S)
    values = {"lr": ETA, "kappa": 0.0, "variant": variant}
    path = engine_path(p, "fedhyper", cohorts, steps=K, batch=2, values=values)
    fedavg = {"lr": ETA, "weighting": "uniform"}
    assert relative_error(path, engine_path(p, "fedavg", cohorts, steps=K, batch=2, values=fedavg)) < 1e-13


@pytest.mark.parametrize("variant", ["G", "GM"])
def test_between_bounds_of_one_it_is_fedavg(variant: str) -> None:
    values = {"lr": 0.1, "variant": variant, "alpha_min": 1.0, "alpha_max": 1.0}
    np.testing.assert_allclose(
        quadratics.path("fedhyper", values), quadratics.path("fedavg", {"lr": 0.1}), rtol=1e-13
    )


def test_each_clients_rate_changes_nothing_in_three_steps_of_the_first_round() -> None:
    for steps, same in ((3, True), (4, False)):
        path = quadratics.path("fedhyper", {"lr": 0.1, "variant": "CL"}, 1, steps=steps)
        fedavg = quadratics.path("fedavg", {"lr": 0.1}, 1, steps=steps)
        assert np.allclose(path, fedavg, rtol=1e-13) == same


def test_the_servers_rate_grows_linearly_with_constant_updates() -> None:
    """alpha_t = 1 + t ||D||^2 until it is clipped; D = K eta mean x."""
    walk, rates = quadratics.linear("fedhyper", {"lr": 0.4}, np.array([[1.0, 0.5], [1.0, -0.5]]), 6), []
    for _ in range(6):
        walk.update()
        rates.append(float(walk.server["alpha"]))
    np.testing.assert_allclose(rates, [1, 1.64, 2.28, 2.92, 3, 3], rtol=1e-12)


def test_each_clients_rate_is_of_the_steps_that_the_optimizer_makes() -> None:
    """Constant gradients -x with momentum 1/2: steps 1, 3/2, 7/4 times eta x, in units of the rate."""
    momentum = read_named(OPTIMIZERS, {"name": "sgd", "momentum": 0.5}, "optimizer")
    values = {"lr": 0.1, "variant": "CL"}
    walk = quadratics.linear("fedhyper", values, np.array([[1.0, 1.0]]), 1, steps=4, optimizer=momentum)
    walk.update()
    s2, s3 = 0.15, 0.175  # of each coordinate; b is still 1, as last is D' = 0 in the second step
    b = min(1.1, 1 + 2 * s3 * s2)
    np.testing.assert_allclose(walk.theta.numpy(), 0.1 + s2 + s3 + b * 0.1875, rtol=1e-12)


def test_refusals() -> None:
    assert refusal("fedhyper", schedule="async") is None
    with pytest.raises(ConfigError, match=r"algorithm.alpha_min=1.5: must be a number in \[0, 1\], or null"):
        quadratics.walk("fedhyper", {"alpha_min": 1.5})
