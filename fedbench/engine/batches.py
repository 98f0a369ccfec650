"""Which samples a job's local steps see: index tensors for a whole chunk of clients, drawn by address.

A client goes through its data in passes; every pass is a fresh permutation, cut into batches of
min(B, n_i) (the last batch of a pass may be smaller), for as many passes as its K_i steps need. So E local
epochs are exactly E * ceil(n_i / B) steps. The permutation of pass p of a job depends only on (seed, stream,
client, n, p): it sorts hashed keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbench.rng import MASK, Stream, fold, make_key, uniform


class ClientIndex:
    """The partition on the device: samples grouped by client (compressed rows)."""

    def __init__(self, assignment: np.ndarray, clients: int, device: torch.device | str = "cpu") -> None:
        """`assignment`: (n,) client of every training sample; every client needs at least one."""
        sizes = np.bincount(assignment, minlength=clients)
        self.sizes = sizes.astype(np.int64)  # (N,) on the host
        self.order = torch.from_numpy(np.argsort(assignment, kind="stable")).to(device)
        self.size = torch.from_numpy(self.sizes).to(device)
        self.start = torch.cumsum(self.size, 0) - self.size
        self.device = self.order.device

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True)
class Jobs:
    """A chunk of C jobs: client and running job index on the device, data sizes on the host."""

    client: Tensor  # (C,)
    n: Tensor  # (C,)
    sizes: np.ndarray  # (C,) n_i
    host: np.ndarray  # (C,) client, on the host
    host_n: np.ndarray  # (C,) n, on the host


class Batch(NamedTuple):
    """One mini-batch of one client, by reference into the data on the device."""

    samples: Tensor  # (B,) rows of the data
    real: Tensor | None  # 0-dim: that many of them are real, the rest is padding; None: all are
    key: Tensor | None  # (2,) key of this step's dropout and augmentation


@dataclass(frozen=True)
class BatchIndices:
    """Mini-batches of a chunk of C jobs over at most K steps; step-major, so that a step is contiguous."""

    index: Tensor  # (K, C, B) sample ids
    count: Tensor | None  # (K, C) valid samples in each batch (0 beyond a job's steps), None: all B
    steps: Tensor  # (C,) K_i
    keys: Tensor | None = None  # (K, C, 2) of what is random inside a step

    def __len__(self) -> int:
        return len(self.index)

    def step(self, k: int) -> Batch:
        """The k-th mini-batches of all jobs, with a leading axis C."""
        count, keys = self.count, self.keys
        return Batch(self.index[k], None if count is None else count[k], None if keys is None else keys[k])

    def pick(self, k: Tensor | int, c: Tensor | int) -> Batch:
        """The mini-batches k of jobs c, one of each pair (of tensors with a leading axis for the pairs)."""
        count, keys = self.count, self.keys
        return Batch(
            self.index[k, c], None if count is None else count[k, c], None if keys is None else keys[k, c]
        )

    def axes(self) -> Any:
        """Where a step's `Batch` has its job axis, for vmap."""
        axes: Any = (0, None if self.count is None else 0, None if self.keys is None else 0)
        return Batch(*axes)

    def batch(self, k: int, c: int) -> Batch:
        """The k-th mini-batch of one job without its padding (all padding where that leaves nothing)."""
        index, key = self.index[k, c], None if self.keys is None else self.keys[k, c]
        if self.count is None:
            return Batch(index, None, key)
        count = self.count[k, c]
        return Batch(index[: int(count)], None, key) if count > 0 else Batch(index[:1], count, key)

    def padded(self, more: int) -> BatchIndices:
        """With the first job repeated `more` times behind the others."""
        count, keys = self.count, self.keys
        return BatchIndices(
            repeat_first(self.index, more, 1),
            None if count is None else repeat_first(count, more, 1),
            repeat_first(self.steps, more),
            None if keys is None else repeat_first(keys, more, 1),
        )


def repeat_first(value: Tensor, more: int, dim: int = 0) -> Tensor:
    """Append the first slice of an axis `more` times."""
    first = value.narrow(dim, 0, 1)
    return torch.cat([value, first.expand(*value.shape[:dim], more, *value.shape[dim + 1 :])], dim)


def local_steps(sizes: np.ndarray, steps: int | None, epochs: int | None, batch: int | None) -> np.ndarray:
    """K_i of every client (N,), from local.steps or local.epochs (passes of ceil(n_i / B) batches)."""
    if epochs is None:
        return np.full(len(sizes), steps, dtype=np.int64)
    if batch is None:
        return np.full(len(sizes), epochs, dtype=np.int64)
    return epochs * -(-sizes // batch)


class BatchPlanner:
    """Draws `BatchIndices`. `batch`=None means the full local batch.

    `blocks`: instead of going through the data in passes, every step draws one of floor(n_i / B) + 2 blocks:
    the floor(n_i / B) whole ones, the rest (which may be empty) and an empty one, as FedProxVR's scripts do
    (Dinh et al., ICPP 2020). An empty batch has the gradient 0.
    """

    def __init__(
        self,
        clients: ClientIndex,
        seed: int,
        batch: int | None,
        steps: np.ndarray,
        blocks: bool = False,
    ) -> None:
        self.clients, self.seed, self.batch, self.blocks = clients, seed, batch, blocks
        self.steps_host = steps
        self.steps = torch.from_numpy(steps).to(clients.device)
        per_client = clients.sizes if batch is None else np.minimum(clients.sizes, batch)
        self.width = int(per_client.max())
        # every batch of every client has `width` samples: no masks needed
        whole = bool((per_client == self.width).all() and (clients.sizes % self.width == 0).all())
        self.uniform = whole and not blocks
        self.equal_steps = bool((steps == steps[0]).all())
        self._of_clients: dict[Stream, Any] = {}  # keys of all clients (N,), of the streams that are in use

    def jobs(self, client: np.ndarray, n: np.ndarray) -> Jobs:
        """Put a chunk of jobs, given by clients and their running job indices, on the device."""
        device = self.clients.device
        sizes = self.clients.sizes[client]
        return Jobs(torch.from_numpy(client).to(device), torch.from_numpy(n).to(device), sizes, client, n)

    def uniforms(self, jobs: Jobs) -> Tensor:
        """One number in [0, 1) per job (C,), float64."""
        numbers = uniform(self._host_key(Stream.OUTPUT, jobs))
        return torch.from_numpy(numbers).to(jobs.client.device)

    def draw(self, stream: Stream, jobs: Jobs, masks: Stream | None = None) -> BatchIndices:
        """Mini-batches of a chunk of jobs, as many steps as the longest of them makes.

        `masks`: the stream of what is random inside a step (dropout, augmentation), if anything is.
        """
        length = int(self.steps_host[jobs.host].max())
        ids = jobs.client
        size = self.clients.size[ids]
        steps = self.steps[ids]
        if self.batch is None:
            index, count = self._whole(ids, size, length)
        elif self.blocks:
            index, count = self._block(stream, jobs, size, length)
        else:
            per_pass = -(-jobs.sizes // self.batch)
            slots = int((-(-length // per_pass) * jobs.sizes).max())
            index, count = self._shuffled(stream, jobs, size, length, slots)
        k = torch.arange(length, device=ids.device)[:, None]
        if not self.uniform or not self.equal_steps:
            count = torch.where(k < steps, count, 0)
        whole = self.uniform and self.equal_steps
        return BatchIndices(index, None if whole else count, steps, self._keys(masks, jobs, length))

    def _whole(self, ids: Tensor, size: Tensor, length: int) -> tuple[Tensor, Tensor]:
        r = torch.arange(self.width, device=ids.device)
        rows = self.clients.order[self.clients.start[ids][:, None] + torch.minimum(r, size[:, None] - 1)]
        return rows.expand(length, -1, -1), size.expand(length, -1)

    def _block(self, stream: Stream, jobs: Jobs, size: Tensor, length: int) -> tuple[Tensor, Tensor]:
        assert self.batch is not None
        ids = jobs.client
        k = torch.arange(length, device=ids.device)[:, None]
        draw = uniform(_fold(self._key(stream, jobs), k))
        first = (draw * (size // self.batch + 2)).long() * self.batch  # (K, C)
        count = (size - first).clamp(0, self.batch)
        r = torch.arange(self.width, device=ids.device)
        slot = torch.minimum(first[:, :, None] + r, size[:, None] - 1)
        return self.clients.order[self.clients.start[ids][:, None] + slot], count

    def _shuffled(
        self, stream: Stream, jobs: Jobs, size: Tensor, length: int, slots: int
    ) -> tuple[Tensor, Tensor]:
        assert self.batch is not None
        width, ids = self.width, jobs.client
        shuffled = self._permutations(stream, jobs, size, slots)
        k = torch.arange(length, device=ids.device)[:, None]
        if self.uniform:  # passes follow each other without a gap: a batch is the next `width` slots
            rows = self.clients.order[self.clients.start[ids][:, None] + shuffled[:, : length * width]]
            index = rows.view(-1, length, width).transpose(0, 1).contiguous()
            return index, torch.full_like(size, width).expand(length, -1)
        per_pass = (size + self.batch - 1) // self.batch  # (C,) batches in one pass
        first = (k // per_pass) * size + (k % per_pass) * self.batch  # (K, C) first slot of a batch
        count = torch.minimum(size - (k % per_pass) * self.batch, torch.full_like(size, self.batch))
        r = torch.arange(width, device=ids.device)
        slot = first[:, :, None] + torch.minimum(
            r, count[:, :, None] - 1
        )  # (K, C, B); padding repeats the last
        local = torch.gather(shuffled.expand(length, -1, -1), 2, slot)
        return self.clients.order[self.clients.start[ids][:, None] + local], count

    def _permutations(self, stream: Stream, jobs: Jobs, size: Tensor, slots: int) -> Tensor:
        """Passes over each job's data, one behind the other: (C, slots), below n_i."""
        q = torch.arange(slots, device=size.device)[None, :]
        k0, k1 = self._key(stream, jobs)
        key = k0[:, None], k1[:, None]
        if slots <= jobs.sizes.min():  # no job begins a second pass
            return torch.argsort(_fold(key, q)[0], dim=1, stable=True)
        which = q // size[:, None]  # (C, slots) pass of a slot
        bits, _ = _fold(key, which * (MASK + 1) + q % size[:, None])
        # sort by (pass, hash): each pass's slots stay together, in hashed order
        return torch.argsort(which * (MASK + 1) + bits, dim=1, stable=True) % size[:, None]

    def full_pass(self, jobs: Jobs, width: int, masks: Stream | None = None) -> tuple[BatchIndices, Tensor]:
        """Fixed-order blocks over whole local data sets, and each block's share count / n_i (blocks, C)."""
        ids = jobs.client
        size = self.clients.size[ids]
        width = min(width, int(self.clients.sizes.max()))
        blocks = -(-int(jobs.sizes.max()) // width)
        b = torch.arange(blocks, device=ids.device)[:, None]
        count = (size - b * width).clamp(0, width)
        r = torch.arange(width, device=ids.device)
        slot = torch.minimum(b[:, :, None] * width + r, size[:, None] - 1)
        index = self.clients.order[self.clients.start[ids][:, None] + slot]
        steps = torch.full_like(size, blocks)
        return BatchIndices(index, count, steps, self._keys(masks, jobs, blocks)), count.double() / size

    def _keys(self, stream: Stream | None, jobs: Jobs, length: int) -> Tensor | None:
        if stream is None:
            return None
        key = self._key(stream, jobs)
        k = torch.arange(length, device=key[0].device)[:, None]
        return torch.stack(_fold(key, k), dim=-1)

    def _key(self, stream: Stream, jobs: Jobs) -> tuple[Tensor, Tensor]:
        """The jobs' keys of a stream (C,), made on the host, where few numbers are quick."""
        k0, k1 = self._host_key(stream, jobs)
        device = jobs.client.device
        return torch.from_numpy(k0).to(device), torch.from_numpy(k1).to(device)

    def _host_key(self, stream: Stream, jobs: Jobs) -> Any:
        """`make_key` of (stream, client, n), of which the part up to the client is made once."""
        if stream not in self._of_clients:
            self._of_clients[stream] = make_key(self.seed, stream, np.arange(len(self.clients)))
        k0, k1 = self._of_clients[stream]
        return fold((k0[jobs.host], k1[jobs.host]), jobs.host_n)


def _fold(key: tuple[Tensor, Tensor], word: Tensor) -> tuple[Tensor, Tensor]:
    """`fold`, on a CPU by NumPy, whose operations on few numbers are faster; the same bits."""
    if word.device.type != "cpu":
        both: tuple[Tensor, Tensor] = fold(key, word)
        return both
    b0, b1 = fold((key[0].numpy(), key[1].numpy()), word.numpy())
    return torch.from_numpy(b0), torch.from_numpy(b1)
