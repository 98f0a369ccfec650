#!/bin/sh
# opacus 1.6.0 (with torch 2.15.0): a convolution with padding_mode "circular", "reflect" or "replicate" is trained with
# the wrong gradient.
# Most expect: without noise, and with a bound that clips nothing, DP-SGD is SGD. The layer is accepted, ModuleValidator
# has no objection, and the package's other way, grad_sample_mode="functorch", gives SGD's step.
# Seen: the step of the convolution's weight differs from SGD's by more than half its length, without a warning. With
# zeros all agree. The forward pass pads as it should; the default way's per-sample gradient
# (opacus/grad_sample/conv.py) does not look at padding_mode.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
if command -v uv >/dev/null; then
    uv venv -q -p python3 "$place/venv"
    install() { uv pip install -q --python "$place/venv/bin/python" "$@"; }
else
    python3 -m venv "$place/venv"
    install() { "$place/venv/bin/pip" install -q "$@"; }
fi
install "opacus==1.6.0" "torch==2.15.0" "numpy==2.4.6"
"$place/venv/bin/python" -W ignore - <<'PYTHON'
import logging

import torch
from opacus import PrivacyEngine
from opacus.validators import ModuleValidator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.disable()


def step(padding, way=None):
    """What one step of size 1 subtracts from the convolution's weight."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode=padding), nn.Flatten(), nn.Linear(32, 2))
    x, y = torch.randn(8, 1, 4, 4), torch.arange(8) % 2
    optimizer, loader = torch.optim.SGD(model.parameters(), lr=1.0), DataLoader(TensorDataset(x, y), batch_size=8)
    weight = model[0].weight
    before = weight.detach().clone()
    if way:
        assert ModuleValidator.is_valid(model)
        model, optimizer, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            noise_multiplier=0.0,
            max_grad_norm=1e6,
            poisson_sampling=False,
            grad_sample_mode=way,
        )
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    return before - weight.detach()


for padding in ("zeros", "circular", "reflect", "replicate"):
    sgd = step(padding)
    off = {way: float((step(padding, way) - sgd).norm() / sgd.norm()) for way in ("hooks", "functorch")}
    print(f"{padding}: relative distance from SGD's step {off['hooks']:.3f}, by functorch {off['functorch']:.3f}")
    assert off["functorch"] < 1e-4
    assert off["hooks"] < 1e-4 if padding == "zeros" else off["hooks"] > 0.5
PYTHON
