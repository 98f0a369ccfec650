#!/bin/sh
# declearn 2.9.1 (with numpy 1.26): AdamModule(amsgrad=True, round_reset=True) carries AMSGrad's maximum of the second moment into the
# next round.
# Most expect: its docstring says that the internal states go back to their initial values at the start of every round,
# so the first step of a round has the length of the first step of a new module: 1 for a gradient of 1.
# Seen: 0.01 after one gradient of 100 in the round before. The moments and the step counter are reset. The maximum is
# not: `on_round_start` in declearn/optimizer/modules/_adaptive.py clears an attribute of another name. A setting read
# from the module's own get_config() lacks round_reset, so a copy made from it does not reset anything.
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
install "declearn==2.9.1" "numpy==1.26.4"
"$place/venv/bin/python" - <<'PYTHON'
import numpy as np
from declearn.model.sklearn import NumpyVector
from declearn.optimizer.modules import AdamModule


def step(module, gradient):
    return float(module.run(NumpyVector({"w": np.array([gradient])})).coefs["w"][0])


used, new = (AdamModule(amsgrad=True, round_reset=True, eps=1e-12) for _ in range(2))
step(used, 100.0)
used.on_round_start()
after, first = step(used, 1.0), step(new, 1.0)
print(f"first step of the next round {after:.4f}, of a new module {first:.4f}; config {used.get_config()}")
assert abs(first - 1) < 1e-6 and abs(after - 0.01) < 1e-6
assert "round_reset" not in used.get_config()
PYTHON
