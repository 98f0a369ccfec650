"""Every model under grad and vmap as an engine uses it: equal to a loop, and compiled to one graph."""

from __future__ import annotations

import pytest
import torch
from option_helpers import build
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

State = dict[str, Tensor]

MODELS = [
    ({"name": "logistic"}, (6,)),
    ({"name": "mlp", "hidden": [5], "norm": "layer", "dropout": 0.3}, (6,)),
    ({"name": "cnn", "norm": "batch", "dropout": 0.3}, (1, 5, 7)),
    ({"name": "cnn_small", "norm": "group"}, (2, 16, 17)),
    ({"name": "rnn", "hidden": 4}, (1, 5, 3)),
    ({"name": "rnn", "hidden": 4, "cell": "gru"}, (1, 5, 3)),
    ({"name": "rnn", "hidden": 4, "cell": "lstm"}, (1, 5, 3)),
    ({"name": "resnet18", "norm": "batch", "width": 4}, (1, 4, 4)),
    ({"name": "resnet18", "width": 4}, (1, 8, 8)),
    ({"name": "torchvision", "arch": "shufflenet_v2_x0_5"}, (1, 32, 32)),
    ({"name": "torchvision", "arch": "mobilenet_v3_small", "norm": "group", "groups": 4}, (1, 32, 32)),
]
CLIENTS, BATCH = 2, 4


def stacked(model: nn.Module, shape: tuple[int, ...]) -> tuple[State, State, Tensor, Tensor]:
    """Parameters, buffers and a batch for each client; the last client's batch is padded."""
    generator = torch.Generator().manual_seed(0)

    def noisy(value: Tensor) -> Tensor:
        noise = torch.randn(CLIENTS, *value.shape, generator=generator, dtype=value.dtype)
        return value.detach() + 0.05 * noise

    params = {name: noisy(value) for name, value in model.named_parameters()}
    buffers = {}
    for name, value in model.named_buffers():
        if name.endswith("key"):
            buffers[name] = torch.randint(2**32, (CLIENTS, 2), generator=generator)
        elif name.endswith("weights"):
            buffers[name] = torch.ones(CLIENTS, BATCH, dtype=value.dtype)
            buffers[name][-1, 2:] = 0
        else:
            buffers[name] = value.expand(CLIENTS, *value.shape).clone()
    x = torch.randn(CLIENTS, BATCH, *shape, generator=generator, dtype=next(model.parameters()).dtype)
    return params, buffers, x, torch.randint(3, (CLIENTS, BATCH), generator=generator)


def gradient(model: nn.Module, params: State, buffers: State, x: Tensor, y: Tensor) -> tuple[State, State]:
    """Gradient of one client's loss, and the running statistics after the forward pass."""

    def loss(params: State) -> tuple[Tensor, State]:
        inputs = {name: value.clone() for name, value in buffers.items()}
        out = functional_call(model, {**params, **inputs}, (x,))
        return cross_entropy(out, y), {n: v for n, v in inputs.items() if "running" in n}

    return grad(loss, has_aux=True)(params)


@pytest.mark.parametrize(("config", "shape"), MODELS, ids=lambda value: str(value))
def test_vmap_equals_a_loop(config: dict, shape: tuple[int, ...]) -> None:
    model = build(config, shape, 3, 0).double().train()
    params, buffers, x, y = stacked(model, shape)
    together = vmap(lambda *args: gradient(model, *args))(params, buffers, x, y)
    for i in range(CLIENTS):
        own = ({name: value[i] for name, value in state.items()} for state in (params, buffers))
        alone = gradient(model, *own, x[i], y[i])
        for part, reference in zip(together, alone, strict=True):
            assert part.keys() == reference.keys()
            for name, value in reference.items():
                torch.testing.assert_close(part[name][i], value, rtol=1e-9, atol=1e-10, msg=name)
    assert any(v.abs().max() > 0 for v in together[0].values())
