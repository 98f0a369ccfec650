"""config.yaml has the bytes that OmegaConf would write."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fedbench.config.compose import compose
from fedbench.config.config import GROUPS, container
from fedbench.config.options import conf_dir
from fedbench.files import as_yaml

TEXTS = [
    "", "yes", "Off", "y", "1", "1e-3", "1_000", "inf", "nan", "0x1f", "null", "~", "a: b", "# c", "- d",
    "é ü", "two\nlines", " around ", "tab\t", "x" * 200, "word " * 60, "'", '"', "{a}", "2026-01-01", "12:30",
]  # fmt: skip


def of_omegaconf(value: dict[str, Any]) -> str:
    return OmegaConf.to_yaml(OmegaConf.create(value))


def test_every_option() -> None:
    whole = container(compose(["imports=[a.py]", "local.epochs_range=[1,2]"]).cfg)
    files = [file for group in GROUPS for file in sorted((conf_dir() / group).glob("*.yaml"))]
    for values in (whole, *({file.stem: OmegaConf.to_container(OmegaConf.load(file))} for file in files)):
        assert as_yaml(values) == of_omegaconf(values)


def test_odd_texts() -> None:
    for text in TEXTS:
        same = [text, 1.0]
        values = {"text": text, "list": same, "again": same, "empty": [], "none": None, "x": 1e-05}
        written = as_yaml({**values, "tuple": (1, 2)})
        assert written == of_omegaconf({**values, "tuple": (1, 2)}), text
        assert OmegaConf.to_container(OmegaConf.create(written)) == {**values, "tuple": [1, 2]}


@settings(max_examples=40)
@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text() | st.floats(allow_nan=False))
)
def test_any_text_is_read_back(values: dict[str, Any]) -> None:
    assert yaml.safe_load(as_yaml(values)) == values
