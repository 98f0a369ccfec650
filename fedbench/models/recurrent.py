"""Networks over sequences: recurrent networks over image rows or tokens, and a transformer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedbench.errors import ConfigError
from fedbench.fields import choice, decay, integer
from fedbench.models.layers import Dropout
from fedbench.models.onednn import has_lstm, lstm
from fedbench.models.recurrence import CELLS, recur
from fedbench.models.registry import Model, image_shape, register_model

PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Recurrent(nn.Module):
    """Stacked recurrent layers, equal to torch.nn.RNN (`cell="tanh"`), GRU or LSTM with the same weights.

    Parameters have torch's names, shapes, gate order and initialisation (uniform within 1/sqrt(hidden)).
    Each layer multiplies the inputs of all time steps in one product and adds the biases there.
    fedbench.models.recurrence computes what goes from step to step. `biases`: per gate, 2 as in torch or 1;
    the second one matters only in the GRU's reset gate.
    """

    def __init__(self, inputs: int, hidden: int, layers: int, cell: str, biases: int = 2) -> None:
        super().__init__()
        self.hidden, self.layers, self.cell = hidden, layers, cell
        rows, bound = CELLS[cell].gates * hidden, hidden**-0.5
        for layer in range(layers):
            width = inputs if layer == 0 else hidden
            for name, shape in (
                (f"weight_ih_l{layer}", (rows, width)),
                (f"weight_hh_l{layer}", (rows, hidden)),
                (f"bias_ih_l{layer}", (rows,)),
                *([(f"bias_hh_l{layer}", (rows,))] if biases == 2 else []),
            ):
                self.register_parameter(name, nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    def forward(self, x: Tensor) -> Tensor:
        """Sequences (B, T, inputs) to the last layer's state after the last step, (B, hidden)."""
        return self.states(x)[-1]

    def states(self, x: Tensor) -> Tensor:
        """Sequences (B, T, inputs) to all states (T, B, hidden) of the last layer."""
        sequence = x.transpose(0, 1)
        for layer in range(self.layers):
            sequence = self._layer(layer, sequence)
        return sequence

    def _layer(self, layer: int, sequence: Tensor) -> Tensor:
        """All states (T, B, hidden) of one layer on its input sequence (T, B, width)."""
        weight, recurrent, bias = (getattr(self, f"{name}_l{layer}") for name in PARAMETERS[:3])
        inner: Tensor = getattr(self, f"{PARAMETERS[3]}_l{layer}", torch.zeros_like(bias))
        # the GRU's reset gate scales its candidate's bias
        moved = 2 * self.hidden if self.cell == "gru" else len(inner)
        bias = bias + (inner if moved == len(inner) else functional.pad(inner[:moved], (0, self.hidden)))
        if self.cell == "lstm" and has_lstm(sequence):
            return lstm(sequence, weight, recurrent, bias)
        driven = functional.linear(sequence.flatten(0, 1), weight, bias)  # one product for all steps
        driven = driven.to(recurrent.dtype)  # autocast computes the product in 16 bits
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
    """An embedding, recurrent layers, and a linear layer on the state after the last token or after each.

    Padding, token 0, is the zero vector, whatever its row of the embedding holds. It belongs in front of the
    tokens, or behind them if each position has a label.
    """

    def __init__(self, vocabulary: int, classes: int, options: EmbeddingRNN) -> None:
        super().__init__()
        self.positions = options.positions
        self.embedding = nn.Embedding(vocabulary, options.embedding, padding_idx=PADDING)
        sizes = options.embedding, options.hidden, options.layers
        self.recurrent = Recurrent(*sizes, options.cell, options.biases)
        self.head = nn.Linear(options.hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T) int64 to outputs (B, classes), or (B, T, classes)."""
        words: Tensor = self.embedding(x)
        states = self.recurrent.states(words * (x != PADDING).to(words.dtype)[..., None])
        outputs: Tensor = self.head(states.transpose(0, 1) if self.positions else states[-1])
        return outputs


@register_model("embedding_rnn")
@dataclass(frozen=True)
class EmbeddingRNN(Model):
    """For token sequences: embedding, recurrent layers, and a linear layer on the last state."""

    reads_tokens = labels_positions = True
    biases: ClassVar[int] = 2
    cell: str = choice("lstm", tuple(CELLS))
    embedding: int = integer(32, low=1, help="numbers for each word")
    hidden: int = integer(64, low=1, help="units of each layer")
    layers: int = integer(1, low=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        assert self.vocabulary is not None
        return TextRNN(self.vocabulary, classes, self)


@register_model("char_lstm")
@dataclass(frozen=True)
class CharLSTM(EmbeddingRNN):
    """The network for Shakespeare's characters: embedding 8, two LSTM layers of 256, one bias per gate.

    LEAF (Caldas et al., 2018) has a label after the last character, Adaptive Federated Optimization (Reddi et
    al., ICLR 2021) a label at every position. 820,522 parameters for 90 characters.
    """

    biases: ClassVar[int] = 1
    embedding: int = integer(8, low=1, help="numbers for each character")
    hidden: int = integer(256, low=1, help="units of each layer")
    layers: int = integer(2, low=1)


class _Block(nn.Module):
    """Causal self-attention and a hidden layer of four times the width. Each follows a layer norm, and its
    output is added to a shortcut."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop1, self.drop2 = (Dropout(dropout) if dropout else nn.Identity() for _ in range(2))

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """(B, T, width) to the same; `seen` (B, 1, T, T): which positions each one attends to."""
        parts = self.projections(self.norm1(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        scores = query @ key.mT * query.shape[-1] ** -0.5
        shares = torch.where(seen, scores, -math.inf).softmax(-1)
        x = x + self.drop1(self.merge((shares @ value).transpose(1, 2).flatten(2)))
        hidden = self.contract(functional.gelu(self.expand(self.norm2(x))))
        out: Tensor = x + self.drop2(hidden)
        return out


class _Transformer(nn.Module):
    """Embeddings of tokens and positions, blocks, a layer norm, and a linear layer on the last position or on
    each. No position attends to padding other than itself."""

    def __init__(self, vocabulary: int, length: int, classes: int, options: Transformer) -> None:
        super().__init__()
        width = options.width
        self.all_positions = options.positions
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        blocks = (_Block(width, options.heads, options.dropout) for _ in range(options.layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T) int64 to outputs (B, classes), or (B, T, classes)."""
        at = torch.arange(x.shape[-1], device=x.device)
        itself, before = at == at[:, None], at <= at[:, None]
        seen = (before & (x != PADDING)[:, None, None, :]) | itself
        out = self.embedding(x) + self.position
        for block in self.blocks:
            out = block(out, seen)
        outputs: Tensor = self.head(self.norm(out if self.all_positions else out[:, -1]))
        return outputs


@register_model("transformer")
@dataclass(frozen=True)
class Transformer(Model):
    """A small causal transformer over token sequences, with pre-norm (as GPT-2; Radford et al., 2019).

    Parameters: (vocabulary + length) width, 12 width^2 + 13 width per layer, 2 width, the linear layer.
    """

    reads_tokens = labels_positions = True
    width: int = integer(64, low=1, help="numbers for each token and position")
    heads: int = integer(4, low=1, help="attention heads; must divide the width")
    layers: int = integer(2, low=1)
    dropout: float = decay(0.0, help="dropout share of the output of each half of a layer")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        assert self.vocabulary is not None
        if self.width % self.heads:
            raise ConfigError("model.heads", self.heads, f"must divide model.width={self.width}")
        return _Transformer(self.vocabulary, shape[0], classes, self)
