"""VRL-SGD."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from fedbench.method.hyper import positive
from fedbench.method.interface import Algorithm, Client, Counts, Vectors
from fedbench.method.registry import register


@register("vrl_sgd")
class VRLSGD(Algorithm):
    """Liang, Shen, Liu, Pan, Chen, Cheng, "Variance reduced local SGD with lower communication complexity",
    arXiv:1912.12844 (2019), Algorithm 1.

        client:  y = theta;  K times  y <- y - eta (grad F(y; xi) - Delta_i)
        server:  theta <- (1/N) sum_i y_i
        client:  Delta_i <- Delta_i + (theta - y_i) / (K eta)               with the NEW theta

    Delta_i starts at 0. A client keeps one vector, z_i = y_i - K eta Delta_i: the next broadcast completes
    Delta_i = (theta - z_i) / (K eta). The server keeps theta. Travels: up 1d, down 1d. Only for full
    participation: otherwise sum_i Delta_i is not 0 and the mean drifts. eta = lr is tuned (paper: 0.005
    with K = 20, 0.01 with K = 50, 0.025 with K = 20, 8 workers). Its warm start is not part of it here.
    """

    paper: ClassVar[str] = "Liang et al., arXiv:1912.12844"
    problem_dependent: ClassVar[tuple[str, ...]] = ("lr",)
    full_participation: ClassVar[bool] = True
    schedules: ClassVar[tuple[str, ...]] = ("sync",)

    lr: float = positive(0.03)

    def client_init(self, theta: Tensor, survey: Any, h: Any) -> Vectors:
        return {"z": theta}

    def local_init(self, down: Any, mine: Any, client: Client, h: Any) -> Vectors:
        return {"y": down.theta, "Delta": (down.theta - mine.z) / (client.steps * h.lr)}

    def local_step(self, local: Any, down: Any, mine: Any, client: Client, h: Any) -> Vectors:
        return {"y": local.y - h.lr * (client.grad(local.y) - local.Delta)}

    def local_final(
        self, local: Any, down: Any, mine: Any, client: Client, h: Any
    ) -> tuple[Vectors, Vectors]:
        keep = {"z": local.y - client.steps * h.lr * local.Delta}
        return {"delta": local.y - down.theta}, keep

    def server_step(self, server: Any, mean: Any, n: Counts, h: Any) -> Vectors:
        return {"theta": server.theta + mean.delta}
