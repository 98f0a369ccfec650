"""FedBN."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.algorithms.parts import PersonalPart
from fedbench.method import Setting, register


@register("fedbn")
class FedBN(PersonalPart):
    """Li, Jiang, Zhang, Kamp, Dou, "FedBN: federated learning on non-IID features via local batch
    normalization", ICLR 2021, arXiv:2102.07623, Algorithm 1.

    FedAvg on all parameters except those of normalisation layers. Every client trains and keeps its own copy
    of these, and of the layers' running statistics:

        client:  y = (theta, b_i);  K times  y <- y - eta grad F(y; xi);   b_i <- the normalisation part of y
        server:  theta <- theta + gamma sum_{S_t} w_i (y_i - theta) on the shared part

    Normalisation layers are found by their type. A client keeps b_i, and its model is theta with b_i in
    place. This model is evaluated on the client's own test samples, or on the test set reweighted to the
    client's label shares where the data do not say whose samples are. The server's normalisation part stays
    at its initial value. Travels: up and down 1d minus the normalisation layers.
    eta = lr (1e-2 in the paper) and gamma = server_lr (convention D: 1) are tuned; server_lr=average is
    gamma = 1: theta <- sum_{S_t} w_i y_i on the shared part.
    """

    paper = "Li et al., ICLR 2021"
    keeps_buffers = True

    def stays(self, setting: Setting) -> Tensor:
        is_norm = torch.zeros(setting.d, dtype=torch.bool)
        is_norm[setting.norm_index.cpu()] = True
        return is_norm

    def refusal(self, setting: Setting) -> str | None:
        if len(setting.norm_index) == 0:
            return "keeps normalisation layers at the clients, and this model has none"
        return super().refusal(setting)
