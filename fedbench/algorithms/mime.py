"""Mime."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import (
    MEAN,
    Algorithm,
    Client,
    Counts,
    Record,
    Vectors,
    choice,
    decay,
    positive,
    register,
    server_rate,
)


@register("mime")
class Mime(Algorithm):
    """Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich, Suresh, "Mime: mimicking centralized stochastic
    algorithms in federated learning", arXiv:2008.03606, Algorithm 1.

        survey of the cohort:  c = mean_{S_t} grad f_i(theta), the full local gradients
        client:  y = theta;  K times  g = grad F(y; xi) - grad F(theta; xi) + c;   y <- y - eta U(g, s)
        server:  theta <- theta + gamma mean_{S_t}(y_i - theta);   s <- V(c, s)

    U is a step of the base optimiser whose state s stays frozen during the round; V moves the state:

        sgd       U = g
        momentum  U = (1-b) g + b m                                m <- (1-b) c + b m
        adam      U = ((1-b1) g + b1 m) / (sqrt(v) + eps)          m <- (1-b1) c + b1 m
                                                                   v <- (1-b2) c^2 + b2 v
    m and v start at 0 without bias correction, so the first round of adam divides by eps alone. Clients keep
    nothing. Travels: up 2d (grad f_i(theta), y_i - theta), down 2d (theta, c), and m, v. Gradients: one full
    local pass and 2K. Means are weighted by samples (weighting=samples) or uniform.
    eta = lr is tuned (of the order of 1e-2 for adam); gamma = server_lr (convention D) is 1, b = momentum
    0.9, beta1 0.9, beta2 0.99, eps = epsilon 1e-5..1e-3. server_lr=average is gamma = 1: theta <- mean_{S_t}
    y_i.
    """

    paper = "Karimireddy et al., arXiv:2008.03606"
    problem_dependent = ("lr", "server_lr")
    own_step = "steps with the frozen state of its base optimiser (algorithm.base)"
    survey = "cohort"
    schedules = ("sync",)

    lr: float = positive(0.1)
    server_lr: float = server_rate(1.0, help=MEAN)
    base: str = choice("momentum", ("sgd", "momentum", "adam"), help="adam: lr of the order of 0.01")
    momentum: float = decay(0.9, help="base=momentum")
    beta1: float = decay(0.9, help="base=adam")
    beta2: float = decay(0.99, help="base=adam")
    epsilon: float = positive(1e-3, help="base=adam")
    weighting: str = choice("samples", ("uniform", "samples"))

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        state = {"sgd": (), "momentum": ("m",), "adam": ("m", "v")}[self.base]
        return {"theta": theta, **{name: torch.zeros_like(theta) for name in state}}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {**vars(server), "c": survey.grad}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        g = client.grad(local.y) - client.grad(client.down.theta) + client.down.c
        return {"y": local.y - h.lr * self.direction(g, client.down, h)}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        theta = server.theta + h.server_lr * mean.delta
        return {"theta": theta, **self.track(mean.grad, server, h)}

    def direction(self, g: Tensor, s: Record, h: Record) -> Tensor:
        """U(g, s): the base optimiser's step with a frozen state."""
        if self.base == "sgd":
            return g
        if self.base == "momentum":
            return (1 - h.momentum) * g + h.momentum * s.m
        return ((1 - h.beta1) * g + h.beta1 * s.m) / (torch.sqrt(s.v) + h.epsilon)

    def track(self, c: Tensor, s: Record, h: Record) -> Vectors:
        """V(c, s): the next state, from the gradient `c` at the model before this round."""
        if self.base == "sgd":
            return {}
        if self.base == "momentum":
            return {"m": (1 - h.momentum) * c + h.momentum * s.m}
        m = (1 - h.beta1) * c + h.beta1 * s.m
        return {"m": m, "v": (1 - h.beta2) * c * c + h.beta2 * s.v}
