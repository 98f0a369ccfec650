"""Models as a bare loop would write them, at module level so that Flower's actors can unpickle them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedbench.models import layers
from fedbench.models.recurrent import RNN, Recurrent, TextRNN

LAYERS: dict[str, type[nn.RNNBase]] = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def plain(model: nn.Module) -> nn.Module:
    """The same network, with torch's own layers and the same parameters."""
    if isinstance(model, RNN):
        return PlainRNN(model)
    if isinstance(model, TextRNN):
        return PlainText(model)
    if hasattr(model, "blocks") and hasattr(model, "position"):
        return PlainTransformer(model)
    for name, child in list(model.named_children()):
        setattr(model, name, _layer(child) or plain(child))
    return model


def _layer(ours: nn.Module) -> nn.Module | None:
    """Torch's layer in place of one of the package's; None: it has none of its own there."""
    new: nn.Module
    if isinstance(ours, layers.Dropout):
        return nn.Dropout(ours.p)
    if isinstance(ours, layers.MaxPool2x2):
        return nn.MaxPool2d(2)
    if isinstance(ours, layers.AdaptiveAvgPool2d):
        return nn.AdaptiveAvgPool2d(ours.output_size)
    if isinstance(ours, layers.GroupNorm):
        new = nn.GroupNorm(ours.num_groups, ours.num_channels, ours.eps)
    elif isinstance(ours, layers.Convolution):
        how = {"stride": ours.stride, "padding": ours.padding, "bias": ours.bias is not None}
        new = nn.Conv2d(ours.in_channels, ours.out_channels, ours.kernel_size, **how)
    else:
        return None
    new.weight, new.bias = ours.weight, ours.bias
    return new


def _recurrent(ours: Recurrent) -> nn.RNNBase:
    """Torch's recurrent layers, with both biases of each gate."""
    inputs = ours.weight_ih_l0.shape[1]
    layer = LAYERS[ours.cell](inputs, ours.hidden, ours.layers, batch_first=True)
    layer.load_state_dict(ours.state_dict(), strict=False)
    return layer


class PlainRNN(nn.Module):
    """A recurrent network over the rows of images."""

    def __init__(self, model: RNN) -> None:
        super().__init__()
        self.layers, self.head = _recurrent(model.recurrent), model.head

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, 1, rows, columns), one row per step."""
        return self.head(self.layers(x.transpose(1, 2).flatten(2))[0][:, -1])


class PlainText(nn.Module):
    """A recurrent network over tokens."""

    def __init__(self, model: TextRNN) -> None:
        super().__init__()
        self.embedding = nn.Embedding(*model.embedding.weight.shape, padding_idx=0)
        self.layers, self.head = _recurrent(model.recurrent), model.head

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (B, classes) of tokens (B, T)."""
        return self.head(self.layers(self.embedding(x))[0][:, -1])


class PlainTransformer(nn.Module):
    """The transformer, with torch's scaled dot-product attention."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.embedding, self.position = model.embedding, model.position
        self.blocks, self.norm, self.head = model.blocks, model.norm, model.head

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (B, classes) of tokens (B, T)."""
        at = torch.arange(x.shape[-1], device=x.device)
        seen = ((at <= at[:, None]) & (x != 0)[:, None, None, :]) | (at == at[:, None])
        out = self.embedding(x) + self.position
        for block in self.blocks:
            parts = block.projections(block.norm1(out)).chunk(3, -1)
            query, key, value = (part.unflatten(-1, (block.heads, -1)).transpose(1, 2) for part in parts)
            read = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
            out = out + block.merge(read.transpose(1, 2).flatten(2))
            out = out + block.contract(functional.gelu(block.expand(block.norm2(out))))
        return self.head(self.norm(out[:, -1]))
