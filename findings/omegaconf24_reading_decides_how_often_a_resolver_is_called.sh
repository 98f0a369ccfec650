#!/bin/sh
# OmegaConf 2.4.1rc1: whether two keys that refer to one drawn value agree depends on how the configuration is read.
# Most expect: `b: ${a}` and `c: ${a}` with `a: ${draw:}` (a resolver without a cache) are treated alike by cfg.b
# and by to_container(cfg, resolve=True): in 2.3 the resolver is called at each look, so they differ in both.
# Seen: in 2.4 items differ (1, 2, 3), and to_container and to_yaml call the resolver once for `a` and give all
# three the same number (4, 4, 4). So what is written into a log is not what the program that reads items has
# computed with, and also not what 2.3 would have written (4, 5, 6).
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
import itertools

import omegaconf
from omegaconf import OmegaConf

old, numbers = omegaconf.__version__.startswith("2.3"), itertools.count(1)
(OmegaConf.register_new_resolver if old else OmegaConf.register_resolver)("draw", lambda: next(numbers))
config = OmegaConf.create("a: ${draw:}\nb: ${a}\nc: ${a}\n")
items = [config.a, config.b, config.c]
written = [*OmegaConf.to_container(config, resolve=True).values()]
print(f"omegaconf {omegaconf.__version__}: items {items}, to_container {written}")
assert items == [1, 2, 3] and written == ([4, 5, 6] if old else [4, 4, 4])
PYTHON
done
