"""The clients' optimizers (`optimizer=`): how a direction becomes a local step, in torch.optim's arithmetic.

A step is pure tensor operations for one client. The engine loops, vectorises or compiles it, like the code of
a method. Numbers arrive as tensors in `h`; only what changes a step's code is read from the optimizer itself.
No torch is imported here, so that a configuration can be read without it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedbench.errors import ConfigError
from fedbench.fields import decay, nonnegative, positive, switch

if TYPE_CHECKING:
    from torch import Tensor

Vectors = dict[str, "Tensor"]
_DECAY = "adds weight_decay times the parameters to the direction, after clipping"


@dataclass(frozen=True)
class Optimizer(ABC):
    """The options of all optimizers, and the interface that the engine uses."""

    name: ClassVar[str]
    adaptive: ClassVar[bool] = True  # a step is not a sum of directions with known weights
    weight_decay: float = nonnegative(0.0, help=_DECAY)
    keep: bool = switch(False, help="true: a client's next job goes on with the state of its last one")

    def __post_init__(self) -> None:
        if self.keep and not self.state:
            allowed = f"optimizer={self.name} without momentum has no state to keep"
            raise ConfigError("optimizer.keep", True, allowed)

    @property
    @abstractmethod
    def state(self) -> dict[str, bool]:
        """The state that a job carries from step to step, 0 at first: name -> True for a vector (d,), False
        for a number."""

    @property
    def plain(self) -> bool:
        """Whether a step is y - lr * direction and nothing else."""
        return False

    @property
    def shape(self) -> tuple[object, ...]:
        """What the code of a compiled step depends on."""
        return self.name, *self.state, self.weight_decay > 0, self.keep

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that `step` gets in `h`, as tensors there."""
        return {"weight_decay": self.weight_decay}

    @abstractmethod
    def step(self, y: Tensor, q: Tensor, lr: Tensor, s: Vectors, h: Vectors) -> tuple[Tensor, Vectors]:
        """Return `y` (d,) after a step along the direction q (d,), and the new state; `s`: the old one."""

    def travelled(self, steps: Tensor, before: Vectors, after: Vectors, h: Vectors) -> Tensor:
        """The sum of the weights of the directions of `steps` steps in y (see `Client.travelled`). `before`,
        `after`: the state before and after the steps."""
        return steps

    def _decayed(self, q: Tensor, y: Tensor, h: Vectors) -> Tensor:
        return q + h["weight_decay"] * y if self.weight_decay else q


@dataclass(frozen=True)
class SGD(Optimizer):
    """torch.optim.SGD: b <- momentum b + q;  y <- y - lr b  (nesterov: y - lr (q + momentum b))."""

    name = "sgd"
    adaptive = False
    momentum: float = decay(0.0, help="of the local steps; 0: y - lr q")
    nesterov: bool = switch(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ConfigError("optimizer.nesterov", True, "needs optimizer.momentum > 0")

    @property
    def plain(self) -> bool:
        return not self.momentum and not self.weight_decay

    @property
    def state(self) -> dict[str, bool]:
        return {"b": True, "unit": False} if self.momentum else {}

    @property
    def shape(self) -> tuple[object, ...]:
        return *super().shape, self.nesterov

    @property
    def numbers(self) -> dict[str, float]:
        return {**super().numbers, "momentum": self.momentum}

    def step(self, y: Tensor, q: Tensor, lr: Tensor, s: Vectors, h: Vectors) -> tuple[Tensor, Vectors]:
        q = self._decayed(q, y, h)
        if not self.momentum:
            return y - lr * q, {}
        b, unit = h["momentum"] * s["b"] + q, h["momentum"] * s["unit"] + 1  # unit: b if all q were 1
        return y - lr * (q + h["momentum"] * b if self.nesterov else b), {"b": b, "unit": unit}

    def travelled(self, steps: Tensor, before: Vectors, after: Vectors, h: Vectors) -> Tensor:
        if not self.momentum:
            return steps
        rho = h["momentum"]
        units = (steps - rho * (after["unit"] - before["unit"])) / (1 - rho)  # sum of `unit` over steps
        return steps + rho * units if self.nesterov else units


@dataclass(frozen=True)
class Adam(Optimizer):
    """torch.optim.Adam: m <- b1 m + (1-b1) q;  v <- b2 v + (1-b2) q^2;  in step t
    y <- y - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon)."""

    name = "adam"
    beta1: float = decay(0.9)
    beta2: float = decay(0.999)
    epsilon: float = positive(1e-8)

    @property
    def state(self) -> dict[str, bool]:
        return {"m": True, "v": True, "t": False}

    @property
    def numbers(self) -> dict[str, float]:
        """With 1 - beta and log(beta), computed in float64: in float32 they are inexact if beta is near 1."""
        values = {**super().numbers, "epsilon": self.epsilon}
        for i, beta in ((1, self.beta1), (2, self.beta2)):
            log = math.log(beta) if beta else -math.inf
            values |= {f"beta{i}": beta, f"rest{i}": 1 - beta, f"log{i}": log}
        return values

    def step(self, y: Tensor, q: Tensor, lr: Tensor, s: Vectors, h: Vectors) -> tuple[Tensor, Vectors]:
        q = self._decayed(q, y, h)
        t = s["t"] + 1
        m = h["beta1"] * s["m"] + h["rest1"] * q
        v = h["beta2"] * s["v"] + h["rest2"] * q * q
        biases = [-(t * h[name]).expm1() for name in ("log1", "log2")]  # 1 - beta^t
        y = y - lr / biases[0] * m / ((v / biases[1]).sqrt() + h["epsilon"])
        return y, {"m": m, "v": v, "t": t}


@dataclass(frozen=True)
class AdamW(Adam):
    """torch.optim.AdamW: Adam, but its weight decay is y <- (1 - lr weight_decay) y before the step."""

    name = "adamw"
    weight_decay: float = nonnegative(0.01, help="times lr: the share that parameters lose in a step")

    def step(self, y: Tensor, q: Tensor, lr: Tensor, s: Vectors, h: Vectors) -> tuple[Tensor, Vectors]:
        return super().step((1 - lr * h["weight_decay"]) * y, q, lr, s, h)

    def _decayed(self, q: Tensor, y: Tensor, h: Vectors) -> Tensor:
        return q


OPTIMIZERS: dict[str, type[Optimizer]] = {cls.name: cls for cls in (SGD, Adam, AdamW)}
PLAIN = SGD()
