"""Networks of torchvision: sizes as published, torch's values for the same parameters, every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from option_helpers import build
from torch import nn
from torch.nn.functional import adaptive_avg_pool2d

from fedbench.api import compose_config
from fedbench.errors import ConfigError
from fedbench.models import count_parameters
from fedbench.models.layers import AdaptiveAvgPool2d, BatchNorm2d, StochasticDepth
from fedbench.runs.run import Run

# as torchvision's documentation lists them, for 1,000 classes
SIZES = {
    "resnet18": 11_689_512,
    "mobilenet_v2": 3_504_872,
    "shufflenet_v2_x0_5": 1_366_792,
    "squeezenet1_1": 1_235_496,
    "efficientnet_b0": 5_288_548,
}


@pytest.mark.parametrize("arch", list(SIZES))
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_sizes_as_published(arch: str, norm: str) -> None:
    made = build({"name": "torchvision", "arch": arch, "norm": norm}, (3, 64, 64), 1000, 0)
    assert count_parameters(made) == SIZES[arch]
    kinds = {type(layer) for layer in made.modules()}
    assert nn.BatchNorm2d not in kinds
    assert nn.Dropout not in kinds
    assert (BatchNorm2d in kinds) == (norm == "batch" and arch != "squeezenet1_1")


def test_values_are_torchs() -> None:
    """With torchvision's own modules and the same parameters, in training mode."""
    from torchvision.models import get_model

    ours = build({"name": "torchvision", "arch": "resnet18"}, (3, 32, 32), 5, 0).double()
    theirs = get_model("resnet18", num_classes=5).double()
    missing, unexpected = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert not unexpected
    assert all("num_batches_tracked" in name for name in missing)
    x = torch.randn(4, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-10)


def test_another_number_of_channels_changes_the_first_convolution_alone() -> None:
    """7 * 7 * 64 weights fewer for each channel."""
    grey = build({"name": "torchvision", "arch": "resnet18"}, (1, 32, 32), 1000, 0)
    assert count_parameters(grey) == SIZES["resnet18"] - 2 * 7 * 7 * 64


@pytest.mark.parametrize("size", [(7, 7), (6, 3), 2])
@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (2, 3, 9, 8), (3, 14, 5)])
def test_the_adaptive_pool_is_torchs(size: int | tuple[int, int], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    ours, theirs = AdaptiveAvgPool2d(size)(x), adaptive_avg_pool2d(x, size)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(theirs)
    a, b = (torch.autograd.grad((out * weight).sum(), x)[0] for out in (ours, theirs))
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_stochastic_depth_keeps_or_drops_whole_samples() -> None:
    layer = StochasticDepth(0.25).train()
    layer.key.copy_(torch.tensor([3, 5]))
    x = torch.randn(4000, 2, 3)
    scale = layer(x) / x
    assert torch.allclose(scale, scale[:, :1, :1].expand_as(scale))
    kept = scale[:, 0, 0] > 0.5
    assert torch.allclose(scale[kept], torch.tensor(4 / 3))
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / 4000) ** 0.5)
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize(("arch", "norm"), [("shufflenet_v2_x0_5", "batch"), ("mobilenet_v3_small", "group")])
def test_clients_together_equal_clients_alone(tmp_path: Path, arch: str, norm: str) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 255, (16, 32, 32, 1)).astype(np.uint8), np.arange(16) % 3
    np.savez(tmp_path / "data.npz", x_train=x[:12], y_train=y[:12], x_test=x[12:], y_test=y[12:])
    found = []
    for engine in ("loop", "vmap"):
        run = Run(
            compose_config(
                [
                    "dataset=npz", f"dataset.path={tmp_path / 'data.npz'}", "model=torchvision",
                    f"model.arch={arch}", f"model.norm={norm}", "model.groups=4", f"engine={engine}",
                    "rounds=1", "clients.total=3", "clients.per_round=2", "local.steps=1",
                    "local.batch_size=4", "algorithm.lr=1e-3", "dtype=float64",
                ]
            )
        )  # fmt: skip
        running = run.prepare()
        running.start()
        loop = running.loop
        loop.update()
        found.append(torch.cat([loop.theta, *(v.flatten() for v in loop.statistics.values())]))
    assert float((found[0] - found[1]).norm() / found[0].norm()) < 1e-12


def test_what_does_not_fit_is_one_line() -> None:
    for arch, shape, line in (
        ("resnet81", (3, 32, 32), r"model\.arch=resnet81: must be a classification network .*did you mean"),
        ("fcn_resnet50", (3, 32, 32), r"model\.arch=fcn_resnet50: must be a classification network"),
        ("alexnet", (3, 32, 32), r"model\.arch=alexnet: does not take samples \(3, 32, 32\)"),
        ("vit_b_16", (1, 28, 28), r"model\.arch=vit_b_16: does not take samples \(1, 28, 28\)"),
        ("resnet18", (60,), r"model=torchvision: needs images"),
    ):
        with pytest.raises(ConfigError, match=line):
            build({"name": "torchvision", "arch": arch}, shape, 10, 0)
