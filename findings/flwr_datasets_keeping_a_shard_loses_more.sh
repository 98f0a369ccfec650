#!/bin/sh
# flwr-datasets 0.6.1 (with datasets 4.8.5): ShardPartitioner(keep_incomplete_shard=True) leaves out more samples than False does.
# Most expect: the switch is documented as whether the last shard, which may be smaller, is dropped, so True uses at
# least the samples that False uses.
# Seen: 1,000 samples, 7 clients and 3 shards each are 21 shards of 47 samples and one of 13. False leaves out the 13,
# so 987 are used. True deals 21 of all 22 at random and leaves out a whole shard in almost every draw: 953 are used,
# and one client is smaller than the others. No draw uses more than 987.
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
install "flwr-datasets==0.6.1" "datasets==4.8.5" "numpy==2.4.6"
HF_DATASETS_DISABLE_PROGRESS_BARS=1 "$place/venv/bin/python" -W ignore - <<'PYTHON'
import tempfile
from collections import Counter

from datasets import Dataset, config
from flwr_datasets.partitioner import ShardPartitioner

config.HF_DATASETS_CACHE = tempfile.mkdtemp()
data = Dataset.from_dict({"label": [i % 10 for i in range(1000)]})
used = {}
for keep in (False, True):
    used[keep] = []
    for seed in range(10):
        shards = ShardPartitioner(7, "label", num_shards_per_partition=3, keep_incomplete_shard=keep, seed=seed)
        shards.dataset = data
        used[keep].append(sum(len(shards.load_partition(i)) for i in range(7)))
    print(f"keep_incomplete_shard={keep}: samples used and in how many of 10 seeds {dict(Counter(used[keep]))}")
assert set(used[False]) == {987}
assert used[True] == [953] * 10
PYTHON
