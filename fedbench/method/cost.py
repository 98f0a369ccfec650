"""What a method sends, keeps and computes, measured by running its pseudo-code on zeros.

The vectors in `broadcast` and in the upload ARE the communication. They are counted here, so the numbers in
logs and tables cannot drift from the code. A large model has small stand-ins, since zeros of its own size
would take seconds and gigabytes. (The meta device would load a compiler: 4 s of CPU.)
"""

from __future__ import annotations

import copy
import dataclasses
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.method.interface import Algorithm, Client, Setting
from fedbench.method.record import Record, Vectors

LARGE = 10**6
"""Numbers of a model from which on the costs are measured on stand-ins."""


@dataclass(frozen=True)
class Cost:
    """Sizes in numbers (multiply by the dtype's bytes; scalars are free), and counts of gradients."""

    uplink: int  # per upload, including a cohort survey's
    downlink: int  # per dispatched job
    survey_uplink: int  # per client, once, before round 0
    survey_downlink: int
    client_state: int  # kept per client between participations
    server_state: int  # kept at the server besides theta
    calls_per_step: int  # gradients per local step
    full_passes: int  # full local passes per job
    descends: bool = dataclasses.field(default=False, compare=False)  # its steps go through client.descend
    has_y: bool = dataclasses.field(default=False, compare=False)  # a client's model is y, in its local state


class _ShapeClient(Client):
    def __init__(self, d: int, down: Vectors, mine: Vectors) -> None:
        self.down, self.mine = Record(down), Record(mine)
        scalar = torch.zeros(())
        self.k = self.steps = self.samples = self.draw = self.travelled = scalar
        self.full_grad = torch.zeros(d)
        self.calls, self.descends = 0, False

    def grad(self, theta: Tensor) -> Tensor:
        return self.loss_and_grad(theta)[1]

    def loss_and_grad(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return torch.zeros(()), torch.zeros_like(theta)

    def descend(self, y: Tensor, direction: Tensor, lr: Tensor) -> Tensor:
        self.descends = True
        return super().descend(y, direction, lr)


def size(vectors: Vectors) -> int:
    """Total count of numbers in the vectors of a dict; scalars do not count."""
    return sum(value.numel() for value in vectors.values() if value.dim() > 0)


def measure(algorithm: Algorithm, setting: Setting) -> Cost:
    """Return the Cost of a bound algorithm for a model of setting.d numbers. Raises ConfigError if one of its
    hooks returns something else than it should."""
    if setting.d < LARGE or sum(setting.sizes) != setting.d:
        return _measure(algorithm, setting)
    return _extrapolated(algorithm, setting) or _measure(algorithm, setting)


def _extrapolated(algorithm: Algorithm, setting: Setting) -> Cost | None:
    """The Cost from stand-ins whose tensors have a few numbers each, drawn anew for each stand-in.

    Every cost is a (numbers of normalisation layers) + b (other numbers) + c with integers a, b, c. None if
    the stand-ins do not all say so, as for a method that sends only some of the tensors.
    """
    of_norm = np.isin(np.cumsum(setting.sizes) - 1, setting.norm_index.cpu().numpy())
    points, costs = [], []
    for k in range(5):
        draw = random.Random(k)
        sizes = np.array([draw.randint(1, 99) for _ in setting.sizes])
        norm = torch.from_numpy(np.flatnonzero(np.repeat(of_norm, sizes)))
        small = dataclasses.replace(setting, d=int(sizes.sum()), norm_index=norm, sizes=tuple(sizes.tolist()))
        stand_in = copy.copy(algorithm)
        stand_in.bind(small)
        points.append([sizes[of_norm].sum(), sizes[~of_norm].sum(), 1])
        costs.append(dataclasses.astuple(_measure(stand_in, small)))
    known, measured = np.array(points), np.array(costs, dtype=np.int64)
    slopes = np.rint(np.linalg.lstsq(known, measured, rcond=None)[0]).astype(np.int64)
    if (known @ slopes != measured).any():
        return None
    whole = np.array([len(setting.norm_index), setting.d - len(setting.norm_index), 1]) @ slopes
    kinds = [type(value) for value in costs[0]]
    return Cost(*(kind(value) for kind, value in zip(kinds, whole, strict=True)))


def _measure(algorithm: Algorithm, setting: Setting) -> Cost:
    """`measure`, with vectors of the model's own size."""
    scalar = torch.zeros(())
    h = Record(dict.fromkeys(algorithm.numbers(), scalar))
    theta = torch.zeros(setting.d)

    def call(hook: str, *given: Any) -> Any:
        return _vectors(algorithm, hook, getattr(algorithm, hook)(*given))

    survey = call("survey_upload", theta) if algorithm.survey else {}
    once = algorithm.survey == "once"
    at_start, each_round = Record(survey if once else {}), Record({} if once else survey)
    server = call("server_init", theta, at_start, h)
    mine = call("client_init", theta, at_start, h)
    down = call("broadcast", Record(server), each_round, setting.counts, h)
    client = _ShapeClient(setting.d, down, mine)
    local = call("local_init", client, h)
    local = {**local, **call("local_step", Record(local), client, h)}
    upload, keep = _pair(algorithm, algorithm.local_final(Record(local), client, h))
    if not algorithm.caches:  # else `mean` needs the cached uploads too
        sent = {f"sent_{name}": value for name, value in down.items()} if algorithm.recalls else {}
        mean = Record({**({} if once else survey), **upload, **sent})
        call("server_step", Record(server), mean, setting.counts, h)
    survey_size, carried = size(survey), sum(setting.optimizer.state.values()) * setting.d
    return Cost(
        uplink=size(upload) + (0 if once else survey_size),
        downlink=size(down),
        survey_uplink=survey_size if once else 0,
        survey_downlink=setting.d if once else 0,
        client_state=size({**mine, **keep}) + (carried if setting.optimizer.keep else 0),
        server_state=size(server) - setting.d,
        calls_per_step=client.calls,
        full_passes=int(algorithm.full_gradient) + int(algorithm.survey == "cohort"),
        descends=client.descends,
        has_y="y" in local,
    )


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "nothing" if value is None else f"a{'n' * (name[0] in 'aeiou')} {name}"


def _vectors(algorithm: Algorithm, hook: str, returned: Any) -> Vectors:
    """What a hook has returned. Raises ConfigError if that is no dict of tensors."""
    what = _kind(returned)
    if isinstance(returned, dict):
        wrong = [name for name, value in returned.items() if not isinstance(value, Tensor)]
        if not wrong:
            return returned
        what = f"{_kind(returned[wrong[0]])} as {wrong[0]!r}"
    allowed = f"its {hook} must return a dict of tensors, and returns {what}"
    raise ConfigError("algorithm", algorithm.name, allowed)


def _pair(algorithm: Algorithm, returned: Any) -> tuple[Vectors, Vectors]:
    """The upload and what a client keeps, as local_final returns them."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        allowed = "its local_final must return two dicts (upload, what the client keeps), and returns "
        raise ConfigError("algorithm", algorithm.name, allowed + _kind(returned))
    upload, keep = (_vectors(algorithm, "local_final", part) for part in returned)
    return upload, keep
