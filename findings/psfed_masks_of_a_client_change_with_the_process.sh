#!/bin/sh
# psfed 0.1.2 (with torch 2.15.0): ClientSpecificMaskSelector(seed=42) gives a client another mask in every process.
# Most expect: the docstring says that masks are deterministic for each client, and the seed, the round and the client's
# name are all that they depend on. Server and clients of a federation are processes of their own and have to agree on
# which parameters a vector stands for.
# Seen: five processes, five masks for round 1 of client_1; about half of the positions are common, as with two random
# masks. The name goes through Python's hash of texts, which has a salt of each process. Also, overlap_fraction,
# documented as the overlap of the clients' masks, is never read: 0 and 1 give the same masks.
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
install "torch==2.15.0" "numpy==2.4.6"
install --no-deps "psfed==0.1.2"
cat > "$place/mask.py" <<'PYTHON'
import json

from psfed import ClientSpecificMaskSelector


def mask(client, overlap):
    selector = ClientSpecificMaskSelector(fraction=0.5, seed=42, overlap_fraction=overlap)
    return selector.select(1000, round_num=1, client_id=client)


one, other = mask("client_1", 0.5), mask("client_2", 0.5)
assert mask("client_1", 0.0) == mask("client_1", 1.0) == one and mask("client_2", 0.0) == mask("client_2", 1.0)
print(json.dumps({"mask": one.indices.tolist(), "overlap": (one & other).count}))
PYTHON
"$place/venv/bin/python" - "$place/mask.py" <<'PYTHON'
import json
import subprocess
import sys
from itertools import combinations

runs = [json.loads(subprocess.check_output([sys.executable, "-R", sys.argv[1]])) for _ in range(5)]
common = [len({*a["mask"]} & {*b["mask"]}) for a, b in combinations(runs, 2)]
print(f"first positions of client_1 in five processes: {[run['mask'][:4] for run in runs]}")
print(f"positions in common with another process, of 500: {common}")
assert all(len(run["mask"]) == 500 for run in runs) and all(180 < count < 320 for count in common)
PYTHON
