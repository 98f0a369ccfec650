"""The recurrent cells against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedbench.models import build
from fedbench.models.rnn import Recurrent

TORCH = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


@pytest.mark.parametrize("cell", ["tanh", "gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 3])
def test_equals_torch_with_the_same_weights(cell: str, layers: int) -> None:
    torch.manual_seed(0)
    ours = Recurrent(5, 7, layers, cell).double()
    theirs = TORCH[cell](5, 7, layers, batch_first=True).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(4, 6, 5, dtype=torch.float64) * 2
    out, expected = ours(x), theirs(x)[0][:, -1]
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(out)
    grads = torch.autograd.grad((out * weight).sum(), list(ours.parameters()))
    wanted = torch.autograd.grad((expected * weight).sum(), list(theirs.parameters()))
    for (name, _), a, b in zip(ours.named_parameters(), grads, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=name)


def test_reads_an_image_row_by_row() -> None:
    model = build({"name": "rnn", "hidden": 6}, (2, 3, 4), 5, 0)
    reference = nn.RNN(8, 6, 3, batch_first=True)
    reference.load_state_dict(model.recurrent.state_dict())
    x = torch.rand(2, 2, 3, 4)
    rows = torch.stack([torch.cat([x[:, 0, h], x[:, 1, h]], dim=1) for h in range(3)], dim=1)
    torch.testing.assert_close(model(x), model.head(reference(rows)[0][:, -1]))
