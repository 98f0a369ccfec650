"""pfl (Granqvist et al., NeurIPS 2024) on the job of the benchmarks: FederatedAveraging, SimulatedBackend."""

from __future__ import annotations

import numpy as np
import torch
from bench_jobs import BLOCK, PER_ROUND, Bare, synchronise
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


class Pfl:
    """The job run by pfl, block by block, with the data, partition and network of a bare loop."""

    def __init__(self, bare: Bare) -> None:
        self.bare = bare
        net = _Net(bare.model)
        optimizer = torch.optim.SGD(net.parameters(), 1.0)  # the server's
        self.model = PyTorchModel(net, local_optimizer_create=torch.optim.SGD, central_optimizer=optimizer)
        users = {i: Dataset([bare.x[own], bare.y[own]], user_id=str(i)) for i, own in enumerate(bare.clients)}
        rng = np.random.default_rng(0)
        data = FederatedDataset(users.__getitem__, lambda: int(rng.integers(len(users))))
        self.backend = SimulatedBackend(training_data=data, val_data=data)
        rnn = bare.steps == 5
        self.local = NNTrainHyperParams(
            local_num_epochs=None if rnn else 1,
            local_learning_rate=bare.lr,
            local_batch_size=20,
            local_num_steps=bare.steps if rnn else None,
        )

    def block(self) -> float:
        """Run BLOCK rounds; return the test accuracy."""
        how = NNAlgorithmParams(
            central_num_iterations=BLOCK,
            evaluation_frequency=BLOCK + 1,
            train_cohort_size=PER_ROUND,
            val_cohort_size=0,
        )
        FederatedAveraging().run(how, self.backend, self.model, self.local, send_metrics_to_platform=False)
        self.bare.server = [p.detach().clone() for p in self.bare.params]
        accuracy = self.bare.accuracy()
        synchronise()
        return accuracy
