"""The asynchronous algorithms in NumPy float64, from the specification's equations (sections 2 to 9).

One job at a time, in the order of arrival: a job is computed when it arrives, from the version that it was
sent, which is remembered until then. Nothing here calls fedbench or looks at a job that never arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from problem import Problem

Vector = np.ndarray


def arrivals(trace: Any) -> Iterator[int]:
    """The jobs whose result the server keeps, by time of arrival (equal times: in job order)."""
    for j in np.lexsort((np.arange(len(trace.client)), trace.finish_time)):
        if trace.STATUS[trace.status[j]] in ("applied", "outstanding"):
            yield int(j)


def follow(method: Method, trace: Any, updates: int) -> list[Vector]:
    """theta^0 .. theta^T: an update on every S-th arrival. Checks the trace's own account on the way."""
    sent, path, buffered = [method.down()], [method.theta], 0
    for j in arrivals(trace):
        t, v = len(path) - 1, int(trace.start_version[j])
        assert (trace.applied_update[j], trace.position[j]) == (t, buffered)
        i = int(trace.client[j])
        method.arrive(i, method.work(i, *sent[v]), t - v)
        buffered += 1
        if buffered == method.S:
            method.update()
            path.append(method.theta)
            sent.append(method.down())
            buffered = 0
        if len(path) == updates + 1:
            return path
    raise AssertionError("the trace ends too early")


class Method:
    """Server and clients of one method. Hyper-parameters have the names of the config files."""

    def __init__(self, p: Problem, S: int, K: int, **h: Any) -> None:
        self.p, self.S, self.K, self.h, self.theta = p, S, K, h, p.theta0
        self.start()

    def start(self) -> None:
        """State before the first update."""

    def down(self) -> tuple[Vector, ...]:
        """What a job that starts now is sent."""
        return (self.theta,)

    def work(self, i: int, theta: Vector) -> Any:
        """Client i's local change after K gradient steps."""
        x = theta
        for _ in range(self.K):
            x = x - self.h["lr"] * self.p.grad(i, x)
        return x - theta

    def arrive(self, i: int, upload: Any, tau: int) -> None:
        raise NotImplementedError

    def update(self) -> None:
        raise NotImplementedError


class FedAsync(Method):
    def work(self, i: int, theta: Vector) -> Vector:
        x = theta
        for _ in range(self.K):
            x = x - self.h["lr"] * (self.p.grad(i, x) + self.h["rho"] * (x - theta))
        return x

    def arrive(self, i: int, upload: Vector, tau: int) -> None:
        h, alpha = self.h, self.h["alpha"]
        if h["staleness"] == "polynomial":
            alpha /= (1 + tau) ** h["a"]
        elif h["staleness"] == "hinge" and tau > h["b"]:
            alpha /= h["a"] * (tau - h["b"]) + 1
        self.mixed = self.theta + alpha * (upload - self.theta)

    def update(self) -> None:
        self.theta = self.mixed


class FedBuff(Method):
    """Also both variants of DeFedAvg, which have neither staleness weights nor momentum."""

    def start(self) -> None:
        self.buffer = self.velocity = np.zeros_like(self.theta)

    def arrive(self, i: int, upload: Vector, tau: int) -> None:
        self.buffer = self.buffer + upload / (1 + tau) ** self.h.get("staleness_power", 0)

    def update(self) -> None:
        self.velocity = self.h.get("momentum", 0) * self.velocity + self.buffer / self.S
        self.theta = self.theta + self.h["server_lr"] * self.velocity
        self.buffer = np.zeros_like(self.theta)


class AsyncFedED(Method):
    """A job brings the model that it started from along with its change."""

    def work(self, i: int, theta: Vector) -> tuple[Vector, Vector]:  # type: ignore[override]
        return theta, super().work(i, theta)

    def arrive(self, i: int, upload: tuple[Vector, Vector], tau: int) -> None:
        start, change = upload
        s = np.sqrt(((self.theta - start) ** 2).sum() / (change**2).sum())
        self.step = self.h["server_lr"] / (s + self.h["epsilon"]) * change

    def update(self) -> None:
        self.theta = self.theta + self.step


class CA2FL(Method):
    def start(self) -> None:
        self.cache = np.zeros((self.p.N, len(self.theta)))
        self.news = np.zeros_like(self.theta)
        self.mean = np.zeros_like(self.theta)

    def arrive(self, i: int, upload: Vector, tau: int) -> None:
        self.news = self.news + upload - self.cache[i]
        self.cache[i] = upload

    def update(self) -> None:
        self.theta = self.theta + self.h["server_lr"] * (self.mean + self.news / self.S)
        self.mean, self.news = self.cache.mean(0), np.zeros_like(self.theta)


class FADAS(Method):
    def start(self) -> None:
        self.buffer = self.m = self.v = self.vhat = np.zeros_like(self.theta)
        self.stalest = self.t = 0

    def arrive(self, i: int, upload: Vector, tau: int) -> None:
        self.buffer, self.stalest = self.buffer + upload, max(self.stalest, tau)

    def update(self) -> None:
        h, mean = self.h, self.buffer / self.S
        self.t += 1
        self.m = h["beta1"] * self.m + (1 - h["beta1"]) * mean
        self.v = h["beta2"] * self.v + (1 - h["beta2"]) * mean * mean
        self.vhat = np.maximum(self.vhat, self.v)
        top, bottom = self.m, np.sqrt(self.vhat)
        if h.get("bias_correction"):
            top = top / (1 - h["beta1"] ** self.t)
            bottom = bottom / np.sqrt(1 - h["beta2"] ** self.t)
        gamma = h["server_lr"]
        if "delay_threshold" in h and self.stalest > h["delay_threshold"]:
            gamma = min(gamma, 1 / self.stalest) if h.get("da_form") == "min" else gamma / self.stalest
        self.theta = self.theta + gamma * top / (bottom + h["epsilon"])
        self.buffer, self.stalest = np.zeros_like(self.theta), 0


class DuDe(Method):
    """Also ACE, which is the same with an update on every arrival."""

    def start(self) -> None:
        self.G = np.array([self.p.grad(i, self.theta) for i in range(self.p.N)])

    def work(self, i: int, theta: Vector) -> Vector:
        return self.p.grad(i, theta)

    def arrive(self, i: int, upload: Vector, tau: int) -> None:
        self.G[i] = upload

    def update(self) -> None:
        self.theta = self.theta - self.h["server_lr"] * self.G.mean(0)


class AREA(Method):
    """By what its sums of residuals are equal to: the mean of the models that all clients last trained."""

    def start(self) -> None:
        self.w = np.tile(self.theta, (self.p.N, 1))

    def work(self, i: int, theta: Vector) -> Vector:
        return theta + super().work(i, theta)

    def arrive(self, i: int, upload: Vector, tau: int) -> None:
        self.w[i] = upload

    def update(self) -> None:
        self.theta = self.w.mean(0)


class MasFL(Method):
    """The server's records c_i and the clients' own copies are kept apart; both change on receipt."""

    normalised = False

    def start(self) -> None:
        self.held = np.array([self.p.grad(i, self.theta) for i in range(self.p.N)])
        self.records = self.held.copy()
        self.g = self.c = self.records.mean(0)
        self.D = self.directions = np.zeros_like(self.theta)

    def down(self) -> tuple[Vector, ...]:
        return self.theta, self.h["beta"] * self.c + (1 - self.h["beta"]) * self.g

    def work(self, i: int, theta: Vector, p: Vector) -> tuple[Vector, Vector]:  # type: ignore[override]
        x, gradients, directions = theta, [], []
        for _ in range(self.K):
            gradients.append(self.p.grad(i, x))
            w = self.h["beta"] * (gradients[-1] - self.held[i]) + p
            directions.append(self.direction(w))
            x = x - self.h["lr"] * directions[-1]
        return np.mean(gradients, axis=0), np.mean(directions, axis=0)

    def direction(self, w: Vector) -> Vector:
        return w

    def arrive(self, i: int, upload: tuple[Vector, Vector], tau: int) -> None:
        G, direction = upload
        self.D, self.directions = self.D + G - self.records[i], self.directions + direction
        self.records[i] = self.held[i] = G

    def update(self) -> None:
        beta, gamma = self.h["beta"], self.h["server_lr"]
        self.g = beta * (self.D / self.S + self.c) + (1 - beta) * self.g
        self.theta = self.theta - gamma * (self.directions / self.S if self.normalised else self.g)
        self.c = self.records.mean(0)
        self.D = self.directions = np.zeros_like(self.theta)


class AdaMasFL(MasFL):
    normalised = True

    def direction(self, w: Vector) -> Vector:
        parts = np.split(w, [12]) if self.h.get("norm") == "tensor" else [w]  # weight (3, 4), bias (3,)
        return np.concatenate([part / np.sqrt(part @ part) for part in parts])
