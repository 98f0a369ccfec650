"""Pooling by quarters and by halves against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from fedbench.models import layers
from fedbench.models.layers import MaxPool2x2, by_halves, by_quarters


def all_forms(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Values and gradients: torch's, then by quarters and by halves."""
    results = []
    for function in (lambda x: max_pool2d(x, 2), by_quarters, by_halves):
        at = x.clone().requires_grad_()
        out = function(at)
        weight = torch.arange(1.0, out.numel() + 1).view_as(out)
        results.append((out, torch.autograd.grad((out * weight).sum(), at)[0]))
    return results


@pytest.mark.parametrize("size", [(4, 4), (5, 7), (2, 2), (3, 2)])
@pytest.mark.parametrize("levels", [2, 3, 1000])  # with few levels most windows have equal entries
def test_values_and_gradients_are_torchs(size: tuple[int, int], levels: int) -> None:
    generator = torch.Generator().manual_seed(levels)
    x = torch.randint(-levels, levels, (2, 3, *size), generator=generator).float()
    (expected, wanted), *ours = all_forms(x)
    for values, gradient in ours:
        assert torch.equal(values, expected)
        assert torch.equal(gradient, wanted)
    with torch.no_grad():
        assert torch.equal(MaxPool2x2()(x), expected)


def test_what_is_not_a_number_stays_so() -> None:
    for place in range(4):
        x = torch.zeros(1, 1, 2, 2)
        x.view(-1)[place] = torch.nan
        assert by_quarters(x).isnan().all()
        assert by_halves(x).isnan().all()


def test_a_compiler_sees_quarters_and_vmap_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    layer = MaxPool2x2()
    assert "_Halves" in str(layer(x).grad_fn)
    with monkeypatch.context() as only:
        only.delattr(layers, "by_halves")
        together = torch.func.vmap(layer)(x)
    assert torch.equal(together, layer(x))
    with torch.no_grad(), monkeypatch.context() as only:
        only.delattr(layers.functional, "max_pool2d")
        assert torch.equal(torch.func.vmap(layer)(x), together)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert "_Quarters" in str(layer(x).grad_fn)
    torch.testing.assert_close(layer(x), nn.MaxPool2d(2)(x), rtol=0, atol=0)


def test_under_vmap_it_is_a_loop_of_itself() -> None:
    x = torch.randn(3, 2, 1, 5, 4)
    together = torch.func.vmap(torch.func.grad(lambda x: by_quarters(x).square().sum()))(x)
    for i in range(len(x)):
        at = x[i].clone().requires_grad_()
        assert torch.equal(together[i], torch.autograd.grad(max_pool2d(at, 2).square().sum(), at)[0])
