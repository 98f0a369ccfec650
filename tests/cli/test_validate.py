"""Checks of a composed configuration that need no torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig, open_dict

from fedbench.config import imports
from fedbench.config.compose import compose, validate
from fedbench.config.options import option_keys, options
from fedbench.errors import ConfigError


@pytest.fixture
def cfg() -> DictConfig:
    return compose().job


def test_the_users_own_options_are_found_with_what_they_build_upon(cfg: DictConfig, tmp_path: Path) -> None:
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "mine.yaml").write_text(
        "defaults:\n  - scaffold\n  - _self_\nname: mine\nmu: 1\n"
    )
    assert "mine" in options("algorithm", [tmp_path])
    keys = option_keys("algorithm", "mine", [tmp_path])
    assert set(keys) == {*option_keys("algorithm", "scaffold"), "mu"}
    with open_dict(cfg):
        cfg.algorithm = dict.fromkeys(keys, 1) | {"name": "mine"}
    validate(cfg, [tmp_path])
    with pytest.raises(ConfigError, match=r"algorithm\.name=mine"):
        validate(cfg)


def test_imports_execute_once_and_say_so(
    cfg: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("by_name_a", "by_path_b"):
        (tmp_path / f"{name}.py").write_text(f"open('{name}.txt', 'a').write('x')\n")
    cfg.imports = ["by_name_a", str(tmp_path / "by_path_b.py")]
    with caplog.at_level("INFO"):
        imports.load(cfg)
        imports.load(cfg)
    assert [(tmp_path / f"{name}.txt").read_text() for name in ("by_name_a", "by_path_b")] == ["x", "x"]
    assert len([r for r in caplog.records if "executing the code of" in r.message]) == 2


@pytest.mark.parametrize("name", ["no_such_module_anywhere", "no/such/file.py"])
def test_imports_that_cannot_be_executed(cfg: DictConfig, name: str) -> None:
    cfg.imports = [name]
    with pytest.raises(
        ConfigError, match=f"^imports={name}: must be a module importable from here, or a pat"
    ):
        imports.load(cfg)
