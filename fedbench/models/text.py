"""Recurrent network over sequences of tokens: an embedding, recurrent layers, a linear layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedbench.fields import choice, integer
from fedbench.models.cells import CELLS
from fedbench.models.registry import Model, register_model
from fedbench.models.rnn import Recurrent

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
