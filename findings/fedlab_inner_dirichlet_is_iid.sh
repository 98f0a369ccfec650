#!/bin/sh
# fedlab 1.3.0 (with numpy 1.26.4): client_inner_dirichlet_partition gives every client a random sample of all labels, whatever
# dir_alpha is.
# Most expect: the function's docstring names FedDyn's split, in which each client draws its own shares of the labels
# from Dir(dir_alpha): with alpha 0.1 most of a client's samples have one label.
# Seen: the most frequent of ten labels has a share of about 0.2 at a client, as in a random draw of 20 samples, for
# alpha 0.1 and for alpha 100. The labels are shuffled first, and the row numbers that come back are those of the
# shuffled copy, not of the data that were handed in.
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
install "numpy==1.26.4" "pandas==2.2.3"
install --no-deps "fedlab==1.3.0"
"$place/venv/bin/python" - <<'PYTHON'
import importlib.util
import sysconfig
from pathlib import Path

import numpy as np

file = Path(sysconfig.get_path("purelib")) / "fedlab/utils/dataset/functional.py"  # by itself it needs no torch
spec = importlib.util.spec_from_file_location("functional", file)
functional = importlib.util.module_from_spec(spec)
spec.loader.exec_module(functional)
labels = np.arange(1000) % 10
for alpha in (0.1, 100.0):
    shares = []
    for seed in range(10):
        np.random.seed(seed)
        sizes = np.full(10, 20)
        clients = functional.client_inner_dirichlet_partition(labels.copy(), 10, 10, alpha, sizes, verbose=False)
        shares += [np.bincount(labels[rows]).max() / len(rows) for rows in clients.values()]
    print(f"alpha {alpha}: mean share of a client's most frequent label {np.mean(shares):.3f}")
    assert np.mean(shares) < 0.3
PYTHON
