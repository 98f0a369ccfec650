#!/bin/sh
# svfl 0.1.0: its Shapley value of a client that makes the model worse is 0, and the harm is taken from the others.
# Most expect: the docstring says Shapley value, which is below 0 for a client that does harm, and whose sum over the
# clients is the value of the model of all. It is computed to find such clients.
# Seen: three clients add 0.5, 0.3 and -0.2 to the accuracy, whoever else is there, so these are the Shapley values. The
# package says 0.433, 0.233 and 0, which add up to 0.667 where the model of all has 0.6. A contribution below 0 is set
# to 0, and the next client is compared with the sum of the contributions so far, no longer with the accuracy that it
# found: it makes good the harm before it gets anything. Without a harmful client all is right.
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
install "svfl==0.1.0"
"$place/venv/bin/python" - <<'PYTHON'
from svfl.svfl import calculate_sv


def values(gains):
    found = calculate_sv(gains, model_evaluation_func=lambda model: sum(model.values()), averaging_func=dict)
    return {client: round(value, 4) for client, value in found.items()}


helpful, harmful = {"a": 0.5, "b": 0.3, "c": 0.1}, {"a": 0.5, "b": 0.3, "c": -0.2}
print(f"gains {helpful}: {values(helpful)}")
seen = values(harmful)
print(f"gains {harmful}: {seen}, in sum {sum(seen.values()):.4f} instead of {sum(harmful.values()):.4f}")
assert values(helpful) == helpful
assert seen == {"a": 0.4333, "b": 0.2333, "c": 0.0}
PYTHON
