"""The algorithm interface: a paper's pseudo-code over flat vectors, for ONE client of ONE run.

An algorithm is a dataclass whose fields are its hyper-parameters. Its methods are called in the order of
the pseudo-code; every vector has shape (d,), every other number is a 0-dim tensor. The engine loops the
methods over clients, vectorises them with torch.func.vmap or compiles them, so they must not branch in
Python on tensor values (use torch.where). Static variants (strings, booleans) live on `self`, which a run
must not change; numbers arrive in `h`, so that changing them recompiles nothing. A method makes tensors on
the device and of the type of one that it has (theta.new_zeros(3)), draws random numbers from client.uniform,
n.uniform and their like, and changes none in place that it was handed, which may be the server's own; what it
made itself, it may change.

    theta^0 -> [survey of all clients] -> server_init, client_init
    repeat: broadcast -> per client: local_init, K x local_step, local_final -> server_step(mean of uploads)

A local step that goes through `client.descend` works with every `optimizer=` of the configuration. Other
local steps are the method's own, and every optimizer but plain SGD is refused. Gradients arrive clipped if
`local.clip_norm` is set.

Hyper-parameters are declared as `lr: float = positive(0.1)`. The base class `Configured` handles what null
means, step sizes from a theorem (`theorem`) and rules between hyper-parameters (`check`).

What travels is what `broadcast` and `local_final` return: the sizes of those vectors are the logged
communication. The server sees uploads only through their (weighted) mean over the arrivals, unless the method
`stacks` them; it sends all clients the same, but for what is `addressed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NoReturn

import torch
from torch import Tensor

from fedbench.method.configured import Configured
from fedbench.method.outputs import Draws, Loss, Outputs, made_up
from fedbench.method.record import Record, Vectors
from fedbench.optimizer import PLAIN, Optimizer
from fedbench.theory.setting import Counts


@dataclass(frozen=True)
class Setting:
    """What an algorithm may use to refuse a run (`Algorithm.refusal`) or to size its vectors."""

    counts: Counts
    schedule: str  # "sync" | "async"
    d: int  # number of trainable parameters
    norm_index: Tensor  # (m,) positions in theta of normalisation layers' parameters
    sizes: tuple[int, ...] = ()  # numbers in each parameter tensor, in the order of theta
    optimizer: Optimizer = PLAIN  # of the local steps
    clips: bool = False  # mini-batch gradients are clipped
    scheduled: tuple[str, ...] = ()  # hyper-parameters that change over rounds
    names: tuple[str, ...] = ()  # of the parameter tensors, in the order of theta, such as "fc.weight"
    outputs: Callable[[], Outputs] = made_up  # of the initial model on two samples, for their shapes


ASKED = ("number", "labels", "draws")
"""What of a client engines hand on only where a method reads it."""


class Client:
    """What one client knows during its local work. Its gradients are of the current mini-batch."""

    down: Record  # what the server sent: its `broadcast`
    mine: Record  # what this client keeps: from `client_init`, then from its last `local_final`
    k: Tensor  # index of the local step, from 0 (only in local_step)
    steps: Tensor  # K_i, this client's number of local steps
    samples: Tensor  # n_i
    number: Tensor  # this client, 0 .. N - 1 (int64)
    labels: Tensor  # (classes,) how many of its samples have each label
    draw: Tensor  # one number in [0, 1) per job, from the addressed generator
    draws: Draws  # of `uniform` and `normal`
    full_grad: Tensor  # (d,) gradient of f_i at the broadcast theta, if `full_gradient`
    travelled: Tensor  # sum of the directions' weights in a job's steps (only in local_final)
    """K_i for plain SGD; more with momentum, which repeats directions in later steps: FedNova's ||a_i||_1."""

    def grad(self, theta: Tensor, loss: Loss | None = None) -> Tensor:
        """Gradient (d,) at `theta` on the current mini-batch; every call sees the same samples and masks. The
        first call of a step moves batch norm's running statistics, at whatever theta: so the first is that of
        the model to which they belong, which `keeps_buffers` lets each client keep.

        `loss`: from the `Outputs` at theta the loss of each sample (B,), in place of the task's. Its mean is
        differentiated; loss.weight_decay and loss.scale apply to it too."""
        raise NotImplementedError

    def loss_and_grad(self, theta: Tensor, loss: Loss | None = None) -> tuple[Tensor, Tensor]:
        """Loss (0-dim) and gradient (d,) at `theta` on the current mini-batch, as `grad` has it."""
        raise NotImplementedError

    def outputs(self, theta: Tensor) -> Outputs:
        """What the model says at `theta` of the current mini-batch, with the masks of its gradients. Nothing
        is differentiated, no statistics move, and no gradient evaluation is counted."""
        raise NotImplementedError

    def uniform(self, *shape: int) -> Tensor:
        """Numbers in [0, 1), drawn by the address (seed, client, job, step): the same in every engine and in
        a resumed run. Every call in a hook gives others."""
        return self.draws.uniform(*shape)

    def normal(self, *shape: int) -> Tensor:
        """Numbers from N(0, 1), drawn like those of `uniform`."""
        return self.draws.normal(*shape)

    def descend(self, y: Tensor, direction: Tensor, lr: Tensor) -> Tensor:
        """Return `y` (d,) after one step along `direction` (d,): y - lr * direction, or the step of the run's
        `optimizer=`. Call it once per local step."""
        return y - lr * direction

    def __getattr__(self, name: str) -> NoReturn:
        known = ", ".join(known for known in vars(self) if not known.startswith("_"))
        raise AttributeError(f"a client has no {name} here, only {known}")


class Algorithm(Configured):
    """Base of all methods. Subclasses override what their pseudo-code defines; the rest is like FedAvg."""

    title: ClassVar[str] = ""  # its name in the paper, if the class has another one
    paper: ClassVar[str] = ""  # short citation for tables
    checked_by: ClassVar[str] = ""
    """The test that compares it with its paper, FILE::FUNCTION. For fedbench's own methods without one it is
    that of the synchronous methods' equations; tests/algorithms/test_pages.py looks whether it is there."""
    survey: ClassVar[Literal["once", "cohort"] | None] = None
    """"once": K mini-batch gradients of ALL clients at theta^0; "cohort": full gradients, every round."""
    full_gradient = False  # its hooks read client.full_grad
    first_step: ClassVar[int] = 0  # local steps that local_init has already taken
    fixed_steps: ClassVar[int | None] = None  # the method defines K itself
    schedules: ClassVar[tuple[str, ...]] = ("sync", "async")
    full_participation: ClassVar[bool] = False  # the method is only defined for S = N
    every_arrival: ClassVar[bool] = False  # the method is only defined for S = 1
    keeps_buffers: ClassVar[bool] = False  # batch-norm statistics stay at the client
    caches: ClassVar[bool] = False
    """The server keeps each client's last upload, 0 at first. `mean` then also has, as `cached_<name>`, the
    mean of what it kept for this update's clients before the update."""
    recalls: ClassVar[bool] = False
    """The server remembers what it sent. `mean` then also has, as `sent_<name>`, the mean of what it had sent
    to this update's clients. This costs no communication."""
    stacks: ClassVar[bool] = False
    """The server sees uploads one by one: in `mean` every one of them is (S, ...), a row per arrival in the
    order of arrival, with `mean.weight` (S,), their weights in a mean (they sum to 1, times the arrival
    weights), and `mean.client` (S,) int64, who sent them. Uploads may then be integers. The server holds S
    uploads at once. A survey's stay a mean, and so do batch-norm statistics."""
    addressed: ClassVar[tuple[str, ...]] = ()
    """Entries of `broadcast` with a row for each client (N, ...). Client i gets row i (...), under the same
    name in `client.down`, and only that row travels. The server holds all of them."""
    problem_dependent: ClassVar[tuple[str, ...]] = ()  # hyper-parameters that must be tuned to the problem
    dispatch: ClassVar[dict[str, str]] = {}  # schedule settings that are part of the method (async)
    own_step: ClassVar[str] = "makes local steps of its own"  # why steps do not go through client.descend
    server_momentum: ClassVar[bool] = False  # `momentum` adds earlier rounds to the server's step
    weighting = "uniform"  # of clients in every mean; a method may make it a choice

    # ---- the method --------------------------------------------------------------------------------

    def survey_upload(self, grad: Tensor) -> Vectors:
        """What a surveyed client sends, from its mean survey gradient (d,)."""
        return {"grad": grad}

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        """Server state; must hold "theta". `survey`: mean of the uploads of all clients (survey="once")."""
        return {"theta": theta}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        """State that a client keeps between participations, from its own survey upload (survey="once")."""
        return {}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        """What the server sends to each dispatched client. `survey`: this round's mean (survey="cohort")."""
        return {"theta": server.theta}

    def local_init(self, client: Client, h: Record) -> Vectors:
        """Local state before the first step."""
        return {"y": client.down.theta}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        """One mini-batch step: the entries of the local state that change."""
        return {"y": client.descend(local.y, client.grad(local.y), h.lr)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        """(upload, what the client keeps)."""
        return {"delta": local.y - client.down.theta}, {}

    def sent_bytes(self, upload: Record) -> int | None:
        """The bytes that travel with an upload (a client's own, of the shapes at hand), if they are not those
        of its vectors, as with few or coarse numbers. It is asked once, before the run."""
        return None

    def arrival_weight(self, staleness: Tensor, h: Record) -> Tensor:
        """Factors (jobs,) on uploads that arrive `staleness` (jobs,) versions late; float64."""
        return torch.ones_like(staleness)

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        """Next server state from the mean upload (survey="cohort": also from the mean survey upload). Entries
        that it lacks stay as they are."""
        raise NotImplementedError

    def server_statistics(self, server: Vectors, mean: Vectors, n: Counts, h: Record) -> Vectors:
        """Next batch-norm statistics of the server, from its own and the arrivals' mean: their mean."""
        return mean

    def personal(self, server: Record, mine: Record) -> Tensor:
        """The model (d,) that a client evaluates, for methods with personal parts (see `is_personal`), from
        the server's state and what the client keeps. `mine.number` (0-dim, int64) is the client's."""
        return server.theta

    def measured(self, gradient: Callable[[Tensor], Tensor], theta: Tensor) -> dict[str, float]:
        """Hyper-parameters measured at theta^0 before the run, not counted as cost. `gradient`: that of f, on
        all training data."""
        return {}

    # ---- checks and settings -----------------------------------------------------------------------

    def bind(self, setting: Setting) -> None:
        """Prepare what depends on the model, once before the run (index sets and the like)."""

    def refusal(self, setting: Setting) -> str | None:
        """Why this run makes no sense for this method, or None."""
        n = setting.counts
        if self.every_arrival and n.S != 1:
            return f"updates on every single arrival: it needs clients.per_round=1, not {n.S}"
        if self.full_participation and n.S < n.N:
            return f"is defined for full participation only (clients.per_round={n.S}, clients.total={n.N})"
        if setting.schedule not in self.schedules:
            return f"does not run under schedule={setting.schedule}"
        if setting.clips and (self.survey or self.full_gradient):
            return "compares mini-batch gradients with others, which local.clip_norm does not clip"
        return None

    def not_mean(self, setting: Setting) -> str | None:
        """Why no server_lr makes the server take the mean of the clients' models in this run, or None."""
        momentum: float = getattr(self, "momentum", 0.0)
        if self.server_momentum and momentum:
            return "its momentum adds earlier rounds; algorithm.momentum=0 would not"
        if self.convention == "G" and setting.schedule == "async" and "lr" in setting.scheduled:
            return "lr_schedule gives an update's jobs different rates"
        return None

    @property
    def keeps_state(self) -> bool:
        """Whether clients keep vectors between participations."""
        return type(self).client_init is not Algorithm.client_init or self.keeps_buffers

    @property
    def is_personal(self) -> bool:
        """Whether clients evaluate models of their own."""
        return type(self).personal is not Algorithm.personal
