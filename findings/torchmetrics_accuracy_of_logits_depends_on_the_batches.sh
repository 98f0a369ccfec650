#!/bin/sh
# torchmetrics 1.9.0 (with torch 2.15.0): BinaryAccuracy of the same logits is 0.875 in one update and 0.625 in two.
# Most expect: a metric's state adds up, so update may be called for each mini-batch or client, or once for all; a logit
# above 0 is the positive class.
# Seen: every call of update decides by its own numbers whether these are logits. Where all happen to lie in [0, 1] they are
# taken for probabilities, without a word: 0.2 is below the threshold of 0.5 in one batch and, as a logit, above it in
# another.
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
install "torchmetrics==1.9.0" "torch==2.15.0" "numpy==2.4.6"
"$place/venv/bin/python" - <<'PYTHON'
import torch
from torchmetrics.classification import BinaryAccuracy

logits = torch.tensor([0.2, 0.4, 0.6, 0.8, -3.0, -1.0, 0.9, 2.0])
labels = torch.tensor([1, 1, 1, 1, 0, 0, 0, 1])
seen = {}
for size in (8, 4):
    metric = BinaryAccuracy()
    for x, y in zip(logits.split(size), labels.split(size), strict=True):
        metric.update(x, y)
    seen[8 // size] = float(metric.compute())
print(f"by the number of updates: {seen}")
assert seen == {1: 0.875, 2: 0.625}
PYTHON
