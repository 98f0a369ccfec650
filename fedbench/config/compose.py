"""argv -> Config: one composer for the command line, sweeps, the Python interface and the papers.

Hydra composes; what is here reads the result as a `Config`, and refuses what would execute code. Nothing that
is given does so but `imports` and `hooks`: Hydra instantiates what stands under `_target_`, and Python's
logging what stands under `class` and `()`, so these are refused in overrides and in files of the user's.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override, OverrideType
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from fedbench.config.config import GROUPS, Config, container, without_hydra
from fedbench.config.explain import HYDRA_ERRORS, explain, one_line
from fedbench.config.imports import Callbacks, is_callback, own_modules
from fedbench.config.options import conf_dir, one_option, read_file
from fedbench.config.overrides import first_values, known_keys, listed, parse, recorded
from fedbench.config.read import read_config
from fedbench.config.register import JOB_DIR, UserDirectory, register
from fedbench.errors import ConfigError, UsageError, shortened
from fedbench.loggers.options import refuse_missing

LONGEST = 1000  # characters of an option
SEVERAL = ("logger", "hydra/callbacks")  # groups of which several options may be chosen
GLOBAL = "# @package _global_"
_REFUSED = "refused, because it would run code; your own code goes into a module named by imports=[...]"


def load_config(overrides: Sequence[str] = ()) -> Config:
    """What one run `fedbench OVERRIDES...` is, checked. Leaves Hydra as it was. Raises UserError."""
    return compose(overrides).config


@dataclass(frozen=True)
class Composed:
    """What a command line says."""

    cfg: DictConfig  # with Hydra's node, which says where and how to run it
    files: Sequence[tuple[str, Path]] = ()  # the user's files that it was composed of, by name

    @cached_property
    def job(self) -> DictConfig:
        """The run's own configuration; not yet validated."""
        return without_hydra(self.cfg)

    @cached_property
    def config(self) -> Config:
        """The same, read and checked. Raises ConfigError, which names the user's file that is at fault."""
        try:
            return validate(self.job, config_directories(self.cfg.hydra))
        except ConfigError as error:
            given = {text.partition("=")[0].lstrip("+") for text in recorded(self.cfg, "task")}
            for name, file in () if error.key in given else self.files:
                if _holds(file, name, error.key):
                    raise error.within(f"{name}.yaml") from error
            raise


class Composer:
    """Composes what overrides say. There is one at a time in a process, as Hydra keeps global state."""

    def __init__(
        self, config_name: str | None = None, config_path: str | None = None, config_dir: str | None = None
    ) -> None:
        """As the flags of these names: the first file, the directory in place of ours, one before it."""
        register()
        self.config_name = config_name or "config"
        UserDirectory.path = Path(config_dir).absolute() if config_dir else None
        if UserDirectory.path and not UserDirectory.path.is_dir():
            raise UsageError(f"--config-dir {config_dir}: there is no such directory")
        if UserDirectory.path:
            _check_first(UserDirectory.path / f"{self.config_name}.yaml")
        GlobalHydra.instance().clear()
        directory = str(Path(config_path).absolute() if config_path else conf_dir())
        hydra.initialize_config_dir(directory, job_name="fedbench", version_base="1.3")
        self.hydra: Any = GlobalHydra.instance().hydra
        self.loader: ConfigLoader = GlobalHydra.instance().config_loader()

    @contextlib.contextmanager
    def one_line(self, overrides: Sequence[str], *more: type[Exception]) -> Iterator[None]:
        """Turn Hydra's errors into ours; `more`: what it also raises where input is odd."""
        try:
            yield
        except (*HYDRA_ERRORS, *more) as error:
            raise explain(error, overrides, self.loader, self.config_name) from error

    def check(self, overrides: Sequence[str]) -> list[tuple[str, Path]]:
        """Refuse what is no override, names several options, or would execute code; the user's files that are
        read. Raises UserError."""
        check_words(overrides)
        check_single(overrides, self.loader)
        return user_files(self.loader, self.config_name, overrides)

    def read(self, overrides: Sequence[str]) -> tuple[list[Override], Composed]:
        """What overrides say, which may sweep: parsed, and composed with the first value of every sweep.

        Raises UserError.
        """
        with self.one_line(overrides):
            parsed = parse(overrides, self.loader)
            for item in parsed:
                if item.is_sweep_override() and item.is_hydra_override():
                    raise UsageError(
                        f"{item.input_line}: Sweeping over Hydra's configuration is not supported"
                    )
            check_single(overrides, self.loader)
            first = first_values(overrides, self.loader)
        return parsed, self.compose(first, overrides)

    def compose(self, overrides: Sequence[str], given: Sequence[str] = ()) -> Composed:
        """The whole configuration, free of things that would execute code. Raises UserError.

        `given`: what a person wrote, where that was a sweep of which `overrides` are one job.
        """
        words = [lenient(text) for text in overrides]
        with self.one_line(given or words, ValueError, TypeError, AttributeError):
            files = self.check(words)
            cfg = hydra.compose(self.config_name, words, return_hydra_config=True)
        check_composed(cfg)
        return Composed(cfg, files)

    def place(self, composed: Composed) -> Path:
        """The directory of the single run that was composed."""
        cfg = composed.cfg
        OmegaConf.set_readonly(cfg.hydra, False)
        cfg.hydra.mode = RunMode.RUN
        HydraConfig.instance().set_config(cfg)
        with self.one_line(recorded(cfg, "task")):
            return Path(str(cfg.hydra.run.dir))

    def context(self, cfg: DictConfig) -> HydraContext:
        """What Hydra's launchers and sweepers are given. Executes the modules of the user's callbacks."""
        return HydraContext(config_loader=self.loader, callbacks=Callbacks(cfg))  # type: ignore[arg-type]


def compose(overrides: Sequence[str] = ()) -> Composed:
    """What `fedbench OVERRIDES...` says. Leaves Hydra as it was. Raises UserError."""
    before = GlobalHydra.instance().hydra
    try:
        return Composer().compose(overrides)
    finally:
        GlobalHydra.instance().hydra = before


class JobComposer:
    """Composes the jobs of a sweep as Hydra's launchers do, an order of magnitude faster where only values
    differ: once per choice of options, then values are changed in a copy."""

    def __init__(self, master: DictConfig, loader: ConfigLoader) -> None:
        """`master`: the sweep's own configuration, of which the hydra.* overrides count for all jobs."""
        self._master, self._loader = master, loader
        self._bases: dict[tuple[str, ...], DictConfig] = {}
        self._groups: dict[str, bool] = {}

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """The configuration of the job with these overrides, without Hydra's node. Raises UserError."""
        try:
            check_words(overrides)
            parsed = parse(overrides)
            whole = [item for item in parsed if self._chooses(item) or item.type != OverrideType.CHANGE]
            cfg = copy.deepcopy(self._base(tuple(str(item.input_line) for item in whole)))
            for item in parsed:
                if item not in whole:
                    OmegaConf.update(cfg, item.key_or_group, item.value(), merge=True)
        except HYDRA_ERRORS as error:
            name = str(self._master.hydra.job.config_name)
            raise explain(error, overrides, self._loader, name) from error
        return cfg

    def check_places(self, jobs: Sequence[Sequence[str]]) -> None:
        """Refuse a `hydra.sweep.subdir` that gives two jobs one directory. Raises ConfigError."""
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

    def _chooses(self, item: Override) -> bool:
        """Whether an override takes part in Hydra's choice of files (or might)."""
        key = item.key_or_group
        if key not in self._groups:
            plain = "." in key and "/" not in key and item.package is None
            self._groups[key] = not plain and bool(self._loader.get_group_options(key))
        return self._groups[key]

    def _base(self, words: tuple[str, ...]) -> DictConfig:
        if words not in self._bases:
            check_single(words, self._loader)
            hydra_words = recorded(self._master, "hydra")
            user_files(self._loader, str(self._master.hydra.job.config_name), [*hydra_words, *words])
            full = self._loader.load_sweep_config(self._master, list(words))
            check_composed(full, self._master)
            self._check_grid(full, words)
            HydraConfig.instance().set_config(full)
            self._bases[words] = without_hydra(full)
        return self._bases[words]

    def _check_grid(self, full: DictConfig, words: Sequence[str]) -> None:
        """Refuse a swept option (an experiment) that brings another grid than the sweep has: it would not
        count. Raises ConfigError."""
        ours, theirs = self._master.hydra.sweeper, full.hydra.sweeper
        if any(ours.get(name) != theirs.get(name) for name in ("params", "grids")):
            word = next((text for text in words if text.startswith("experiment=")), words[0])
            key, _, value = word.partition("=")
            allowed = "has another grid (hydra.sweeper) than the first one, and a sweep has one"
            raise ConfigError(key, value, f"{allowed}; give each a sweep")


# ---- reading -------------------------------------------------------------------------------------------


def validate(cfg: DictConfig, searchpath: Sequence[Path] = ()) -> Config:
    """Resolve and read a composed configuration. Raises ConfigError at the first thing that is refused.

    `searchpath`: further directories in which options of groups are found (the user's own).
    """
    try:
        plain = container(cfg)
    except (OmegaConfBaseException, RecursionError):
        _refuse_unresolvable(cfg)
        raise
    config = read_config(plain, searchpath)
    refuse_missing(config.logger)
    return config


def _refuse_unresolvable(cfg: DictConfig) -> None:
    """Name the first key whose ${...} cannot be resolved. Raises ConfigError."""
    for key in known_keys(cfg):
        try:
            OmegaConf.select(cfg, key, throw_on_missing=False)
        except (OmegaConfBaseException, RecursionError) as error:
            parent, _, last = key.rpartition(".")
            node: Any = OmegaConf.select(cfg, parent) if parent else cfg
            raw = node._get_node(last)._value()
            reason = "refers to itself" if isinstance(error, RecursionError) else one_line(error)
            raise ConfigError(key, raw, f"cannot be resolved: {reason}") from error


def config_directories(hydra: Any) -> list[Path]:
    """Where options were looked for, in this order, from a configuration's Hydra node."""
    return [Path(source.path) for source in hydra.runtime.config_sources if source.schema == "file"]


def lenient(text: str) -> str:
    """Two overrides that Hydra wants with another number of + than people write."""
    key = text.partition("=")[0]
    if key.startswith("+") and key[1:] in (*GROUPS, "experiment"):  # a group that has a default
        return text[1:]
    if key == "hydra.sweeper.params" or key.startswith("hydra.sweeper.params."):  # a dict that is open
        return "++" + text
    return text


def list_quickly(loader: Any) -> None:
    """Let `loader` list its groups without a copy of all that it knows for every group (1.3 s)."""
    files = loader.repository

    def options(
        group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG, **_: object
    ) -> list[str]:
        return list(files.get_group_options(group_name, results_filter))

    loader.get_group_options = options


# ---- what is refused -----------------------------------------------------------------------------------


def check_words(overrides: Sequence[str]) -> None:
    """Refuse what is no override, or would execute code, before anything is composed. Raises UserError."""
    for text in overrides:
        key, _, value = text.partition("=")
        if not key.strip("+~"):
            raise UsageError(f"{shortened(text)}: must be written key=value")
        if len(value) > LONGEST and "." not in key:  # may name a file, which no system would find
            raise UsageError(f"{shortened(text)}: is longer than {LONGEST} characters")
        if "_target_" in text and not (is_callback(key.lstrip("+")) and "_target_" not in value):
            raise ConfigError(key, value, _REFUSED)
        if key.lstrip("+~") == "hydra.searchpath":
            _check_searchpath(value)


def _check_searchpath(value: str) -> None:
    if "://" in value.replace("file://", ""):
        raise ConfigError("hydra.searchpath", value, "must be directories; a package would be imported")


def check_single(overrides: Sequence[str], loader: ConfigLoader) -> None:
    """Refuse a list for a group that takes one option: Hydra would merge them, and the last one count. Raises
    ConfigError."""
    for item in parse(overrides, loader):
        key = item.key_or_group
        lists = [value for value in listed(item) if isinstance(value, list)]
        if lists and "." not in key and key not in SEVERAL and loader.get_group_options(key):
            raise ConfigError(key, item.get_value_string(), one_option(key, lists[0]))


def user_files(loader: ConfigLoader, name: str, overrides: Sequence[str]) -> list[tuple[str, Path]]:
    """Name and path of every file of the user's that would be read: the first file is `name`.

    Raises UserError where one would execute code, or cannot be what its place says.
    """
    sources = [source.path for source in loader.get_sources() if source.scheme() == "file"]
    ours = name == "config" and sources == [str(conf_dir())]
    if ours and not any(word in text for text in overrides for word in ("..", "hydra.searchpath")):
        return []
    first = [file for file in (Path(place, f"{name}.yaml") for place in sources) if file.is_file()]
    content = OmegaConf.create(read_file(first[0]) if first else {})
    given = [item.value() for item in parse(overrides) if item.key_or_group == "hydra.searchpath"]
    searchpath: Any = given[0] if given else OmegaConf.select(content, "hydra.searchpath")
    _check_searchpath(str(searchpath or ""))
    places = [Path(str(place).removeprefix("file://")) for place in (*sources, *(searchpath or ()))]
    defaults = loader.compute_defaults_list(name, list(overrides), RunMode.MULTIRUN).defaults
    names = dict.fromkeys(str(default.config_path) for default in defaults if default.config_path)
    found = [(one, place / f"{one}.yaml") for one in names for place in places]
    theirs = {
        one: file
        for one, file in reversed(found)  # the first place counts
        if file.is_file() and not file.resolve().is_relative_to(conf_dir())
    }
    for one, file in theirs.items():
        _check_file(one, file)
    return list(theirs.items())


def _check_file(name: str, file: Path) -> None:
    content = read_file(file)
    group = name.rpartition("/")[0]
    prefix = f"{group.replace('/', '.')}." if group.startswith("hydra/") else ""
    for key, value in _leaves(content, prefix):
        if key.split(".")[-1] == "_target_" and not is_callback(key):
            raise ConfigError(key.removeprefix(prefix), value, f"{_REFUSED} (in {name}.yaml)")
    if name.split("/")[0] in ("experiment", "scale") and not file.read_text("utf-8").startswith(GLOBAL):
        raise UsageError(f"{file}: must begin with the line '{GLOBAL}': its keys are those of a run")
    if group in GROUPS and not {"name", "defaults"} & content.keys():
        allowed = "its file must hold keys with values, 'name: ...' among them; it has "
        allowed += ", ".join(content) or "none"
        raise ConfigError(group, name.rpartition("/")[2], allowed).within(f"{name}.yaml")
    for entry in content.get("defaults") or []:
        for said, chosen in entry.items() if isinstance(entry, dict) else []:
            key = str(said).split()[-1].partition("@")[0].strip("/")
            if isinstance(chosen, list) and key in (*GROUPS, "experiment", "scale"):
                shown = f"[{','.join(map(str, chosen))}]"
                raise ConfigError(key, shown, one_option(key, chosen)).within(f"{name}.yaml")


def _holds(file: Path, name: str, key: str) -> bool:
    """Whether a file of the user's says something under a dotted key of a run."""
    group = name.rpartition("/")[0]
    content: Any = {group: read_file(file)} if group in GROUPS else read_file(file)
    for part in key.split("."):
        if not isinstance(content, dict) or part not in content:
            return False
        content = content[part]
    return True


def _check_first(file: Path) -> None:
    """Refuse a user's file in place of our own first one that cannot be it. Raises UsageError."""
    ours = conf_dir() / file.name
    if file.is_file() and ours.is_file() and file.resolve() != ours and "defaults" not in read_file(file):
        raise UsageError(
            f"--config-dir {file.parent}: its {file.name} would stand in place of fedbench's, and has no "
            "defaults list; settings of your own go into another file, with 'defaults: [config, _self_]'; "
            "fedbench replay DIR computes a run again"
        )


def check_composed(cfg: DictConfig, master: DictConfig | None = None) -> None:
    """Refuse callbacks that are not the user's, and logging that would call something. Raises ConfigError.

    `master`: a sweep's, which says what modules are the user's, where `cfg` has the choices of a job alone.
    """
    own = own_modules(cfg if master is None else master)
    for key, value in _leaves(OmegaConf.to_container(cfg.hydra, resolve=False), "hydra."):
        parts = key.split(".")
        called = is_callback(key) and str(value).rpartition(".")[0] not in own
        if parts[1] in ("hydra_logging", "job_logging"):
            called = parts[-1] in ("class", "()") and not str(value).startswith(("logging.", "colorlog."))
            called |= str(value).startswith("ext://") and value not in (
                "ext://sys.stdout",
                "ext://sys.stderr",
            )
            called |= str(value).startswith("cfg://")
        if called:
            raise ConfigError(key, value, _REFUSED)


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All values under dotted keys, unresolved."""
    if isinstance(node, dict | list) and node:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _leaves(value, f"{prefix}{key!s}.")
    else:
        yield prefix.removesuffix("."), node
