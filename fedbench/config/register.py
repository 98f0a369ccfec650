"""What is registered with Hydra before it composes: all keys, our sweeper and launcher, the user's directory,
and resolvers for the names of the directories of runs and sweeps."""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import hydra
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from fedbench import fields
from fedbench.config.clusters import CLUSTERS
from fedbench.config.config import DEVICE, GROUPS, Config, Settings, container
from fedbench.config.identity import WHOLE, counts, digest, identity, run_hash, run_name, slug
from fedbench.config.options import build
from fedbench.config.overrides import parse, recorded, swept, values
from fedbench.config.places import SWEEPS
from fedbench.errors import UserError, shortened
from fedbench.fields import custom, integer

JOB_DIR = "${fedbench.run_dir:}"
"""`hydra.sweep.subdir` where the user gives none; a sweep names its runs itself."""
SWEEP_DIR = f"{SWEEPS}/${{fedbench.sweep_dir:}}"
_PLUGINS = "hydra_plugins"
OUR_SWEEPER = "hydra_plugins.fedbench.Sweeper"  # Hydra takes plugins only under a name in `hydra_plugins`
OUR_LAUNCHER = "hydra_plugins.fedbench.Launcher"


@dataclass
class SweeperNode:
    """hydra.sweeper of `hydra/sweeper=fedbench`."""

    _target_: str = OUR_SWEEPER
    params: dict[str, Any] = field(default_factory=dict)
    grids: list[Any] = field(default_factory=list)


def _devices(value: Any) -> tuple[str, ...]:
    names = tuple(map(str, value)) if isinstance(value, list) else ()
    if not names or not all(re.fullmatch(DEVICE, name) and name != "auto" for name in names):
        raise ValueError
    return names


@dataclass(frozen=True)
class LauncherOptions:
    """hydra.launcher of `hydra/launcher=processes`. `devices`: those that the processes have in turn, so 4
    processes on 2 devices make 2 runs on each. `threads`: of each process on a CPU, if the run's own are
    null."""

    processes: int | None = integer(None, low=1, null="one for each core, or for each device")
    devices: tuple[str, ...] | None = custom(
        None,
        _devices,
        "a list of cpu, cuda, or cuda:N (one of several GPUs)",
        null="all GPUs if there are several",
    )
    threads: int | None = integer(1, low=1, null="as many as the work of a step is worth")


class UserDirectory(SearchPathPlugin):
    """Puts the directory of --config-dir before our own."""

    path: ClassVar[Path | None] = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Called by Hydra as it starts."""
        if self.path is not None:
            search_path.prepend("command-line", f"file://{self.path}", SearchPathQuery(provider="main"))


HYDRA_13 = hydra.__version__.startswith("1.3.")
"""Hydra 1.3 with OmegaConf 2.3. Hydra 1.4 with OmegaConf 2.4 warns of what these need."""


def register() -> None:
    """Register everything with Hydra. A second call changes nothing.

    The keys have defaults but no types, so any value reaches `read_config`, which has the error line for it.
    """
    load_plugins()
    store = ConfigStore.instance()
    if "schema.yaml" in store.repo:
        return
    store.store(name="schema", node={**fields.defaults(Settings), "logger": None}, provider="fedbench")
    store.store(group="hydra/sweeper", name="fedbench", node=SweeperNode, provider="fedbench")
    launcher = {"_target_": OUR_LAUNCHER, **fields.defaults(LauncherOptions)}
    store.store(group="hydra/launcher", name="processes", node=launcher, provider="fedbench")
    Plugins.instance().register(UserDirectory)
    register_resolvers()


def hide_plugin() -> None:
    """Forget what Hydra's plugin for submitit, if it is there, has registered since: it would be the schema
    of our files of the same names."""
    for name in (*CLUSTERS, "submitit_slurm"):
        ConfigStore.instance().repo["hydra"]["launcher"].pop(f"{name}.yaml", None)


def load_plugins() -> None:
    """Have Hydra import the plugins of all installed distributions, as it does before anything else. A line
    on stderr says which one it left out; Hydra's own has six. Raises UserError where one stops Hydra."""
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", UserWarning)
            Plugins.instance()
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [Path(frame.filename) for frame in frames if _PLUGINS in Path(frame.filename).parts]
        if not theirs:
            raise
        file = theirs[-1]
        module = ".".join(file.with_suffix("").parts[file.parts.index(_PLUGINS) :]).removesuffix(".__init__")
        reason = shortened(f"{type(error).__name__}: {' '.join(str(error).split())}")
        raise UserError(
            f"Hydra's plugin {module} cannot be loaded, so nothing of Hydra can ({reason}): {_remove(file)}"
        ) from error
    for warning in said:
        text = " ".join(str(warning.message).split())
        if found := re.match(rf"Error importing '({_PLUGINS}\.([\w.]+))'.*plugin\. (.*)", text):
            places = [Path(place, *found[2].split(".")) for place in sys.modules[_PLUGINS].__path__]
            files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
            how = _remove(next(filter(Path.is_file, files), places[0]))
            print(f"fedbench: Hydra's plugin {found[1]} is left out ({found[3]}): {how}", file=sys.stderr)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _remove(file: Path) -> str:
    """What to do about a plugin's file: the distribution to remove, if one says that the file is its own."""
    for distribution in metadata.distributions():
        owned = (
            distribution.locate_file(name) for name in distribution.files or () if _PLUGINS in name.parts
        )
        if any(Path(str(own)) == file for own in owned):
            name = distribution.metadata["Name"]
            return f"upgrade or uninstall {name} (here is {distribution.version})"
    return f"remove {file}"


def register_resolvers() -> None:
    """Register `${fedbench.run_dir:}` and `${fedbench.sweep_dir:}`."""
    new: Any = OmegaConf.register_new_resolver if HYDRA_13 else OmegaConf.register_resolver
    new("fedbench.run_dir", lambda *, _root_: f"runs/{run_name(build(container(_root_)))}", replace=True)
    new("fedbench.sweep_dir", lambda *, _root_: sweep_dir(_root_), replace=True)


# ---- names of directories ------------------------------------------------------------------------------


def sweep_dir(cfg: DictConfig) -> str:
    """`<readable>/<hash>` of a sweep. It is the same for the same swept values and the same rest of the
    configuration, in any order."""
    node = OmegaConf.select(cfg, "hydra.sweeper.params")  # another sweeper may have none
    params: Any = OmegaConf.to_container(node, resolve=False) if node else {}
    given = [*(f"{key!s}={value}" for key, value in params.items()), *recorded(cfg, "task")]
    hydra = GlobalHydra.instance()
    axes = swept(given, hydra.config_loader() if hydra.is_initialized() else None)
    rest = {key: value for key, value in identity(build(container(cfg))).items() if not _belongs(key, axes)}
    fixed = {
        item.key_or_group: values(item)
        for item in parse(given)
        if not item.is_sweep_override() and _belongs(item.key_or_group, axes) and counts(item.key_or_group)
    }
    experiment = OmegaConf.select(cfg, "hydra.runtime.choices.experiment")
    readable = slug([experiment or "", *(key.split(".")[-1] for key in sorted(axes, key=_order))])
    parts: list[object] = [{k: sorted(v) for k, v in axes.items()}, rest, fixed]
    grids = OmegaConf.select(cfg, "hydra.sweeper.grids")
    parts += [OmegaConf.to_container(grids)] if grids else []
    return f"{readable}/{digest(parts)}"


def _belongs(key: str, axes: Collection[str]) -> bool:
    """Whether a key is swept, or belongs to a group whose option is swept."""
    return key in axes or (key.split(".")[0] in GROUPS and key.split(".")[0] in axes)


def _order(key: str) -> tuple[bool, bool, str]:
    """Groups first, the seed last; names must not depend on the order of the command line."""
    return key == "seed", key not in GROUPS, key


def job_name(config: Config, axes: Mapping[str, str]) -> str:
    """`<readable>-<hash>` of a job of a sweep with the swept `axes` (key -> this job's value)."""
    words = [f"{key.split('.')[-1]}_{axes[key]}" for key in sorted(axes, key=_order)]
    return f"{slug(words, WHOLE)}-{run_hash(config)}"
