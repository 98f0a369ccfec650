#!/bin/sh
# fluke-fl 0.8.1: label_dirichlet_skew(balanced=True) fills small clients with samples that other clients have, or that they have
# already.
# Most expect: a partition; its docstring says that the method allocates the data and that balanced makes sizes equal.
# Seen: 10 clients of 100 samples each hold 1,000 row numbers of which fewer than 900 are different; some occur twice
# at one client. What is filled up is drawn from the rows that no earlier client was given for certain, among them those
# that later clients have, and the samples cut off a large client go to nobody.
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
install "fluke-fl==0.8.1"
"$place/venv/bin/python" - <<'PYTHON'
import numpy as np
import torch
from fluke.data import DataSplitter

labels, held, twice = np.arange(1000) % 10, [], 0
for seed in range(5):
    np.random.seed(seed)
    clients, _ = DataSplitter.label_dirichlet_skew(
        torch.zeros(1000, 1), labels, None, None, 10, beta=0.5, min_ex_class=0, balanced=True
    )
    assert {len(rows) for rows in clients} == {100}
    held.append(len(set(np.concatenate(clients).tolist())))
    twice += sum(len(rows) - len(set(rows.tolist())) for rows in clients)
print(f"different samples among 1,000 that 10 clients hold: {held}; twice at one client, over five seeds: {twice}")
assert max(held) < 950 and twice > 0
PYTHON
