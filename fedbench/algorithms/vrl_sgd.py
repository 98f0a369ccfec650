"""VRL-SGD."""

from __future__ import annotations

from torch import Tensor

from fedbench.method import Algorithm, Client, Counts, Record, Setting, Vectors, positive, register


@register("vrl_sgd")
class VRLSGD(Algorithm):
    """Liang, Shen, Liu, Pan, Chen, Cheng, "Variance reduced local SGD with lower communication complexity",
    arXiv:1912.12844 (2019), Algorithm 1.

        client:  y = theta;  K times  y <- y - eta (grad F(y; xi) - Delta_i)
        server:  theta <- (1/N) sum_i y_i
        client:  Delta_i <- Delta_i + (theta - y_i) / (K eta)               with the NEW theta

    Delta_i starts at 0. A client keeps one vector, z_i = y_i - K eta Delta_i, and the scalar K eta. The next
    broadcast then gives Delta_i = (theta - z_i) / (K eta). The server keeps theta. Travels: up 1d, down 1d.
    With local momentum the sum of the directions' weights replaces K. An adaptive optimizer has no such sum
    and is refused. Only for full participation and one K for all clients and rounds: otherwise sum_i Delta_i
    is not 0 and the mean drifts.
    eta = lr is tuned (paper: 0.005 with K = 20, 0.01 with K = 50, 0.025 with K = 20, 8 workers). The paper's
    warm start is not implemented.
    """

    title = "VRL-SGD"
    paper = "Liang et al., arXiv:1912.12844"
    problem_dependent = ("lr",)
    full_participation = True
    schedules = ("sync",)

    lr: float = positive(0.03)

    def refusal(self, setting: Setting) -> str | None:
        if setting.optimizer.adaptive:
            why = "needs SGD's sum of directions, which an adaptive optimizer does not have"
            return f"{why} (optimizer={setting.optimizer.name})"
        if setting.counts.K is None:
            unequal = "local.epochs_range, partial stragglers, or local.epochs with clients of unequal size"
            return f"is defined for one number of local steps only, which excludes {unequal}"
        return super().refusal(setting)

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"z": theta, "scale": theta.new_ones(())}  # Delta_i = 0, whatever the scale

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": client.down.theta, "Delta": (client.down.theta - client.mine.z) / client.mine.scale}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        return {"y": client.descend(local.y, client.grad(local.y) - local.Delta, h.lr)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        scale = client.travelled * h.lr
        keep = {"z": local.y - scale * local.Delta, "scale": scale}
        return {"delta": local.y - client.down.theta}, keep

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + mean.delta}
