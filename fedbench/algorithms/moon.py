"""MOON."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from fedbench.algorithms.fedavg import FedAvg
from fedbench.method import Client, Outputs, Record, Vectors, nonnegative, positive, register


@register("moon")
class MOON(FedAvg):
    """Li, He, Song, "Model-contrastive federated learning", CVPR 2021, arXiv:2103.16257, Algorithm 1.

    A client's features are drawn towards those of the global model and away from those of its last one:

        client:  y = theta;  K times  y <- y - eta grad mean [ l(y; x) + mu l_con(y; x) ];   v_i <- y
                 l_con = - log ( e^{s(y, theta) / tau} / (e^{s(y, theta) / tau} + e^{s(y, v_i) / tau}) )
        server:  theta <- theta + gamma sum_{i in S_t} w_i (y_i - theta)

    l: the loss of the task; s(y, v): the cosine of the features that the models y and v have of x. v_i is
    theta^0 at first. Features are what the last linear layer is given; the paper's networks have a projection
    head before it. A client keeps 1d. Travels: up 1d, down 1d. A step takes two more forward passes, which
    are no gradient evaluations. eta = lr, gamma = server_lr (convention D: 1) and mu (0.1, 1, 5, 10) are
    tuned.
    """

    paper = "Li et al., CVPR 2021"
    checked_by = "tests/algorithms/test_features.py::test_moon_follows_its_equations"
    problem_dependent = ("lr", "server_lr", "mu")

    mu: float = nonnegative(1.0, help="weight of the contrastive loss; 0 is FedAvg")
    temperature: float = positive(0.5)

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"last": theta}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        towards = client.outputs(client.down.theta).features.flatten(1)
        away = client.outputs(client.mine.last).features.flatten(1)

        def loss(out: Outputs) -> Tensor:
            own = out.features.flatten(1)
            near, far = (functional.cosine_similarity(own, other) for other in (towards, away))
            return out.loss + h.mu * functional.softplus((far - near) / h.temperature)

        return {"y": client.descend(local.y, client.grad(local.y, loss), h.lr)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"delta": local.y - client.down.theta}, {"last": local.y}
