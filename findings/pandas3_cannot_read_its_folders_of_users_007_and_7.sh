#!/bin/sh
# pandas 3.1.1 with pyarrow 26.0.1: to_parquet(partition_cols=["user"]) of the texts "007" and "7" writes what
# read_parquet cannot read.
# Most expect: the column comes back as it was, or at worst as the integers 7 and 7, so that the two users have
# become one.
# Seen: pandas ends with "Categorical categories must be unique". pyarrow alone reads the same folders as one user,
# whose dictionary holds 7 twice and whose rows group_by adds up. With one more user "a1" in the data all three are
# texts again, and both packages read them: which users are one person depends on who else is in the table.
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
install "pandas==3.1.1" "pyarrow==26.0.1"
(cd "$place" && "$place/venv/bin/python" - <<'PYTHON'
import pandas as pd
import pyarrow.parquet as pq


def read(folder, users):
    pd.DataFrame({"user": users, "x": [1, 2, 3]}).to_parquet(folder, partition_cols=["user"])
    sums = pq.read_table(folder).group_by("user").aggregate([("x", "sum")]).to_pydict()
    try:
        theirs = sorted(map(str, pd.read_parquet(folder)["user"]))
    except ValueError as error:
        theirs = str(error)
    return dict(zip(sums["user"], sums["x_sum"], strict=True)), theirs


two, three = read("two", ["007", "7", "7"]), read("three", ["007", "7", "a1"])
print(f"two users: pyarrow {two[0]}, pandas {two[1]}")
print(f"three users: pyarrow {three[0]}, pandas {three[1]}")
assert two == ({7: 6}, "Categorical categories must be unique")
assert three == ({"007": 1, "7": 2, "a1": 3}, ["007", "7", "a1"])
PYTHON
)
