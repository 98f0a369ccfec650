"""Clients that attack (`participation.attack`) or compress what they send, and what the server takes in place
of a mean."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from fedbench.config.config import Config
from fedbench.counting import share_of
from fedbench.data import Dataset
from fedbench.data.division import UNUSED
from fedbench.method import Algorithm
from fedbench.method.aggregation import Aggregated, SignFlipped, behind
from fedbench.method.compression import Compressed, WithFeedback
from fedbench.runs import checks


def attackers(config: Config) -> int:
    """How many clients attack: those with the lowest numbers."""
    return int(share_of(config.participation.attackers, config.clients.total))


def as_run(config: Config, method: Algorithm) -> Algorithm:
    """The method with its compressed uploads, those of attackers, and its server's aggregate. Raises
    ConfigError."""
    asked = config.compress
    if asked.kind != "none":
        feedback = asked.kind == "topk" if asked.feedback is None else asked.feedback
        facts = {"kind": asked.kind, "share": asked.share, "levels": asked.levels}
        method = behind(method, WithFeedback if feedback else Compressed, **facts)
    if config.participation.attack == "sign_flip":
        method = behind(method, SignFlipped, flipping=attackers(config))
    if config.aggregation == "mean":
        return method
    checks.check_aggregation(config, method)
    return behind(method, Aggregated, aggregation=config.aggregation, byzantine=config.byzantine)


def poisoned(config: Config, dataset: Dataset, assignment: np.ndarray) -> Dataset:
    """The data set with the labels that the attackers train with. `assignment` (n,): the client of each
    training sample that is trained on, else UNUSED."""
    if config.participation.attack != "label_flip":
        return dataset
    theirs = torch.from_numpy((assignment != UNUSED) & (assignment < attackers(config)))
    y = dataset.y_train
    return dataclasses.replace(dataset, y_train=torch.where(theirs, dataset.classes - 1 - y, y))
