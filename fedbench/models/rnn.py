"""Recurrent network over the rows of an image, from matrix products: torch.nn's RNNs have no vmap rule."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedbench.models.checks import at_least_one, choice, image_shape
from fedbench.models.registry import register_model

GATES = {"tanh": 1, "gru": 3, "lstm": 4}


class Recurrent(nn.Module):
    """Stacked recurrent layers, equal to torch.nn.RNN (`cell="tanh"`), GRU or LSTM with the same weights.

    Parameters have torch's names, shapes, gate order and initialisation (uniform within 1/sqrt(hidden)).
    The loop over time is unrolled by a compiler, so a step holds little: one product with the state. The
    products with the inputs are one per layer for all time steps, and they carry the biases.
    """

    def __init__(self, inputs: int, hidden: int, layers: int, cell: str) -> None:
        super().__init__()
        self.hidden, self.layers, self.cell = hidden, layers, cell
        rows, bound = GATES[cell] * hidden, hidden**-0.5
        for layer in range(layers):
            width = inputs if layer == 0 else hidden
            for name, shape in (
                (f"weight_ih_l{layer}", (rows, width)),
                (f"weight_hh_l{layer}", (rows, hidden)),
                (f"bias_ih_l{layer}", (rows,)),
                (f"bias_hh_l{layer}", (rows,)),
            ):
                self.register_parameter(name, nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    def forward(self, x: Tensor) -> Tensor:
        """Sequences (B, T, inputs) to the last layer's state after the last step, (B, hidden)."""
        sequence = x.transpose(0, 1)
        for layer in range(self.layers):
            states = self._layer(layer, sequence)
            if layer < self.layers - 1:
                sequence = torch.stack(states)
        return states[-1]

    def _layer(self, layer: int, sequence: Tensor) -> list[Tensor]:
        """All T states (B, hidden) of one layer on its input sequence (T, B, width)."""
        bias, hidden_bias = getattr(self, f"bias_ih_l{layer}"), getattr(self, f"bias_hh_l{layer}")
        if self.cell == "gru":  # the reset gate scales the candidate's own state bias: it cannot move
            split = 2 * self.hidden
            hidden_bias, candidate_bias = hidden_bias[:split], hidden_bias[split:]
            hidden_bias = functional.pad(hidden_bias, (0, self.hidden))
        driven = functional.linear(sequence, getattr(self, f"weight_ih_l{layer}"), bias + hidden_bias)
        weight = getattr(self, f"weight_hh_l{layer}").t()
        state = memory = sequence.new_zeros(sequence.shape[1], self.hidden)
        states = []
        for drive in driven.unbind(0):
            if self.cell == "tanh":
                state = torch.tanh(drive + state @ weight)
            elif self.cell == "gru":
                state = _gru(drive, state @ weight, candidate_bias, state)
            else:
                state, memory = _lstm(drive + state @ weight, memory)
            states.append(state)
        return states


def _gru(drive: Tensor, recurrent: Tensor, candidate_bias: Tensor, state: Tensor) -> Tensor:
    """One step of torch.nn.GRU (Cho et al., EMNLP 2014, with the reset gate after the product)."""
    drive_r, drive_z, drive_n = drive.chunk(3, dim=-1)
    recurrent_r, recurrent_z, recurrent_n = recurrent.chunk(3, dim=-1)
    reset = torch.sigmoid(drive_r + recurrent_r)
    update = torch.sigmoid(drive_z + recurrent_z)
    candidate = torch.tanh(drive_n + reset * (recurrent_n + candidate_bias))
    return candidate + update * (state - candidate)


def _lstm(gates: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """One step of torch.nn.LSTM (Hochreiter and Schmidhuber 1997, with a forget gate): state, memory."""
    enter, forget, candidate, out = gates.chunk(4, dim=-1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(enter) * torch.tanh(candidate)
    return torch.sigmoid(out) * torch.tanh(memory), memory


@register_model("rnn")
class RNN(nn.Module):
    """Recurrent layers that read an image row by row, and a linear layer on the last state.

    An image (C, H, W) is a sequence of H steps of C * W features. `cell` tanh|gru|lstm, `hidden` units per
    layer, `layers`.
    """

    def __init__(
        self, shape: tuple[int, ...], classes: int, cell: str = "tanh", hidden: int = 128, layers: int = 3
    ) -> None:
        super().__init__()
        channels, _, width = image_shape("rnn", shape)
        units = at_least_one("model.hidden", hidden)
        self.recurrent = Recurrent(
            channels * width,
            units,
            at_least_one("model.layers", layers),
            choice("model.cell", cell, GATES),
        )
        self.head = nn.Linear(units, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to logits (B, classes)."""
        return self.head(self.recurrent(x.transpose(1, 2).flatten(2)))
