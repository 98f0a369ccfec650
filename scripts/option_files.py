"""The text that `scripts/options` writes from the classes that declare the options: the files of
conf/<group>/ (Hydra needs one for each option), and conf/README.md, the reference of all keys."""

from __future__ import annotations

import dataclasses
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fedbench import algorithms
from fedbench.config.clusters import CLUSTERS, target
from fedbench.config.config import Settings
from fedbench.config.options import CLASSES, DATA
from fedbench.errors import word
from fedbench.fields import Rule, defaults, options_of, rules
from fedbench.loggers.options import LOGGERS
from fedbench.method.table import Entry, cost_of, entry
from fedbench.models.registry import get, names

Groups = Mapping[str, Mapping[str, type[Any]]]
WIDTH = 110
_BRINGS = """# In the primary config `partition` has to come before `dataset`, for this override to be seen.
defaults:
  - override /partition@_global_.partition: {}
"""

_TOP = """# Every key

Made by `scripts/options` from the classes that declare the keys. `KEY=VALUE` on the command line sets one,
and `--help` shows those of a configuration; [the README](../README.md) is where to begin.
"""


def every_group() -> Groups:
    """The classes of fedbench's own options, by group and name."""
    models = {name: get(name) for name in names() if get(name).__module__.startswith("fedbench.")}
    methods = {cls.name: cls for cls in algorithms.every() if cls.__module__.startswith("fedbench.")}
    return {**CLASSES, "model": models, "algorithm": methods}


def option_files(groups: Groups) -> Iterator[tuple[str, str]]:
    """Path below conf/ and text of the file of every option."""
    for group, classes in groups.items():
        for name, cls in classes.items():
            yield f"{group}/{name}.yaml", option_file(name, cls, head(cls))


def logger_files() -> Iterator[tuple[str, str]]:
    """The same for the loggers. Several may be chosen, so each has its keys below its own name."""
    for name, cls in LOGGERS.items():
        lines = [*_comment(head(cls), ""), f"{name}:", *_keys(cls, "  ")]
        yield f"logger/{name}.yaml", "\n".join(lines) + "\n"
    every = "\n".join(f"  - {name}" for name in LOGGERS)
    yield "logger/many_loggers.yaml", f"# All of them at once.\ndefaults:\n{every}\n"


def launcher_files() -> Iterator[tuple[str, str]]:
    """The same for the launchers that give runs to jobs."""
    for name, cls in CLUSTERS.items():
        lines = [*_comment(head(cls), ""), f"_target_: {target(name)}", *_keys(cls, "")]
        yield f"hydra/launcher/{name}.yaml", "\n".join(lines) + "\n"
    yield (
        "hydra/launcher/submitit_slurm.yaml",
        "# Another name of hydra/launcher=slurm.\ndefaults:\n  - slurm\n",
    )


def head(cls: type[Any]) -> str:
    """What an option is; for a method, whose docstring has the equations, only its name and paper."""
    paper = getattr(cls, "paper", None)
    return f"{cls.title or cls.__name__} ({paper})" if paper else inspect.getdoc(cls) or ""


def option_file(name: str, cls: type[Any], head: str) -> str:
    """The file of one option: `head` as a comment, then every key with its default and its help."""
    lines = _comment(head, "")
    if getattr(cls, "partition", None):
        lines += _BRINGS.format(cls.partition).splitlines()
    return "\n".join([*lines, f"name: {name}", *_keys(cls, "")]) + "\n"


def _keys(cls: type[Any], indent: str) -> Iterator[str]:
    values = defaults(cls)
    for name, rule in options_of(cls).items():
        if not isinstance(rule, Rule):
            yield from _comment(_help(rule), indent)
            yield f"{indent}{name}:"
            yield from _keys(rule, indent + "  ")
            continue
        words, line = _help(rule), f"{indent}{name}: {_yaml(values[name])}"
        inline = f"{line} # {words}"
        if words and len(inline) <= WIDTH:
            yield inline
        else:
            yield from _comment(words, indent)
            yield line


def data(groups: Groups) -> dict[str, Any]:
    """What the command line says without importing the classes: of every option what its keys mean, and the
    table of methods."""
    methods = [[field.name.replace("_", " ") for field in dataclasses.fields(Entry)]]
    methods += [[*dataclasses.astuple(entry(cls, cost_of(cls)))] for cls in groups["algorithm"].values()]
    meanings = {
        group: {
            name: {key: _help(rule) for key, rule in options_of(cls).items()} for name, cls in classes.items()
        }
        for group, classes in groups.items()
    }
    return {"keys": meanings, "methods": methods}


def _help(rule: Rule | type[Any]) -> str:
    """What an option means: its choices (unless the help names them all), its help, and what null means; or
    what a section of options is."""
    if not isinstance(rule, Rule):
        return " ".join((inspect.getdoc(rule) or "").split())
    named = rule.kind != "choice" or all(str(option) in rule.help for option in rule.options)
    choices = "" if named else " | ".join(map(str, rule.options))
    return "; ".join(filter(None, [choices, rule.meaning]))


def _comment(text: str, indent: str) -> list[str]:
    lines = [
        part
        for line in text.splitlines()
        for part in (textwrap.wrap(line, WIDTH - len(indent) - 2) if len(line) > WIDTH else [line])
        if part
    ]
    return [f"{indent}# {line}".rstrip() for line in lines]


def _yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("...").rstrip()


def reference(groups: Groups) -> str:
    """The page: the keys of every run, then the options of each group with their keys."""
    parts = [_TOP, "## Every run\n", *_table(_rows(Settings, ""))]
    for group, classes in groups.items():
        parts.append(f"\n## {group}")
        tables = {name: _rows(cls, f"{group}.") for name, cls in classes.items()}
        shared = [row for row in next(iter(tables.values())) if all(row in rows for rows in tables.values())]
        if shared:
            parts += [f"\n### every {group}\n", *_table(shared)]
        for name, cls in classes.items():
            own = [row for row in tables[name] if row not in shared]
            parts += [f"\n### {group}={name}", *_sentence(head(cls)), *_table(own)]
    parts += [
        "\n## logger",
        "\n`logger=NAME`, several as `logger=[tensorboard,wandb]`, all: `logger=many_loggers`.",
    ]
    for name, cls in LOGGERS.items():
        parts += [f"\n### logger={name}", *_sentence(head(cls)), *_table(_rows(cls, f"logger.{name}."))]
    parts += ["\n## hydra/launcher", "\n[Clusters](../fedbench/README.md#clusters) says how they are used."]
    for name, launcher in CLUSTERS.items():
        rows = _rows(launcher, "hydra.launcher.")
        parts += [f"\n### hydra/launcher={name}", *_sentence(head(launcher)), *_table(rows)]
    return "\n".join(parts) + "\n"


def _sentence(text: str) -> list[str]:
    return [" ".join(text.split("\n\n")[0].split()), ""]


def _rows(cls: type[Any], prefix: str) -> list[str]:
    """A row for each key of a class."""
    cells = [
        (f"`{key}`", f"`{word(rule.default)}`", rule.words, rule.meaning) for key, rule in rules(cls, prefix)
    ]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]


def _table(rows: Sequence[str]) -> list[str]:
    return ["| key | default | allowed | meaning |", "|---|---|---|---|", *rows] if rows else []


if __name__ == "__main__":
    groups = every_group()
    for path, text in [
        *option_files(groups),
        *logger_files(),
        *launcher_files(),
        ("README.md", reference(groups)),
    ]:
        Path("conf", path).parent.mkdir(parents=True, exist_ok=True)
        Path("conf", path).write_text(text, encoding="utf-8")
    Path("conf", DATA).write_text(
        json.dumps(data(groups), indent=0, ensure_ascii=False) + "\n", encoding="utf-8"
    )
