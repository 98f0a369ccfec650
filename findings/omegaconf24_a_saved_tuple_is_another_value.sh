#!/bin/sh
# OmegaConf 2.4.1rc1: a configuration that holds a tuple is not equal to itself after saving and reading. OmegaConf
# 2.3.1: it is.
# Most expect: what OmegaConf.to_yaml writes is the configuration again when it is read (references and all), as in
# every release before; a tuple has always become a list on the way in, so nothing was lost on the way out.
# Seen: a tuple stays one in 2.4 and is immutable, YAML has lists alone, and a tuple is unequal to the list with the
# same numbers. So a saved configuration is compared as a changed one, and an override of one element, betas.0, is
# refused or works depending on whether the configuration came from Python or from a file.
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
for package in omegaconf==2.3.1 omegaconf==2.4.1rc1; do
    install "$package"
    "$place/venv/bin/python" - <<'PYTHON'
import omegaconf
from omegaconf import OmegaConf

made = OmegaConf.create({"betas": (0.9, 0.999)})
read = OmegaConf.create(OmegaConf.to_yaml(made))
changed = []
for config in (made, read):
    try:
        OmegaConf.update(config.copy(), "betas.0", 0.5)
        changed.append("works")
    except Exception as error:
        changed.append(type(error).__name__)
same = made == read
print(f"omegaconf {omegaconf.__version__}: equal after saving {same}; betas.0=0.5 before and after: {changed}")
old = omegaconf.__version__.startswith("2.3")
assert same == old and changed == ["works" if old else "ConfigTypeError", "works"]
PYTHON
done
