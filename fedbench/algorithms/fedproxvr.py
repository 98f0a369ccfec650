"""FedProxVR."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedbench.algorithms.curvature import largest_curvature
from fedbench.errors import ConfigError
from fedbench.method import (
    Algorithm,
    Client,
    Counts,
    Record,
    Vectors,
    choice,
    nonnegative,
    positive,
    register,
    silent,
)

MEASURED = (
    "algorithm.L is measured: the largest curvature of the mean training loss at theta^0; the paper's L"
    " bounds every sample's loss and is larger"
)


class Estimator:
    """sgd: v_j = grad F(w_j; xi)."""

    def v(self, local: Record, client: Client) -> Tensor:
        """v_j (d,) at w_j = local.w, on the current mini-batch."""
        return client.grad(local.w)

    def remembered(self, w: Tensor, v: Tensor) -> Vectors:
        """What the next step needs of this one's w_j and v_j."""
        return {}


class SVRG(Estimator):
    """v_j = grad F(w_j; xi) - grad F(w_0; xi) + v_0."""

    def v(self, local: Record, client: Client) -> Tensor:
        return client.grad(local.w) - client.grad(client.down.theta) + client.full_grad


class SARAH(Estimator):
    """v_j = grad F(w_j; xi) - grad F(w_{j-1}; xi) + v_{j-1}."""

    def v(self, local: Record, client: Client) -> Tensor:
        return client.grad(local.w) - client.grad(local.w_old) + local.v

    def remembered(self, w: Tensor, v: Tensor) -> Vectors:
        return {"w_old": w, "v": v}


ESTIMATORS = {"svrg": SVRG(), "sarah": SARAH(), "sgd": Estimator()}


@register("fedproxvr")
class FedProxVR(Algorithm):
    """Dinh, Tran, Nguyen, Bao, Zomaya, Zhou, "Federated learning with proximal stochastic variance reduced
    gradient algorithms", ICPP 2020, Algorithm 1.

        client:  w_0 = theta;  v_0 = grad f_i(w_0), the full local gradient;  w_1 = prox(w_0 - eta v_0)
                 for j = 1..tau-1, on one mini-batch xi:
                   svrg   v_j = grad F(w_j; xi) - grad F(w_0; xi) + v_0
                   sarah  v_j = grad F(w_j; xi) - grad F(w_{j-1}; xi) + v_{j-1}
                   sgd    v_j = grad F(w_j; xi)
                   w_{j+1} = prox(w_j - eta v_j)
                 prox(x) = argmin_w (mu/2) ||w - theta||^2 + ||w - x||^2 / (2 eta)
                         = (x + eta mu theta) / (1 + eta mu)
        server:  theta <- sum_i (n_i / sum_j n_j) w_i

    K = tau proximal steps in all, the first with the full gradient (also for sgd), as in the published code.
    The client sends w_tau (output=last) or one of w_1..w_tau at random (output=random, the paper's text).
    Only the server keeps state: theta. Travels: up 1d, down 1d. Gradients: one full local pass and 2 (tau-1)
    more (sgd: tau-1). In the paper all clients take part; if fewer do, the weights are renormalised.
    eta = lr, or 1/(beta L) from the step-size parameter beta (theory: > 3; experiments: 5..15) and the
    smoothness L. The paper's L bounds every sample's loss. L = null measures (`curvature`) the smoothness of
    the mean training loss at theta^0, which is smaller, so the same beta then gives a larger eta. mu: 0,
    0.01, 0.1 in the paper. All are tuned.
    """

    paper = "Dinh et al., ICPP 2020"
    problem_dependent = ("lr", "L", "mu")
    own_step = "makes proximal steps along variance-reduced directions"
    full_gradient = True
    first_step = 1

    lr: float | None = positive(0.1, null="1/(beta L)", help="eta")
    beta: float | None = positive(
        None, null="not used", help="step-size parameter, above 3 in theory; 5 to 15 in the paper"
    )
    L: float | None = positive(None, null="measured: mean loss at theta^0", help="smoothness of the losses")
    mu: float = nonnegative(0.1)
    estimator: str = choice("svrg", tuple(ESTIMATORS))
    output: str = choice("last", ("last", "random"))
    weighting: str = choice("samples", ("uniform", "samples"))

    def check(self) -> None:
        if self.lr is None and self.beta is None:
            raise ConfigError("algorithm.lr", None, "give algorithm.lr, or algorithm.beta (lr = 1/(beta L))")
        if self.lr is not None and (self.beta is not None or self.L is not None):
            text = "give either algorithm.lr or algorithm.beta with algorithm.L, and null for the others"
            raise ConfigError("algorithm.lr", self.lr, text)

    def resolve(self, n: Counts, warn: Callable[[str], None] = silent) -> dict[str, float]:
        values = super().resolve(n, warn)
        if self.beta is None:
            return values
        if self.L is None:  # lr follows in `measured`
            warn(MEASURED)
            return values
        return {"lr": 1 / (self.beta * self.L), **values}

    def measured(self, gradient: Callable[[Tensor], Tensor], theta: Tensor) -> dict[str, float]:
        if self.beta is None or self.L is not None:
            return {}
        smoothness = largest_curvature(gradient, theta)
        if not 0 < smoothness < float("inf"):
            text = f"must be given: the estimate at theta^0 is {smoothness:g}"
            raise ConfigError("algorithm.L", None, text)
        return {"lr": 1 / (self.beta * smoothness), "L": smoothness}

    def local_init(self, client: Client, h: Record) -> Vectors:
        theta, v = client.down.theta, client.full_grad
        w = self.prox(theta - h.lr * v, theta, h)
        sent = {"sent": w} if self.output == "random" else {}
        return {"w": w, **self._estimator.remembered(theta, v), **sent}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        v = self._estimator.v(local, client)
        w = self.prox(local.w - h.lr * v, client.down.theta, h)
        sent = {"sent": self._chosen(w, local, client)} if self.output == "random" else {}
        return {"w": w, **self._estimator.remembered(local.w, v), **sent}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        sent = local.sent if self.output == "random" else local.w
        return {"delta": sent - client.down.theta}, {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + mean.delta}

    @staticmethod
    def prox(x: Tensor, theta: Tensor, h: Record) -> Tensor:
        """The closed-form proximal step around the broadcast model."""
        return (x + h.lr * h.mu * theta) / (1 + h.lr * h.mu)

    @property
    def _estimator(self) -> Estimator:
        return ESTIMATORS[self.estimator]

    @staticmethod
    def _chosen(w: Tensor, local: Record, client: Client) -> Tensor:
        """The iterate to send: `w` if its index was drawn, else the one chosen so far."""
        drawn = torch.minimum(torch.floor(client.draw * client.steps), client.steps - 1)
        return torch.where(client.k == drawn, w, local.sent)
