"""Which samples a job's local steps see: index tensors for a whole chunk of clients, drawn by address.

A client goes through its data in passes; every pass is a fresh permutation, cut into batches of
min(B, n_i) (the last batch of a pass may be smaller), for as many passes as its K_i steps need. So E local
epochs are exactly E * ceil(n_i / B) steps. Every client may have its own B. The permutation of pass p of a
job depends only on (seed, stream, client, n, p): it sorts hashed keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedbench.counting import exact
from fedbench.rng import MASK, Stream, fold, make_key, uniform
from fedbench.torch_internals import pytree

HOST_DRAW = 2**16
"""Most samples in a chunk's passes that are drawn on the host for a GPU. Copying them takes the GPU
one operation; drawing them there takes some three hundred."""

DRAWN = 2**21
"""Most samples in the passes of jobs that are drawn together. Sorting them takes some 70 bytes for each."""

T = TypeVar("T")
Masks = tuple[Stream, tuple[int, ...]]
"""The stream for what is random inside a step, and one word per random thing. Keys are made on the host."""


class ClientIndex:
    """The partition: samples grouped by client (compressed rows), on the host and on the device."""

    def __init__(self, assignment: np.ndarray, clients: int, device: torch.device | str = "cpu") -> None:
        """`assignment`: (n,) client of every training sample, negative for samples of no client. Every
        client needs at least one sample."""
        order, nobodys = np.argsort(assignment, kind="stable"), int((assignment < 0).sum())
        self.order = torch.from_numpy(order[nobodys:])
        sizes = np.bincount(assignment[order[nobodys:]], minlength=clients)
        self.sizes = sizes.astype(np.int64)  # (N,)
        self.start = torch.from_numpy(np.cumsum(self.sizes) - self.sizes)
        self.device = torch.device(device)
        self._there = self.order.to(device), self.start.to(device)

    def __len__(self) -> int:
        return len(self.sizes)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(all samples ordered by client, where each client's begin) on the host or on the device."""
        return (self.order, self.start) if device.type == "cpu" else self._there


@dataclass(frozen=True)
class Jobs:
    """A chunk of C jobs, on the host."""

    client: np.ndarray  # (C,)
    n: np.ndarray  # (C,) running job index of the client
    sizes: np.ndarray  # (C,) n_i
    steps: np.ndarray  # (C,) K_i, or the part of them that the job takes

    @property
    def ids(self) -> Tensor:
        """The jobs' clients (C,)."""
        return torch.from_numpy(self.client)


class Batch(NamedTuple):
    """One mini-batch of one client, by reference into the data on the device."""

    samples: Tensor  # (B,) rows of the data
    real: Tensor | None  # 0-dim: how many of them are real, the rest is padding; None: all
    keys: Tensor | None  # (R, 2) keys of the R things that are random in this step
    masks: tuple[Tensor, ...] | None = None  # (B, ...) of each dropout layer, and noise, if drawn already


@dataclass(frozen=True)
class Known:
    """Sizes of mini-batches on the host."""

    count: np.ndarray  # (K, C) valid samples in each batch
    steps: np.ndarray  # (C,) K_i


@dataclass(frozen=True)
class BatchIndices:
    """Mini-batches of a chunk of C jobs over at most K steps; step-major, so that a step is contiguous."""

    index: Tensor  # (K, C, B) sample ids
    count: Tensor | None  # (K, C) valid samples in each batch (0 beyond a job's steps), None: all B
    steps: Tensor  # (C,) K_i
    keys: Tensor | None  # (K, C, R, 2) keys of the R things that are random in a step
    known: Known  # the same numbers on the host, read without waiting for the device
    masks: tuple[Tensor, ...] | None = None  # (K, C, B, ...) of each dropout layer, and noise, if drawn

    def __len__(self) -> int:
        return len(self.index)

    @property
    def tensors(self) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
        """The tensors to move to a device, from which `with_tensors` makes the same mini-batches."""
        return self.index, self.count, self.steps, self.keys

    def with_tensors(self, moved: tuple[Tensor, Tensor | None, Tensor, Tensor | None]) -> BatchIndices:
        """The same mini-batches with `tensors` that have been moved."""
        return BatchIndices(*moved, self.known)

    def step(self, k: int, lean: bool = False) -> Batch:
        """The k-th mini-batches of all jobs, with a leading axis C. `lean`: without their sizes where all are
        full."""
        count, keys = self.count, self.keys
        if lean and (self.known.count[k] == self.index.shape[-1]).all():
            count = None
        masks = None if self.masks is None else tuple(mask[k] for mask in self.masks)
        return Batch(
            self.index[k], None if count is None else count[k], None if keys is None else keys[k], masks
        )

    def pick(self, k: Tensor | int, c: Tensor | int) -> Batch:
        """Mini-batch k of job c. If k and c are tensors (P,), one of each pair, with a leading axis P."""
        count, keys = self.count, self.keys
        return Batch(
            self.index[k, c], None if count is None else count[k, c], None if keys is None else keys[k, c]
        )

    def axes(self) -> Any:
        """The position of the job axis in each field of a step's `Batch`, for vmap."""
        given = self.count, self.keys, self.masks
        axes: Any = (0, *(None if each is None else 0 for each in given))
        return Batch(*axes)

    def batch(self, k: int, c: int) -> Batch:
        """The k-th mini-batch of one job without its padding (one sample of padding if it is empty)."""
        index, key = self.index[k, c], None if self.keys is None else self.keys[k, c]
        if self.count is None:
            return Batch(index, None, key)
        count = self.known.count[k, c]
        return Batch(index[:count], None, key) if count > 0 else Batch(index[:1], self.count[k, c], key)

    def upto(self, steps: int) -> BatchIndices:
        """The mini-batches of the first steps."""
        known = Known(self.known.count[:steps], self.known.steps)
        return self._changed(lambda x: x[:steps], self.steps, known)

    def of_jobs(self, at: Tensor) -> BatchIndices:
        """The mini-batches of the jobs `at` (P,). Whole local batches stay expanded along the steps."""
        known = Known(self.known.count[:, at.numpy()], self.known.steps[at.numpy()])

        def rows(x: Tensor) -> Tensor:
            return x[:1, at].expand(len(x), *[-1] * (x.dim() - 1)) if x.stride(0) == 0 else x[:, at]

        return self._changed(rows, self.steps[at], known)

    def padded(self, more: int) -> BatchIndices:
        """The mini-batches with the first job repeated `more` times at the end."""
        return self._changed(lambda x: repeat_first(x, more, 1), repeat_first(self.steps, more), self.known)

    def _changed(self, change: Callable[[Tensor], Tensor], steps: Tensor, known: Known) -> BatchIndices:
        """The same fields, every tensor (K, C, ...) changed."""
        count, keys = (None if x is None else change(x) for x in (self.count, self.keys))
        masks = None if self.masks is None else tuple(map(change, self.masks))
        return BatchIndices(change(self.index), count, steps, keys, known, masks)


def repeat_first(value: Tensor, more: int, dim: int = 0) -> Tensor:
    """Append the first slice of an axis `more` times."""
    first = value.narrow(dim, 0, 1)
    return torch.cat([value, first.expand(*value.shape[:dim], more, *value.shape[dim + 1 :])], dim)


def batches_of_share(sizes: np.ndarray, share: float) -> np.ndarray:
    """Batch sizes B_i (N,) of clients with `sizes` (N,) samples: ceil(share n_i), so that a pass has at most
    ceil(1 / share) batches."""
    part = exact(share)
    return -(-sizes * part.numerator // part.denominator)


def local_steps(
    sizes: np.ndarray, steps: int | None, epochs: int | None, batch: int | np.ndarray | None
) -> np.ndarray:
    """K_i of every client (N,), from local.steps or local.epochs (passes of ceil(n_i / B) batches)."""
    if epochs is None:
        return np.full(len(sizes), steps, dtype=np.int64)
    if batch is None:
        return np.full(len(sizes), epochs, dtype=np.int64)
    return epochs * -(-sizes // batch)


class BatchPlanner:
    """Draws `BatchIndices`. `batch`: B, or B_i (N,); None: the full local batch.

    `blocks`: instead of going through the data in passes, every step draws one of floor(n_i / B) + 2 blocks:
    the floor(n_i / B) whole ones, the rest (which may be empty) and an empty one, as FedProxVR's scripts do
    (Dinh et al., ICPP 2020). An empty batch has the gradient 0.
    """

    def __init__(
        self,
        clients: ClientIndex,
        seed: int,
        batch: int | np.ndarray | None,
        steps: np.ndarray,
        blocks: bool = False,
        equal_steps: bool | None = None,
    ) -> None:
        """`steps`: (N,) K_i. `equal_steps`: all jobs take the same number; None: so if all K_i are equal."""
        self.clients, self.seed, self.blocks, self.steps = clients, seed, blocks, steps
        self.batch = None if batch is None else np.broadcast_to(batch, len(clients))  # (N,)
        per_client = clients.sizes if batch is None else np.minimum(clients.sizes, batch)
        self.width = int(per_client.max())
        # every batch of every client has `width` samples: no masks needed
        whole = bool((per_client == self.width).all() and (clients.sizes % self.width == 0).all())
        self.uniform = whole and not blocks
        self.equal_steps = bool((steps == steps[0]).all()) if equal_steps is None else equal_steps
        self._of_clients: dict[Stream, Any] = {}  # keys of all clients (N,), for the streams in use

    def jobs(self, client: np.ndarray, n: np.ndarray, work: np.ndarray | float = 1.0) -> Jobs:
        """A chunk of jobs from their clients, running job indices and the fractions `work` of K_i that they
        take (at least one step)."""
        steps = np.maximum(np.rint(work * self.steps[client]).astype(np.int64), 1)
        return Jobs(client, n, self.clients.sizes[client], steps)

    def uniforms(self, jobs: Jobs) -> Tensor:
        """One number in [0, 1) per job (C,), float64, on the host."""
        return torch.from_numpy(uniform(self._key(Stream.OUTPUT, jobs)))

    def addresses(self, jobs: Jobs) -> Tensor:
        """The keys (C, 2) of what a method draws in jobs, on the host."""
        return torch.from_numpy(np.stack(self._key(Stream.CLIENT, jobs), 1))

    def draw(self, stream: Stream, jobs: Jobs, masks: Masks | None = None) -> BatchIndices:
        """Mini-batches of a chunk of jobs, for as many steps as the longest job takes. They are on the host,
        except for the samples of a large chunk.

        `masks`: stream and words of what is random inside a step, if anything is.
        """
        steps = jobs.steps
        length = int(steps.max())
        if self.batch is None:
            index, count = self._whole(jobs, length)
        elif self.blocks:
            index, count = self._block(stream, jobs, length)
        else:
            index, count = self._passes(stream, jobs, length)
        whole = self.uniform and self.equal_steps
        if not whole:
            count = torch.where(torch.arange(length)[:, None] < torch.from_numpy(steps), count, 0)
        return self._batches(index, count, whole, steps, masks, jobs)

    def _batches(
        self,
        index: Tensor,
        count: Tensor,
        whole: bool,
        steps: np.ndarray,
        masks: Masks | None,
        jobs: Jobs,
    ) -> BatchIndices:
        keys, known = self._keys(masks, jobs, len(index)), Known(count.numpy(), steps)
        return BatchIndices(index, None if whole else count, torch.from_numpy(steps), keys, known)

    def _whole(self, jobs: Jobs, length: int) -> tuple[Tensor, Tensor]:
        size = torch.from_numpy(jobs.sizes)
        slot = torch.minimum(torch.arange(self.width), size[:, None] - 1)
        index = self._samples(jobs.ids, slot)
        return index.expand(length, -1, -1), size.expand(length, -1)

    def _block(self, stream: Stream, jobs: Jobs, length: int) -> tuple[Tensor, Tensor]:
        size, batch = torch.from_numpy(jobs.sizes), self._sizes(jobs)
        draw = uniform(_fold(_tensors(self._key(stream, jobs)), torch.arange(length)[:, None]))
        first = (draw * (size // batch + 2)).long() * batch  # (K, C)
        count = torch.minimum((size - first).clamp(min=0), batch)
        slot = torch.minimum(first[:, :, None] + torch.arange(self.width), size[:, None] - 1)
        return self._samples(jobs.ids, slot), count

    def _sizes(self, jobs: Jobs) -> Tensor:
        """Batch sizes B (C,) of jobs."""
        assert self.batch is not None
        return torch.from_numpy(self.batch[jobs.client])

    def _samples(self, ids: Tensor, slot: Tensor) -> Tensor:
        """The samples at positions `slot` (..., C, B) in the data of clients `ids` (C,)."""
        order, start = self.clients.on(slot.device)
        return order[start[ids][:, None] + slot]

    def _passes(self, stream: Stream, jobs: Jobs, length: int) -> tuple[Tensor, Tensor]:
        """Samples (K, C, B) and counts (K, C) of shuffled passes. Where there are many, jobs of alike length
        are drawn together, each for its own steps: beyond, the counts are 0 and any sample will do."""
        slots = self._slots(jobs, length)
        if slots.max() * len(slots) <= DRAWN:
            return self._shuffled(stream, jobs, length)
        index = torch.zeros(length, len(slots), self.width, dtype=torch.int64, device=self.clients.device)
        count = torch.zeros(length, len(slots), dtype=torch.int64)
        slots = self._slots(jobs, jobs.steps)
        left = np.argsort(-slots, kind="stable")
        while len(left):
            at, left = np.split(left, [max(1, DRAWN // slots[left[0]])])
            part = Jobs(jobs.client[at], jobs.n[at], jobs.sizes[at], jobs.steps[at])
            most = int(part.steps.max())
            samples, count[:most, at] = self._shuffled(stream, part, most)
            index[:most, at] = samples.to(index.device)
        return index, count

    def _slots(self, jobs: Jobs, steps: int | np.ndarray) -> np.ndarray:
        """The samples (C,) in the whole passes that have so many steps of each job."""
        assert self.batch is not None
        slots: np.ndarray = -(-steps // -(-jobs.sizes // self.batch[jobs.client])) * jobs.sizes
        return slots

    def _shuffled(self, stream: Stream, jobs: Jobs, length: int) -> tuple[Tensor, Tensor]:
        slots = int(self._slots(jobs, length).max())
        host = torch.device("cpu")
        place = host if slots * len(jobs.client) <= HOST_DRAW else self.clients.device
        k = torch.arange(length)[:, None]
        size, batch, width = torch.from_numpy(jobs.sizes), self._sizes(jobs), self.width
        per_pass = (size + batch - 1) // batch  # (C,) batches in one pass
        count = torch.minimum(size - (k % per_pass) * batch, batch)
        first = (k // per_pass) * size + (k % per_pass) * batch  # (K, C) first slot of a batch
        given = (jobs.ids, size, _tensors(self._key(stream, jobs)), first, count)
        ids, size, key, first, there = to_device(given, place)
        shuffled = _permutations(key, size, slots, once=slots <= jobs.sizes.min())
        if self.uniform:  # passes follow each other without a gap: a batch is the next `width` slots
            index = self._samples(ids, shuffled[:, : length * width]).view(-1, length, width)
            return index.transpose(0, 1).contiguous(), torch.full((1, 1), width).expand(length, len(ids))
        r = torch.arange(width, device=place)
        slot = first[:, :, None] + torch.minimum(r, there[:, :, None] - 1)  # padding repeats the last
        return self._samples(ids, torch.gather(shuffled.expand(length, -1, -1), 2, slot)), count

    def full_pass(self, jobs: Jobs, width: int, masks: Masks | None = None) -> tuple[BatchIndices, Tensor]:
        """Fixed-order blocks over whole local data sets, and each block's share count / n_i (blocks, C)."""
        size = torch.from_numpy(jobs.sizes)
        width = min(width, int(self.clients.sizes.max()))
        blocks = -(-int(jobs.sizes.max()) // width)
        b = torch.arange(blocks)[:, None]
        count = (size - b * width).clamp(0, width)
        slot = torch.minimum(b[:, :, None] * width + torch.arange(width), size[:, None] - 1)
        steps = np.full(len(jobs.client), blocks)
        index = self._samples(jobs.ids, slot)
        return self._batches(index, count, False, steps, masks, jobs), count.double() / size

    def _keys(self, masks: Masks | None, jobs: Jobs, length: int) -> Tensor | None:
        if masks is None:
            return None
        stream, words = masks
        low, high = _fold(_tensors(self._key(stream, jobs)), torch.arange(length)[:, None])
        return torch.stack(_fold((low[..., None], high[..., None]), torch.tensor(words)), dim=-1)

    def _key(self, stream: Stream, jobs: Jobs) -> Any:
        """`make_key` of (stream, client, n). The part up to the client is computed only once."""
        if stream not in self._of_clients:
            self._of_clients[stream] = make_key(self.seed, stream, np.arange(len(self.clients)))
        k0, k1 = self._of_clients[stream]
        return fold((k0[jobs.client], k1[jobs.client]), jobs.n)


def _permutations(key: tuple[Tensor, Tensor], size: Tensor, slots: int, once: bool) -> Tensor:
    """Shuffled passes over each job's data, one after another: positions (C, slots) below n_i. `once`: no job
    begins a second pass."""
    q = torch.arange(slots, device=size.device)[None, :]
    key = key[0][:, None], key[1][:, None]
    if once:
        return order_of(_fold(key, q)[0])
    which = q // size[:, None]  # (C, slots) pass of a slot
    bits, _ = _fold(key, which * (MASK + 1) + q % size[:, None])
    # sort by (pass, hash): each pass's slots stay together, in hashed order
    return order_of(which * (MASK + 1) + bits) % size[:, None]


def order_of(numbers: Tensor) -> Tensor:
    """torch.argsort(numbers, dim=1, stable=True), for numbers (C, slots) from 0 on. On a CPU each takes its
    place along: sorting them alone takes NumPy a tenth of the time."""
    places = numbers.shape[1].bit_length()
    if numbers.device.type != "cpu" or int(numbers.max()) >> 63 - places:
        return torch.argsort(numbers, dim=1, stable=True)
    both = numbers.numpy() << places | np.arange(numbers.shape[1])
    both.sort(axis=1)
    return torch.from_numpy(both & (1 << places) - 1)


def _tensors(key: Any) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(key[0]), torch.from_numpy(key[1])


def to_device(values: T, device: torch.device) -> T:
    """Nested values with their CPU tensors moved to `device`, in one copy that the host does not wait for.
    Each tensor is aligned to 16 bytes. Expanded axes are copied once and expanded again on the device."""
    if device.type == "cpu":
        return values
    leaves, structure = pytree.tree_flatten(values)
    moved = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.device.type == "cpu"]
    once = {i: leaves[i][tuple(slice(None if s else 1) for s in leaves[i].stride())] for i in moved}
    ends = np.cumsum([-(-x.nbytes // 16) * 16 for x in once.values()]) if once else np.zeros(1, int)
    host = torch.empty(int(ends[-1]), dtype=torch.uint8, pin_memory=True)

    def part(buffer: Tensor, x: Tensor, end: int) -> Tensor:
        begin = end + -x.nbytes // 16 * 16
        return buffer[begin : begin + x.nbytes].view(x.dtype).view(x.shape)

    for x, end in zip(once.values(), ends.tolist(), strict=False):
        part(host, x, end).copy_(x)
    there = host.to(device, non_blocking=True)
    for (i, x), end in zip(once.items(), ends.tolist(), strict=False):
        leaves[i] = part(there, x, end).expand(leaves[i].shape)
    result: T = pytree.tree_unflatten(leaves, structure)
    return result


def _fold(key: tuple[Tensor, Tensor], word: Tensor) -> tuple[Tensor, Tensor]:
    """`fold` with the same bits, on a CPU through NumPy, which is faster on few numbers."""
    if word.device.type != "cpu":
        both: tuple[Tensor, Tensor] = fold(key, word)
        return both
    b0, b1 = fold((key[0].numpy(), key[1].numpy()), word.numpy())
    return torch.from_numpy(b0), torch.from_numpy(b1)
