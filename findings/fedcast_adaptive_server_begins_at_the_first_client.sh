#!/bin/sh
# fedcast 0.1.1b1 (with flwr 1.42.0): FedOpt begins at the model of whichever client answers first, and its steps end at
# a third of the server's rate with Adam and at ten times the rate with Yogi.
# Most expect: the server's model is the one that it sent, so the order of the answers does not matter; and, by the
# formulas of the docstrings, gradients that are always 1 end in steps of the rate, as m and v become 1.
# Seen: two clients send 1 and 3. If 1 comes first, the new model is 1.01, else 2.99; what was sent to them is not
# looked at. With clients that always ask for 1 more, steps at rate 0.01 end at 0.0032 with Adam and at 0.1 with Yogi: m
# and Adam's v are divided by 1 - beta, the correction of the first round, in every round, and Yogi's v is not.
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
install "flwr==1.42.0" "numpy==2.4.6"
install --no-deps "fedcast==0.1.1b1"
"$place/venv/bin/python" - 2>"$place/log" <<'PYTHON' || { cat "$place/log"; exit 1; }
import importlib.util
import sys
import sysconfig
from pathlib import Path

import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays

# The file by itself: importing the package imports torch and the downloads of its data sets.
path = Path(sysconfig.get_path("purelib")) / "fedcast/federated_learning_strategies/fedopt.py"
spec = importlib.util.spec_from_file_location("fedopt", path)
fedopt = sys.modules["fedopt"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fedopt)


def server(kind):
    return fedopt.build_fedopt_strategy(optimizer_type=kind, server_learning_rate=0.01)


def after(strategy, number, answers):
    results = [
        (None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([np.array([answer])]), 10, {}))
        for answer in answers
    ]
    return float(parameters_to_ndarrays(strategy.aggregate_fit(number, results, [])[0])[0][0])


orders = [round(after(server("adam"), 1, answers), 4) for answers in ([1.0, 3.0], [3.0, 1.0])]
print(f"after the first round, by who answers first: {orders}")
assert orders == [1.01, 2.99]
ends = {}
for kind in ("adam", "yogi"):
    strategy = server(kind)
    model = after(strategy, 1, [0.0, 0.0])
    steps = []
    for number in range(2, 5002):
        new = after(strategy, number, [model + 1.0, model + 1.0])
        steps.append(new - model)
        model = new
    ends[kind] = steps[-1]
    print(f"{kind}: steps 1, 10, 100, 5000: {[round(steps[i - 1], 4) for i in (1, 10, 100, 5000)]}")
assert abs(ends["adam"] - 0.0032) < 1e-4 and abs(ends["yogi"] - 0.1) < 1e-3
PYTHON
