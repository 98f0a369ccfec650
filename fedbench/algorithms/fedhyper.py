"""FedHyper."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedbench.method import (
    Algorithm,
    Client,
    Counts,
    Record,
    Vectors,
    choice,
    decay,
    nonnegative,
    number,
    positive,
    register,
    silent,
)

OWN = "1/3 and 3; for GM and FULL 0.8 and 5"


@register("fedhyper")
class FedHyper(Algorithm):
    """Wang, Wang, Li, "FedHyper: a universal and robust learning rate scheduler for federated learning with
    hypergradient descent", ICLR 2024, arXiv:2310.03156: rates that move by products of successive updates.

        client:  y = theta;  K times  y <- y - eta grad F(y; xi)
        server:  D = mean_{S_t}(y_i - theta);   D' the last round's D
          G      alpha <- clip(alpha + kappa <D', D>);   theta <- theta + alpha D
          GM     alpha <- clip(alpha + kappa <L, D>);    L <- D + rho L;   theta <- theta + D + (alpha - 1) L
          SL     theta <- theta + D;   r <- r + kappa <D', D>;   next round eta = lr clip(r)
          CL     theta <- theta + D;   clients: b = 1, s' = D';  after every step s but a job's first
                 b <- clip(b min{1.1, 1 + kappa ((0.1/S) <s, D'> + <s, s'>)}),  s' <- s,  next step eta = lr b
          FULL   GM and CL

    alpha and r start at 1, D' and L at 0. clip limits alpha to [alpha_min, alpha_max]; it limits r and b to
    [1/c, c]. kappa is our addition: 1 in the paper; 0 is FedAvg. Products have the unit of a squared update:
    they depend on d, eta, K and the loss's scale, so kappa is a hidden tuned constant.
    The equations are those of the released code. The bounds of G, [1/3, 3], and of SL, c = 10, are the
    paper's (the code: [0.2, 5], and rates in [0.001, 0.1]). SL is what that code intends: the code itself
    discards its rates before it uses them. The paper's additive rule for CL was not at hand. With several
    local epochs the code leaves out the first batch of each epoch.
    The server keeps theta, D' (not for GM), and L for GM and FULL. Travels: up 1d, down 1d (CL and FULL: 2d,
    theta and D'). eta = lr is tuned; c = rate_bound.
    """

    paper = "Wang et al., ICLR 2024"
    problem_dependent = ("lr", "kappa")

    lr: float = positive(0.1)
    variant: str = choice(
        "G",
        ("G", "GM", "SL", "CL", "FULL"),
        help="G: the server's rate; GM: with momentum; SL: all clients'; CL: each client's; FULL: GM and CL",
    )
    kappa: float = nonnegative(1.0, help="step of the hypergradient; 0 is FedAvg")
    alpha_min: float | None = number(None, low=0.0, high=1.0, null=OWN, help="bounds of the server's rate")
    alpha_max: float | None = number(None, low=1.0, null=OWN)
    momentum: float = decay(0.9, help="rho, for GM and FULL")
    rate_bound: float = number(10.0, low=1.0, help="c: a client's rate is in [lr / c, c lr]")
    weighting: str = choice("uniform", ("uniform", "samples"))

    def resolve(self, n: Counts, warn: Callable[[str], None] = silent) -> dict[str, float]:
        low, high = (0.8, 5.0) if self.variant in ("GM", "FULL") else (1 / 3, 3.0)
        return {"alpha_min": low, "alpha_max": high, **super().resolve(n, warn)}

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        zero, one = torch.zeros_like(theta), theta.new_ones(())
        own = {
            "G": {"alpha": one, "D": zero},
            "GM": {"alpha": one, "L": zero},
            "SL": {"r": one, "D": zero},
            "CL": {"D": zero},
            "FULL": {"alpha": one, "L": zero, "D": zero},
        }
        return {"theta": theta, **own[self.variant]}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        down = {"theta": server.theta}
        if self.variant == "SL":
            return {**down, "r": torch.clamp(server.r, 1 / h.rate_bound, h.rate_bound)}
        if self.variant in ("CL", "FULL"):
            return {**down, "D": server.D, "share": server.theta.new_full((), 0.1 / n.S)}
        return down

    def local_init(self, client: Client, h: Record) -> Vectors:
        start = {"y": client.down.theta}
        if self.variant in ("CL", "FULL"):
            return {**start, "b": torch.ones_like(h.lr), "s": client.down.D}
        return start

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        g = client.grad(local.y)
        if self.variant not in ("CL", "FULL"):
            return {"y": client.descend(local.y, g, h.lr * client.down.r if self.variant == "SL" else h.lr)}
        y = client.descend(local.y, g, local.b * h.lr)
        s = y - local.y
        product = client.down.share * s.dot(client.down.D) + s.dot(local.s)
        b = local.b * torch.clamp(1 + h.kappa * product, max=1.1)
        b = torch.clamp(b, 1 / h.rate_bound, h.rate_bound)
        first = client.k == 0
        return {"y": y, "b": torch.where(first, local.b, b), "s": torch.where(first, local.s, s)}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        D, theta = mean.delta, server.theta
        if self.variant == "CL":
            return {"theta": theta + D, "D": D}
        if self.variant == "SL":
            return {"theta": theta + D, "r": server.r + h.kappa * server.D.dot(D), "D": D}
        last = server.D if self.variant == "G" else server.L
        alpha = torch.clamp(server.alpha + h.kappa * last.dot(D), h.alpha_min, h.alpha_max)
        if self.variant == "G":
            return {"theta": theta + alpha * D, "alpha": alpha, "D": D}
        L = D + h.momentum * last
        new = {"theta": theta + D + (alpha - 1) * L, "alpha": alpha, "L": L}
        return {**new, "D": D} if self.variant == "FULL" else new
