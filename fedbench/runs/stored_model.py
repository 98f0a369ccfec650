"""The trained model of a run, as a module."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from fedbench.config import imports
from fedbench.config.config import Config
from fedbench.runs.initial import initial_model, load_parameters
from fedbench.runs.session import Session


def stored_model(config: Config, file: Path) -> nn.Module:
    """The model of `config` with the parameters in `file` (a model.pt), on the CPU, in evaluation mode.

    The data set is read for the shape of a sample. Raises ConfigError and DataError.
    """
    imports.load(config)
    dataset = Session().dataset(config)
    dtype = torch.float64 if config.dtype == "float64" else torch.float32
    model = initial_model(replace(config, init_from=None), dataset, torch.device("cpu"), dtype)
    load_parameters(model, file, str(file))
    return model.eval()
