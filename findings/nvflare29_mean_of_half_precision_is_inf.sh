#!/bin/sh
# nvflare 2.9.0 (with numpy 2.4.6): its weighted mean of models in half precision is inf where every model is 20.
# Most expect: the mean of equal models is that model, whatever the weights are. FedAvg's weights are numbers of local
# steps, and only their ratios count.
# Seen: two clients with 20 in float16 and 2,000 steps each give inf, and 1 step each gives 20. WeightedAggregationHelper
# (app_common/aggregators) adds value times weight in the model's own type, and divides at the end, so 20 times 2,000
# twice is beyond float16's 65,504.
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
install "numpy==2.4.6"
install --no-deps "nvflare==2.9.0"
"$place/venv/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import sysconfig
from pathlib import Path

import numpy as np

file = Path(sysconfig.get_path("purelib")) / "nvflare/app_common/aggregators/weighted_aggregation_helper.py"
spec = importlib.util.spec_from_file_location("helper", file)  # by itself it needs nothing else of nvflare
helper = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helper)


def mean(value, steps, type):
    aggregation = helper.WeightedAggregationHelper()
    for client in ("a", "b"):
        aggregation.add({"w": np.array([value], dtype=type)}, steps, client, 0)
    return float(aggregation.get_result()["w"][0])


for steps in (1, 2000):
    for type in ("float32", "float16"):
        print(f"two models of 20, {steps} steps each, {type}: {mean(20, steps, type):g}")
assert mean(20, 1, "float16") == mean(20, 2000, "float32") == 20
assert mean(20, 2000, "float16") == np.inf
PYTHON
echo "as stated: the mean of equal half-precision models is inf"
