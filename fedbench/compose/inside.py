"""The one file that imports Hydra's private modules. What its public interface offers is used elsewhere.

Needed from inside: flags as `hydra.main` parses them; a search path with a directory of the user's; which
files a command line would read, so that they are looked at before anything in them counts; and overrides
applied to a composed configuration, so that a sweep does not read all files again for every job.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from fedbench.compose import callbacks
from fedbench.errors import UsageError


def flags() -> argparse.ArgumentParser:
    """The parser of Hydra's own command line."""
    return get_args_parser()


def start(directory: Path, further: Path | None) -> Hydra:
    """A Hydra that composes from `directory`, and before it from the directory `further` of the user's."""
    version.setbase("1.3")
    path = create_config_search_path(str(directory))
    if further is not None:
        path.prepend("command-line", f"file://{further}", SearchPathQuery(provider="main"))
    GlobalHydra.instance().clear()
    return Hydra.create_main_hydra2("fedbench", path)


def context(loader: ConfigLoader, cfg: DictConfig) -> HydraContext:
    """What Hydra's launchers and sweepers are given. Executes the modules of the user's callbacks, if any."""
    own = bool(OmegaConf.select(cfg, "hydra.callbacks"))
    return HydraContext(config_loader=loader, callbacks=_OwnCallbacks(cfg) if own else Callbacks())


class _OwnCallbacks(Callbacks):
    """Those that a configuration names. Another process makes its own: it may not find their classes."""

    def __init__(self, cfg: DictConfig) -> None:
        callbacks.prepare(cfg)
        self.cfg = cfg
        try:
            super().__init__(cfg)
        except Exception as error:
            reason = str(error.__cause__ or error).splitlines()[0]
            raise UsageError(f"hydra.callbacks: cannot be made: {reason}") from error

    def __reduce__(self) -> Any:
        return _OwnCallbacks, (self.cfg,)


def refuse_sweeps(parsed: Sequence[Override], mode: RunMode) -> None:
    """Raise Hydra's error where `mode` cannot sweep over what is swept."""
    ConfigLoaderImpl.validate_sweep_overrides_legal(list(parsed), mode, from_shell=True)


def apply(overrides: Sequence[Override], cfg: DictConfig) -> None:
    """Change values of a composed configuration, as overrides that choose no option do."""
    ConfigLoaderImpl._apply_overrides_to_config(list(overrides), cfg)


def primary(loader: ConfigLoader, name: str) -> Any:
    """The content of the first file, as it stands there; None where there is none."""
    assert isinstance(loader, ConfigLoaderImpl)
    found = loader.repository.load_config(name)
    return None if found is None else found.config


def directories(loader: ConfigLoader, name: str, overrides: Sequence[str]) -> list[str]:
    """Where files would be looked for."""
    return [source.full_path() for source in _repository(loader, name, overrides).get_sources()]


def files(loader: ConfigLoader, name: str, overrides: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    """All files that would be read: name, directory and content."""
    assert isinstance(loader, ConfigLoaderImpl)
    repository = _repository(loader, name, overrides)
    defaults = loader.compute_defaults_list(name, list(overrides), RunMode.MULTIRUN).defaults
    for one in dict.fromkeys(default.config_path for default in defaults if default.config_path):
        found = repository.load_config(one)
        if found is not None:
            yield one, found.path, found.config


def _repository(loader: ConfigLoader, name: str, overrides: Sequence[str]) -> CachingConfigRepository:
    assert isinstance(loader, ConfigLoaderImpl)
    return loader._parse_overrides_and_create_caching_repo(name, list(overrides))[1]


def list_quickly(loader: ConfigLoader) -> None:
    """Let `loader` list its groups from one repository: Hydra copies all of it for every group (1.3 s)."""
    assert isinstance(loader, ConfigLoaderImpl)
    repository = CachingConfigRepository(loader.repository)

    def options(
        group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG, **_: object
    ) -> list[str]:
        return repository.get_group_options(group_name, results_filter)

    loader.get_group_options = options  # type: ignore[method-assign, assignment]
