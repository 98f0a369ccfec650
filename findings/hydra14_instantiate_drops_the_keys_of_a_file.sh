#!/bin/sh
# Hydra 1.4.0rc3: instantiate(config, section={"x": 1}) drops the other keys of config.section. Hydra 1.3.8 keeps
# them.
# Most expect: keyword arguments are merged into the configuration, as they have been since Hydra 1.1: what the call
# does not name keeps the value of the file.
# Seen: with a file that says `schedule: {warmup: 5, decay: 0.9}`, instantiate(config, schedule={"warmup": 10})
# calls the target with {"warmup": 10, "decay": 0.9} in 1.3 and with {"warmup": 10} in 1.4, without a warning: a
# target with a default for decay computes on with another one.
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
run() {
    "$place/venv/bin/python" -W ignore - "$1" <<'PYTHON'
import sys

import hydra
from hydra.utils import instantiate
from omegaconf import OmegaConf

config = OmegaConf.create("{_target_: builtins.dict, schedule: {warmup: 5, decay: 0.9}}")
got = dict(instantiate(config, schedule={"warmup": 10})["schedule"])
print(f"hydra {hydra.__version__}: {got}")
assert got == ({"warmup": 10, "decay": 0.9} if sys.argv[1] == "old" else {"warmup": 10})
PYTHON
}
install "hydra-core==1.3.8" "omegaconf==2.3.1"
run old
install "hydra-core==1.4.0rc3" "omegaconf==2.4.1rc1"
run new
