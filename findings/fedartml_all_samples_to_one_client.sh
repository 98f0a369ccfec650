#!/bin/sh
# fedartml 0.1.34: percent_noniid_method with more clients than labels gives all samples of the skewed part to the last client.
# Most expect: Hsieh et al., ICML 2020, whom its docstring names, sort by label and cut the skewed part into as many
# equal pieces as there are clients, so 1,000 samples on 20 clients are 50 each.
# Seen: 19 clients with no sample and one with 1,000, without a warning. Labels are dealt in whole labels, labels //
# clients of them each, which is 0, and the rest goes to the last client. With 5 clients and 10 labels each has 200.
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
install "numpy==1.26.4" "pandas==2.2.3" "scipy==1.13.1" "scikit-learn==1.5.2" "matplotlib==3.9.4" \
    "plotly==5.24.1" "ipywidgets==8.1.5" "SciencePlots==2.1.1"
install "fedartml==0.1.34"
"$place/venv/bin/python" - <<'PYTHON'
import numpy as np
from fedartml import SplitAsFederatedData

labels = np.arange(1000) % 10
sizes = {}
for clients in (5, 20):
    _, _, rows, _ = SplitAsFederatedData.percent_noniid_method(labels, clients, 100, 0)
    sizes[clients] = [len(own) for own in rows]
    print(f"{clients} clients: {sizes[clients]}")
assert sizes[5] == [200] * 5
assert sizes[20] == [0] * 19 + [1000]
PYTHON
