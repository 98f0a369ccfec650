"""The recurrent cells against torch's own, and their operators on shapes alone, under vmap and compiled."""

from __future__ import annotations

import pytest
import torch
from option_helpers import build
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedbench.models.recurrence import tell_compiler
from fedbench.models.recurrent import Recurrent

TORCH = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS = pytest.mark.parametrize("cell", list(TORCH))


@CELLS
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("steps", [1, 6])
def test_equals_torch_with_the_same_weights(cell: str, layers: int, steps: int) -> None:
    torch.manual_seed(0)
    ours = Recurrent(5, 7, layers, cell).double()
    theirs = TORCH[cell](5, 7, layers, batch_first=True).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(4, steps, 5, dtype=torch.float64) * 2
    x.requires_grad_()
    out, expected = ours(x), theirs(x)[0][:, -1]
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(out)
    grads = torch.autograd.grad((out * weight).sum(), [x, *ours.parameters()])
    wanted = torch.autograd.grad((expected * weight).sum(), [x, *theirs.parameters()])
    for name, a, b in zip(["x", *dict(ours.named_parameters())], grads, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12, msg=name)


def together(model: nn.Module, clients: int = 3) -> tuple[dict[str, Tensor], Tensor]:
    """Parameters and a batch of sequences for each client."""
    generator = torch.Generator().manual_seed(1)
    shapes = {name: (clients, *p.shape) for name, p in model.named_parameters()}
    params = {n: torch.randn(s, generator=generator, dtype=torch.float64) / 3 for n, s in shapes.items()}
    return params, torch.randn(clients, 2, 4, 5, generator=generator, dtype=torch.float64)


@CELLS
@pytest.mark.parametrize("shared", ["nothing", "parameters", "data"])
def test_clients_together_equal_clients_alone(cell: str, shared: str) -> None:
    model = Recurrent(5, 3, 2, cell).double()
    params, x = together(model)

    def gradient(params: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        return grad(lambda p: functional_call(model, p, (x,)).square().sum())(params)

    one = {name: value[0] for name, value in params.items()}
    args = (one if shared == "parameters" else params, x[0] if shared == "data" else x)
    over = (None if shared == "parameters" else 0, None if shared == "data" else 0)
    found = vmap(gradient, in_dims=over)(*args)
    for i in range(len(x)):
        own = one if shared == "parameters" else {name: value[i] for name, value in params.items()}
        for name, value in gradient(own, x[0] if shared == "data" else x[i]).items():
            torch.testing.assert_close(found[name][i], value, rtol=1e-11, atol=1e-12, msg=name)


@CELLS
def test_the_operators_agree_with_what_they_tell_a_compiler(cell: str) -> None:
    layer = Recurrent(5, 3, 1, cell)
    bias = torch.randn(2, 3) if cell == "gru" else torch.randn(2, 0)
    weight = torch.randn(2, *layer.weight_hh_l0.shape)
    driven = torch.randn(2, 4, 6, weight.shape[1])
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.fedbench.recur, (driven, weight, bias, cell), test_utils=checks)
    states, kept = torch.ops.fedbench.recur(driven, weight, bias, cell)
    back = (torch.randn_like(states), states, kept, weight, cell)
    torch.library.opcheck(torch.ops.fedbench.recur_back, back, test_utils=checks)


@CELLS
def test_it_runs_on_shapes_alone(cell: str) -> None:
    model = Recurrent(5, 3, 2, cell).to("meta")
    out = model(torch.empty(2, 4, 5, device="meta"))
    assert out.shape == (2, 3)
    weights = list(model.parameters())
    for found, parameter in zip(torch.autograd.grad(out.sum(), weights), weights, strict=True):
        assert found.shape == parameter.shape


@pytest.mark.slow
@CELLS
def test_compiles_around_the_operators_and_equals_eager(cell: str) -> None:
    model = Recurrent(5, 3, 2, cell).double()
    params, x = together(model)

    def step(params: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        grads = grad(lambda p: functional_call(model, p, (x,)).square().sum())(params)
        return {name: value - 0.1 * grads[name] for name, value in params.items()}

    expected = vmap(step)(params, x)
    tell_compiler()
    found = torch.compile(vmap(step), fullgraph=True, dynamic=False)(params, x)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-11, atol=1e-12, msg=name)


def test_a_second_derivative_is_refused() -> None:
    layer = Recurrent(3, 4, 1, "tanh")
    weights = list(layer.parameters())
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(layer(torch.randn(2, 5, 3)).sum(), weights, create_graph=True)


def test_reads_an_image_row_by_row() -> None:
    model = build({"name": "rnn", "hidden": 6}, (2, 3, 4), 5, 0)
    reference = nn.RNN(8, 6, 3, batch_first=True)
    reference.load_state_dict(model.recurrent.state_dict())
    x = torch.rand(2, 2, 3, 4)
    rows = torch.stack([torch.cat([x[:, 0, h], x[:, 1, h]], dim=1) for h in range(3)], dim=1)
    torch.testing.assert_close(model(x), model.head(reference(rows)[0][:, -1]))
