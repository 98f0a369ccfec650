"""How much work a run's local steps are, and how many clients will be at work at once."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from fedbench import data
from fedbench.config.config import Config
from fedbench.data import Dataset
from fedbench.engine.choose import Way, choose_chunk, choose_state
from fedbench.engine.flat import Layout
from fedbench.engine.load import Load, measure_model


def load_of(
    config: Config,
    dataset: Dataset,
    model: nn.Module,
    sizes: np.ndarray,
    steps: np.ndarray,
    dtype: torch.dtype,
) -> Load:
    """The work of clients with `sizes` (N,) samples and `steps` (N,) local steps, counted on one sample."""
    sample = data.to_input(dataset.x_train[:1], dataset.mean, dataset.std, dtype)
    batch = config.local.batch_size
    width = int(sizes.max()) if batch is None else min(int(sizes.max()), batch)
    cohort = min(config.clients.per_round, config.clients.total)
    cost = measure_model(copy.deepcopy(model), sample)  # counting moves batch-norm statistics
    return Load(cost, Layout(model).d, width, cohort, config.rounds * int(steps.max()))


def foreseen(config: Config, load: Load, state: float, device: torch.device, dtype: torch.dtype) -> Way:
    """How the run will be computed, as far as it matters for memory: one client after another (loop) or a
    chunk at once (vmap, compiled or not), and where the clients' state of so many bytes lies."""
    loop = config.engine == "loop"
    chunk = config.chunk or (1 if loop else choose_chunk(load, device, dtype.itemsize))
    place = choose_state(config.state.place, state, device)
    return Way("loop" if loop else "vmap", min(chunk, load.cohort), place)
