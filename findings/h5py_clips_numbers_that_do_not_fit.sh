#!/bin/sh
# h5py 3.16.0 (with numpy 2.4.6): numbers that a data set's integer type does not hold become the nearest one that
# it holds.
# Most expect: what NumPy does, as everywhere else in h5py, which takes and gives NumPy's arrays: array[:] = other
# wraps (300 becomes 44 in uint8, -5 becomes 251), and a plain Python number that does not fit is an OverflowError.
# Seen: in an array 300 becomes 255 and -5 becomes 0, without a warning; the Python number 300 is an OverflowError,
# as in NumPy. Labels or user numbers above the type's end all become its last one, so they are one class or one
# user.
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
install "h5py==3.16.0" "numpy==2.4.6"
(cd "$place" && "$place/venv/bin/python" - <<'PYTHON'
import h5py
import numpy as np

wide, kept = np.array([300, -5, 511, 7]), np.zeros(4, "uint8")
kept[:] = wide
with h5py.File("labels.h5", "w") as file:
    file.create_dataset("y", (4,), "uint8")[:] = wide
    file.create_dataset("z", data=wide, dtype="uint8")
    stored, made = file["y"][:].tolist(), file["z"][:].tolist()
    try:
        file["y"][0] = 300
        one = "taken"
    except OverflowError:
        one = "OverflowError"
print(f"{wide.tolist()} as uint8: NumPy {kept.tolist()}, h5py {stored} and {made}; the number 300 alone: {one}")
assert kept.tolist() == [44, 251, 255, 7]
assert stored == made == [255, 0, 255, 7] and one == "OverflowError"
PYTHON
)
