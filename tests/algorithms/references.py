"""Synchronous methods in NumPy float64, from their papers' equations: one client and one step at a time.

`Reference` is FedAvg, and what all share: mini-batches, step sizes of a round, the clients' optimizer. A
method replaces what is its own. Nothing here calls a method of fedbench.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from oracle import Batches, weights
from problem import CLASSES, FEATURES

Vector = np.ndarray
WEIGHTS = CLASSES * FEATURES  # theta is a weight (3, 4) and a bias (3,)


class Stepper:
    """A client's optimizer: plain SGD. `travelled` is the sum of its directions' weights."""

    travelled = 0.0

    def step(self, y: Vector, q: Vector, eta: float) -> Vector:
        self.travelled += 1
        return y - eta * q


class Reference:
    """FedAvg. Its hyper-parameters `h` have the names of the config files; `rate` is the factor on eta in
    round t, `stepper` makes a client's optimizer, which it has for a job, or if `keep` for all of them."""

    weighting = "uniform"  # of a method that has no such option
    exercised = True  # whether a path has met all branches of the equations

    def __init__(
        self,
        b: Batches,
        rate: Callable[[int], float] = lambda t: 1.0,
        stepper: Callable[[], Stepper] = Stepper,
        keep: bool = False,
        clip: float = np.inf,
        **h: Any,
    ) -> None:
        self.b, self.p, self.h, self.rate, self.clip = b, b.p, h, rate, clip
        self.stepper = stepper
        self.steppers = [stepper() for _ in range(self.p.N)] if keep else None
        self.travelled = np.zeros(self.p.N)  # of each client's last job
        self.norms: list[float] = []  # of the gradients, before they are clipped
        self.zero = np.zeros_like(self.p.theta0)
        self.t = 0
        self.start(self.p.theta0)

    @property
    def eta(self) -> float:
        return float(self.h["lr"] * self.rate(self.t))

    def path(self, cohorts: list[list[int]]) -> list[Vector]:
        """theta^0 .. theta^T."""
        path = [self.p.theta0]
        for self.t, cohort in enumerate(cohorts):
            theta, w = path[-1], weights(self.p, cohort, self.h.get("weighting", self.weighting))
            self.before(cohort, theta, w)
            ys = np.array([self.local(i, theta) for i in cohort])
            self.after(cohort, theta, ys, w)
            path.append(self.server(theta, ys, w))
        return path

    def start(self, theta: Vector) -> None:
        """The state before round 0."""

    def before(self, cohort: list[int], theta: Vector, w: Vector) -> None:
        """What the cohort reports before a round."""

    def grad(self, i: int, k: int, y: Vector) -> Vector:
        """Of client i's k-th mini-batch of the round, as a whole vector no longer than `clip`."""
        g = self.b.grad(i, self.t, k, y)
        self.norms.append(float(np.linalg.norm(g)))
        return g * min(1.0, self.clip / self.norms[-1])

    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        return self.grad(i, k, y)

    def local(self, i: int, theta: Vector) -> Vector:
        """The model that client i ends with."""
        stepper, y = self.steppers[i] if self.steppers else self.stepper(), theta
        before = stepper.travelled
        for k in range(self.b.K[i]):
            y = stepper.step(y, self.direction(i, k, y, theta), self.eta)
        self.travelled[i] = stepper.travelled - before
        return y

    def per_step(self, cohort: list[int], theta: Vector, ys: Vector) -> Vector:
        """(theta - y_i) / (eta K_i) of the cohort; K_i is the sum of weights under momentum."""
        return (theta - ys) / (self.eta * self.travelled[cohort])[:, None]

    def personal(self, theta: Vector) -> Vector:
        """The model (N, d) that each client evaluates, of methods with personal models."""
        raise NotImplementedError

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        """The records after a round that started from `theta`."""

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        """The next theta."""
        return theta + self.h.get("server_lr", 1.0) * (w @ ys - theta)


def averaging(cls: type[Reference]) -> type[Reference]:
    """The same clients and records; the server takes the mean of the clients' models."""
    return type(f"Mean{cls.__name__}", (cls,), {"server": lambda self, theta, ys, w: w @ ys})


# ---- the server's own step -----------------------------------------------------------------------------


class FedAvgM(Reference):
    def start(self, theta: Vector) -> None:
        self.v = self.zero

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        rho, minus_d = self.h["momentum"], theta - w @ ys
        self.v = rho * self.v + minus_d
        return theta - self.h["server_lr"] * (minus_d + rho * self.v if self.h.get("nesterov") else self.v)


class SlowMo(Reference):
    def start(self, theta: Vector) -> None:
        self.u = self.zero

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        self.u = self.h["momentum"] * self.u + (theta - w @ ys) / self.eta
        return theta - self.h["server_lr"] * self.eta * self.u


class FedExP(Reference):
    def start(self, theta: Vector) -> None:
        self.gammas: list[float] = []

    @property
    def exercised(self) -> bool:  # type: ignore[override]
        return min(self.gammas) == 1.0 < max(self.gammas)

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        each, d = ys - theta, w @ ys - theta
        epsilon = self.h["epsilon"] * self.h["epsilon_decay"] ** self.t
        self.gammas.append(max(1.0, float(w @ (each**2).sum(1) / (2 * (d @ d + epsilon)))))
        return theta + self.gammas[-1] * d


class FedExPM(Reference):
    """There is no floor."""

    def start(self, theta: Vector) -> None:
        self.m, self.R, self.gammas = self.zero, 0.0, list[float]()

    @property
    def exercised(self) -> bool:  # type: ignore[override]
        return min(self.gammas) < 1

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        rho, epsilon = self.h["momentum"], self.h["epsilon"] * self.h["epsilon_decay"] ** self.t
        self.m = w @ ys - theta + rho * self.m
        self.R = float(w @ ((ys - theta) ** 2).sum(1)) + rho / 2 * self.R
        self.gammas.append(self.R / (2 * (self.m @ self.m + epsilon)))
        return theta + self.gammas[-1] * self.m


class FedOpt(Reference):
    """FedAdam; the others replace the second moment."""

    def start(self, theta: Vector) -> None:
        self.m, self.v = self.zero, self.zero + self.h["epsilon"] ** 2

    def second(self, d: Vector) -> Vector:
        return self.h["beta2"] * self.v + (1 - self.h["beta2"]) * d**2

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        d, b1 = w @ ys - theta, self.h["beta1"]
        self.m, self.v = b1 * self.m + (1 - b1) * d, self.second(d)
        return theta + self.h["server_lr"] * self.m / (np.sqrt(self.v) + self.h["epsilon"])


class FedAdagrad(FedOpt):
    def second(self, d: Vector) -> Vector:
        return self.v + d**2


class FedYogi(FedOpt):
    def second(self, d: Vector) -> Vector:
        return self.v - (1 - self.h["beta2"]) * d**2 * np.sign(self.v - d**2)


class FedAMS(Reference):
    def start(self, theta: Vector) -> None:
        self.m = self.v = self.zero
        self.floor = self.h.get("vhat_init", 0.0)
        self.vhat = self.zero + self.floor

    @property
    def exercised(self) -> bool:  # type: ignore[override]
        return bool(self.floor == 0 or self.vhat.min() == self.floor < self.vhat.max())

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        b1, b2, d = self.h["beta1"], self.h["beta2"], w @ ys - theta
        self.m, self.v = b1 * self.m + (1 - b1) * d, b2 * self.v + (1 - b2) * d**2
        self.vhat = np.maximum(self.vhat, self.v)
        correct = self.h.get("bias_correction")
        c1, c2 = (1 - b1 ** (self.t + 1), 1 - b2 ** (self.t + 1)) if correct else (1, 1)
        top, bottom = self.m / c1, np.sqrt(self.vhat / c2) + self.h["epsilon"]
        return theta + self.h["server_lr"] * top / bottom


# ---- proximal terms, normalised averages, personal parts -----------------------------------------------


class FedProx(Reference):
    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        return self.grad(i, k, y) + self.h["mu"] * (y - theta)


class FedNova(Reference):
    """The gradients' coefficients a_k in theta - y = eta sum_k a_k grad_k are carried along one by one."""

    def before(self, cohort: list[int], theta: Vector, w: Vector) -> None:
        self.lengths: list[float] = []  # ||a||_1 of each client

    def local(self, i: int, theta: Vector) -> Vector:
        rho, mu, tau, y, v = self.h["momentum"], self.h["mu"], self.b.K[i], theta, self.zero
        in_v, in_y = np.zeros(tau), np.zeros(tau)
        for k in range(tau):
            v = rho * v + self.grad(i, k, y)
            y = y - self.eta * (v + mu * (y - theta))
            in_v = rho * in_v
            in_v[k] += 1
            in_y = in_y + in_v - self.eta * mu * in_y
        self.lengths.append(float(np.abs(in_y).sum()))
        return y

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        d = w @ ((theta - ys) / (self.eta * np.array(self.lengths))[:, None])
        return theta - self.h.get("server_lr", 1.0) * (w @ self.lengths) * self.eta * d


class FedBN(Reference):
    """The bias stays at its client."""

    def start(self, theta: Vector) -> None:
        self.kept = np.tile(theta[WEIGHTS:], (self.p.N, 1))

    def local(self, i: int, theta: Vector) -> Vector:
        y = super().local(i, np.concatenate([theta[:WEIGHTS], self.kept[i]]))
        self.kept[i] = y[WEIGHTS:]
        return np.concatenate([y[:WEIGHTS], theta[WEIGHTS:]])

    def personal(self, theta: Vector) -> Vector:
        return np.column_stack([np.tile(theta[:WEIGHTS], (self.p.N, 1)), self.kept])


class FedRep(FedBN):
    """The bias is the head, which moves first; then the weight, which is the representation."""

    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        of_head, q = k < np.rint(self.h["head_share"] * self.b.K[i]), self.grad(i, k, y)
        return np.where((np.arange(len(q)) >= WEIGHTS) == of_head, q, 0.0)


class IFCA(Reference):
    """k models, of which each client trains the one with the least loss on its first mini-batch."""

    def start(self, theta: Vector) -> None:
        k, draws = self.h["clusters"], torch.Generator().manual_seed(0)
        apart = torch.randn(k, len(theta), generator=draws, dtype=torch.float64).numpy()
        self.models = theta + self.h["spread"] * (apart - apart.mean(0))
        self.chosen = [0] * self.p.N

    def local(self, i: int, theta: Vector) -> Vector:
        j = self.chosen[i] = int(np.argmin([self.b.loss(i, self.t, 0, model) for model in self.models]))
        return super().local(i, self.models[j]) - self.models[j]

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        for j in range(len(self.models)):
            if (of := np.flatnonzero([self.chosen[i] == j for i in cohort])).size:
                self.models[j] += self.h["server_lr"] * ys[of].mean(0)

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        mean: Vector = self.models.mean(0)
        return mean

    @property
    def exercised(self) -> bool:  # type: ignore[override]
        return len({*self.chosen}) > 1

    def personal(self, theta: Vector) -> Vector:
        return self.models[self.chosen]


class Ditto(Reference):
    """Each step of y is followed by one of the client's own model."""

    def start(self, theta: Vector) -> None:
        self.v = np.tile(theta, (self.p.N, 1))

    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        q = self.grad(i, k, y)
        self.v[i] -= self.eta * (self.grad(i, k, self.v[i]) + self.h["lam"] * (self.v[i] - theta))
        return q

    def personal(self, theta: Vector) -> Vector:
        return self.v


class APFL(Ditto):
    """The client's own model moves by what it has in a mixture, before y does."""

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.alpha = np.full(self.p.N, self.h["alpha"])

    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        q, alpha = self.grad(i, k, y), self.alpha[i]
        of_mixture = self.grad(i, k, alpha * self.v[i] + (1 - alpha) * y)
        if self.h["adaptive"]:
            self.alpha[i] = np.clip(alpha - self.eta * (self.v[i] - y) @ of_mixture, 0, 1)
        self.v[i] = self.v[i] - self.eta * alpha * of_mixture
        return q

    def personal(self, theta: Vector) -> Vector:
        return self.alpha[:, None] * self.v + (1 - self.alpha)[:, None] * theta


class PFedMe(Ditto):
    """The client's model solves its local problem; the copy of the global one follows it."""

    def local(self, i: int, theta: Vector) -> Vector:
        w, v, lam = theta, theta, self.h["lam"]
        for k in range(self.b.K[i]):
            for _ in range(self.h["inner_steps"]):
                v = v - self.eta * (self.grad(i, k, v) + lam * (v - w))
            w = w - self.h["outer_lr"] * lam * (w - v)
        self.v[i] = v
        return w


class FedNTD(Reference):
    """d KL / d logits over the other classes: their probabilities here, less those of the global model."""

    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        samples, tau = self.b.samples[i, self.t, k], self.h["temperature"]
        x, labels = self.p.x[samples], self.p.y[samples]
        others = []
        for model in (y, theta):
            p = self.p.probabilities(model, x) ** (1 / tau)
            p[np.arange(len(x)), labels] = 0
            others.append(p / p.sum(1, keepdims=True))
        error = self.h["beta"] / tau * (others[0] - others[1]) / len(x)
        return self.grad(i, k, y) + np.concatenate([(error.T @ x).ravel(), error.sum(0)])


# ---- control variates and momentum ---------------------------------------------------------------------


class Scaffold(Reference):
    def start(self, theta: Vector) -> None:
        self.ci = np.zeros((self.p.N, len(theta)))

    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        return self.grad(i, k, y) - self.ci[i] + self.ci.mean(0)

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        if self.h.get("option") == 1:
            self.ci[cohort] = [self.p.grad(i, theta) for i in cohort]
        else:
            self.ci[cohort] = self.ci[cohort] - self.ci.mean(0) + self.per_step(cohort, theta, ys)


class ScaffoldExP(Scaffold):
    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.gammas: list[float] = []

    exercised, server = FedExP.exercised, FedExP.server  # type: ignore[assignment]


class FedDyn(Reference):
    def start(self, theta: Vector) -> None:
        self.hs, self.mean = np.zeros((self.p.N, len(theta))), self.zero

    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        return self.grad(i, k, y) - self.hs[i] + self.h["alpha"] * (y - theta)

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        change = self.h["alpha"] * (ys - theta)
        self.hs[cohort] -= change
        self.mean = self.mean - change.sum(0) / self.p.N

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        return ys.mean(0) - self.mean / self.h["alpha"]


class VRLSGD(Reference):
    def start(self, theta: Vector) -> None:
        self.delta = np.zeros((self.p.N, len(theta)))

    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        return self.grad(i, k, y) - self.delta[i]

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        self.delta[cohort] += self.per_step(cohort, ys.mean(0), ys)


class LED(Reference):
    def start(self, theta: Vector) -> None:
        self.dual = np.zeros((self.p.N, len(theta)))

    def local(self, i: int, theta: Vector) -> Vector:
        stepper, y = self.steppers[i] if self.steppers else self.stepper(), theta
        for k in range(self.b.K[i]):
            y = stepper.step(y, self.grad(i, k, y), self.eta)
            y = y - self.h.get("dual_lr", 1 / self.b.K[i]) * self.dual[i]
        return y

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        self.dual[cohort] += ys - ys.mean(0)


class FedCM(Reference):
    """Also FedAvg-M: g is the mean direction of all steps."""

    def start(self, theta: Vector) -> None:
        self.g = self.zero

    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        return self.h["beta"] * self.grad(i, k, y) + (1 - self.h["beta"]) * self.g

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        self.g = self.per_step(cohort, theta, ys).mean(0)

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        return theta - self.h["server_lr"] * self.g


class PAdaMFed(Reference):
    """With each part that can be switched off. c_i is the mean gradient of a client's last K_i steps, at
    first of its survey; g the momentum; u_i the mean direction."""

    survey = normalise = True
    vr = False
    momentum_of_directions = False  # g is the mean of the u_i, as in SCAFFOLD-M

    def start(self, theta: Vector) -> None:
        surveyed = [self.b.survey(i, theta) * self.survey for i in range(self.p.N)]
        self.beta = self.h["beta"] if self.h.get("momentum", True) else 1.0
        self.g = np.mean(surveyed, axis=0)
        self.ci = np.array(surveyed) * self.h.get("control_variates", True)
        self.previous = theta

    def unit(self, q: Vector) -> Vector:
        if not (self.normalise and self.h.get("normalise", True)):
            return q
        parts = np.split(q, [WEIGHTS]) if self.h.get("norm") == "tensor" else [q]
        return np.concatenate([part / np.linalg.norm(part) for part in parts])

    def before(self, cohort: list[int], theta: Vector, w: Vector) -> None:
        self.a, self.older, self.u = [], [], []  # means over the steps of each client

    def local(self, i: int, theta: Vector) -> Vector:
        y, c, beta, K = theta, self.ci.mean(0), self.beta, self.b.K[i]
        a = older = u = self.zero
        for k in range(K):
            f = self.grad(i, k, y)
            q = beta * (f - self.ci[i] + c) + (1 - beta) * self.g
            if self.vr:
                old = self.grad(i, k, self.previous)
                q, older = f + beta * (c - self.ci[i]) + (1 - beta) * (self.g - old), older + old / K
            s = self.unit(q)
            y, u, a = y - self.eta * s, u + s / K, a + f / K
        for kept, mean in ((self.a, a), (self.older, older), (self.u, u)):
            kept.append(mean)
        return y

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        beta, own, c, a = self.beta, self.ci[cohort], self.ci.mean(0), np.array(self.a)
        if self.momentum_of_directions:
            self.g = np.mean(self.u, axis=0)
        elif self.vr and self.h.get("vr_momentum") != "literal":
            storm = a - (1 - beta) * np.array(self.older) + beta * (c - own)
            self.g = storm.mean(0) + (1 - beta) * self.g
        else:
            self.g = beta * ((a - own).mean(0) + c) + (1 - beta) * self.g
        if self.h.get("control_variates", True):
            self.ci[cohort] = a
        self.previous = theta

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        return theta - self.h["server_lr"] * np.mean(self.u, axis=0)


class PAdaMFedVR(PAdaMFed):
    vr = True


class ScaffoldM(PAdaMFed):
    survey = normalise = False
    momentum_of_directions = True


class ScaffoldMVR(ScaffoldM):
    survey = vr = True


class MasFL(PAdaMFed):
    """Without delays; its server moves along g."""

    normalise = False

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        return theta - self.h["server_lr"] * self.g


class FedProxVR(Reference):
    weighting = "samples"

    def local(self, i: int, theta: Vector) -> Vector:
        mu, w, v = self.h["mu"], [theta], self.p.grad(i, theta)
        for j in range(self.b.K[i]):
            if j > 0:
                g = self.grad(i, j, w[j])
                if self.h["estimator"] == "svrg":
                    v = g - self.grad(i, j, w[0]) + self.p.grad(i, theta)
                else:
                    v = g if self.h["estimator"] == "sgd" else g - self.grad(i, j, w[j - 1]) + v
            x = w[j] - self.eta * v
            w.append((x + self.eta * mu * theta) / (1 + self.eta * mu))
        last = self.h.get("output", "last") == "last"
        return w[self.b.K[i] if last else 1 + int(self.b.uniform(i, self.t) * self.b.K[i])]


class Mime(Reference):
    """`U` steps with a frozen state, `V` moves the state."""

    corrected = True

    def start(self, theta: Vector) -> None:
        self.m = self.v = self.zero

    def U(self, g: Vector) -> Vector:
        if self.h["base"] == "sgd":
            return g
        if self.h["base"] == "momentum":
            return (1 - self.h["momentum"]) * g + self.h["momentum"] * self.m
        b1 = self.h["beta1"]
        return ((1 - b1) * g + b1 * self.m) / (np.sqrt(self.v) + self.h["epsilon"])

    def V(self, c: Vector) -> None:
        b = self.h["momentum" if self.h["base"] == "momentum" else "beta1"]
        self.m = (1 - b) * c + b * self.m
        self.v = (1 - self.h["beta2"]) * c**2 + self.h["beta2"] * self.v

    def before(self, cohort: list[int], theta: Vector, w: Vector) -> None:
        self.c = w @ np.array([self.p.grad(i, theta) for i in cohort])

    def direction(self, i: int, k: int, y: Vector, theta: Vector) -> Vector:
        g = self.grad(i, k, y)
        return self.U(g - self.grad(i, k, theta) + self.c if self.corrected else g)

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        self.V(self.c)


class MimeLite(Mime):
    corrected = False
