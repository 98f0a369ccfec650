"""From a composed config to a plan: data, partition, model and algorithm, checked before any computation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from fedbench import algorithms, data, models, schedule
from fedbench.config import imports
from fedbench.config.config import Config
from fedbench.config.identity import container
from fedbench.config.read import build
from fedbench.data import Dataset
from fedbench.data.options import DatasetOptions
from fedbench.engine.batches import local_steps
from fedbench.engine.choose import choose_device
from fedbench.engine.flat import Layout
from fedbench.errors import ConfigError, DataError
from fedbench.method import Algorithm, Counts, Setting
from fedbench.models.layers import norm_parameters

DEFAULT_STEPS = 10
NOT_HYPER = ("name", "grid")  # keys of an algorithm's node that are not hyper-parameters


@dataclass
class Plan:
    """What is known before anything is computed: enough to refuse bad input."""

    cfg: DictConfig
    config: Config
    device: torch.device
    dtype: torch.dtype
    dataset: Dataset
    assignment: np.ndarray  # (n,) client of each training sample
    model: torch.nn.Module
    layout: Layout
    algorithm: Algorithm
    counts: Counts
    setting: Setting
    steps: np.ndarray  # (N,) K_i
    hyper: dict[str, float]
    notes: list[str] = field(default_factory=list)


def make_plan(cfg: DictConfig) -> Plan:
    """Check everything that can be checked; ConfigError or DataError in one line."""
    imports.load(cfg)
    config = build(container(cfg))
    notes: list[str] = []
    device = choose_device(cfg.device)
    node = OmegaConf.to_container(cfg.algorithm, resolve=True)
    assert isinstance(node, dict)
    cls = algorithms.get(str(node["name"]))
    algorithm = cls.create({str(k): v for k, v in node.items() if k not in NOT_HYPER})
    schedule.check(config, algorithm.dispatch)
    dataset = load_dataset(config)
    n, clients = len(dataset.y_train), cfg.clients.total
    if cfg.local.batch_size is not None and cfg.local.batch_size > n:
        raise ConfigError(
            "local.batch_size", cfg.local.batch_size, f"must be at most the {n} training samples"
        )
    assignment = data.partition(
        config.partition, dataset.y_train.numpy(), dataset.classes, clients, int(cfg.seed), dataset.client
    )
    model = models.build(config.model, dataset.shape, dataset.classes, int(cfg.seed))
    if cfg.init_from is not None:
        load_initial(model, Path(cfg.init_from))
    layout = Layout(model)
    sizes = np.bincount(assignment, minlength=clients)
    steps = local_steps(sizes, *_steps_or_epochs(cfg, algorithm), cfg.local.batch_size)
    equal = bool((steps == steps[0]).all())
    counts = Counts(S=cfg.clients.per_round, N=clients, K=int(steps[0]) if equal else None, T=cfg.rounds)
    norm = layout.positions(set(norm_parameters(model)))
    parallel = cfg.schedule.get("pool") == "all"  # two jobs of one client at the same time
    setting = Setting(counts, cfg.schedule.name, parallel, layout.d, norm)
    reason = algorithm.refusal(setting)
    if reason:
        raise ConfigError("algorithm", algorithm.name, reason)
    algorithm.bind(setting)
    hyper = algorithm.resolve(counts, notes.append)
    if dataset.note:
        notes.append(dataset.note)
    dtype = torch.float64 if cfg.dtype == "float64" else torch.float32
    return Plan(
        cfg,
        config,
        device,
        dtype,
        dataset,
        assignment,
        model,
        layout,
        algorithm,
        counts,
        setting,
        steps,
        hyper,
        notes,
    )


def load_dataset(config: Config) -> Dataset:
    """The config's data set; the last ones are kept, since the runs of a sweep mostly share it."""
    generated = config.dataset.name == "synthetic"
    seed, clients = (config.seed, config.clients.total) if generated else (0, 0)
    return _load_dataset(config.dataset, config.data.root, seed, clients)


@lru_cache(maxsize=2)
def _load_dataset(options: DatasetOptions, root: str, seed: int, clients: int) -> Dataset:
    return data.load(options, root, seed=seed, clients=clients)


def load_initial(model: torch.nn.Module, path: Path) -> None:
    """Start from a state_dict; DataError where it does not fit."""
    try:
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except FileNotFoundError as error:
        raise DataError(f"init_from={path}: there is no such file") from error
    except Exception as error:
        raise DataError(f"init_from={path}: {str(error).splitlines()[0]}") from error


def _steps_or_epochs(cfg: DictConfig, algorithm: Algorithm) -> tuple[int | None, int | None]:
    steps, epochs = cfg.local.steps, cfg.local.epochs
    if algorithm.fixed_steps is not None:
        if epochs is not None or steps not in (None, algorithm.fixed_steps):
            key, value = ("local.epochs", epochs) if epochs is not None else ("local.steps", steps)
            raise ConfigError(
                key, value, f"{algorithm.name} makes exactly {algorithm.fixed_steps} local step(s)"
            )
        return algorithm.fixed_steps, None
    return (DEFAULT_STEPS, None) if steps is None and epochs is None else (steps, epochs)
