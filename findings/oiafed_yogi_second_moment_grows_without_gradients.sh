#!/bin/sh
# oiafed 0.2.3 (with torch 2.15.0): the second moment of FedYogi grows by 1 % a round where nothing changes.
# Most expect: the paper that its file names, whose v - (1 - beta2) * g^2 * sign(v - g^2) leaves v as it is where the
# gradient g is 0. That v moves little is what Yogi is for.
# Seen: v grows whether it is above or below g^2: what is added is (g^2 - v) times its own sign. A weight that moves by
# 1 in one round (v = 0.01) and then rests, as those of a rare class or a frozen layer do, has v = 210 after 1,000
# rounds of the default beta2. When it moves by 1 again, its step is a hundred times smaller than the paper's. A long
# run ends by freezing what was rarely trained.
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
install "torch==2.15.0" "torchvision==0.29.2" "numpy==2.4.6" "pandas==3.1.1"
install "scikit-learn==1.9.1" "pyyaml==6.0.4" "loguru==0.7.3"
install --no-deps "oiafed==0.2.3"
"$place/venv/bin/python" - 2>"$place/log" <<'PYTHON' || { cat "$place/log"; exit 1; }
import torch
from oiafed.core.types import ClientUpdate
from oiafed.methods.aggregators.fedyogi import FedYogiAggregator

RATE, BETA1, BETA2, EPSILON = 0.01, 0.9, 0.99, 1e-3
server = FedYogiAggregator(server_lr=RATE, beta1=BETA1, beta2=BETA2, eps=EPSILON, device="cpu")
weight = 0.0
m = v = 0.0  # the paper's, with the bias correction that this package has


def next_round(change):
    global weight, m, v
    sent = ClientUpdate("client", {"w": torch.tensor([weight + change])}, 1)
    before, weight = weight, server.aggregate([sent])["w"].item()
    m = BETA1 * m + (1 - BETA1) * change
    v -= (1 - BETA2) * change**2 * ((v > change**2) - (v < change**2))
    t = server.round_count
    paper = RATE * m / (1 - BETA1**t) / ((v / (1 - BETA2**t)) ** 0.5 + EPSILON)
    return server.v_state["w"].item(), weight - before, paper


next_round(0.0)
seen = {"moved": next_round(1.0)}
for _ in range(1000):
    seen["rested"] = next_round(0.0)
seen["moved again"] = next_round(1.0)
for name, (theirs, step, paper) in seen.items():
    print(f"{name}: v {theirs:.4g}, step {step:.3g}, the paper's {paper:.3g}")
print(f"the paper's v: {v:.4g}")
assert abs(seen["moved"][0] - 0.01) < 1e-6 and abs(seen["moved"][1] - seen["moved"][2]) < 1e-4
assert 200 < seen["rested"][0] < 215 and abs(v - 0.02) < 1e-6
assert seen["moved again"][2] > 90 * seen["moved again"][1] > 0
PYTHON
