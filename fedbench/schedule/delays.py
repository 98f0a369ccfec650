"""From the keys of `delay=` to the duration of any job, and from `p_fail` to its failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbench.errors import ConfigError
from fedbench.rng import Stream, fold, make_key, uniform
from fedbench.schedule.classes import Bands, HeteroExponential, ThreeLevel, lognormal_speeds
from fedbench.schedule.fields import Fields
from fedbench.schedule.laws import (
    Bits,
    Constant,
    Exponential,
    HalfNormal,
    Law,
    LogNormal,
    Pareto,
    Table,
    Uniform,
    Zero,
)
from fedbench.schedule.trace import Floats, Ints

LAWS: dict[str, type[Law]] = {
    "none": Zero,
    "constant": Constant,
    "uniform": Uniform,
    "bands": Bands,
    "half_normal": HalfNormal,
    "exponential": Exponential,
    "lognormal": LogNormal,
    "hetero_exponential": HeteroExponential,
    "pareto": Pareto,
    "three_level": ThreeLevel,
    "table": Table,
}

SURVEY = 1 << 40  # in place of n: the survey before round 0; no client reaches so many jobs
_BLOCK = 1 << 16  # jobs computed at once


@dataclass(frozen=True)
class Payload:
    """What a job moves and computes, for delays with `transfer` keys."""

    down_bytes: float
    up_bytes: float
    steps: int | Ints  # K, or one number per client


class Delays:
    """The duration of the n-th job of client i: a pure function of (seed, DURATION, i, n) and of i's class.

    duration = speed_i * draw, or with `transfer` keys
    down_bytes / down_i + steps_i * step_i * speed_i * draw + up_bytes / up_i (specification, 11.6).
    """

    def __init__(self, cfg: Any, payload: Payload | None = None) -> None:
        """`cfg`: the whole configuration; `payload`: needed where `transfer` is used. Raises ConfigError."""
        self.clients, self.seed = int(cfg["clients"]["total"]), int(cfg["seed"])
        fields = Fields("delay", cfg["delay"])
        law = LAWS[fields.choice("name", tuple(LAWS))]
        common = () if law is Zero else ("speed", "transfer")
        fields.only(*law.keys, *common)
        self.law = law(fields, self.clients, self.seed)
        self.speed: float | list[float] | None = None
        if isinstance(fields.get("speed"), list):
            self.speed = fields.per_client("speed", self.clients, above=0)
        elif fields.get("speed") is not None:
            self.speed = fields.number("speed", low=0, high=20)
        transfer = Fields("delay.transfer", fields.get("transfer") or {})
        transfer.only("down", "up", "step")
        self.transfer = {
            name: transfer.per_client(name, self.clients, above=0)
            for name in ("down", "up", "step")
            if transfer.get(name) is not None
        }
        self.payload = payload
        self._tables: tuple[Any, ...] | None = None

    def __call__(self, client: Ints, n: Ints) -> Floats:
        """Durations (m,) of the n-th jobs of `client`, both int64 of shape (m,)."""
        if len(client) > _BLOCK:
            cuts = range(0, len(client), _BLOCK)
            return np.concatenate([self(client[a : a + _BLOCK], n[a : a + _BLOCK]) for a in cuts])
        keys, scale, offset = self._prepare()
        bits = Bits(fold((keys[0][client], keys[1][client]), n))
        draw = self.law.sample(client, n, bits)
        if scale is not None:
            draw = scale[client] * draw
        return draw if offset is None else offset[client] + draw

    def survey(self) -> float:
        """The duration of the exchange with all clients before round 0: that of the slowest one."""
        everyone = np.arange(self.clients, dtype=np.int64)
        return float(self(everyone, np.full(self.clients, SURVEY, dtype=np.int64)).max())

    def _prepare(self) -> tuple[Any, ...]:
        """Per client: the DURATION key, the factor of the draw, the transfer time (None: there is none)."""
        if self._tables is None:
            everyone = np.arange(self.clients, dtype=np.int64)
            keys = make_key(self.seed, Stream.DURATION, everyone)
            scale = offset = None
            if isinstance(self.speed, list):
                scale = np.array(self.speed)
            elif self.speed is not None:
                scale = lognormal_speeds(self.seed, self.clients, self.speed)
            if self.transfer:
                scale, offset = self._transfer(scale)
            self._tables = (keys, scale, offset)
        return self._tables

    def _transfer(self, scale: Floats | None) -> tuple[Floats, Floats]:
        if self.payload is None:
            raise ConfigError("delay.transfer", self.transfer, "must be null here: the payload is not known")
        moved, ones = self.payload, np.ones(self.clients)
        factor = ones * self.transfer.get("step", 1.0) * (ones if scale is None else scale)
        down = moved.down_bytes / (ones * self.transfer.get("down", np.inf))
        up = moved.up_bytes / (ones * self.transfer.get("up", np.inf))
        return (factor * moved.steps if "step" in self.transfer else factor), down + up


def failures(cfg: Any, p_fail: float) -> Callable[[Ints, Ints], Floats]:
    """The part of its work that job n of client i does: 1, or less if it dies; from (FAILURE, i, n)."""
    seed = int(cfg["seed"])

    def work(client: Ints, n: Ints) -> Floats:
        key = make_key(seed, Stream.FAILURE, client, n)
        dies = np.asarray(uniform(key)) < p_fail
        return np.where(dies, np.asarray(uniform(fold(key, 1))), 1.0)

    return work
