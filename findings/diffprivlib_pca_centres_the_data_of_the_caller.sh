#!/bin/sh
# diffprivlib 0.6.6 (with scikit-learn 1.7.2): PCA(...).fit(X) centres the caller's array in place, with copy=True too.
# Most expect: copy is documented as whether the data given to fit are overwritten, False doing so and True, the
# default, not. scikit-learn's PCA, from which the class derives, leaves X as it was.
# Seen: after fit the array has a mean of 0. What is computed from it next goes wrong without a word: a StandardScaler
# with the bounds of the data, (0, 1), clips every number that has become negative, and says that the mean is 0.13, not
# 0.55. The other models (LogisticRegression, GaussianNB, LinearRegression, KMeans) leave the array alone.
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
install "diffprivlib==0.6.6" "scikit-learn==1.7.2" "scipy==1.16.3" "numpy==2.4.6"
"$place/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from diffprivlib import models
from sklearn.decomposition import PCA

whole = np.random.default_rng(0).random((100, 3))
labels = (whole[:, 0] > 0.5).astype(int)
private = {"epsilon": 1e8, "bounds": (0, 1)}  # so little noise that it shows in no digit printed


def scaler_mean(x):
    return models.StandardScaler(**private).fit(x).mean_[0]


for fitted in (
    PCA(2),
    models.PCA(2, data_norm=2.0, copy=True, **private),
    models.GaussianNB(**private),
    models.KMeans(2, **private),
    models.LogisticRegression(epsilon=1e8, data_norm=2.0),
    models.LinearRegression(epsilon=1e8, bounds_X=(0, 1), bounds_y=(0, 1)),
):
    x = whole.copy()
    fitted.fit(x, labels)
    name, theirs = type(fitted).__name__, type(fitted).__module__.split(".")[0]
    print(f"after {theirs}'s {name}: mean {x[:, 0].mean():.3f}, by StandardScaler {scaler_mean(x):.3f}")
    changed = isinstance(fitted, models.PCA)
    assert np.allclose(x, whole - whole.mean(0) if changed else whole, atol=1e-4)
    assert abs(scaler_mean(x) - whole[:, 0].mean()) > 0.3 or not changed
PYTHON
