"""argv -> Config: one composer for the command line, sweeps, the Python interface and the papers.

Hydra composes and accepts any key. `read_config` then refuses, in one line, keys that no option declares.
Only `imports` and `hooks` may execute the user's code. Hydra instantiates what stands under `_target_`, and
Python's logging what stands under `class` and `()`, so unknown values there are refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import hydra
from hydra.conf import HydraConf
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from fedbench import fields
from fedbench.config import imports, kept
from fedbench.config.config import GROUPS, Config, container, without_hydra
from fedbench.config.explain import HYDRA_ERRORS, explain, one_line
from fedbench.config.kept import config_directories as config_directories
from fedbench.config.kept import is_value
from fedbench.config.options import REGISTERED, conf_dir, one_option, read_config, read_file
from fedbench.config.overrides import first_values, listed, parse, recorded, refuse_sweeps
from fedbench.config.register import JOB_DIR, UserDirectory, register
from fedbench.errors import ConfigError, UsageError, shortened
from fedbench.loggers.options import refuse_missing

LONGEST = 1000  # characters of an option's name
ONE = (*GROUPS, "experiment", "scale", "hydra/launcher", "hydra/sweeper")
"""Groups from which at most one option can be chosen."""
_REFUSED = "refused, because it would run code; your own code goes into a module named by imports=[...]"
_STREAMS = ("ext://sys.stdout", "ext://sys.stderr")


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
            _check_first(own / f"{self.config_name}.yaml")
        GlobalHydra.instance().clear()
        directory = str(Path(config_path).absolute() if config_path else conf_dir())
        hydra.initialize_config_dir(directory, job_name="fedbench", version_base="1.3")
        self.hydra: Any = GlobalHydra.instance().hydra
        self.loader: ConfigLoader = GlobalHydra.instance().config_loader()
        self._places = [Path(one.path) for one in self.loader.get_sources() if one.scheme() == "file"]
        self._only_ours = self.config_name == "config" and self._places == [conf_dir()]

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
            for item in parsed:
                if item.is_sweep_override() and item.is_hydra_override():
                    raise UsageError(
                        f"{item.input_line}: Sweeping over Hydra's configuration is not supported"
                    )
            self._check_searchpath(parsed)
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
            return kept.compose(self.loader, words)
        return hydra.compose(self.config_name, list(words), return_hydra_config=True)

    def place(self, composed: Composed) -> Path:
        """The directory of the single run that was composed."""
        cfg = composed.cfg
        cfg.hydra.mode = RunMode.RUN
        HydraConfig.instance().set_config(cfg)
        with self.one_line(recorded(cfg, "task")):
            return Path(str(cfg.hydra.run.dir))

    def context(self, cfg: DictConfig) -> HydraContext:
        """The context for Hydra's launchers and sweepers. Executes the modules of the user's callbacks."""
        loader = kept.Loader(self.loader)
        return HydraContext(config_loader=loader, callbacks=imports.Callbacks(cfg))  # type: ignore[arg-type]

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
                for one in parsed:
                    modules: Any = one.value()
                    if one.key_or_group in ("imports", "hooks") and isinstance(modules, list):
                        imports.execute(one.key_or_group, modules)
                if (cls := fields.REGISTERED.get((group, str(name)))) is not None:
                    node = {"name": str(name), **fields.defaults(cls)}
                    store.store(group=group, name=str(name), node=node, provider="fedbench")

    def _check_searchpath(self, parsed: Sequence[Override]) -> None:
        """Refuse search path entries other than directories: Hydra imports packages. Raises ConfigError."""
        given: list[Any] = [item.value() for item in parsed if item.key_or_group == "hydra.searchpath"]
        if not given and not self._only_ours:
            first = [file for place in self._places if (file := place / f"{self.config_name}.yaml").is_file()]
            given = [
                OmegaConf.select(OmegaConf.create(read_file(file)), "hydra.searchpath") for file in first
            ]
        for place in given[0] if given and given[0] else ():
            if not Path(str(place).removeprefix("file://")).is_dir():
                allowed = "must be existing directories; a package would be imported"
                raise ConfigError("hydra.searchpath", str(place), allowed)


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

    def check_places(self, jobs: Sequence[Sequence[str]]) -> None:
        """Refuse a `hydra.sweep.subdir` that gives two jobs the same directory. Raises ConfigError."""
        raw = self._master.hydra.sweep._get_node("subdir")._value()
        if raw == JOB_DIR or len(jobs) < 2:
            return
        places: set[str] = set()
        for number, overrides in enumerate(jobs):
            cfg = self._loader.load_sweep_config(self._master, list(overrides))
            with open_dict(cfg):
                cfg.hydra.job.id, cfg.hydra.job.num = str(number), number
            place = str(cfg.hydra.sweep.subdir)
            if place in places:
                allowed = "must be another directory for every run, such as ${hydra.job.num}"
                raise ConfigError("hydra.sweep.subdir", raw, f"{allowed}; two would be in {place}")
            places.add(place)

    def _base(self, words: tuple[str, ...]) -> DictConfig:
        if words not in self._bases:
            full = self._loader.load_sweep_config(self._master, list(words))
            check_composed(full, self._master)
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


# ---- what is refused -----------------------------------------------------------------------------------


def parsed_words(overrides: Sequence[str], loader: ConfigLoader | None = None) -> list[Override]:
    """Parse overrides with Hydra. Refuses malformed ones and several options of one group, before anything is
    composed. Raises UserError."""
    for text in overrides:
        key, _, value = text.partition("=")
        if not key.strip("+~"):
            raise UsageError(f"{shortened(text)}: must be written key=value")
        if len(value) > LONGEST and "." not in key:  # too long for a file's name
            raise UsageError(f"{shortened(text)}: is longer than {LONGEST} characters")
        if "@" in key:
            raise ConfigError(key, value, "no such key; an option is chosen as GROUP=NAME")
    parsed = parse(overrides, loader)
    for item in parsed:
        if item.is_delete() and is_value(item.key_or_group):
            how = f"{item.key_or_group}=VALUE sets it"
            raise UsageError(f"{item.input_line}: a key cannot be taken away; {how}")
        for chosen in listed(item) if item.key_or_group in ONE else []:
            if isinstance(chosen, list):
                raise one_option(item.key_or_group, chosen)
            if not isinstance(chosen, str | int | float) and item.key_or_group in GROUPS:
                raise ConfigError(item.key_or_group, chosen, "must be the name of an option")
    return parsed


def check_composed(cfg: DictConfig, master: DictConfig | None = None) -> None:
    """Refuse values that would call code that is neither Hydra's nor in one of the user's modules. Refuse
    several options of one group. Raises ConfigError.

    `master`: the sweep's configuration, which names the user's modules, if `cfg` has only a job's choices.
    """
    own = imports.own_modules(cfg if master is None else master)
    for key, value in _leaves(OmegaConf.to_container(cfg, resolve=False)):
        parts, word = key.split("."), str(value)
        called = parts[-1] == "_target_"
        if called and parts[:2] == ["hydra", "callbacks"] and len(parts) == 4:
            called = word.rpartition(".")[0] not in own
        elif called and key in ("hydra.launcher._target_", "hydra.sweeper._target_"):
            known = Plugins.instance().class_name_to_class
            called = word not in known and not word.startswith("hydra_plugins.")
        elif called and key == "hydra.sweeper.sampler._target_":
            called = not re.fullmatch(r"optuna\.samplers\.\w+", word)
        elif parts[0] == "hydra" and parts[1] in ("hydra_logging", "job_logging"):
            plain = re.fullmatch(r"(logging|logging\.handlers|colorlog)\.[A-Z]\w*", word)
            called = parts[-1] in ("class", "()") and not plain
            called |= word.startswith(("ext://", "cfg://")) and word not in _STREAMS
        if called:
            raise ConfigError(key, value, _REFUSED)
    _check_hydra_keys(cfg.hydra, _declared_by_hydra(), "hydra")
    for group in GROUPS:
        if group in cfg and group not in cfg.hydra.runtime.choices:
            error = ConfigError(group, cfg[group].get("name"), "one option, not several in a file's defaults")
            raise error.within(f"experiment/{cfg.hydra.runtime.choices.get('experiment')}.yaml")


@cache
def _declared_by_hydra() -> DictConfig:
    declared: DictConfig = OmegaConf.structured(HydraConf)
    return declared


def _check_hydra_keys(node: DictConfig, declared: DictConfig, prefix: str) -> None:
    """Refuse a key of Hydra's that it does not declare, in a section that is not open. Raises ConfigError."""
    known = [f"{prefix}.{name!s}" for name in declared]
    for key in map(str, node):
        if f"{prefix}.{key}" not in (*known, "hydra.env"):  # env is a group of Hydra's
            given = OmegaConf.to_container(node, resolve=False)
            raise fields.unknown_key(f"{prefix}.{key}", dict(given)[key], known)  # type: ignore[arg-type]
        inner = declared._get_node(key) if key in declared else None
        if isinstance(inner, DictConfig) and dataclasses.is_dataclass(OmegaConf.get_type(inner)):
            _check_hydra_keys(node[key], inner, f"{prefix}.{key}")


def _check_first(file: Path) -> None:
    """Refuse a user's file that would replace our config.yaml but has no defaults. Raises UsageError."""
    if file.is_file() and "defaults" not in read_file(file):
        raise UsageError(
            f"--config-dir {file.parent}: its {file.name} would stand in place of fedbench's, and has no "
            "defaults list; settings of your own go into another file, with 'defaults: [config, _self_]'; "
            "fedbench replay DIR computes a run again"
        )


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All values under dotted keys, unresolved."""
    if isinstance(node, dict | list) and node:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _leaves(value, f"{prefix}{key!s}.")
    else:
        yield prefix.removesuffix("."), node
