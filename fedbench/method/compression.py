"""Compressed uploads (`compress.kind=`): a class in front of a method whose clients send one difference.

topk   the share of its numbers that are largest, the others are 0; k = floor(share d + 1/2), 1 at least
       (Aji, Heafield, EMNLP 2017; Stich, Cordonnier, Jaggi, NeurIPS 2018). Of equal ones rounding decides
qsgd   Q(v)_j = |v| sign(v_j) l_j / s, where s |v_j| / |v| is rounded up to l_j with its fractional part as
       probability, else down, so that E Q(v) = v (Alistarh, Grubic, Li, Tomioka, Vojnovic, NeurIPS 2017)

With feedback a client compresses v + e and keeps e <- v + e - Q(v + e), what it has not sent yet (Seide, Fu,
Droppo, Li, Yu, INTERSPEECH 2014; Karimireddy, Rebjock, Stich, Jaggi, ICML 2019).

What travels: topk, k numbers and as many positions of 4 bytes; qsgd, |v| and of each number one of 2 s + 1
levels in as many whole bits as they take. Scalars beside the difference are free, as everywhere.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from fedbench.counting import share_of
from fedbench.errors import ConfigError
from fedbench.method.aggregation import Front
from fedbench.method.cost import upload_of
from fedbench.method.interface import Algorithm, Client, Setting
from fedbench.method.record import Record, Vectors

DIFFERENCES = ("delta", "d", "g", "u")
"""What methods call the change of a client's model, or its direction. Nothing else is compressed: a model
would lose most of its numbers, and of a tracker's changes client and server would add up others."""
_LEFT = "left_"  # prefix of what a client has not sent yet


def topk(v: Tensor, share: float) -> Tensor:
    """The k numbers of v (d,) that are largest in absolute value, in their places."""
    at = v.abs().topk(kept(len(v), share)).indices
    return torch.zeros_like(v).scatter(0, at, v.gather(0, at))


def kept(d: int, share: float) -> int:
    """How many of d numbers topk keeps."""
    return max(int(share_of(share, d)), 1)


def qsgd(v: Tensor, levels: int, drawn: Tensor) -> Tensor:
    """v (d,) rounded to multiples of |v| / levels, up where `drawn` (d,), uniform in [0, 1), is below the
    fractional part."""
    norm = v.norm()
    scaled = v.abs() * (levels / torch.where(norm > 0, norm, 1.0))
    whole = scaled.floor()
    made: Tensor = norm * v.sign() * (whole + (drawn < scaled - whole)) / levels
    return made


class Compressed(Front):
    """In front of a method, whose clients send a compressed difference."""

    kind: str
    share: float
    levels: int

    def bind(self, setting: Setting) -> None:
        """Find what the method alone sends. Raises ConfigError if that is no difference."""
        super().bind(setting)
        whole: Any = copy.copy(self)
        whole.__class__ = next(cls for cls in type(self).__mro__ if not issubclass(cls, Front))
        vectors = {name: value for name, value in upload_of(whole, setting).items() if value.dim() > 0}
        self.shapes = tuple((name, tuple(value.shape)) for name, value in vectors.items())
        why = ""
        if len(vectors) != 1 or not {*vectors} <= {*DIFFERENCES}:
            why = f"sends {', '.join(vectors) or 'nothing'}, and not one of {', '.join(DIFFERENCES)} alone"
        elif type(whole).sent_bytes is not Algorithm.sent_bytes:
            why = "says itself how many bytes travel"
        if why:
            raise ConfigError("compress.kind", self.kind, f"must be none: {self.name} {why}")

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        upload, keep = super().local_final(local, client, h)
        made = {name: self._made(name, value, client) for name, value in upload.items() if value.dim() > 0}
        sent = {name: value for name, (value, _) in made.items()}
        return {**upload, **sent}, {**keep, **self._left(made)}

    def _made(self, name: str, value: Tensor, client: Client) -> tuple[Tensor, Tensor]:
        """What is sent of a vector, and what was to be sent."""
        v = value.reshape(-1)
        if self.kind == "topk":
            return topk(v, self.share).reshape(value.shape), value
        return qsgd(v, self.levels, client.uniform(len(v))).reshape(value.shape), value

    def _left(self, made: dict[str, tuple[Tensor, Tensor]]) -> Vectors:
        """What the client keeps of each vector."""
        return {}

    def sent_bytes(self, upload: Record) -> int:
        return sum(self._bytes(value) for value in vars(upload).values() if value.dim() > 0)

    def _bytes(self, v: Tensor) -> int:
        if self.kind == "topk":
            return kept(v.numel(), self.share) * (4 + v.element_size())
        return v.element_size() + -(-v.numel() * (2 * self.levels).bit_length() // 8)

    def not_mean(self, setting: Setting) -> str | None:
        return f"compress.kind={self.kind}"


class WithFeedback(Compressed):
    """The same, and clients send later what they have left out."""

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        left = {_LEFT + name: theta.new_zeros(shape) for name, shape in self.shapes}
        return {**super().client_init(theta, survey, h), **left}

    def _made(self, name: str, value: Tensor, client: Client) -> tuple[Tensor, Tensor]:
        return super()._made(name, value + getattr(client.mine, _LEFT + name), client)

    def _left(self, made: dict[str, tuple[Tensor, Tensor]]) -> Vectors:
        return {_LEFT + name: whole - sent for name, (sent, whole) in made.items()}
