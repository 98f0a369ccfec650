"""MimeLite."""

from __future__ import annotations

from typing import Any, ClassVar

from fedbench.algorithms.mime import Mime
from fedbench.method.interface import Client, Counts, Vectors
from fedbench.method.registry import register


@register("mimelite")
class MimeLite(Mime):
    """Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich, Suresh, arXiv:2008.03606, Algorithm 2.

    Mime without the correction of the local gradients; c moves the server's state alone:

        client:  y = theta;  K times  y <- y - eta U(grad F(y; xi), s)
        server:  theta <- theta + gamma mean_{S_t}(y_i - theta);   s <- V(c, s)

    Travels: up 2d (grad f_i(theta), y_i - theta), down 1d, and m, v. Gradients: one full local pass and K.
    """

    paper: ClassVar[str] = "Karimireddy et al., arXiv:2008.03606"

    def broadcast(self, server: Any, survey: Any, n: Counts, h: Any) -> Vectors:
        return vars(server)

    def local_step(self, local: Any, down: Any, mine: Any, client: Client, h: Any) -> Vectors:
        return {"y": local.y - h.lr * self.direction(client.grad(local.y), down, h)}
