"""Recurrent networks over the rows of an image, and over sequences of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedbench.fields import choice, integer
from fedbench.models.recurrence import CELLS, recur
from fedbench.models.registry import Model, image_shape, register_model

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
        driven = driven.to(recurrent.dtype)  # autocast has taken the product in 16 bits
        return recur(driven.unflatten(0, sequence.shape[:2]), recurrent, inner[moved:], self.cell)


class RNN(nn.Module):
    """Recurrent layers that read an image row by row, and a linear layer on the last state."""

    def __init__(self, inputs: int, classes: int, options: RNNOptions) -> None:
        super().__init__()
        self.recurrent = Recurrent(inputs, options.hidden, options.layers, options.cell)
        self.head = nn.Linear(options.hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to logits (B, classes): a sequence of H steps of C * W features."""
        logits: Tensor = self.head(self.recurrent(x.transpose(1, 2).flatten(2)))
        return logits


@register_model("rnn")
@dataclass(frozen=True)
class RNNOptions(Model):
    """Recurrent layers over the rows of an image, and a linear layer on the last state."""

    cell: str = choice("tanh", tuple(CELLS))
    hidden: int = integer(128, low=1, help="units of each layer")
    layers: int = integer(3, low=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, _, width = image_shape("rnn", shape)
        return RNN(channels * width, classes, self)


PADDING = 0


class TextRNN(nn.Module):
    """Tokens to vectors, recurrent layers, and a linear layer on the state after the last token.

    Padding, token 0, is the zero vector: its row is no part of the function. It belongs in front.
    """

    def __init__(self, vocabulary: int, classes: int, options: EmbeddingRNN) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, options.embedding, padding_idx=PADDING)
        self.recurrent = Recurrent(options.embedding, options.hidden, options.layers, options.cell)
        self.head = nn.Linear(options.hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T) int64 to outputs (B, classes)."""
        words: Tensor = self.embedding(x)
        outputs: Tensor = self.head(self.recurrent(torch.where((x == PADDING)[..., None], 0.0, words)))
        return outputs


@register_model("embedding_rnn")
@dataclass(frozen=True)
class EmbeddingRNN(Model):
    """For token sequences: embedding, recurrent layers, and a linear layer on the last state."""

    reads_tokens = True
    cell: str = choice("lstm", tuple(CELLS))
    embedding: int = integer(32, low=1, help="numbers for each word")
    hidden: int = integer(64, low=1, help="units of each layer")
    layers: int = integer(1, low=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        assert self.vocabulary is not None
        return TextRNN(self.vocabulary, classes, self)
