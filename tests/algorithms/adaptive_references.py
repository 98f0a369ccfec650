"""Synchronous methods whose clients' steps have a size for every coordinate, or of their own, in NumPy."""

from __future__ import annotations

import numpy as np
from references import WEIGHTS, Reference, Vector


class LocalAMSGrad(Reference):
    def start(self, theta: Vector) -> None:
        self.m, self.v = np.zeros((2, self.p.N, len(theta)))
        self.made, self.vhat = np.zeros(self.p.N), self.h["epsilon"] + self.zero

    def local(self, i: int, theta: Vector) -> Vector:
        b1, b2, y = self.h["beta1"], self.h["beta2"], theta
        for k in range(self.b.K[i]):
            f = self.grad(i, k, y)
            self.m[i], self.v[i] = b1 * self.m[i] + (1 - b1) * f, b2 * self.v[i] + (1 - b2) * f**2
            self.made[i] += 1
            top = self.m[i] / (1 - b1 ** self.made[i] if self.h.get("bias_correction") else 1)
            y = y - self.eta * top / np.sqrt(self.vhat)
        return y

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        correct = 1 - self.h["beta2"] ** self.made[cohort, None] if self.h.get("bias_correction") else 1
        self.vhat = np.maximum(self.vhat, (self.v[cohort] / correct).mean(0))


class FedADT(Reference):
    def start(self, theta: Vector) -> None:
        self.v, self.e = np.zeros((2, self.p.N, len(theta)))
        self.last: dict[int, Vector] = {}
        self.m = self.vhat = self.zero

    def before(self, cohort: list[int], theta: Vector, w: Vector) -> None:
        self.moments: list[tuple[Vector, Vector]] = []

    def local(self, i: int, theta: Vector) -> Vector:
        b1, b2, b3, y, m, hat = *(self.h[f"beta{n}"] for n in (1, 2, 3)), theta, self.m, self.vhat
        for k in range(self.b.K[i]):
            f = self.grad(i, k, y)
            m, self.v[i] = b1 * m + (1 - b1) * f, b2 * self.v[i] + (1 - b2) * f**2
            hat = np.maximum(hat, self.v[i])
            self.e[i] = b3 * self.e[i] + (1 - b3) * (f - self.last.get(i, f))
            self.last[i] = f
            y = y - self.eta * (m + self.h["derivative"] * self.e[i]) / (np.sqrt(hat) + self.h["epsilon"])
        self.moments.append((m, hat))
        return y

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        self.m, self.vhat = np.mean(self.moments, axis=0)


class FedLADA(Reference):
    def start(self, theta: Vector) -> None:
        self.g, self.v = self.zero, np.full_like(theta, self.h["epsilon"] ** 2)

    def before(self, cohort: list[int], theta: Vector, w: Vector) -> None:
        self.maxima: list[Vector] = []

    def local(self, i: int, theta: Vector) -> Vector:
        a, b1, b2 = self.h["alpha"], self.h["beta1"], self.h["beta2"]
        y, m, second, hat = theta, self.zero, self.v, self.v
        for k in range(self.b.K[i]):
            q = self.grad(i, k, y)
            m, second = b1 * m + (1 - b1) * q, b2 * second + (1 - b2) * q * q
            hat = np.maximum(hat, second)
            y = y - self.eta * (a * m / np.sqrt(hat) + (1 - a) * self.g)
        self.maxima.append(hat)
        self.travelled[i] = self.b.K[i]
        return y

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        self.g, self.v = self.per_step(cohort, theta, ys).mean(0), np.mean(self.maxima, axis=0)


class FedAdamW(Reference):
    def start(self, theta: Vector) -> None:
        self.v = self.last = self.zero  # the moments' start; the mean of (theta - y_i) / eta
        self.one = 0.0  # what v would be of a coordinate whose gradients are all 1

    def before(self, cohort: list[int], theta: Vector, w: Vector) -> None:
        self.seconds: list[Vector] = []
        self.ones: list[float] = []

    def local(self, i: int, theta: Vector) -> Vector:
        b1, b2, K = self.h["beta1"], self.h["beta2"], self.b.K[i]
        y, m, v, one = theta, self.zero, self.v, self.one
        for k in range(1, K + 1):
            q, s = self.grad(i, k - 1, y), self.t * K + k
            m, v, one = b1 * m + (1 - b1) * q, b2 * v + (1 - b2) * q**2, b2 * one + (1 - b2)
            mhat = m / (1 - b1 ** (k if self.h["m_counter"] == "local" else s))
            adam = mhat / (np.sqrt(v / one) + self.h["epsilon"])
            y = y - self.eta * (adam + self.h["weight_decay"] * y + self.h["alpha"] * self.last / K)
        self.seconds.append(v)
        self.ones.append(one)
        return y

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        self.v, self.last = np.mean(self.seconds, axis=0), (theta - ys).mean(0) / self.eta
        self.one = float(np.mean(self.ones))
        if self.h["second_moment"] == "block":
            blocks = np.split(self.v, [WEIGHTS])
            self.v = np.concatenate([np.full_like(block, block.mean()) for block in blocks])


class FAFED(Reference):
    """The server makes the first step of all and, in every round, the K-th."""

    def start(self, theta: Vector) -> None:
        start = np.array([self.b.survey(i, theta) for i in range(self.p.N)])
        self.m, self.v, self.previous = start.mean(0), (start**2).mean(0), np.tile(theta, (self.p.N, 1))
        self.first = self.eta * self.m

    def before(self, cohort: list[int], theta: Vector, w: Vector) -> None:
        self.moments: list[tuple[Vector, Vector]] = []

    def local(self, i: int, theta: Vector) -> Vector:
        x, m, v = theta - self.first, self.m, self.v
        alpha, b2, H = self.h["alpha"], self.h["beta2"], np.sqrt(self.v) + self.h["epsilon"]
        for k in range(self.b.K[i]):
            f, old = self.grad(i, k, x), self.grad(i, k, self.previous[i])
            m, v = f + (1 - alpha) * (m - old), b2 * v + (1 - b2) * f**2
            self.previous[i] = x
            x = x - self.eta * m / H * (k < self.b.K[i] - 1)
        self.moments.append((m, v))
        return x

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        self.first = self.zero
        self.m, self.v = np.mean(self.moments, axis=0)
        return ys.mean(0) - self.eta * self.m / (np.sqrt(self.v) + self.h["epsilon"])


# ---- step sizes that follow from gradients and losses --------------------------------------------------


class DeltaSGD(Reference):
    def start(self, theta: Vector) -> None:
        self.bound: set[str] = set()  # what has limited a step: the smoothness, or growth
        self.second: list[float] = []  # norms of the gradients in the second place

    @property
    def exercised(self) -> bool:  # type: ignore[override]
        return self.bound == {"smoothness", "growth"}

    def local(self, i: int, theta: Vector) -> Vector:
        growth = self.h["growth"]
        ratio = np.sqrt(1 + growth) if self.h["first_rate"] == "grown" else 1.0
        eta, g = self.eta * ratio, self.grad(i, 0, theta)
        x, y = theta, theta - eta * g
        for k in range(1, self.b.K[i]):
            now = self.grad(i, k, y)
            old = self.grad(i, k, x) if self.h["same_batch"] else g
            self.second.append(self.norms[-1])
            smooth = self.h["amplifier"] * np.linalg.norm(y - x) / (2 * np.linalg.norm(now - old))
            cap = np.sqrt(1 + growth * ratio) * eta
            self.bound.add("smoothness" if smooth < cap else "growth")
            ratio, eta = min(smooth, cap) / eta, min(smooth, cap)
            x, y, g = y, y - eta * now, now
        return y


class FedSPS(Reference):
    weighting = "samples"

    def start(self, theta: Vector) -> None:
        self.shared: float | None = None
        self.bound: set[str] = set()

    @property
    def exercised(self) -> bool:  # type: ignore[override]
        return {"cap", "loss"} <= self.bound

    def before(self, cohort: list[int], theta: Vector, w: Vector) -> None:
        self.rates: list[float] = []

    def local(self, i: int, theta: Vector) -> Vector:
        y, most = theta, self.h["lr_max"]
        for k in range(self.b.K[i]):
            g = self.grad(i, k, y)
            above = max(self.b.loss(i, self.t, k, y) - self.h["loss_lower_bound"], 0.0)
            polyak = above / (self.h["c"] * (g @ g))
            self.bound.add("cap" if polyak > most else "loss" if polyak > 0 else "bound")
            step = min(polyak, most)
            y = y - (step if self.h["scope"] == "local" or self.shared is None else self.shared) * g
        self.rates.append(step)
        return y

    def after(self, cohort: list[int], theta: Vector, ys: Vector, w: Vector) -> None:
        self.shared = float(w @ self.rates)


class Clip:
    """Numbers limited to [low, high]; which of the bounds has limited one."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high, self.met = low, high, set[str]()

    def __call__(self, value: float) -> float:
        self.met |= {"low"} if value < self.low else {"high"} if value > self.high else set()
        return min(max(value, self.low), self.high)


class FedHyper(Reference):
    def start(self, theta: Vector) -> None:
        low, high = (0.8, 5.0) if self.h["variant"] in ("GM", "FULL") else (1 / 3, 3.0)
        self.servers = Clip(self.h["alpha_min"] or low, self.h["alpha_max"] or high)
        self.clients = Clip(1 / self.h["rate_bound"], self.h["rate_bound"])
        self.last = self.L = self.zero
        self.alpha, self.rates = 1.0, [1.0]
        self.seen: set[float] = set()  # every rate in units of what FedAvg has

    @property
    def exercised(self) -> bool:  # type: ignore[override]
        return len(self.seen) > 3  # rates have moved

    def local(self, i: int, theta: Vector) -> Vector:
        y, factor, before = theta, 1.0, self.last
        for k in range(self.b.K[i]):
            rate = {"CL": factor, "FULL": factor}
            if self.h["variant"] == "SL":
                rate["SL"] = self.clients(sum(self.rates))
            s = -self.eta * rate.get(self.h["variant"], 1.0) * self.grad(i, k, y)
            y = y + s
            self.seen.add(rate.get(self.h["variant"], self.alpha))
            if k > 0:
                grows = 1 + self.h["kappa"] * (0.1 / self.size * (s @ self.last) + s @ before)
                factor, before = self.clients(factor * min(1.1, grows)), s
        return y

    def before(self, cohort: list[int], theta: Vector, w: Vector) -> None:
        self.size = len(cohort)

    def server(self, theta: Vector, ys: Vector, w: Vector) -> Vector:
        D, rho, whole = w @ ys - theta, self.h["momentum"], self.h["variant"] in ("GM", "FULL")
        product = self.h["kappa"] * float((self.L if whole else self.last) @ D)
        self.rates.append(product)
        self.alpha = self.servers(self.alpha + product)
        new = theta + (self.alpha if self.h["variant"] == "G" else 1.0) * D
        if whole:
            new = theta + D + (self.alpha - 1) * (D + rho * self.L)
        self.L, self.last = D + rho * self.L, D
        return new
