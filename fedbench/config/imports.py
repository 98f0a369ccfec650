"""The one door for the user's own code: modules that `imports` and `hooks` name are executed before a run."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.config import Config
from fedbench.config.inputs import inputs
from fedbench.errors import ConfigError

log = logging.getLogger(__name__)
_done: dict[str, dict[str, str]] = {}


def load(config: Config) -> None:
    """Execute what `config.imports` and `config.hooks` name, each once in this process: dotted modules,
    importable from the current directory too, or paths of .py files. Says so in the log. Raises
    ConfigError."""
    load_named(config.imports, config.hooks)


def load_named(imports: Sequence[str], hooks: Sequence[str]) -> None:
    """The same of these names."""
    for key, names in (("imports", imports), ("hooks", hooks)):
        for name in names:
            _load(key, name)


def _load(key: str, name: str) -> None:
    file = Path(name).expanduser().resolve() if name.endswith(".py") else None
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
        raise ConfigError(key, name, f"failed while it was executed: {reason}") from error
    _done[identifier] = content


def _exists(name: str) -> bool:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
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
