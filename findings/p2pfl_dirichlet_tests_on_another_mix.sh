#!/bin/sh
# p2pfl 0.4.4 (with datasets 5.0.0, numpy 2.4.6): its Dirichlet partition divides the test set by other shares, so a node is tested on
# labels that it was not trained on.
# Most expect: one call divides training and test set, so that a node's test samples have the mix of its training samples.
# That is what a node's own accuracy is measured on, and what decides whether a personal model is better.
# Seen: with alpha 0.1 and ten nodes the labels' shares of a node in training and test are as unlike as those of two
# different nodes. `generate_partitions` draws the shares anew for the test set, from the same generator
# (p2pfl/learning/dataset/partition_strategies.py).
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
install "numpy==2.4.6" "datasets==5.0.0"
install --no-deps "p2pfl==0.4.4"
"$place/venv/bin/python" - <<'PYTHON'
import numpy as np
from datasets import Dataset
from p2pfl.learning.dataset.partition_strategies import DirichletPartitionStrategy
from p2pfl.settings import Settings

labels = [i % 10 for i in range(2000)]
data = Dataset.from_dict({"label": labels})
same, other = [], []
for seed in range(5):
    Settings.general.SEED = seed
    parts = DirichletPartitionStrategy.generate_partitions(data, data, 10, alpha=0.1)
    train, test = (
        [np.bincount([labels[i] for i in rows], minlength=10) / len(rows) for rows in nodes] for nodes in parts
    )
    for i in range(10):
        for j in range(10):
            (same if i == j else other).append(np.abs(train[i] - test[j]).sum() / 2)
print(f"share of labels that differs: a node's training and test {np.mean(same):.2f}, two nodes {np.mean(other):.2f}")
assert np.mean(same) > 0.6
assert abs(np.mean(same) - np.mean(other)) < 0.1
PYTHON
echo "as stated: a node's test set has another mix of labels than its training set"
