"""One composer for the command line, the workers of sweeps, the Python interface and the papers' figures."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from fedbench.compose import callbacks, inside, trust
from fedbench.compose.explain import HYDRA_ERRORS, explain
from fedbench.compose.names import JOB_DIR
from fedbench.compose.overrides import known_keys, listed, parse, recorded
from fedbench.compose.register import register
from fedbench.compose.validate import validate
from fedbench.config.config import GROUPS, Config
from fedbench.config.options import read_file
from fedbench.config.paths import conf_dir
from fedbench.config.suggest import one_option, unknown_key
from fedbench.errors import ConfigError, UsageError, shortened

LONGEST = 1000  # characters of an option
SEVERAL = ("logger", "hydra/callbacks")  # groups of which several options may be chosen


@dataclass(frozen=True)
class Composed:
    """What a command line says."""

    cfg: DictConfig  # with Hydra's node, which says where and how to run it

    @cached_property
    def job(self) -> DictConfig:
        """The run's own configuration; not yet validated."""
        return without_hydra(self.cfg)

    @cached_property
    def config(self) -> Config:
        """The same, read and checked. Raises ConfigError."""
        return validate(self.job, config_directories(self.cfg.hydra))


class Composer:
    """Composes what overrides say. There is one at a time in a process, as Hydra keeps global state."""

    def __init__(
        self, config_name: str | None = None, config_path: str | None = None, config_dir: str | None = None
    ) -> None:
        """As the flags of these names: the first file, the directory in place of ours, one before it."""
        register()
        self.config_name = config_name or "config"
        further = Path(config_dir).absolute() if config_dir else None
        if further and not further.is_dir():
            raise UsageError(f"--config-dir {config_dir}: there is no such directory")
        if further:
            _check_first(further / f"{self.config_name}.yaml")
        self.hydra = inside.start(Path(config_path).absolute() if config_path else conf_dir(), further)
        self.loader: ConfigLoader = self.hydra.config_loader

    def place(self, composed: Composed) -> Path:
        """The directory of the single run that was composed."""
        cfg = composed.cfg
        OmegaConf.set_readonly(cfg.hydra, False)
        cfg.hydra.mode = RunMode.RUN
        HydraConfig.instance().set_config(cfg)
        with self.one_line(recorded(cfg, "task")):
            return Path(str(cfg.hydra.run.dir))

    @contextlib.contextmanager
    def one_line(self, overrides: Sequence[str], *more: type[Exception]) -> Iterator[None]:
        """Turn Hydra's errors into ours; `more`: what it also raises where input is odd."""
        try:
            yield
        except (*HYDRA_ERRORS, *more) as error:
            raise explain(error, overrides, self.loader, self.config_name) from error

    def check_trust(self, overrides: Sequence[str]) -> None:
        """Refuse what would execute code, before anything is composed."""
        trust.check_overrides(overrides)
        trust.check_files(self.loader, self.config_name, overrides)
        check_single(overrides, self.loader)

    def compose(self, overrides: Sequence[str], given: Sequence[str] = ()) -> Composed:
        """The whole configuration, free of things that would execute code. Raises UserError.

        `given`: what a person wrote, where that was a sweep of which `overrides` are one job.
        """
        words = [lenient(text) for text in overrides]
        with self.one_line(given or words, ValueError, TypeError, AttributeError):
            check_words(words)
            self.check_trust(words)
            check_single(given, self.loader)
            cfg = self.hydra.compose_config(self.config_name, words, RunMode.RUN)
        trust.check_composed(cfg)
        check_added(cfg, words)
        return Composed(cfg)


def compose(overrides: Sequence[str] = ()) -> Composed:
    """What `fedbench OVERRIDES...` says. Leaves Hydra as it was."""
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
            parsed = parse(overrides)
            base = self._base(tuple(str(item.input_line) for item in parsed if self._chooses(item)))
            cfg = copy.deepcopy(base)
            inside.apply([item for item in parsed if not self._chooses(item)], cfg)
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

    def _base(self, choices: tuple[str, ...]) -> DictConfig:
        if choices not in self._bases:
            name = str(self._master.hydra.job.config_name)
            doors = [text for text in recorded(self._master, "task") if callbacks.is_door(text)]
            trust.check_files(self._loader, name, [*recorded(self._master, "hydra"), *doors, *choices])
            check_single(choices, self._loader)
            full = self._loader.load_sweep_config(self._master, list(choices))
            self._check_grid(full, choices)
            trust.check_composed(full, self._master)
            HydraConfig.instance().set_config(full)
            self._bases[choices] = without_hydra(full)
        return self._bases[choices]

    def _check_grid(self, full: DictConfig, choices: Sequence[str]) -> None:
        """Refuse a swept option (an experiment) that brings another grid than the sweep has: it would not
        count. Raises ConfigError."""
        grids = [
            (node.hydra.sweeper.get("params"), node.hydra.sweeper.get("grids"))
            for node in (self._master, full)
        ]
        if grids[0] != grids[1]:
            key, _, value = next(
                (text for text in choices if text.startswith("experiment=")), choices[0]
            ).partition("=")
            allowed = (
                "has another grid (hydra.sweeper) than the first one, and a sweep has one; give each a sweep"
            )
            raise ConfigError(key, value, allowed)


def without_hydra(cfg: DictConfig) -> DictConfig:
    """A copy of a composed configuration as a job's function gets it, closed for new keys."""
    copied = OmegaConf.masked_copy(cfg, [str(name) for name in cfg if name != "hydra"])
    OmegaConf.set_struct(copied, True)
    return copied


def config_directories(hydra: Any) -> list[Path]:
    """Where options were looked for, in this order, from a configuration's Hydra node."""
    return [Path(source.path) for source in hydra.runtime.config_sources if source.schema == "file"]


def _check_first(file: Path) -> None:
    """Refuse a user's file in place of our own first one that cannot be it. Raises UsageError."""
    ours = conf_dir() / file.name
    if file.is_file() and ours.is_file() and file.resolve() != ours and "defaults" not in read_file(file):
        run = (file.parent / "metrics.csv").is_file()
        what = "it holds a run: fedbench replay DIR computes it again, as does the command in DIR/reproduce"
        own = "settings of your own go into another file, with 'defaults: [config, _self_]'"
        raise UsageError(
            f"--config-dir {file.parent}: its {file.name} would stand in place of fedbench's, and has no "
            f"defaults list; {what if run else own}"
        )


def check_words(overrides: Sequence[str]) -> None:
    """Refuse what is no override. Raises UsageError."""
    for text in overrides:
        key, _, value = text.partition("=")
        if not key.strip("+~"):
            raise UsageError(f"{shortened(text)}: must be written key=value")
        if len(value) > LONGEST and "." not in key:  # may name a file, which no system would find
            raise UsageError(f"{shortened(text)}: is longer than {LONGEST} characters")


def check_single(overrides: Sequence[str], loader: ConfigLoader | None = None) -> None:
    """Refuse a list for a group that takes one option: Hydra would merge them, and the last one count. Raises
    ConfigError."""
    for item in parse(overrides, loader):
        key = item.key_or_group
        lists = [value for value in listed(item) if isinstance(value, list)]
        if not lists or "." in key or key in SEVERAL:
            continue
        if key in (*GROUPS, "experiment", "scale") or (loader and loader.get_group_options(key)):
            raise ConfigError(key, item.get_value_string(), one_option(key, lists[0]))


def check_added(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Refuse `+hydra.a.b=x` where Hydra's own section `a` has no key `b`: it would be of no effect.

    Our own keys are checked when the configuration is read. Raises ConfigError.
    """
    for item in parse([text for text in overrides if text.startswith(("+hydra.", "++hydra."))]):
        node: Any = cfg.hydra
        for part in item.key_or_group.split(".")[1:]:
            kind = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
            if kind is None:
                break
            if dataclasses.is_dataclass(kind) and part not in kind.__dataclass_fields__:
                known = [key for key in known_keys(cfg, hydra=True) if key != item.key_or_group]
                raise unknown_key(item.key_or_group, item.get_value_string(), known)
            node = node._get_node(part)


def lenient(text: str) -> str:
    """Two overrides that Hydra wants with another number of + than people write."""
    key = text.partition("=")[0]
    if key in {f"+{group}" for group in (*GROUPS, "experiment")}:  # a group that has a default
        return text[1:]
    if key == "hydra.sweeper.params" or key.startswith("hydra.sweeper.params."):  # a dict that is open
        return "++" + text
    return text
