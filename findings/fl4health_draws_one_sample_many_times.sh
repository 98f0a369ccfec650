#!/bin/sh
# fl4health 0.4.2 (with torch 2.15.0): DirichletLabelBasedSampler fills a client up with copies of the same samples.
# Most expect: its docstring calls it subsampling, a percentage to which the data are reduced, and the package's other
# sampler, MinorityLabelBasedSampler, gives every sample once. With half of 1,000 samples and beta 100, nearly the
# labels' own shares, 500 different samples are there to be had.
# Seen: 500 samples of which about 400 are different, and with beta 0.1 fewer than 300. Each label is drawn with
# replacement (utils/sampler.py). A split of the result into training and validation has samples on both sides.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
if command -v uv >/dev/null; then
    uv venv -q -p python3 "$place/venv"
    install() { uv pip install -q --python "$place/venv/bin/python" "$@"; }
else
    python3 -m venv "$place/venv"
    install() { "$place/venv/bin/pip" install -q --ignore-requires-python "$@"; }
fi
install "torch==2.15.0" "numpy==2.4.6"
install --no-deps "fl4health==0.4.2"
"$place/venv/bin/python" - <<'PYTHON'
import importlib.util
import sys
import sysconfig
import types
from pathlib import Path

import torch

root = Path(sysconfig.get_path("purelib")) / "fl4health/utils"
for name in ("fl4health", "fl4health.utils", "flwr", "flwr.common", "flwr.common.logger"):
    sys.modules[name] = types.ModuleType(name)  # fl4health's own dependencies ask for Python 3.10
sys.modules["flwr.common.logger"].log = lambda *words: None


def module(name):
    spec = importlib.util.spec_from_file_location(f"fl4health.utils.{name}", root / f"{name}.py")
    sys.modules[spec.name] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


dataset, sampler = module("dataset"), module("sampler")
data = dataset.TensorDataset(torch.arange(1000.0)[:, None], torch.arange(1000) % 10)


def different(made):
    part = made.subsample(data)
    return len(part.data), len(set(part.data[:, 0].tolist()))


for beta, low, high in ((100.0, 350, 450), (0.1, 50, 300)):
    for seed in range(1, 4):
        size, count = different(sampler.DirichletLabelBasedSampler([*range(10)], seed, 0.5, beta))
        print(f"beta {beta}, seed {seed}: {size} samples, {count} different")
        assert size == 500 and low < count < high
size, count = different(sampler.MinorityLabelBasedSampler([*range(10)], 0.5, {*range(10)}))
print(f"MinorityLabelBasedSampler: {size} samples, {count} different")
assert size == count == 500
PYTHON
