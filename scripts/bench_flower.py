"""Flower's simulation (Beutel et al., arXiv:2007.14390) on the job of the benchmarks: FedAvg, with clients in
single-threaded Ray actors, one per core.

The simulation runs beside the caller and waits between blocks, so starting it is not measured.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ray
import torch
from bench_jobs import Bare, mini_batches
from bench_peers import Peer

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation

ENDLESS = 10**6  # rounds; the process ends before
PATIENCE = 1800.0  # seconds for a block
_JOBS: dict[str, Any] = {}  # an actor reads the job once


class _Client(NumPyClient):
    """SGD on a client's samples, as the bare loop does it."""

    def __init__(self, job: dict[str, Any], number: int) -> None:
        self.job, self.own = job, job["clients"][number]

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        """Parameters after the local steps, number of samples, no metrics."""
        job, net = self.job, self.job["model"]
        params = list(net.parameters())
        with torch.no_grad():
            for mine, given in zip(params, parameters, strict=True):
                mine.copy_(torch.from_numpy(given))
        sgd = torch.optim.SGD(params, job["lr"], momentum=job["momentum"])
        for batch in mini_batches(self.own, job["batch"], job["steps"]):
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(net(job["x"][batch]), job["y"][batch]).backward()
            sgd.step()
        return [p.detach().numpy().copy() for p in params], len(self.own), {}


def client_app(file: str) -> ClientApp:
    """Clients of the job stored in `file`."""

    def make(context: Context) -> Any:
        if file not in _JOBS:
            torch.set_num_threads(1)
            _JOBS[file] = torch.load(file, weights_only=False)
        return _Client(_JOBS[file], int(context.node_config["partition-id"])).to_client()

    return ClientApp(client_fn=make)


class _InBlocks(FedAvg):
    """FedAvg that waits for a signal to start each round and hands over what it has aggregated."""

    def __init__(self, start: queue.Queue[None], done: queue.Queue[Any], **options: Any) -> None:
        super().__init__(**options)
        self.start, self.done = start, done

    def configure_fit(self, *given: Any, **named: Any) -> Any:
        """FedAvg's, at the next start."""
        self.start.get()
        return super().configure_fit(*given, **named)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """FedAvg's; hands over the new parameters, or the first failure."""
        found = super().aggregate_fit(server_round, results, failures)
        self.done.put(failures[0] if failures else parameters_to_ndarrays(found[0]))
        return found


class Flower(Peer):
    """The job run by Flower."""

    processes = True

    def __init__(self, bare: Bare) -> None:
        super().__init__(bare)
        self.arrays: list[Any] = []
        self.start: queue.Queue[None] = queue.Queue()
        self.done: queue.Queue[Any] = queue.Queue()
        file = Path(tempfile.mkdtemp()) / "job.pt"
        job = {"x": bare.x, "y": bare.y, "clients": bare.clients, "model": bare.model}
        how = {"lr": bare.lr, "momentum": bare.momentum, "batch": bare.batch, "steps": bare.steps}
        torch.save({**job, **how}, file)
        here = str(Path(__file__).parent)
        os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (here, os.environ.get("PYTHONPATH")) if p)
        threading.Thread(target=self._simulate, args=(str(file),), daemon=True).start()

    def _simulate(self, file: str) -> None:
        first = [p.detach().cpu().numpy() for p in self.bare.server]
        clients = len(self.bare.clients)

        def components(context: Context) -> ServerAppComponents:
            strategy = _InBlocks(
                self.start,
                self.done,
                fraction_fit=self.bare.cohort / clients,
                fraction_evaluate=0.0,
                min_fit_clients=self.bare.cohort,
                min_available_clients=clients,
                initial_parameters=ndarrays_to_parameters(first),
            )
            return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=ENDLESS))

        try:
            run_simulation(
                server_app=ServerApp(server_fn=components),
                client_app=client_app(file),
                num_supernodes=clients,
                backend_config={
                    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                    "init_args": {"log_to_driver": False},
                },
            )
            raise RuntimeError("the simulation has ended")
        except BaseException as error:  # or the caller would wait for ever
            self.done.put(error)

    def close(self) -> None:
        """End the actors; threads that wait for the next block stay."""
        ray.shutdown()

    def rounds(self, times: int) -> None:
        """So many rounds of its server."""
        for _ in range(times):
            self.start.put(None)
        for _ in range(times):
            arrays = self.done.get(timeout=PATIENCE)
            if isinstance(arrays, BaseException):
                raise arrays
        self.arrays = arrays

    def parameters(self) -> Iterable[torch.Tensor]:
        """Those that the last round aggregated."""
        return [torch.from_numpy(a).to(p) for a, p in zip(self.arrays, self.bare.params, strict=True)]
