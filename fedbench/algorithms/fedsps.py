"""FedSPS."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import (
    Algorithm,
    Client,
    Counts,
    Record,
    Setting,
    Vectors,
    choice,
    number,
    positive,
    register,
)


@register("fedsps")
class FedSPS(Algorithm):
    """Mukherjee, Loizou, Stich, "Locally adaptive federated learning", TMLR 2024, arXiv:2307.06306.

        client:  y = theta;  K times, on one mini-batch,  g = grad F(y; xi)
                   p = min{ max(F(y; xi) - l*, 0) / (c ||g||^2), eta_b }      (the Polyak step; 0 where g = 0)
                   scope=local:   y <- y - p g
                   scope=global:  y <- y - eta g,  with one eta for all clients
        server:  theta <- mean_{S_t} y_i;   scope=global:  eta <- mean_{S_t} p_i of the last local step

    The means over S_t are weighted by n_i (weighting=samples, the default) or not (uniform, as in the paper's
    f). The norm is over the whole vector, with nothing added to it. scope=global (FedSPS-Global, our reading
    of its listing): the server computes eta from the uploads, and it holds for the next K steps. In round 0
    there is none yet, so every client takes its own p. Only the server keeps state: theta (and eta for
    scope=global).
    Travels: up 1d, down 1d (and a scalar each for scope=global).
    In practice c = 0.5, eta_b = lr_max = 1 and l* = loss_lower_bound = 0. In theory eta_b <= min{1/(2 c L),
    1/(25 L K)}, so lr_max depends on the problem.
    """

    paper = "Mukherjee et al., TMLR 2024"
    problem_dependent = ("lr_max", "loss_lower_bound")
    own_step = "has Polyak's step size"

    c: float = positive(0.5)
    lr_max: float = positive(1.0, help="eta_b, the cap of the Polyak step")
    loss_lower_bound: float = number(0.0, help="l*")
    scope: str = choice(
        "local",
        ("local", "global"),
        help="global: one step size for all clients (lr_max about 0.1, as no client's own loss caps it)",
    )
    weighting: str = choice("samples", ("uniform", "samples"))

    def refusal(self, setting: Setting) -> str | None:
        if setting.clips:
            return "computes its step size from the whole gradient, which local.clip_norm would shorten"
        return super().refusal(setting)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        if self.scope == "local":
            return {"theta": theta}
        return {"theta": theta, "eta": theta.new_full((), -1.0)}  # negative: none yet

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return vars(server)

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": client.down.theta, "p": client.down.theta.new_zeros(())}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        loss, g = client.loss_and_grad(local.y)
        p = self.polyak(loss, g, h)
        eta = p if self.scope == "local" else torch.where(client.down.eta < 0, p, client.down.eta)
        return {"y": local.y - eta * g, "p": p}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        upload = {"delta": local.y - client.down.theta}
        return (upload if self.scope == "local" else {**upload, "p": local.p}), {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        theta = server.theta + mean.delta
        return {"theta": theta} if self.scope == "local" else {"theta": theta, "eta": mean.p}

    @staticmethod
    def polyak(loss: Tensor, g: Tensor, h: Record) -> Tensor:
        """The clipped Polyak step size, in [0, eta_b]."""
        square = g.dot(g)
        gap = torch.clamp(loss - h.loss_lower_bound, min=0.0)
        step = torch.where(square > 0, gap / (h.c * torch.where(square > 0, square, 1.0)), 0.0)
        return torch.minimum(step, h.lr_max)
