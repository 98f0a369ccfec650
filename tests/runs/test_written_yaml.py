"""config.yaml reads back as what was written, whoever reads it: YAML has many odd texts."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fedbench.files import as_yaml

TEXTS = [
    "", "yes", "Off", "y", "1", "1e-3", "1_000", "inf", "nan", "0x1f", "null", "~", "a: b", "# c", "- d",
    "é ü", "two\nlines", " around ", "tab\t", "x" * 200, "word " * 60, "'", '"', "{a}", "2026-01-01", "12:30",
]  # fmt: skip


def test_odd_texts() -> None:
    same = [*TEXTS, 1.0, 1e-05, 1e30, 3, True, None]
    values = {"list": same, "again": same, "empty": [], **{f"key {text}": text for text in TEXTS}}
    assert OmegaConf.to_container(OmegaConf.create(as_yaml(values))) == values
    assert "&" not in as_yaml(values)  # a list that is there twice is written twice


@settings(max_examples=40)
@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text() | st.floats(allow_nan=False))
)
def test_any_text_is_read_back(values: dict[str, Any]) -> None:
    assert yaml.safe_load(as_yaml(values)) == values
