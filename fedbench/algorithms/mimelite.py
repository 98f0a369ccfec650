"""MimeLite."""

from __future__ import annotations

from fedbench.algorithms.mime import Mime
from fedbench.method import Client, Counts, Record, Vectors, register


@register("mimelite")
class MimeLite(Mime):
    """Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich, Suresh, arXiv:2008.03606, Algorithm 2.

    Mime without the correction of the local gradients; c only updates the server's state:

        client:  y = theta;  K times  y <- y - eta U(grad F(y; xi), s)
        server:  theta <- theta + gamma mean_{S_t}(y_i - theta);   s <- V(c, s)

    Travels: up 2d (grad f_i(theta), y_i - theta), down 1d, and m, v. Gradients: one full local pass and K.
    server_lr=average is gamma = 1: theta <- mean_{S_t} y_i.
    """

    paper = "Karimireddy et al., arXiv:2008.03606"

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return vars(server)

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        return {"y": local.y - h.lr * self.direction(client.grad(local.y), client.down, h)}
