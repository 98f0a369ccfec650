#!/bin/sh
# torchmetrics 1.9.0 (with torch 2.15.0): once a metric has been computed, merge_state does not change what compute gives.
# Most expect: its docstring says that the other metric's state is merged into this one, so compute is then the value
# over both clients' samples, as after update.
# Seen: client a has 1 of 4 right and reports 0.25 by compute. It takes in client b, which has 4 of 4 right: the counts
# become those of 8 samples and compute still says 0.25. Without the first compute it says 0.625. The value is kept, and
# only update, forward and reset forget it. CatMetric, which only collects, gives b's numbers before a's own.
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
from torchmetrics import CatMetric
from torchmetrics.classification import BinaryAccuracy


def client(right):
    metric = BinaryAccuracy()
    metric.update(torch.tensor([1] * right + [0] * (4 - right)), torch.ones(4, dtype=torch.int64))
    return metric


seen = {}
for reported in (False, True):
    a, b = client(1), client(4)
    if reported:
        assert a.compute() == 0.25
    a.merge_state(b)
    assert a.tp == 5 and a.fn == 3
    seen[reported] = float(a.compute())
print(f"by whether the client had computed before: {seen}")
assert seen == {False: 0.625, True: 0.25}
parts = [CatMetric() for _ in range(3)]
for i, part in enumerate(parts):
    part.update(float(i))
parts[0].merge_state(parts[1])
parts[0].merge_state(parts[2])
order = parts[0].compute().tolist()
print(f"0, 1 and 2, merged in this order: {order}")
assert order == [2, 1, 0]
PYTHON
