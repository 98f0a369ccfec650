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
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.method.hooks import Hooks
from fedbench.method.interface import ASKED, Algorithm, Client, Setting
from fedbench.method.outputs import Draws, Loss, Outputs
from fedbench.method.record import Record, Vectors
from fedbench.theory.setting import Counts
from fedbench.torch_internals import Watch

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
    written: int = dataclasses.field(default=0, compare=False)  # by a job's hooks, with one step
    uplink_bytes: int = dataclasses.field(default=0, compare=False)  # those of `uplink`, or what travels
    outputs: int = dataclasses.field(default=0, compare=False)  # forward passes per step besides gradients
    number: bool = dataclasses.field(default=False, compare=False)  # its hooks read client.number
    labels: bool = dataclasses.field(default=False, compare=False)
    draws: bool = dataclasses.field(default=False, compare=False)  # they call client.uniform or normal
    addressed: int = dataclasses.field(default=0, compare=False)  # of the downlink, what is for one client
    reuses: bool = dataclasses.field(default=False, compare=False)  # a job's full gradient is its survey's


class Counter(Watch):
    """Counts operations and the numbers that they write, while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.written = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.operations += 1
            outputs = result if isinstance(result, tuple | list) else (result,)
            self.written += sum(out.numel() for out in outputs if isinstance(out, Tensor))
        return result


class _ShapeClient(Client):
    def __init__(
        self, hooks: Hooks, setting: Setting, dtype: torch.dtype, down: Vectors, mine: Vectors
    ) -> None:
        self.down, self.mine = Record(down), Record(mine)
        facts = [torch.zeros((), dtype=dtype) for _ in range(4)]
        self.steps, self.samples, self.draw, self.travelled = facts
        self.k, self.full_grad = torch.zeros((), dtype=torch.int64), torch.zeros(setting.d, dtype=dtype)
        self.calls, self.passes, self.descends, self.asked = 0, 0, False, set[str]()
        self._hooks, self._outputs = hooks, setting.outputs

    def __getattr__(self, name: str) -> Any:
        if name not in ASKED:
            super().__getattr__(name)  # raises
        self.asked.add(name)
        if name == "draws":
            return Draws((self.k, self.k), self.steps)
        return self.k if name == "number" else self.steps.new_zeros(self._outputs().logits.shape[-1])

    def grad(self, theta: Tensor, loss: Loss | None = None) -> Tensor:
        return self.loss_and_grad(theta, loss)[1]

    def loss_and_grad(self, theta: Tensor, loss: Loss | None = None) -> tuple[Tensor, Tensor]:
        self.calls += 1
        if loss is not None:
            outputs = self._outputs()
            self._hooks.of_samples(loss(outputs), len(outputs.y))
        return theta.new_zeros(()), torch.zeros_like(theta)

    def outputs(self, theta: Tensor) -> Outputs:
        self.passes += 1
        return self._outputs()

    def descend(self, y: Tensor, direction: Tensor, lr: Tensor) -> Tensor:
        self.descends = True
        return super().descend(y, direction, lr)


def size(vectors: Vectors) -> int:
    """Total count of numbers in the vectors of a dict; scalars do not count."""
    return sum(value.numel() for value in vectors.values() if value.dim() > 0)


def measure(algorithm: Algorithm, setting: Setting, dtype: torch.dtype = torch.float32) -> Cost:
    """Return the Cost of a bound algorithm for a model of setting.d numbers of type `dtype`. Raises
    ConfigError if one of its hooks returns something else than it should, or changes what it is handed."""
    rows = max(setting.counts.S if algorithm.stacks else 1, setting.counts.N if algorithm.addressed else 1)
    if setting.d * rows < LARGE or sum(setting.sizes) != setting.d:
        return _measure(algorithm, setting, dtype)
    return _extrapolated(algorithm, setting, dtype) or _measure(algorithm, setting, dtype)


def _extrapolated(algorithm: Algorithm, setting: Setting, dtype: torch.dtype) -> Cost | None:
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
        costs.append(dataclasses.astuple(_measure(stand_in, small, dtype)))
    known, measured = np.array(points), np.array(costs, dtype=np.int64)
    slopes = np.rint(np.linalg.lstsq(known, measured, rcond=None)[0]).astype(np.int64)
    if (known @ slopes != measured).any():
        return None
    whole = np.array([len(setting.norm_index), setting.d - len(setting.norm_index), 1]) @ slopes
    kinds = [type(value) for value in costs[0]]
    return Cost(*(kind(value) for kind, value in zip(kinds, whole, strict=True)))


class _Job(NamedTuple):
    """What the hooks up to a client's upload give, on zeros."""

    survey: Vectors
    server: Vectors
    mine: Vectors
    sent: Vectors
    down: Vectors
    client: _ShapeClient
    local: Vectors
    upload: Vectors
    keep: Vectors
    written: int


def upload_of(algorithm: Algorithm, setting: Setting) -> Vectors:
    """What a client of a bound algorithm sends, on zeros. Raises ConfigError as `measure` does."""
    theta = torch.zeros(setting.d)
    return _job(Hooks(algorithm), setting, theta, *_given(algorithm, setting, theta)).upload


def _given(algorithm: Algorithm, setting: Setting, theta: Tensor) -> tuple[Counts, Record]:
    """The counts and the hyper-parameters that hooks are handed, on zeros."""
    counts = dataclasses.replace(setting.counts, draws=Draws((0, 0), theta))
    return counts, Record({name: theta.new_zeros(()) for name in algorithm.numbers()})


def _job(hooks: Hooks, setting: Setting, theta: Tensor, counts: Counts, h: Record) -> _Job:
    algorithm, once = hooks.algorithm, hooks.algorithm.survey == "once"
    survey = hooks.vectors("survey_upload", theta) if algorithm.survey else {}
    hooks.averages("survey_upload", survey)
    at_start, each_round = Record(survey if once else {}), Record({} if once else survey)
    server = hooks.vectors("server_init", theta, at_start, h)
    hooks.holds("server_init", server, "theta")
    mine = hooks.vectors("client_init", theta, at_start, h)
    sent = hooks.vectors("broadcast", Record(server), each_round, counts, h)
    if algorithm.full_gradient:
        hooks.holds("broadcast", sent, "theta", ", at which full_gradient is taken")
    hooks.addresses(sent, algorithm.addressed, counts.N)
    down = {name: value[0] if name in algorithm.addressed else value for name, value in sent.items()}

    client = _ShapeClient(hooks, setting, theta.dtype, down, mine)
    with Counter() as job:
        local = hooks.vectors("local_init", client, h)
        changed = hooks.vectors("local_step", Record(local), client, h)
        hooks.changes("local_step", changed, local)
        upload, keep = hooks.local_final(Record({**local, **changed}), client, h)
    return _Job(survey, server, mine, sent, down, client, local, upload, keep, job.written)


def _measure(algorithm: Algorithm, setting: Setting, dtype: torch.dtype) -> Cost:
    """`measure`, with vectors of the model's own size."""
    hooks, once, theta = Hooks(algorithm), algorithm.survey == "once", torch.zeros(setting.d, dtype=dtype)
    counts, h = _given(algorithm, setting, theta)
    survey, server, mine, sent, down, client, local, upload, keep, written = _job(
        hooks, setting, theta, counts, h
    )
    travels = hooks.sent_bytes(Record(upload))
    if not algorithm.stacks:
        hooks.averages("local_final", upload)
    hooks.replaces("local_final", keep, mine, "client_init")

    cached = {f"cached_{name}": value.clone() for name, value in upload.items()} if algorithm.caches else {}
    recalled = {f"sent_{name}": value.clone() for name, value in down.items()} if algorithm.recalls else {}
    arrived = {**upload, **cached, **recalled}
    if algorithm.stacks:
        hooks.sends(upload)
        arrived = {name: value.expand(counts.S, *value.shape).clone() for name, value in arrived.items()}
        arrived["weight"] = theta.new_full((counts.S,), 1 / counts.S)
        arrived["client"] = torch.arange(counts.S)
    mean = Record({**({} if once else survey), **arrived})
    hooks.vectors("server_step", Record(server), mean, counts, h)
    if algorithm.is_personal:
        number = torch.zeros((), dtype=torch.int64)
        hooks.personal(Record(server), Record({"number": number, **mine, **keep}))
    both = algorithm.full_gradient and algorithm.survey == "cohort" and not algorithm.keeps_buffers
    reuses = both and sent["theta"] is server["theta"]
    survey_size, carried = size(survey), sum(setting.optimizer.state.values()) * setting.d
    vectors = [value for value in upload.values() if value.dim() > 0]
    if travels is None:
        travels = sum(value.numel() * value.element_size() for value in vectors)
    return Cost(
        uplink=size(upload) + (0 if once else survey_size),
        downlink=size(down),
        survey_uplink=survey_size if once else 0,
        survey_downlink=setting.d if once else 0,
        client_state=size({**mine, **keep}) + (carried if setting.optimizer.keep else 0),
        server_state=size(server) - setting.d,
        calls_per_step=client.calls,
        full_passes=int(algorithm.full_gradient) + int(algorithm.survey == "cohort") - int(reuses),
        descends=client.descends,
        written=written + size(local) + carried,
        uplink_bytes=travels + (0 if once else survey_size * dtype.itemsize),
        outputs=client.passes,
        **{name: name in client.asked for name in ASKED},
        addressed=size({name: down[name] for name in algorithm.addressed}),
        reuses=reuses,
    )
