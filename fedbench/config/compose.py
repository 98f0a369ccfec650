"""argv -> Config: one composer for the command line, sweeps, the Python interface and the papers.

Hydra composes and accepts any key. `read_config` then refuses, in one line, keys that no option declares, and
`checks` what would run code.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.experimental.callback import Callback
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedbench import fields
from fedbench.config import imports
from fedbench.config.checks import (
    ONE,
    check_composed,
    check_first,
    check_scale,
    check_searchpath,
    parsed_words,
)
from fedbench.config.config import GROUPS, Config, container
from fedbench.config.explain import HYDRA_ERRORS, explain, one_line
from fedbench.config.kept import Loader, files_state, without_hydra
from fedbench.config.options import (
    REGISTERED,
    conf_dir,
    option_file,
    read_config,
    read_file,
    unknown_metrics,
)
from fedbench.config.overrides import first_values, listed, recorded, with_home, written
from fedbench.config.register import HYDRA_13, UserDirectory, hide_plugin, register
from fedbench.errors import ConfigError, UsageError
from fedbench.loggers.options import refuse_missing


def compose(overrides: Sequence[str] = ()) -> Composed:
    """Compose `fedbench OVERRIDES...`. Leaves Hydra as it was. Raises UserError."""
    with composing() as composer:
        return composer.read(overrides)


@contextlib.contextmanager
def composing(config_dir: str | os.PathLike[str] | None = None) -> Iterator[Composer]:
    """Yield a composer; restore Hydra's global state afterwards."""
    before = GlobalHydra.instance().hydra
    try:
        yield Composer(config_dir=config_dir)
    finally:
        GlobalHydra.instance().hydra = before


_EACH = "dataset.hold_out=each"


@dataclass(frozen=True)
class Composed:
    """A composed command line."""

    cfg: DictConfig  # with Hydra's node (where and how to run); a swept key has its first value
    parsed: Sequence[Override]  # the overrides as given

    @property
    def sweeps(self) -> bool:
        """Whether a file or an override sets `hydra.mode` to MULTIRUN."""
        return bool(self.cfg.hydra.mode == RunMode.MULTIRUN)

    def one_run(self) -> Composed:
        """Return itself if it is one valid run. Raises ConfigError if it is not."""
        for item in self.parsed:
            if item.is_sweep_override():
                key, _, value = str(item.input_line).partition("=")
                allowed = f"several values need --multirun (a list is written {key}=[a,b])"
                raise ConfigError(key, value, allowed)
        self.config  # noqa: B018  # names the key that is not valid
        return self

    @cached_property
    def job(self) -> DictConfig:
        """The run's own configuration, without Hydra's node; not yet validated."""
        return without_hydra(self.cfg)

    @cached_property
    def config(self) -> Config:
        """The run's configuration, checked. Raises ConfigError, which names a user's file at fault."""
        try:
            return validate(self.cfg, config_directories(self.cfg.hydra))
        except ConfigError as error:
            given = {text.partition("=")[0].lstrip("+") for text in recorded(self.cfg, "task")}
            given -= {*GROUPS, "experiment", "scale"}
            name = None if error.key in given else _said_in(self.cfg.hydra, error.key)
            raise error.within(f"{name}.yaml") if name else error from None


class Composer:
    """Composes overrides. A process has one composer at a time, because Hydra keeps global state."""

    def __init__(
        self,
        config_name: str | None = None,
        config_path: str | None = None,
        config_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """The flags of the same names: the primary file, the directory that replaces conf/, and a directory
        that is searched before it. Raises UsageError."""
        register()
        name = config_name or "config"
        own = UserDirectory.path = Path(config_dir).absolute() if config_dir else None
        if own and not own.is_dir():
            raise UsageError(f"--config-dir {config_dir}: there is no such directory")
        if own and own != conf_dir() and name == "config":
            check_first(own / "config.yaml")
        GlobalHydra.instance().clear()
        directory = str(Path(config_path).absolute() if config_path else conf_dir())
        base = {"version_base": "1.3"} if HYDRA_13 else {}
        hydra.initialize_config_dir(directory, job_name="fedbench", **base)
        hide_plugin()
        self.hydra: Any = GlobalHydra.instance().hydra
        self.loader: Any = Loader(GlobalHydra.instance().config_loader(), name)

    @contextlib.contextmanager
    def one_line(self, overrides: Sequence[str], *more: type[Exception]) -> Iterator[None]:
        """Turn Hydra's errors into ours. `more`: further exceptions that Hydra raises for odd input."""
        try:
            yield
        except (*HYDRA_ERRORS, *more) as error:
            raise explain(error, overrides, self.loader) from error

    def read(self, overrides: Sequence[str]) -> Composed:
        """Compose overrides; a swept key gets its first value. Refuses values that would execute code. Raises
        UserError."""
        words = self._each_user([self._without_plus(with_home(text)) for text in overrides])
        with self.one_line(words, ValueError, TypeError, AttributeError, OSError):
            parsed = parsed_words(words, self.loader)
            first = [place / f"{self.loader.config_name}.yaml" for place in self.loader.places]
            check_searchpath(
                parsed, [] if self.loader.only_ours else [file for file in first if file.is_file()]
            )
            self._offer_registered(parsed)
            cfg = self.loader.compose(first_values(parsed))
        check_composed(cfg)
        check_scale(parsed, cfg.hydra.runtime.choices, config_directories(cfg.hydra))
        return Composed(cfg, parsed)

    def _each_user(self, words: list[str]) -> list[str]:
        """The words, with a sweep over the users of the data in place of `dataset.hold_out=each`."""
        if _EACH not in words:
            return words
        from fedbench.data.dataset import users_of  # with torch
        from fedbench.data.registry import load

        config = self.read([text for text in words if text != _EACH]).config
        data = load(config.dataset, config.data.root, seed=config.seed, clients=config.clients.total)
        key, _, each = _EACH.partition("=")
        values = [written([name]) for name in users_of(data, each)]
        return [f"{key}={','.join(values)}" if text == _EACH else text for text in words]

    def place(self, composed: Composed) -> Path:
        """The directory of the single run that was composed."""
        cfg = composed.cfg
        cfg.hydra.mode = RunMode.RUN
        HydraConfig.instance().set_config(cfg)
        with self.one_line(recorded(cfg, "task")):
            return Path(str(cfg.hydra.run.dir))

    def context(self) -> HydraContext:
        """The context for a sweep's launcher. All of its jobs are made from the files as they are now."""
        loader: Any = Loader(self.loader.theirs, self.loader.config_name, files_state())
        return HydraContext(loader, Callback())  # type: ignore[arg-type]

    def _without_plus(self, text: str) -> str:
        """An override without a leading +, which our own keys do not need."""
        key = text.partition("=")[0]
        plain = key.lstrip("+")
        if f"{plain}.".startswith("hydra.sweeper.params."):  # a dict that is open
            return "++" + text.lstrip("+")
        if key == plain or plain.startswith("hydra"):
            return text
        return text if plain not in ONE and self.loader.get_group_options(plain) else text.lstrip("+")

    def _offer_registered(self, parsed: Sequence[Override]) -> None:
        """Tell Hydra about options without a file that the user's code registers: a module named by `imports`
        or `hooks`, which is executed here, or a notebook cell."""
        store = ConfigStore.instance()
        for item in parsed:
            group = item.key_or_group
            for name in listed(item) if group in REGISTERED else []:
                store.repo.get(group, {}).pop(f"{name}.yaml", None)  # left by an earlier call
                if any((place / group / f"{name}.yaml").is_file() for place in self.loader.places):
                    continue
                for override in parsed:
                    modules: Any = override.value()
                    if override.key_or_group in ("imports", "hooks") and isinstance(modules, list):
                        imports.execute(override.key_or_group, modules)
                if (cls := fields.REGISTERED.get((group, str(name)))) is not None:
                    node = {"name": str(name), **fields.defaults(cls)}
                    store.store(group=group, name=str(name), node=node, provider="fedbench")


# ---- reading -------------------------------------------------------------------------------------------


def config_directories(hydra: Any) -> list[Path]:
    """The directories in which options were searched, in this order, from a configuration's Hydra node."""
    return [Path(source.path) for source in hydra.runtime.config_sources if source.schema == "file"]


def validate(cfg: DictConfig, searchpath: Sequence[Path]) -> Config:
    """Resolve and read a composed configuration. Raises ConfigError at the first problem.

    `searchpath`: the user's own directories of options, searched too.
    """
    try:
        plain = container(cfg)
    except OmegaConfBaseException as error:
        key = str(error.full_key or "")
        parent, _, last = key.rpartition(".")
        node: Any = OmegaConf.select(cfg, parent) if parent else cfg
        raw = node._get_node(last)._value() if last else "${...}"
        raise ConfigError(key, raw, f"cannot be resolved: {one_line(error)}") from error
    modules: Any = plain.get("imports")
    for group in REGISTERED if modules and isinstance(modules, list) else ():
        name = (plain.get(group) or {}).get("name")
        if option_file(group, str(name)) is None:  # its class may have keys that its file lacks
            imports.execute("imports", modules)
    asked = (plain.get("eval") or {}).get("metrics")
    if isinstance(modules, list) and isinstance(asked, list) and unknown_metrics(map(str, asked)):
        imports.execute("imports", modules)
    config = read_config(plain, searchpath)
    refuse_missing(config.logger)
    return config


def _said_in(hydra: Any, key: str) -> str | None:
    """The name of the chosen file of the user that sets this key of a run; None if no such file does."""
    chosen = {group: option for group, option in hydra.runtime.choices.items() if isinstance(option, str)}
    for name in (hydra.job.config_name, *(f"{group}/{option}" for group, option in chosen.items())):
        group = name.rpartition("/")[0]
        for file in (place / f"{name}.yaml" for place in config_directories(hydra) if place != conf_dir()):
            content: Any = read_file(file) if file.is_file() else {}
            content = {group: content} if file.is_file() and (group in GROUPS or group == key) else content
            for part in key.split("."):
                content = content.get(part) if isinstance(content, dict) else None
            if content is not None:
                return str(name)
    return None
