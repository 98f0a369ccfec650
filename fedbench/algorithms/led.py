"""LED (local exact diffusion) on a star."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.method import THEOREM, Algorithm, Client, Counts, Record, Vectors, positive, register, silent


@register("led")
class LED(Algorithm):
    """Alghunaim, "Local exact-diffusion for decentralized optimization and learning", IEEE Transactions on
    Automatic Control 2024, arXiv:2302.00620, on a star: the mixing matrix is W = 1 1^T / N.

        client:  phi = theta;  K times  phi <- phi - eta grad F(phi; xi) - beta_d y_i
        server:  theta <- (1/N) sum_i phi_i
        client:  y_i <- y_i + phi_i - theta                                 with the NEW theta

    The dual y_i starts at 0 and acts in every one of the K steps. A client keeps one vector, z_i = y_i +
    phi_i, from which the next broadcast gives y_i = z_i - theta. The server keeps theta. Travels: up 1d, down
    1d. Only for full participation, since the mixing is over all clients. eta = lr is tuned; beta_d = dual_lr
    is in (0, 1/K], and null means 1/K, which is VRL-SGD while eta is constant: under lr_schedule the dual
    keeps the size of earlier rates, where VRL-SGD's corrections are gradients. Where clients make unequal
    steps, dual_lr has to be given, and is not compared with any 1/K.
    """

    paper = "Alghunaim, IEEE TAC 2024"
    problem_dependent = ("lr", "dual_lr")
    full_participation = True
    schedules = ("sync",)

    lr: float = positive(0.03)
    dual_lr: float | None = positive(
        None, null=THEOREM, help="in (0, 1/K], unless steps are unequal; 1/K with a constant lr is VRL-SGD"
    )

    def theorem(self, n: Counts) -> dict[str, float]:
        assert n.K is not None
        return {"dual_lr": 1 / n.K}

    def resolve(self, n: Counts, warn: Callable[[str], None] = silent) -> dict[str, float]:
        values = super().resolve(n, warn)
        if n.K is not None and values["dual_lr"] > (1 + 1e-6) / n.K:
            raise ConfigError("algorithm.dual_lr", self.dual_lr, f"must be in (0, 1/K] = (0, {1 / n.K:g}]")
        return values

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"z": theta}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"phi": client.down.theta, "dual": client.mine.z - client.down.theta}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        phi = client.descend(local.phi, client.grad(local.phi), h.lr)
        return {"phi": phi - h.dual_lr * local.dual}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"delta": local.phi - client.down.theta}, {"z": local.dual + local.phi}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + mean.delta}
