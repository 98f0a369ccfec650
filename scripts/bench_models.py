"""A model as a bare loop would write it, at module level so that Flower's actors can unpickle it."""

from __future__ import annotations

from torch import Tensor, nn

from fedbench.models.recurrent import RNN

LAYERS: dict[str, type[nn.RNNBase]] = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class PlainRNN(nn.Module):
    """torch.nn's recurrent layers in place of ours, with the same parameters."""

    def __init__(self, model: RNN) -> None:
        super().__init__()
        ours = model.recurrent
        inputs = ours.weight_ih_l0.shape[1]
        self.layers = LAYERS[ours.cell](inputs, ours.hidden, ours.layers, batch_first=True)
        self.layers.load_state_dict(ours.state_dict())
        self.head = model.head

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, 1, rows, columns), one row per step."""
        return self.head(self.layers(x.transpose(1, 2).flatten(2))[0][:, -1])
