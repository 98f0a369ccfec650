"""Learning rates over rounds: `lr_schedule=` acts on algorithm.lr, `server_lr_schedule=` on
algorithm.server_lr. A schedule multiplies the rate by a factor in every round t of T."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from fedbench.fields import custom, integer, number, positive
from fedbench.schedule.laws import integers


@dataclass(frozen=True)
class RateSchedule(ABC):
    """The options shared by all schedules."""

    name: ClassVar[str]
    warmup: int = integer(
        0, low=0, help="number of first rounds in which the rate rises; round t has (t+1)/warmup of it"
    )

    def factor_at(self, t: int, rounds: int) -> float:
        """The factor by which the rate is multiplied in round `t` (from 0) of `rounds`."""
        return (t + 1) / self.warmup if t < self.warmup else self.after_warmup(t, rounds)

    @abstractmethod
    def after_warmup(self, t: int, rounds: int) -> float:
        """The same factor for t >= warmup."""


@dataclass(frozen=True)
class ConstantRate(RateSchedule):
    """The same rate in every round."""

    name = "constant"

    def after_warmup(self, t: int, rounds: int) -> float:
        return 1.0


@dataclass(frozen=True)
class ExponentialRate(RateSchedule):
    """factor^s, s the rounds since the warm-up (FedDyn, FedCM, FedExP: 0.998)."""

    name = "exponential"
    factor: float = positive(0.998, help="multiplies the rate after every round")

    def after_warmup(self, t: int, rounds: int) -> float:
        return self.factor ** (t - self.warmup)


def _milestones(value: Any) -> tuple[int, ...]:
    if len(rounds := integers(value)) > len(set(rounds)):
        raise ValueError
    return rounds


@dataclass(frozen=True)
class StepRate(RateSchedule):
    """factor^m, m the number of milestones <= t (FedNova: 0.1 at 1/2 and 3/4 of the rounds)."""

    name = "step"
    milestones: tuple[int, ...] = custom(
        None,
        _milestones,
        "a list of different rounds, such as [50, 75]",
        help="rounds at which the rate drops, counted from 0 and including the warm-up; must be given",
    )
    factor: float = positive(0.1, help="multiplies the rate at every milestone")

    def after_warmup(self, t: int, rounds: int) -> float:
        return self.factor ** sum(milestone <= t for milestone in self.milestones)


@dataclass(frozen=True)
class CosineRate(RateSchedule):
    """min + (1 - min) (1 + cos(pi s/H)) / 2, s the rounds since the warm-up, H = T - warmup."""

    name = "cosine"
    min: float = number(0.0, low=0.0, high=1.0, help="what is left at the end, as a share of the rate")

    def after_warmup(self, t: int, rounds: int) -> float:
        progress = (t - self.warmup) / (rounds - self.warmup)
        return self.min + (1 - self.min) * (1 + math.cos(math.pi * progress)) / 2


RATES: dict[str, type[RateSchedule]] = {
    cls.name: cls for cls in (ConstantRate, ExponentialRate, StepRate, CosineRate)
}
UNSCHEDULED = ConstantRate()
