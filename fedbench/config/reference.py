"""The reference of all keys, conf/README.md, made from the classes that declare them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedbench.config.config import Settings
from fedbench.config.option_files import Groups, head
from fedbench.errors import word
from fedbench.fields import rules
from fedbench.loggers.options import LOGGERS

_TOP = """# Every key

Made by `scripts/options` from the classes that declare the keys. `KEY=VALUE` on the command line sets one,
and `--help` shows those of a configuration; [the README](../README.md) is where to begin.
"""


def reference(groups: Groups) -> str:
    """The page: the keys of every run, then each group's options with theirs."""
    parts = [_TOP, "## Every run\n", *_table(Settings, "")]
    for group, classes in groups.items():
        parts.append(f"\n## {group}")
        for name, cls in classes.items():
            parts += [f"\n### {group}={name}", *_sentence(head(cls)), *_table(cls, f"{group}.")]
    parts += [
        "\n## logger",
        "\n`logger=NAME`, several as `logger=[csv,wandb]`, all: `logger=many_loggers`.",
    ]
    for name, cls in LOGGERS.items():
        parts += [f"\n### logger={name}", *_sentence(head(cls)), *_table(cls, f"logger.{name}.")]
    return "\n".join(parts) + "\n"


def _sentence(text: str) -> list[str]:
    return [" ".join(text.split("\n\n")[0].split()), ""]


def _table(cls: type[Any], prefix: str) -> Iterator[str]:
    found = list(rules(cls, prefix))
    if not found:
        return
    yield from ("| key | default | allowed | meaning |", "|---|---|---|---|")
    for key, rule in found:
        cells = (f"`{key}`", f"`{word(rule.default)}`", rule.words, rule.meaning)
        yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")
