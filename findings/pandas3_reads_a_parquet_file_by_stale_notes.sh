#!/bin/sh
# pandas 3.1.1 with pyarrow 22.0.0: read_parquet gives texts for a column that is int64 in the file, where the notes that pandas once
# left in the file call the column text. pandas 2.3.3 gives int64 for the same file.
# Most expect: the type of a column is that of the file's schema, as in every release of pandas 2; pyarrow's set_column
# with other numbers changes the schema and keeps the table's metadata, and its own to_pandas has long coped with that.
# Seen: dtype str in pandas 3.1.1, int64 in pandas 2.3.3. Whoever makes one column per category of text columns gets
# other features from the same file after the update.
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
for pandas in 2.3.3 3.1.1; do
    install "pandas==$pandas" "pyarrow==22.0.0"
    (cd "$place" && "$place/venv/bin/python" - <<'PYTHON'
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

old = pa.Table.from_pandas(pd.DataFrame({"age": ["7", "8"]}))
pq.write_table(old.set_column(0, "age", pa.array([7, 8], pa.int64())), "ages.parquet")
assert str(pq.read_schema("ages.parquet").field("age").type) == "int64"
kind = str(pd.read_parquet("ages.parquet")["age"].dtype)
print(f"pandas {pd.__version__}, pyarrow {pa.__version__}: {kind}")
assert kind == ("int64" if pd.__version__.startswith("2") else "str")
PYTHON
    )
done
