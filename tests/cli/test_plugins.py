"""Other distributions' plugins of Hydra, which Hydra imports before anything else: a broken one is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from run_files import Call

from fedbench.config.register import register

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.0\n"


@pytest.fixture
def scanned_anew(plugins_again: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra looks for plugins once per process: here once more."""
    register()
    monkeypatch.delitem(sys.modules, "hydra_plugins", raising=False)
    Singleton._instances.pop(Plugins, None)  # type: ignore[attr-defined]


def install(place: Path, name: str, module: str, code: str) -> Path:
    """A distribution with one module in `hydra_plugins`, as an installer leaves it."""
    file, about = place / "hydra_plugins" / module, place / f"{name.replace('-', '_')}-1.2.0.dist-info"
    for directory in (file.parent, about):
        directory.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    (about / "METADATA").write_text(METADATA.format(name=name))
    (about / "RECORD").write_text(f"hydra_plugins/{module},,\n{about.name}/METADATA,,\n")
    return file


@pytest.mark.parametrize(
    ("module", "code", "says"),
    [
        (
            "broken_sweeper/config.py",
            "from dataclasses import dataclass\n\n@dataclass\nclass A:\n    x: int = 0\n\n"
            "@dataclass\nclass B:\n    a: list = []\n",
            "hydra_plugins.broken_sweeper.config cannot be loaded, so nothing of Hydra can (ValueError: ",
        ),
        ("broken.py", "raise SystemExit(3)\n", "hydra_plugins.broken cannot be loaded"),
        ("broken/__init__.py", "x = {}['y']\n", "hydra_plugins.broken cannot be loaded"),
    ],
)
def test_a_plugin_that_stops_hydra_is_named(
    module: str, code: str, says: str, tmp_path: Path, scanned_anew: None, fedbench: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    install(tmp_path / "site", "hydra-broken-sweeper", module, code)
    if module.endswith("config.py"):
        (tmp_path / "site" / "hydra_plugins" / "broken_sweeper" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    code_, out, err = fedbench("--dry-run", "rounds=1")
    assert (code_, out) == (1, "")
    assert err.startswith(f"fedbench: Hydra's plugin {says}")
    assert err.endswith(": upgrade or uninstall hydra-broken-sweeper (here is 1.2.0)\n")
    assert len(err.splitlines()) == 1


def test_a_plugin_that_hydra_leaves_out_is_one_line(
    tmp_path: Path, scanned_anew: None, fedbench: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "hydra-old", "old/__init__.py", "import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    code, out, err = fedbench("--dry-run", "rounds=1")
    assert (code, "1 run in outputs/runs" in out) == (0, True)
    reason = "ModuleNotFoundError : No module named 'no_such_module_at_all'"
    how = "upgrade or uninstall hydra-old (here is 1.2.0)"
    assert err == f"fedbench: Hydra's plugin hydra_plugins.old is left out ({reason}): {how}\n"
