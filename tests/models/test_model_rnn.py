"""The recurrent cells against torch's own, and their operators on shapes alone, under vmap and compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from option_helpers import build
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedbench.models.onednn import has_lstm
from fedbench.models.recurrence import LSTM
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


def gradients(clients: list[Recurrent], x: Tensor, weight: Tensor) -> dict[str, Tensor]:
    """Of each client's parameters and inputs x (C, B, T, n), by vmap: (C, ...)."""
    own = [{**dict(one.named_parameters()), "x": one_x} for one, one_x in zip(clients, x, strict=True)]
    values = {name: torch.stack([each[name].detach() for each in own]) for name in own[0]}

    def loss(values: dict[str, Tensor]) -> Tensor:
        given = {name: value for name, value in values.items() if name != "x"}
        return (functional_call(clients[0], given, (values["x"],)) * weight).sum()

    return dict(vmap(grad(loss))(values))


@pytest.mark.skipif(not has_lstm(torch.zeros(1)), reason="this torch has no LSTM of oneDNN")
def test_an_lstm_in_float32_is_torchs_to_the_last_bit_for_each_client() -> None:
    torch.manual_seed(0)
    clients = [Recurrent(5, 7, 2, "lstm") for _ in range(3)]
    x, weight = torch.randn(3, 4, 6, 5) * 2, torch.randn(4, 7)
    found = gradients(clients, x, weight)
    for c, ours in enumerate(clients):
        theirs = nn.LSTM(5, 7, 2, batch_first=True)
        theirs.load_state_dict(ours.state_dict())
        out = theirs(own := x[c].clone().requires_grad_())[0][:, -1]
        wanted = torch.autograd.grad((out * weight).sum(), [own, *theirs.parameters()])
        for name, expected in zip(["x", *dict(theirs.named_parameters())], wanted, strict=True):
            assert torch.equal(found[name][c], expected), name
        with torch.no_grad():
            assert torch.equal(ours(x[c]), theirs(x[c])[0][:, -1])
    with torch.backends.mkldnn.flags(enabled=False):  # step by step, as in float64
        assert not has_lstm(x)
        plain = gradients(clients, x, weight)
    for name, value in found.items():
        torch.testing.assert_close(value, plain[name], rtol=1e-4, atol=1e-5, msg=name)


def test_an_lstm_in_float32_has_no_second_derivative() -> None:
    ours = Recurrent(2, 3, 1, "lstm")
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(ours(torch.ones(1, 2, 2)).sum(), list(ours.parameters()), create_graph=True)


@pytest.fixture
def cells_on_the_cpu() -> Iterator[None]:
    """Torch's fused kernels of an LSTM cell, which only CUDA has: their equations, and autograd."""

    def cell(pre: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        i, f, g, o = pre.chunk(4, -1)
        gates = torch.cat((i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()), -1)
        new = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * new.tanh(), new, gates

    def forward(
        inputs: Tensor, hidden: Tensor, c: Tensor, b1: Tensor | None = None, b2: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        assert (b1, b2, inputs.dim(), hidden.dim(), c.dim()) == (None, None, 2, 2, 2)
        return cell(inputs + hidden, c)

    def backward(
        to_h: Tensor | None, to_c: Tensor | None, c: Tensor, new: Tensor, gates: Tensor, has_bias: bool
    ) -> tuple[Tensor, Tensor, None]:
        assert (gates.dim(), has_bias) == (2, False)
        i, f, g, o = gates.chunk(4, -1)
        pre = torch.cat((i.logit(), f.logit(), g.atanh(), o.logit()), -1)
        torch.testing.assert_close(cell(pre, c)[1], new, rtol=1e-9, atol=1e-9)  # it belongs to these

        def pulled(pre: Tensor, c: Tensor) -> Tensor:
            h, new, _ = cell(pre, c)
            return (h * to_h).sum() + (0 if to_c is None else (new * to_c).sum())

        return *torch.func.grad(pulled, argnums=(0, 1))(pre, c), None

    library = torch.library.Library("aten", "IMPL")
    library.impl("_thnn_fused_lstm_cell", forward, "CPU")
    library.impl("_thnn_fused_lstm_cell_backward_impl", backward, "CPU")
    yield
    library._destroy()


@pytest.mark.usefixtures("cells_on_the_cpu")
@pytest.mark.parametrize("steps", [1, 6])
def test_an_lstm_of_fused_cells_is_the_plain_one(steps: int) -> None:
    generator = torch.Generator().manual_seed(2)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    driven, weight, grad_ = random(3, steps, 4, 20), random(3, 20, 5) / 3, random(3, steps, 4, 5)
    given = [x.clone() for x in (driven, weight, grad_)]
    lstm = LSTM()
    states, kept = lstm.fused_forward(driven, weight)
    for ours, plain in zip((states, kept), lstm.plain_forward(driven, weight), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)
        assert ours.is_contiguous()
    gates = lstm.fused_backward(grad_, kept, weight)
    torch.testing.assert_close(gates, lstm.plain_backward(grad_, kept, weight), rtol=1e-9, atol=1e-12)
    assert gates.is_contiguous()
    assert all(map(torch.equal, (driven, weight, grad_), given))
    first = lstm.fused_backward(grad_[:1], kept[:1], weight[:1])  # of one client, whose axes change freely
    torch.testing.assert_close(first, gates[:1], rtol=1e-12, atol=1e-12)
    assert torch.equal(grad_, given[2])


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
