"""config.yaml has the bytes that OmegaConf would write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fedbench.config.compose import compose
from fedbench.config.config import GROUPS, container
from fedbench.config.options import conf_dir
from fedbench.files import write_yaml

TEXTS = [
    "", "yes", "Off", "y", "1", "1e-3", "1_000", "inf", "nan", "0x1f", "null", "~", "a: b", "# c", "- d",
    "é ü", "two\nlines", " around ", "tab\t", "x" * 200, "word " * 60, "'", '"', "{a}", "2026-01-01", "12:30",
]  # fmt: skip


def of_omegaconf(value: dict[str, Any]) -> str:
    return OmegaConf.to_yaml(OmegaConf.create(value))


def test_every_option(tmp_path: Path) -> None:
    whole = container(compose(["imports=[a.py]", "local.epochs_range=[1,2]"]).cfg)
    files = [file for group in GROUPS for file in sorted((conf_dir() / group).glob("*.yaml"))]
    for values in (whole, *({file.stem: OmegaConf.to_container(OmegaConf.load(file))} for file in files)):
        write_yaml(tmp_path / "config.yaml", values)
        assert (tmp_path / "config.yaml").read_text() == of_omegaconf(values)


def test_odd_texts(tmp_path: Path) -> None:
    for text in TEXTS:
        same = [text, 1.0]
        values = {"text": text, "list": same, "again": same, "empty": [], "none": None, "x": 1e-05}
        write_yaml(tmp_path / "config.yaml", {**values, "tuple": (1, 2)})
        written = (tmp_path / "config.yaml").read_text(encoding="utf-8")
        assert written == of_omegaconf({**values, "tuple": (1, 2)}), text
        assert OmegaConf.to_container(OmegaConf.create(written)) == {**values, "tuple": [1, 2]}


@settings(max_examples=40)
@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text() | st.floats(allow_nan=False))
)
def test_any_text_is_read_back(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    file = tmp_path_factory.getbasetemp() / "config.yaml"
    write_yaml(file, values)
    assert yaml.safe_load(file.read_text(encoding="utf-8")) == values
