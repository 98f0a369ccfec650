"""The files of conf/<group>/, conf/options.json and conf/README.md are what scripts/options writes."""

from __future__ import annotations

import yaml
from option_files import data, every_group, option_files, reference

from fedbench.config.options import conf_dir, generated
from fedbench.fields import defaults

GROUPS = every_group()


def test_there_is_a_fresh_file_for_every_option_and_no_other() -> None:
    files = dict(option_files(GROUPS))
    assert {path for path in files if (conf_dir() / path).read_text(encoding="utf-8") != files[path]} == set()
    found = {f"{group}/{file.name}" for group in GROUPS for file in (conf_dir() / group).glob("*.yaml")}
    assert found == {*files}
    for path, text in files.items():
        group, name = path.removesuffix(".yaml").split("/")
        content = yaml.safe_load(text)
        content.pop("defaults", None)
        assert content == {"name": name, **defaults(GROUPS[group][name])}
        assert text.startswith("# ")


def test_what_the_command_line_says_of_options_is_fresh() -> None:
    """Without importing the classes: what `--help` says of a key and `list algorithms` of a method."""
    assert generated() == data(GROUPS), "scripts/options writes it"
    assert (
        generated()["keys"]["partition"]["dirichlet"].keys()
        == defaults(GROUPS["partition"]["dirichlet"]).keys()
    )


def test_the_reference_is_fresh_and_names_every_key() -> None:
    page = (conf_dir() / "README.md").read_text(encoding="utf-8")
    assert page == reference(GROUPS), "scripts/options writes it"
    for key in ("clients.per_round", "eval.final_k", "partition.alpha", "algorithm.server_lr", "delay.speed"):
        assert f"| `{key}` |" in page
