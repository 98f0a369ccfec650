"""pfl (Granqvist et al., NeurIPS 2024) on the job of the benchmarks: FederatedAveraging, SimulatedBackend."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from bench_jobs import Bare
from bench_peers import Peer
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel


class _Net(torch.nn.Module):
    """A network with the two methods that pfl asks for."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        """Mean cross-entropy."""
        self.train(not eval)
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = True) -> dict[str, Weighted]:
        """Empty: the caller measures."""
        return {}


class _Passes(Dataset):
    """A client's samples, in passes until the local steps are made: pfl's own iteration ends after one."""

    def iter(self, batch_size: int | None) -> Iterable[list[torch.Tensor]]:
        """A mini-batch for each local step."""
        return itertools.islice(itertools.cycle(super().iter(batch_size)), self.metadata["steps"])


class Pfl(Peer):
    """The job run by pfl."""

    def __init__(self, bare: Bare) -> None:
        super().__init__(bare)
        net = _Net(bare.model)
        optimizer = torch.optim.SGD(net.parameters(), 1.0)  # the server's
        local = functools.partial(torch.optim.SGD, momentum=bare.momentum)
        self.model = PyTorchModel(net, local_optimizer_create=local, central_optimizer=optimizer)
        users = {
            i: _Passes([bare.x[own], bare.y[own]], user_id=str(i), metadata={"steps": bare.steps})
            for i, own in enumerate(bare.clients)
        }
        cohorts = _cohorts(len(users), bare.cohort, np.random.default_rng(0))
        data = FederatedDataset(users.__getitem__, lambda: next(cohorts))
        self.backend = SimulatedBackend(training_data=data, val_data=data)
        self.local = NNTrainHyperParams(
            local_num_epochs=None,
            local_learning_rate=bare.lr,
            local_batch_size=bare.batch,
            local_num_steps=bare.steps,
        )

    def rounds(self, times: int) -> None:
        """So many iterations of its FederatedAveraging."""
        how = NNAlgorithmParams(
            central_num_iterations=times,
            evaluation_frequency=times + 1,
            train_cohort_size=self.bare.cohort,
            val_cohort_size=0,
        )
        FederatedAveraging().run(how, self.backend, self.model, self.local, send_metrics_to_platform=False)

    def parameters(self) -> Iterable[torch.Tensor]:
        """The model's, which is the server's after an iteration."""
        return self.bare.params


def _cohorts(clients: int, size: int, rng: np.random.Generator) -> Iterator[int]:
    """The clients of one round after the other, each at most once in a round."""
    while True:
        yield from rng.permutation(clients)[:size].tolist()
