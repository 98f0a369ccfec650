"""argv -> Config: one composer for the command line, sweeps, the Python interface and the papers.

Hydra composes and accepts any key. `read_config` then refuses, in one line, keys that no option declares, and
`checks` what would run code.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.experimental.callback import Callback
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from fedbench import fields
from fedbench.config import imports, kept
from fedbench.config.checks import (
    ONE,
    check_composed,
    check_first,
    check_searchpath,
    parsed_words,
)
from fedbench.config.config import GROUPS, Config, container, without_hydra
from fedbench.config.explain import HYDRA_ERRORS, explain, one_line
from fedbench.config.kept import config_directories as config_directories
from fedbench.config.kept import is_value
from fedbench.config.options import REGISTERED, conf_dir, read_config, read_file
from fedbench.config.overrides import first_values, listed, recorded, refuse_sweeps
from fedbench.config.register import JOB_DIR, UserDirectory, register
from fedbench.errors import ConfigError, UsageError
from fedbench.loggers.options import refuse_missing


def load_config(overrides: Sequence[str] = ()) -> Config:
    """The checked configuration of one `fedbench OVERRIDES...`. Leaves Hydra as it was. Raises UserError."""
    return compose(overrides).config


def compose(overrides: Sequence[str] = ()) -> Composed:
    """Compose `fedbench OVERRIDES...`. Leaves Hydra as it was. Raises UserError."""
    with composing() as composer:
        return composer.read(overrides)


@contextlib.contextmanager
def composing(config_dir: str | None = None) -> Iterator[Composer]:
    """Yield a composer; restore Hydra's global state afterwards."""
    before = GlobalHydra.instance().hydra
    try:
        yield Composer(config_dir=config_dir)
    finally:
        GlobalHydra.instance().hydra = before


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
        refuse_sweeps(self.parsed)
        self.config  # noqa: B018  # names the key that is not valid
        return self

    @cached_property
    def job(self) -> DictConfig:
        """The run's own configuration; not yet validated."""
        return without_hydra(self.cfg)

    @cached_property
    def config(self) -> Config:
        """`job`, read and checked. Raises ConfigError, which names the user's file at fault, if any."""
        try:
            return validate(self.job, config_directories(self.cfg.hydra))
        except ConfigError as error:
            given = {text.partition("=")[0].lstrip("+") for text in recorded(self.cfg, "task")}
            given -= {*GROUPS, "experiment", "scale"}
            name = None if error.key in given else _said_in(self.cfg.hydra, error.key)
            raise error.within(f"{name}.yaml") if name else error from None


class Composer:
    """Composes overrides. A process has one composer at a time, because Hydra keeps global state."""

    def __init__(
        self, config_name: str | None = None, config_path: str | None = None, config_dir: str | None = None
    ) -> None:
        """The flags of the same names: the primary file, the directory that replaces conf/, and a directory
        that is searched before it. Raises UsageError."""
        register()
        self.config_name = config_name or "config"
        own = UserDirectory.path = Path(config_dir).absolute() if config_dir else None
        if own and not own.is_dir():
            raise UsageError(f"--config-dir {config_dir}: there is no such directory")
        if own and own != conf_dir() and self.config_name == "config":
            check_first(own / f"{self.config_name}.yaml")
        GlobalHydra.instance().clear()
        directory = str(Path(config_path).absolute() if config_path else conf_dir())
        hydra.initialize_config_dir(directory, job_name="fedbench", version_base="1.3")
        self.hydra: Any = GlobalHydra.instance().hydra
        self.loader: ConfigLoader = GlobalHydra.instance().config_loader()
        self._places = [
            Path(source.path) for source in self.loader.get_sources() if source.scheme() == "file"
        ]
        self._only_ours = self.config_name == "config" and self._places == [conf_dir()]
        first = [place / f"{self.config_name}.yaml" for place in self._places if not self._only_ours]
        self._first = [file for file in first if file.is_file()]

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
        words = [self._without_plus(text) for text in overrides]
        with self.one_line(words, ValueError, TypeError, AttributeError, OSError):
            parsed = parsed_words(words, self.loader)
            check_searchpath(parsed, self._first)
            self._offer_registered(parsed)
            words = first_values(parsed)
            cfg = self._compose([forced(text) for text in words])
        OmegaConf.set_readonly(cfg.hydra, False)
        cfg.hydra.overrides.task = [text for text in words if not text.lstrip("+~").startswith("hydra")]
        dirname = cfg.hydra.job._get_node("override_dirname")
        cfg.hydra.job.override_dirname = dirname._value().replace("++", "")
        check_composed(cfg)
        return Composed(cfg, parsed)

    def _compose(self, words: Sequence[str]) -> DictConfig:
        if self._only_ours and not any("hydra.searchpath" in text for text in words):
            return kept.compose(self.loader, words, kept.files_state())
        return hydra.compose(self.config_name, list(words), return_hydra_config=True)

    def place(self, composed: Composed) -> Path:
        """The directory of the single run that was composed."""
        cfg = composed.cfg
        cfg.hydra.mode = RunMode.RUN
        HydraConfig.instance().set_config(cfg)
        with self.one_line(recorded(cfg, "task")):
            return Path(str(cfg.hydra.run.dir))

    def context(self) -> HydraContext:
        """The context for Hydra's launchers and sweepers."""
        return HydraContext(kept.Loader(self.loader), Callback())  # type: ignore[arg-type]

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
                if any((place / group / f"{name}.yaml").is_file() for place in self._places):
                    continue
                for override in parsed:
                    modules: Any = override.value()
                    if override.key_or_group in ("imports", "hooks") and isinstance(modules, list):
                        imports.execute(override.key_or_group, modules)
                if (cls := fields.REGISTERED.get((group, str(name)))) is not None:
                    node = {"name": str(name), **fields.defaults(cls)}
                    store.store(group=group, name=str(name), node=node, provider="fedbench")


class JobComposer:
    """Composes the jobs of a sweep as Hydra's launchers do, but an order of magnitude faster: from kept bases
    (`fedbench.config.kept`), which have the `hydra.*` overrides of the sweep."""

    def __init__(self, master: DictConfig, loader: ConfigLoader) -> None:
        """`master`: the sweep's own configuration, whose hydra.* overrides apply to all jobs."""
        self._master, self._loader = master, loader
        self._bases: dict[tuple[str, ...], bytes] = {}
        self._only_ours = kept.only_ours(master)

    def compose(self, overrides: Sequence[str]) -> tuple[DictConfig, list[str]]:
        """The configuration of the job with these overrides, without Hydra's node; and the overrides as
        Hydra's launchers need them, with + before a key that no file has. Raises UserError."""
        try:
            parsed = parsed_words(overrides)
            values = [item for item in parsed if is_value(item.get_key_element()) and not item.is_delete()]
            words = kept.divide(parsed, values, self._only_ours)
            cfg, new = self._base(tuple(str(item.input_line) for item in words.base)), set()
            for group, node in words.options.items():
                cfg[group] = node
            for item in words.values:
                section, _, last = item.key_or_group.rpartition(".")
                if last not in (OmegaConf.select(cfg, section) if section else cfg):
                    new.add(item.input_line)
                OmegaConf.update(cfg, item.key_or_group, item.value(), merge=True, force_add=True)
        except HYDRA_ERRORS as error:
            raise explain(error, overrides, self._loader) from error
        return cfg, [f"+{text}" if text in new else text for text in overrides]

    def places(self, jobs: Sequence[Sequence[str]]) -> list[str] | None:
        """The directories that the user's `hydra.sweep.subdir` gives these jobs; None if it is ours. Raises
        ConfigError if two have the same."""
        raw = self._master.hydra.sweep._get_node("subdir")._value()
        if raw == JOB_DIR:
            return None
        places: dict[str, None] = {}
        for number, overrides in enumerate(jobs):
            cfg = self._loader.load_sweep_config(self._master, list(overrides))
            with open_dict(cfg):
                cfg.hydra.job.id, cfg.hydra.job.num = str(number), number
            place = str(cfg.hydra.sweep.subdir)
            if place in places:
                allowed = "must be another directory for every run, such as ${hydra.job.num}"
                raise ConfigError("hydra.sweep.subdir", raw, f"{allowed}; two would be in {place}")
            places[place] = None
        return [*places]

    def _base(self, words: tuple[str, ...]) -> DictConfig:
        if words not in self._bases:
            full = self._loader.load_sweep_config(self._master, list(words))
            check_composed(full)
            self._check_grid(full, words)
            HydraConfig.instance().set_config(full)
            self._bases[words] = pickle.dumps(without_hydra(full))
        base: DictConfig = pickle.loads(self._bases[words])
        return base

    def _check_grid(self, full: DictConfig, words: Sequence[str]) -> None:
        """Refuse a swept option (an experiment) whose file has a different grid from the sweep's: it would be
        ignored. Raises ConfigError."""
        ours, theirs = self._master.hydra.sweeper, full.hydra.sweeper
        if any(ours.get(name) != theirs.get(name) for name in ("params", "grids")):
            word = next((text for text in words if text.startswith("experiment=")), words[0])
            key, _, value = word.partition("=")
            allowed = "has a different grid (hydra.sweeper) from the first one, and a sweep has one grid"
            raise ConfigError(key, value, f"{allowed}; give each a sweep")


# ---- reading -------------------------------------------------------------------------------------------


def validate(cfg: DictConfig, searchpath: Sequence[Path] = ()) -> Config:
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
        if not (conf_dir() / group / f"{name}.yaml").is_file():  # its class may have keys that its file lacks
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


def forced(text: str) -> str:
    """An override in a form that Hydra accepts for any key; `read_config` then refuses unknown keys."""
    key = text.partition("=")[0]
    own = is_value(key) or not (key in ONE or "/" in key or key.startswith(("+", "~", "hydra", "logger")))
    return f"++{text}" if own else text
