#!/bin/sh
# medfl 2.0.10 (with flwr 1.18.0): a metric that one client does not report counts as 0 for that client.
# Most expect: weighted_avg is documented as the average weighted by num_examples, so it is over those who report the
# metric. The function adds up their examples, too.
# Seen: one hospital reports an AUC of 0.9, and another of the same size leaves it out, since all its patients have one
# label: 0.45. The sum is divided by the examples of all clients. Every strategy that MEDfl makes has this function for
# the metrics of training and evaluation, unless it is told otherwise, so a good model looks worse than chance in a
# round because of who was drawn.
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
install "flwr==1.18.0" "optuna==4.5.0" "numpy==1.26.4"
install --no-deps "medfl==2.0.10"
"$place/venv/bin/python" - <<'PYTHON'
from flwr.common import Code, EvaluateRes, Status
from MEDfl.LearningManager.strategy import Strategy, weighted_avg

both = weighted_avg([(100, {"auc": 0.9, "accuracy": 0.8}), (300, {"auc": 0.7, "accuracy": 0.6})])
one = weighted_avg([(100, {"auc": 0.9, "accuracy": 0.8}), (100, {"accuracy": 0.6})])
print(f"both report: {both}")
print(f"the second has no AUC: {one}")
assert abs(both["auc"] - 0.75) < 1e-9 and abs(both["accuracy"] - 0.65) < 1e-9
assert abs(one["auc"] - 0.45) < 1e-9 and abs(one["accuracy"] - 0.7) < 1e-9


class Hospital:
    def __init__(self, cid):
        self.cid = cid


strategy = Strategy(name="FedAvg", debug_print=False)
made = strategy.create_strategy() or strategy.strategy_object
results = [
    (Hospital(cid), EvaluateRes(Status(Code.OK, ""), 0.5, 100, metrics))
    for cid, metrics in (("one", {"auc": 0.9}), ("other", {}))
]
metrics = made.aggregate_evaluate(1, results, [])[1]
print(f"a round of FedAvg: {metrics}")
assert abs(metrics["auc"] - 0.45) < 1e-9
PYTHON
