"""Recurrent network over the rows of an image: torch.nn's layers have no vmap rule, these have."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedbench.models.cells import CELLS
from fedbench.models.checks import at_least_one, choice, image_shape
from fedbench.models.recurrence import recur
from fedbench.models.registry import register_model

PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Recurrent(nn.Module):
    """Stacked recurrent layers, equal to torch.nn.RNN (`cell="tanh"`), GRU or LSTM with the same weights.

    Parameters have torch's names, shapes, gate order and initialisation (uniform within 1/sqrt(hidden)).
    The product with the inputs is one per layer for all time steps, and carries the biases; what goes from
    step to step is fedbench.models.recurrence.
    """

    def __init__(self, inputs: int, hidden: int, layers: int, cell: str) -> None:
        super().__init__()
        self.hidden, self.layers, self.cell = hidden, layers, cell
        torch.compiler.allow_in_graph(recur)  # a compiler that looked inside would unroll it
        rows, bound = CELLS[cell].gates * hidden, hidden**-0.5
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
            sequence = self._layer(layer, sequence)
        return sequence[-1]

    def _layer(self, layer: int, sequence: Tensor) -> Tensor:
        """All states (T, B, hidden) of one layer on its input sequence (T, B, width)."""
        weight, recurrent, bias, inner = (getattr(self, f"{name}_l{layer}") for name in PARAMETERS)
        moved = (
            2 * self.hidden if self.cell == "gru" else len(inner)
        )  # the reset gate scales its candidate's bias
        bias = bias + functional.pad(inner[:moved], (0, len(inner) - moved))
        driven = functional.linear(sequence.flatten(0, 1), weight, bias)  # one product for all steps
        return recur(driven.unflatten(0, sequence.shape[:2]), recurrent, inner[moved:], self.cell)


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
            choice("model.cell", cell, CELLS),
        )
        self.head = nn.Linear(units, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to logits (B, classes)."""
        return self.head(self.recurrent(x.transpose(1, 2).flatten(2)))
