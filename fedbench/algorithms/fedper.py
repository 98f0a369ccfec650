"""FedPer."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.algorithms.parts import PersonalPart
from fedbench.method import Setting, integer, register


@register("fedper")
class FedPer(PersonalPart):
    """Arivazhagan, Aggarwal, Singh, Choudhary, "Federated learning with personalization layers",
    arXiv:1912.00818, Algorithms 1 and 2.

    theta = (B, P): base layers B, which travel, and personalization layers P, of which every client trains
    and keeps its own, P_i:

        client:  y = (B, P_i);  K times  y <- y - eta grad F(y; xi);   P_i <- the personalization part of y
        server:  B <- B + gamma sum_{S_t} w_i (B_i - B)

    P is the model's last `layers` layers (1), by the order of its parameters; tensors whose names differ in
    the last word alone, as fc.weight and fc.bias, are of one layer. P_i starts as theta^0's, where the paper
    draws it for each client. A client's model (B, P_i) is evaluated. The server's P stays that of theta^0.
    Travels: up and down 1d minus P. eta = lr, gamma = server_lr (convention D: 1) and
    layers are tuned; server_lr=average is gamma = 1: B <- sum_{S_t} w_i B_i.
    """

    paper = "Arivazhagan et al., arXiv:1912.00818"

    layers: int = integer(1, low=1, help="last layers that stay at the clients")

    def stays(self, setting: Setting) -> Tensor:
        own = set(self._layers(setting)[-self.layers :])
        each = torch.tensor([_layer(name) in own for name in setting.names] or [True] * len(setting.sizes))
        return each.repeat_interleave(torch.tensor(setting.sizes))

    def refusal(self, setting: Setting) -> str | None:
        if len(names := self._layers(setting)) <= self.layers:
            return (
                f"keeps the last {self.layers} layer(s) at the clients, of {len(names)} that this model has"
            )
        return super().refusal(setting)

    @staticmethod
    def _layers(setting: Setting) -> list[str]:
        """The names of the model's layers, in the order of theta."""
        return [*dict.fromkeys(map(_layer, setting.names))]


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
