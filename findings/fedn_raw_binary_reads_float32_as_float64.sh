#!/bin/sh
# fedn 0.33.0 (with numpy 2.4.6): a float32 model that its numpy helper saves as raw_binary comes back as half as many other numbers.
# Most expect: load gives what save was given, as with the helper's other file type, npz.
# Seen: four float32 ones come back as two float64 numbers, about 0.0078 each, without an error. `save` writes the
# array's own bytes and `load` reads float64, whatever was written (fedn/utils/helpers/plugins/numpyhelper.py). float32 is what
# every framework trains in. float64 survives.
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
install "numpy==2.4.6"
install --no-deps "fedn==0.33.0"
"$place/venv/bin/python" - <<'PYTHON'
import importlib.util
import sys
import sysconfig
import types
from pathlib import Path

import numpy as np

root = Path(sysconfig.get_path("purelib")) / "fedn/utils/helpers"
for name in ("fedn", "fedn.utils", "fedn.utils.helpers", "fedn.utils.helpers.plugins"):
    sys.modules[name] = types.ModuleType(name)  # fedn's own __init__ opens its network client


def module(name, file):
    spec = importlib.util.spec_from_file_location(name, root / file)
    sys.modules[name] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


module("fedn.utils.helpers.helperbase", "helperbase.py")
helper = module("fedn.utils.helpers.plugins.numpyhelper", "plugins/numpyhelper.py").Helper()
back = {}
for kind in ("npz", "raw_binary"):
    for type in ("float64", "float32"):
        file = helper.save([np.ones(4, dtype=type)], file_type=kind)
        back[kind, type] = helper.load(file, file_type=kind)[0]
        print(f"{kind}, {type}: {back[kind, type].tolist()}")
        Path(file).unlink()
assert back["npz", "float32"].tolist() == back["raw_binary", "float64"].tolist() == [1, 1, 1, 1]
assert back["raw_binary", "float32"].shape == (2,)
assert not np.isclose(back["raw_binary", "float32"], 1).any()
PYTHON
echo "as stated: float32 weights come back as other numbers"
