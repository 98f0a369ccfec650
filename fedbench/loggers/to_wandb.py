"""Weights & Biases, online or into files that `wandb sync` sends later."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import wandb

from fedbench.loggers.logger import About, Logger, Point
from fedbench.loggers.options import WandB

_WANDB: Any = wandb  # its types are narrower than what it takes


class WandBLogger(Logger):
    """One run of W&B's for each of ours, under one id when it goes on.

    Offline, the files in its directory are written anew; online, the server says which steps it has.
    """

    def __init__(self, options: WandB, about: About) -> None:
        self.options, self.about = options, about
        self.place = about.place(options.directory, "")

    def open(self, points: Sequence[Point]) -> None:
        mode = self.options.mode or os.environ.get("WANDB_MODE", "online")
        if mode == "online" and not wandb.login(prompt=False):
            raise RuntimeError("no API key; `wandb login` keeps one, or logger.wandb.mode=offline")
        name = self.about.kept("wandb").get("id") or uuid.uuid4().hex[:8]
        self.about.keep("wandb", {"id": name})
        self.place.mkdir(parents=True, exist_ok=True)
        if mode == "offline":
            for old in (self.place / "wandb").glob("offline-run-*"):
                shutil.rmtree(old)
        self.run = _WANDB.init(
            project=self.options.project,
            entity=self.options.entity,
            id=name,
            name=self.about.name,
            group=self.about.sweep,
            dir=str(self.place),
            mode=mode,
            config=dict(self.about.choices),
            resume="allow" if mode == "online" else None,
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        self.first = self.run.starting_step  # those before it are there
        self.log(points)

    def log(self, points: Sequence[Point]) -> None:
        for point in [point for point in points if point.step >= self.first]:
            self.run.log({**point.values, "_timestamp": point.seconds}, step=point.step)

    def close(self, results: Mapping[str, Any] | None) -> None:
        if results is not None:
            self.run.summary.update(dict(results))
        self.run.finish(exit_code=1 if results is None or results["status"] == "failed" else 0)
