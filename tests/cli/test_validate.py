"""Checks of a composed configuration that need no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from fedbench.config import imports
from fedbench.config.compose import validate
from fedbench.config.config import GROUPS, Settings
from fedbench.config.options import conf_dir, option_keys, options
from fedbench.data.options import Digits
from fedbench.data.partition_options import Iid
from fedbench.errors import ConfigError
from fedbench.fields import Choice, defaults, rules
from fedbench.schedule.laws import Zero
from fedbench.schedule.options import Sync


@pytest.fixture(scope="module")
def composed() -> DictConfig:
    """conf/config.yaml with its defaults, put together without Hydra."""
    plain: Any = OmegaConf.load(conf_dir() / "config.yaml")
    chosen = {k: v for entry in plain.defaults if not isinstance(entry, str) for k, v in entry.items()}
    del plain["defaults"], plain["hydra"]
    for group in GROUPS:
        plain[group] = OmegaConf.load(conf_dir() / group / f"{chosen[group]}.yaml")
    merged = OmegaConf.merge(defaults(Settings), plain)
    assert isinstance(merged, DictConfig)
    return merged


@pytest.fixture
def cfg(composed: DictConfig) -> DictConfig:
    return OmegaConf.merge(composed)  # type: ignore[return-value]


def test_what_is_read_is_typed_and_has_the_defaults_of_the_classes(cfg: DictConfig) -> None:
    config = validate(cfg)
    plain = {name: getattr(config, name) for name in vars(Settings())}
    assert plain == vars(Settings())
    assert (config.dataset, config.partition) == (Digits(), Iid())
    assert (config.schedule, config.delay) == (Sync(), Zero())
    assert config.algorithm == Choice("fedavg", {"lr": 0.1, "server_lr": 1.0, "weighting": "samples"})
    assert all(OmegaConf.select(cfg, key, default="absent") != "absent" for key, _ in rules(Settings))


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
