"""IFCA."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fedbench.method import (
    Algorithm,
    Client,
    Counts,
    Record,
    Vectors,
    integer,
    nonnegative,
    positive,
    register,
)


@register("ifca")
class IFCA(Algorithm):
    """Ghosh, Chung, Yin, Ramchandran, "An efficient framework for clustered federated learning", NeurIPS
    2020, Algorithm 1 with model averaging. The server has a model theta_j of each of k clusters:

        client:  j = argmin_j F(theta_j; xi_0);  y = theta_j;  K times  y <- y - eta grad F(y; xi)
                 sends y - theta_j and j
        server:  theta_j <- theta_j + gamma mean_{i in S_t with j_i = j}(y_i - theta_j), for each j

    xi_0 is the first mini-batch. A cluster that nobody has chosen stays as it is. theta_j starts at theta^0 +
    spread (z_j - mean of the z), where z_1, ..., z_k are N(0, I) and the same in every run; the paper draws
    each model. A client evaluates the model that it last chose, and theta_1 before it took part. model.pt is
    the mean of the models. The losses in later steps are computed and not used. Travels: up 1d, down kd; the
    server keeps kd. eta = lr, clusters = k, spread and gamma = server_lr (1) are tuned.
    """

    paper = "Ghosh et al., NeurIPS 2020"
    stacks = True
    schedules: ClassVar[tuple[str, ...]] = ("sync",)  # under arrivals a client's choice is not known
    problem_dependent: ClassVar[tuple[str, ...]] = ("lr", "server_lr", "clusters", "spread")

    lr: float = positive(0.1)
    server_lr: float = positive(1.0, help="1: a cluster's mean model")
    clusters: int = integer(2, low=1, help="k, models at the server")
    spread: float = nonnegative(0.1, help="standard deviation of the models' first differences")

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        draws = torch.Generator().manual_seed(0)
        apart = torch.randn(self.clusters, len(theta), generator=draws, dtype=torch.float64)
        return {"theta": theta, "models": theta + h.spread * (apart - apart.mean(0)).to(theta)}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"cluster": theta.new_zeros((), dtype=torch.int64)}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"models": server.models}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": client.down.models[0], "cluster": client.mine.cluster}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        models, is_first = client.down.models, client.k == 0
        outputs = [client.outputs(model) for model in models]
        least = torch.stack([out.mean(out.loss) for out in outputs]).argmin()
        y = torch.where(is_first, models[least], local.y)
        cluster = torch.where(is_first, least, local.cluster)
        return {"y": client.descend(y, client.grad(y), h.lr), "cluster": cluster}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        delta = local.y - client.down.models[local.cluster]
        return {"delta": delta, "cluster": local.cluster}, {"cluster": local.cluster}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        chosen = torch.nn.functional.one_hot(mean.cluster, self.clusters).to(mean.delta)  # (S, k)
        moved = chosen.T @ mean.delta / chosen.sum(0).clamp(min=1)[:, None]
        models = server.models + h.server_lr * moved
        return {"theta": models.mean(0), "models": models}

    def personal(self, server: Record, mine: Record) -> Tensor:
        return server.models[mine.cluster]
