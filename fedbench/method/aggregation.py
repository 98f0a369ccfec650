"""What takes the place of the mean of the uploads (`aggregation=`), and clients that send the wrong sign.

Both are classes in front of any method that averages what arrives: the same hooks, engines and schedules.
Each vector of an upload is aggregated by itself, over the S uploads of an update, which count alike.

median         coordinate by coordinate; of an even number the mean of the two in the middle
trimmed_mean   coordinate by coordinate, without the f smallest and the f largest numbers
               (both: Yin, Chen, Ramchandran, Bartlett, ICML 2018)
krum           one client's upload: that with the least sum of squared distances to its S - f - 2 nearest
               others, all of its vectors together (Blanchard, El Mhamdi, Guerraoui, Stainer, NeurIPS 2017)

f = `byzantine`. Where an update has fewer uploads than these need, it is made as small as it has to be.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from fedbench.method.interface import Algorithm, Client, Setting
from fedbench.method.record import Record, Vectors
from fedbench.theory.setting import Counts

BEYOND = {"median": 1, "trimmed_mean": 1, "krum": 3}
"""An update needs so many uploads more than 2 f."""


def median(x: Tensor) -> Tensor:
    """Of the rows of x (S, ...)."""
    ordered, S = x.sort(0).values, len(x)
    return (ordered[(S - 1) // 2] + ordered[S // 2]) / 2


def trimmed_mean(x: Tensor, f: int) -> Tensor:
    """Of the rows of x (S, ...), without the f smallest and largest of each coordinate."""
    cut = min(f, (len(x) - 1) // 2)
    return x.sort(0).values[cut : len(x) - cut].mean(0)


def krum(x: Tensor, f: int) -> Tensor:
    """The index (0-dim) of the row of x (S, D) that Krum takes; the first of equals."""
    S = len(x)
    squares = torch.stack([(x - row).square().sum(1) for row in x])
    nearest = squares.sort(1).values[:, 1 : 1 + max(S - f - 2, 1)]  # the nearest is the row itself
    return nearest.sum(1).argmin()


class Front(Algorithm):
    """A class that `behind` puts in front of a method's."""

    @property
    def key(self) -> Hashable | None:
        known: Any = super().key
        lasting = tuple(cls for cls in type(self).__mro__ if "made_by_behind" not in vars(cls))
        return known and (lasting, *known[1:])


class Aggregated(Front):
    """In front of a method, whose mean of uploads is another aggregate."""

    stacks = True
    aggregation: str
    byzantine: int

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return super().server_step(server, self._aggregate(mean), n, h)

    def _aggregate(self, stack: Record) -> Record:
        rows = {name: value for name, value in vars(stack).items() if name not in ("weight", "client")}
        sent = {name: rows.pop(name) for name in list(rows) if name.startswith("sent_")}  # by the server
        found = {name: torch.tensordot(stack.weight, value, 1) for name, value in sent.items()}
        of_rows: Callable[[Tensor], Tensor] = median
        if self.aggregation == "trimmed_mean":
            of_rows = partial(trimmed_mean, f=self.byzantine)
        elif self.aggregation == "krum":
            whole = torch.cat([x.reshape(len(x), -1) for x in rows.values()], 1)
            of_rows = itemgetter(krum(whole, self.byzantine))
        return Record({**found, **{name: of_rows(x) for name, x in rows.items()}})

    def not_mean(self, setting: Setting) -> str | None:
        return f"aggregation={self.aggregation}"


class SignFlipped(Front):
    """In front of a method, of whose clients the first `flipping` send the negative of what they should."""

    flipping: int

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        upload, keep = super().local_final(local, client, h)
        flips = client.number < self.flipping
        return {name: torch.where(flips, -value, value) for name, value in upload.items()}, keep


def behind(method: Algorithm, front: type[Front], **facts: Any) -> Algorithm:
    """The method with another class in front of it, which has these attributes."""
    made, cls = copy.copy(method), type(method)
    body = {"__module__": cls.__module__, "__doc__": cls.__doc__, "made_by_behind": True}
    made.__class__ = type(cls.__name__, (front, cls), body)
    vars(made).update(facts)
    return made
