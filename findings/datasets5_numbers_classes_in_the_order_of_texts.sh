#!/bin/sh
# datasets 5.2.0: class_encode_column of integers 0 to 11 gives other numbers: 10 becomes 2, and 2 becomes 4.
# Most expect: labels that are numbered 0, 1, 2, ... already keep their numbers, as with scikit-learn's LabelEncoder or
# sorted(set(y)); the documents say that the column is cast to a ClassLabel of its unique values.
# Seen: the values become texts first and are numbered in the order of texts, 0, 1, 10, 11, 2, ..., 9. With at most ten
# classes nothing shows; with more, a model's outputs, a confusion matrix or a partition file made from the column no
# longer belong to the numbers of the data.
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
install "datasets==5.2.0" "pandas==3.1.1" "pyarrow==26.0.1"
HF_DATASETS_DISABLE_PROGRESS_BARS=1 "$place/venv/bin/python" - <<'PYTHON'
import tempfile

from datasets import Dataset, config

config.HF_DATASETS_CACHE = tempfile.mkdtemp()
kept = {}
for classes in (10, 12):
    data = Dataset.from_dict({"label": [*range(classes)]}).class_encode_column("label")
    kept[classes] = data["label"][:]
    print(f"{classes} classes: {[*range(classes)]} become {kept[classes]}")
assert kept[10] == [*range(10)]
assert kept[12] == [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3]
PYTHON
