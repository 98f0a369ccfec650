#!/bin/sh
# psfed 0.1.2 (with torch 2.15.0): TopKMagnitudeSelector shares the whole model where its fraction is less than half a
# parameter.
# Most expect: fraction is documented as the share of the parameters to select. A fraction that rounds to none selects
# none, or one; fraction=0.0, which is allowed, shares nothing, as with RandomMaskSelector.
# Seen: of 420 parameters 0.01 selects 4, and 0.001 and 0.0 select all 420, with GradientBasedSelector too. A sweep over
# ever smaller fractions ends with full FedAvg, and its last point says that sharing almost nothing costs no accuracy.
# The largest k are taken as the last k of a list of positions, [-k:], and [-0:] is all of it.
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
install "torch==2.15.0" "numpy==2.4.6"
install --no-deps "psfed==0.1.2"
"$place/venv/bin/python" - <<'PYTHON'
import numpy as np
import torch
from psfed import FlattenedModel, GradientBasedSelector, RandomMaskSelector, TopKMagnitudeSelector

model = FlattenedModel(torch.nn.Linear(20, 20))
size = model.num_parameters
gradients = np.linspace(-1.0, 1.0, size)
for fraction, expected in ((0.5, 210), (0.01, 4), (0.001, 0), (0.0, 0)):
    counts = [
        selector(fraction=fraction).select(size, round_num=1, flat_model=model, gradients=gradients).count
        for selector in (RandomMaskSelector, TopKMagnitudeSelector, GradientBasedSelector)
    ]
    print(f"fraction {fraction} of {size}: random {counts[0]}, by magnitude {counts[1]}, by gradient {counts[2]}")
    assert counts == [expected, expected or size, expected or size]
PYTHON
