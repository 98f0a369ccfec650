#!/bin/sh
# torch 2.15.0: a LambdaLR that is made for an optimizer whose learning rate has been set begins at the rate of an
# earlier scheduler.
# Most expect: its docstring says that by default the initial rate is the group's lr. A client that keeps its optimizer,
# is given a rate by the server at every round and makes a new scheduler for its epochs begins at that rate. With
# StepLR, ExponentialLR, LinearLR and CosineAnnealingLR it does.
# Seen: after a scheduler of whatever kind at rate 1 the rate is set to 0.01, and a new LambdaLR puts it back to 1 as
# soon as it is made, a hundred times too high, without a word; so does CosineAnnealingWarmRestarts. They multiply the
# group's initial_lr, which the first scheduler has left there and the second does not write anew.
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
"$place/venv/bin/python" - <<'PYTHON'
import torch
from torch.optim import lr_scheduler as schedulers

SCHEDULERS = {
    "LambdaLR": lambda optimizer: schedulers.LambdaLR(optimizer, lambda epoch: 0.5**epoch),
    "LinearLR": lambda optimizer: schedulers.LinearLR(optimizer, start_factor=1.0, end_factor=0.5, total_iters=4),
    "CosineAnnealingWarmRestarts": lambda optimizer: schedulers.CosineAnnealingWarmRestarts(optimizer, T_0=4),
    "StepLR": lambda optimizer: schedulers.StepLR(optimizer, step_size=1, gamma=0.5),
    "ExponentialLR": lambda optimizer: schedulers.ExponentialLR(optimizer, gamma=0.5),
    "CosineAnnealingLR": lambda optimizer: schedulers.CosineAnnealingLR(optimizer, T_max=4),
}
OLD = {"LambdaLR", "CosineAnnealingWarmRestarts"}


def rates(make, earlier):
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1.0)
    if earlier:
        schedulers.StepLR(optimizer, step_size=1)
    group = optimizer.param_groups[0]
    group["lr"] = 0.01
    scheduler = make(optimizer)
    seen = [group["lr"]]
    for _ in range(2):
        optimizer.step()
        scheduler.step()
        seen.append(round(group["lr"], 5))
    return seen


for name, make in SCHEDULERS.items():
    new, used = rates(make, False), rates(make, True)
    print(f"{name}: rates {new}, after an earlier scheduler {used}")
    scale = 100 if name in OLD else 1
    assert new[0] == 0.01 and all(abs(b - scale * a) < 1e-5 * scale for a, b in zip(new, used, strict=True))
PYTHON
