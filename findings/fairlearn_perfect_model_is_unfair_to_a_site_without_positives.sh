#!/bin/sh
# fairlearn 0.15.0 (with scikit-learn 1.9.1): a model without an error has the worst equalized odds where one group has
# no positive sample.
# Most expect: the difference is documented as that between the largest and the smallest P[h(X)=1 | A=a, Y=1]. A group
# without positives has no such probability, so it is left out, or the result is nan; a perfect model errs nowhere, so
# the difference is 0 and the ratio 1.
# Seen: difference 1 and ratio 0, without a warning: the group's true positive rate counts as 0. With sites as groups,
# one site without a positive is enough, which label skew makes, and the number that is to show whether a federated
# model serves all alike is the worst there is. Without that site's samples it is 0. A site without negatives does the
# same to a model that always says yes.
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
install "fairlearn==0.15.0" "scikit-learn==1.9.1" "numpy==2.4.6"
"$place/venv/bin/python" - <<'PYTHON'
import warnings

import numpy as np
from fairlearn import metrics

warnings.simplefilter("error")
site = np.repeat(["a", "b", "c"], 40)
label = np.tile([0, 1], 60)
label[site == "c"] = 0
others = site != "c"
for name, worst, best in (
    ("equalized_odds_difference", 1.0, 0.0),
    ("equalized_odds_ratio", 0.0, 1.0),
    ("equal_opportunity_difference", 1.0, 0.0),
):
    metric = getattr(metrics, name)
    everywhere = metric(label, label, sensitive_features=site)
    without = metric(label[others], label[others], sensitive_features=site[others])
    print(f"{name} of a model without an error: {everywhere} with the site without positives, {without} without it")
    assert (everywhere, without) == (worst, best)
rates = metrics.MetricFrame(
    metrics=metrics.true_positive_rate, y_true=label, y_pred=label, sensitive_features=site
).by_group.to_dict()
print(f"true positive rates: {rates}")
assert rates == {"a": 1.0, "b": 1.0, "c": 0.0}
always = np.ones_like(label)
flipped = metrics.equalized_odds_difference(1 - label, always, sensitive_features=site)
print(f"a model that always says yes, and a site without negatives: {flipped}")
assert flipped == 1.0
PYTHON
