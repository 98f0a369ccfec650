"""`reproduce`, which a run leaves behind: the command that computes it again, and what computed it."""

from __future__ import annotations

import shlex
from pathlib import Path

from fedbench.config.config import GROUPS, flat
from fedbench.config.identity import inputs
from fedbench.config.overrides import written
from fedbench.files import write_text
from fedbench.provenance import hardware, versions
from fedbench.runs.execution import Execution

_HOW = ("engine", "chunk", "device", "resume", "progress", "verbose")  # left out, or said last


def write_reproduce(file: Path, execution: Execution) -> None:
    """Write `reproduce`: a shell script that computes the run again. Its comments say what computed it."""
    config, placement, choice = execution.problem.config, execution.placement, execution.choice
    choices = dict(flat(config))
    lines = ["#!/bin/sh", "# Computes this run again; `fedbench replay DIRECTORY` also compares the numbers."]
    found: dict[str, object] = {**versions(), "commit": execution.commit}
    found |= {**hardware(placement.device), "device": placement.device}
    if placement.group.size > 1:
        found["processes"] = placement.group.size  # the command uses one: the same up to rounding
    lines += [f"# {name}: {value}" for name, value in found.items()]
    lines += [f"# {key}: sha256 {digest}" for key, digest in inputs(flat(config)).items()]
    for read in execution.problem.dataset.files:
        lines.append("# data: " + ", ".join(f"{name} {value}" for name, value in read.items()))
    groups = {
        key: choices.pop(key) for key in GROUPS if key in choices
    }  # these come first; the engine used comes last
    rest = {k: value for k, value in choices.items() if k not in _HOW and not k.startswith("logger.")}
    said = {**groups, **rest, "engine": choice.engine, "chunk": choice.chunk}
    words = [f"  {shlex.quote(f'{key}={written(value)}')}" for key, value in said.items()]
    write_text(file, "\n".join([*lines, " \\\n".join(["fedbench", *words])]) + "\n")
