#!/bin/sh
# datasets 4.8.5, the last release that flwr-datasets 0.6.1 accepts: skip(5) of a stream in four shards skips nothing.
# Most expect: skip is documented to leave out the first n rows, and take to keep them, so that one part is for
# validation and the rest for training. datasets 5.2.0 does this.
# Seen: of 20 rows in 4 shards (to_iterable_dataset) take(5) gives rows 0 to 4 and skip(5) gives all 20, so that a model
# is validated on what it was trained on. With n = 7 rows 0 and 1 alone are left out. In one shard all is right.
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
for version in 4.8.5 5.2.0; do
    install "datasets==$version" "pandas==3.1.1" "pyarrow==26.0.1" "numpy==2.4.6"
    HF_DATASETS_DISABLE_PROGRESS_BARS=1 "$place/venv/bin/python" - <<'PYTHON'
import tempfile

import datasets

datasets.config.HF_DATASETS_CACHE = tempfile.mkdtemp()
data, old = datasets.Dataset.from_dict({"row": [*range(20)]}), datasets.__version__.startswith("4")


def rows(stream):
    return [sample["row"] for sample in stream]


for shards in (1, 4):
    stream = data.to_iterable_dataset(num_shards=shards)
    for n in (5, 7):
        kept, rest = rows(stream.take(n)), rows(stream.skip(n))
        both = len({*kept} & {*rest})
        print(f"datasets {datasets.__version__}, {shards} shards: take({n}) has {len(kept)}, skip({n}) {len(rest)}, both {both}")
        assert kept == [*range(n)]
        assert rest == [*range({5: 0, 7: 2}[n] if old and shards == 4 else n, 20)]
PYTHON
done
