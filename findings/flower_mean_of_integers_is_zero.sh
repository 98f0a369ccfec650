#!/bin/sh
# flwr 1.42.0: FedAvg's default aggregation turns integer arrays to zeros; with inplace=False it gives their mean as floats.
# Most expect: inplace is about memory, so both ways give the same numbers: [1.5, 3.5] for [1, 3] and [2, 4] (or an
# error for integers, as for other types). Models have integers: batch norm's num_batches_tracked is int64.
# Seen: [0, 0] of type int64 for inplace=True, the default, and [1.5, 3.5] for inplace=False. The clients' weights, 1/2
# each, are multiplied into arrays that stay integers, so each product is cut to 0.
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
install "flwr==1.42.0" "numpy==1.26.4"
"$place/venv/bin/python" - <<'PYTHON' 2>/dev/null
import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FedAvg


def mean(inplace):
    results = [
        (None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([np.array(values)]), 1, {}))
        for values in ([1, 3], [2, 4])
    ]
    return parameters_to_ndarrays(FedAvg(inplace=inplace).aggregate_fit(1, results, [])[0])[0]


ways = {inplace: mean(inplace) for inplace in (True, False)}
print({inplace: (array.tolist(), str(array.dtype)) for inplace, array in ways.items()})
assert ways[True].tolist() == [0, 0] and ways[False].tolist() == [1.5, 3.5]
PYTHON
