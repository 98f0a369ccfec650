"""FADAS."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.method import (
    Algorithm,
    Counts,
    Record,
    Vectors,
    choice,
    decay,
    nonnegative,
    positive,
    register,
    silent,
    switch,
)


@register("fadas")
class FADAS(Algorithm):
    """Wang, Wang, Lu, Chen, "FADAS: towards federated adaptive asynchronous optimization", ICML 2024.

        client:  x = theta^v;  K times  x <- x - eta grad F(x; xi);  sends Delta = x - theta^v
        server, on S arrivals:  D = (1/S) sum_j Delta_j
                 m <- b1 m + (1-b1) D;   v <- b2 v + (1-b2) D^2;   vhat <- max(vhat, v)
                 theta <- theta + gamma_t m / (sqrt(vhat) + eps)

    gamma_t = gamma. With delay_threshold = tau_c it is delay-adaptive instead: gamma if the update's largest
    staleness tau_max is at most tau_c, else gamma / tau_max (da_form=scale, as in the authors' code) or
    min(gamma, 1/tau_max) (da_form=min). bias_correction=true divides m by 1 - b1^(t+1) and vhat by
    1 - b2^(t+1), as the code does; rounds in which nobody came do not count in t. Travels: up 1d, down 1d.
    eta = lr and gamma = server_lr are tuned; b1 = 0.9, b2 = 0.99, eps = 1e-8.
    """

    paper = "Wang et al., ICML 2024"
    checked_by = "tests/algorithms/test_async_rederivations.py::test_follows_the_equations_job_by_job"
    problem_dependent = ("lr", "server_lr", "epsilon")
    no_average = "its server divides every coordinate by a second moment"

    lr: float = positive(0.1)
    server_lr: float = positive(0.001)
    beta1: float = decay(0.9)
    beta2: float = decay(0.99)
    epsilon: float = nonnegative(1e-8)
    bias_correction: bool = switch(False)
    delay_threshold: float | None = nonnegative(
        None, null="not delay-adaptive", help="staleness beyond which a step is smaller"
    )
    da_form: str = choice(
        "scale", ("scale", "min"), help="scale: server_lr / tau_max; min: min(server_lr, 1 / tau_max)"
    )

    def check(self) -> None:
        if self.da_form != "scale" and self.delay_threshold is None:
            allowed = "must be scale (or not given) unless algorithm.delay_threshold says what is late"
            raise ConfigError("algorithm.da_form", self.da_form, allowed)

    def resolve(self, n: Counts, warn: Callable[[str], None] = silent) -> dict[str, float]:
        return {"delay_threshold": math.inf, **super().resolve(n, warn)}

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        zero = torch.zeros_like(theta)
        return {"theta": theta, "m": zero, "v": zero, "vhat": zero}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        m = h.beta1 * server.m + (1 - h.beta1) * mean.delta
        v = h.beta2 * server.v + (1 - h.beta2) * mean.delta**2
        vhat = torch.maximum(server.vhat, v)
        direction, scale = m, vhat
        if self.bias_correction:
            direction, scale = m / (1 - h.beta1 ** (n.made + 1)), vhat / (1 - h.beta2 ** (n.made + 1))
        step = self.server_step_size(n.staleness_max, h) * direction / (torch.sqrt(scale) + h.epsilon)
        step = torch.where(direction == 0, torch.zeros_like(step), step)  # 0/0 where nothing ever moved
        return {"theta": server.theta + step, "m": m, "v": v, "vhat": vhat}

    def server_step_size(self, tau_max: int, h: Record) -> Tensor:
        """gamma_t of an update whose stalest arrival is `tau_max` versions old."""
        tau = max(tau_max, 1)
        late = h.server_lr / tau if self.da_form == "scale" else torch.clamp(h.server_lr, max=1 / tau)
        return torch.where(tau_max > h.delay_threshold, late, h.server_lr)
