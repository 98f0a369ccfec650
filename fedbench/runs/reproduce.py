"""`reproduce` in a run's directory: the command that computes it again, and what it was computed with."""

from __future__ import annotations

import shlex
from pathlib import Path

from fedbench.compose.overrides import written
from fedbench.config.config import GROUPS
from fedbench.config.identity import flat
from fedbench.config.inputs import inputs
from fedbench.files import write_text
from fedbench.runs.provenance import Code, hardware
from fedbench.runs.run_directory import REPRODUCE
from fedbench.runs.setup import ReadyRun

_HOW = ("engine", "chunk", "device", "resume", "progress", "verbose")


def write_reproduce(directory: Path, ready: ReadyRun, code: Code) -> None:
    """A shell script whose comments say versions (`code`), hardware and hashes."""
    lines = ["#!/bin/sh", "# Computes this run again; `fedbench replay DIRECTORY` also compares the numbers."]
    found = {
        **code["versions"],
        "commit": code["commit"],
        **hardware(ready.plan.device),
        "device": ready.plan.device,
    }
    if ready.plan.group.size > 1:
        found["processes"] = ready.plan.group.size  # the command computes it with one: the same to rounding
    lines += [f"# {name}: {value}" for name, value in found.items()]
    lines += [f"# {key}: sha256 {digest}" for key, digest in inputs(flat(ready.plan.config.given)).items()]
    for file in ready.plan.dataset.files:
        lines.append("# data: " + ", ".join(f"{name} {value}" for name, value in file.items()))
    words = [f"  {shlex.quote(word)}" for word in command(ready)]
    write_text(directory / REPRODUCE, "\n".join([*lines, " \\\n".join(["fedbench", *words])]) + "\n")


def command(ready: ReadyRun) -> list[str]:
    """The overrides that say every choice, with the engine and the chunk that were taken."""
    choices = flat(ready.plan.config.given)
    groups = {key: choices.pop(key) for key in GROUPS}
    rest = {key: value for key, value in choices.items() if key not in _HOW and not key.startswith("logger.")}
    way = {"engine": ready.way.engine, "chunk": ready.way.chunk}
    return [f"{key}={written(value)}" for key, value in {**groups, **rest, **way}.items()]
