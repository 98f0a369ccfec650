"""FLGo (Wang et al., arXiv:2306.12079) on the job of the benchmarks: its FedAvg, and its FedAsync and FedBuff
on its virtual clock, in one process.

The clock is the cheapest for FLGo: at each tick as many uploads arrive as an update takes, in the order in
which their jobs began, as in the bare loop. Its server runs without log and evaluation.
"""

from __future__ import annotations

import copy
import importlib
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import flgo
import torch
from bench_jobs import PROXIMAL, Bare
from bench_peers import Peer
from flgo.experiment.logger import BasicLogger
from flgo.simulator import BasicSimulator

JOB: dict[str, Any] = {}
"""The training set and the network, which a generated benchmark takes from here."""


class _Arrivals(BasicSimulator):
    """Uploads of `together` jobs at each tick, of `concurrency` jobs that are under way."""

    together, concurrency = 1, 1

    def initialize(self, *given: Any, **named: Any) -> None:
        self.begun = False

    def update_client_completeness(self, client_ids: list[int], *given: Any, **named: Any) -> None:
        """Called when jobs begin: the first spread over the ticks, each later one waits for all others."""
        ticks = self.concurrency // self.together
        wait = [ticks - 1 if self.begun else k // self.together for k in range(len(client_ids))]
        self.set_variable(client_ids, "latency", wait)
        self.begun = True


class _Silent(BasicLogger):
    """Writes nothing."""

    def initialize(self, *given: Any, **named: Any) -> None:
        """Nothing to count."""


class Flgo(Peer):
    """The job run by FLGo, in the working directory."""

    def __init__(self, bare: Bare) -> None:
        super().__init__(bare)
        everyone, together = len(bare.clients), bare.cohort
        concurrency = together if bare.jobs is None else len(bare.jobs)
        JOB["train_data"] = torch.utils.data.TensorDataset(bare.x, bare.y)
        JOB["get_model"] = lambda: copy.deepcopy(bare.model)
        here = Path(tempfile.mkdtemp(prefix="flgo_", dir=Path.cwd()))
        config = here / "config.py"
        config.write_text("import bench_flgo\n\nglobals().update(bench_flgo.JOB)\n")
        sys.path.insert(0, str(here.parent))
        name = flgo.gen_benchmark_from_file("job", str(config), str(here))
        benchmark, core = importlib.import_module(name), importlib.import_module(f"{name}.core")
        benchmark.visualize = lambda *given: None  # it would draw a figure, for minutes
        clients_data = core.TaskPipe.TaskDataset
        clients_data.__getitems__ = lambda own, places: [own[i] for i in places]  # torch's Subset asks for it
        task = str(here / "task")
        flgo.gen_task_by_(benchmark, _partitioner(bare), task)
        _Arrivals.together, _Arrivals.concurrency = together, concurrency
        method = {
            "fedavg": [], "fedasync": [0.6, PROXIMAL["fedasync"]],
            # its weight of an upload is (1 + staleness) ** -1/2, here of all uploads the same
            "fedbuff": [(together + 0.5) / everyone, (concurrency / together) ** 0.5],
        }[bare.method]  # fmt: skip
        options = {
            "sample": "uniform_available", "proportion": (concurrency + 0.5) / everyone,
            "aggregate": "uniform",
            "num_steps": bare.steps, "batch_size": bare.batch or -1, "learning_rate": bare.lr,
            "momentum": bare.momentum, "algo_para": method, "train_holdout": 0.0, "eval_interval": -1,
            "no_tqdm": True, "no_log_console": True, "log_level": "ERROR",
        }  # fmt: skip
        self.server = flgo.init(
            task, importlib.import_module(f"flgo.algorithm.{bare.method}"), options,
            model=flgo.convert_model(JOB["get_model"]), Logger=_Silent, Simulator=_Arrivals,
        )  # fmt: skip

    def rounds(self, times: int) -> None:
        """So many of its server's updates."""
        while times:
            self.server.gv.clock.step()
            if self.server.iterate():
                self.server.current_round += 1
                times -= 1

    def parameters(self) -> Iterable[torch.Tensor]:
        """The server's model's."""
        return self.server.model.parameters()


def _partitioner(bare: Bare) -> Any:
    """The bare loop's partition, as FLGo asks for it."""
    from flgo.benchmark.partition import BasicPartitioner

    class Given(BasicPartitioner):
        def __call__(self, data: Any) -> list[list[int]]:
            return [own.tolist() for own in bare.clients]

    made = Given()
    made.num_clients = len(bare.clients)
    return made
