"""The only entry for the user's own code: modules that `imports` and `hooks` name are executed before a run.

Classes in these modules can be Hydra callbacks (`hydra.callbacks.NAME._target_`).
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import traceback
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from fedbench.config.identity import inputs
from fedbench.errors import ConfigError, UsageError
from fedbench.files import as_given

log = logging.getLogger(__name__)
_done: dict[str, dict[str, str]] = {}
_OURS = str(Path(__file__).parents[1])


def load(config: Any) -> None:
    """Execute the modules that `imports` and `hooks` of a configuration name, each once per process. A name
    is a dotted module (importable from the current directory too) or the path of a .py file. Logs each one.
    Raises ConfigError."""
    for key in ("imports", "hooks"):
        execute(key, getattr(config, key))


def execute(key: str, names: Iterable[object]) -> None:
    """Execute the modules `names` as `load` does. `key`: `imports` or `hooks`, for messages."""
    for name in map(str, names):
        _load(key, name)


def _load(key: str, name: str) -> None:
    file = _file(name)
    identifier = str(file or name)
    content = inputs({"imports": [name]})
    if identifier in _done:
        if _done[identifier] != content:
            allowed = "has changed since this process executed it: a new process is needed"
            raise ConfigError(key, name, allowed)
        return
    if not (file.is_file() if file else _exists(name)):
        raise ConfigError(key, name, "must be a module importable from here, or a path to a .py file")
    log.info("%s: executing the code of %s", key, identifier)
    try:
        _execute(file) if file else importlib.import_module(name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)]
        last = (theirs or frames)[-1]
        where = f" ({last.filename}, line {last.lineno})"
        raise ConfigError(key, name, f"failed while it was executed: {reason}{where}") from error
    _done[identifier] = content


def _file(name: str) -> Path | None:
    return as_given(name).resolve() if name.endswith(".py") else None


def _exists(name: str) -> bool:
    here = str(as_given("").resolve())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _execute(file: Path) -> None:
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_of_imports"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


# ---- Hydra's callbacks ---------------------------------------------------------------------------------


def own_modules(cfg: DictConfig) -> set[str]:
    """The names of the user's modules in a composed configuration, except those whose name another module has
    in this process."""
    names = set()
    given = [OmegaConf.select(cfg, key) for key in ("imports", "hooks")]
    for name in (str(name) for each in given if OmegaConf.is_list(each) for name in each):
        file = _file(name)
        there = getattr(sys.modules.get(file.stem), "__file__", None) if file else None
        if file is None or file.stem not in sys.modules or (there and Path(there).resolve() == file):
            names.add(file.stem if file else name)
    return names


class Callbacks(Callback):
    """The Hydra callbacks of a configuration, called one after another. If one raises, a warning is issued.

    Another process makes its own from the configuration, because it may not find their classes.
    """

    def __init__(self, cfg: DictConfig) -> None:
        """Executes the user's modules, if there is a callback. Raises UserError."""
        self.cfg = cfg
        nodes = cfg.hydra.callbacks or {}
        if nodes:
            load(cfg)
        try:
            self.each = [instantiate(node) for node in nodes.values()]
        except Exception as error:
            reason = str(error.__cause__ or error).splitlines()[0]
            raise UsageError(f"hydra.callbacks: cannot be made: {reason.rstrip(':')}") from error
        for one in self.each:
            if not isinstance(one, Callback):
                allowed = "must be a subclass of hydra.experimental.callback.Callback"
                raise UsageError(f"hydra.callbacks: {type(one).__name__} {allowed}")

    def __reduce__(self) -> Any:
        return Callbacks, (self.cfg,)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return partial(self._tell, name)
        return super().__getattribute__(name)

    def _tell(self, what: str, **words: Any) -> None:
        for one in reversed(self.each) if what.endswith("_end") else self.each:
            try:
                getattr(one, what)(**words)
            except Exception as error:
                warnings.warn(
                    f"{type(one).__name__}.{what} raised {type(error).__name__}: {error}", stacklevel=2
                )
