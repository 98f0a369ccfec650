"""The files of conf/<group>/ say what the classes say that declare the options."""

from __future__ import annotations

import pytest
import yaml
from option_files import every_group, option_files, reference

from fedbench.config.options import conf_dir
from fedbench.fields import defaults

GROUPS = every_group()
FILES = dict(option_files(GROUPS))


@pytest.mark.parametrize("path", FILES)
def test_files_are_fresh(path: str) -> None:
    assert (conf_dir() / path).read_text(encoding="utf-8") == FILES[path], "scripts/options writes them"


@pytest.mark.parametrize("group", GROUPS)
def test_there_is_a_file_for_every_option_and_no_other(group: str) -> None:
    found = {f"{group}/{file.name}" for file in (conf_dir() / group).glob("*.yaml")}
    assert found == {path for path in FILES if path.startswith(f"{group}/")}


@pytest.mark.parametrize("path", FILES)
def test_a_file_says_all_defaults(path: str) -> None:
    group, name = path.removesuffix(".yaml").split("/")
    content = yaml.safe_load(FILES[path])
    content.pop("defaults", None)
    assert content == {"name": name, **defaults(GROUPS[group][name])}
    assert FILES[path].startswith("# ")
    assert all(len(line) <= 110 for line in FILES[path].splitlines())


def test_the_reference_is_fresh_and_names_every_key() -> None:
    page = (conf_dir() / "README.md").read_text(encoding="utf-8")
    assert page == reference(GROUPS), "scripts/options writes it"
    for key in (
        "clients.per_round",
        "eval.final_k",
        "partition.alpha",
        "algorithm.server_lr",
        "delay.speed",
    ):
        assert f"| `{key}` |" in page
