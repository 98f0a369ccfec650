"""fedbench's side of every row of fedbench/method/elsewhere.csv, computed from the example that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from option_helpers import class_counts, partition
from run_files import runs

import fedbench
from fedbench import fields
from fedbench.algorithms import every
from fedbench.cli import main
from fedbench.config.config import Config
from fedbench.data.partition_options import PARTITIONS
from fedbench.data.partitions import held_out
from fedbench.engine.batches import BatchPlanner, ClientIndex, local_steps
from fedbench.method.aggregation import trimmed_mean
from fedbench.method.elsewhere import Elsewhere, markdown, of_method, rows
from fedbench.method.interface import Algorithm
from fedbench.method.record import Record
from fedbench.models.layers import BatchNorm2d
from fedbench.optimizer import Adam
from fedbench.rng import Stream, make_key
from fedbench.theory.setting import Counts

ROOT = Path(__file__).parents[1]
METHODS: dict[str, type[Algorithm]] = {cls.name: cls for cls in every()}
ONE = torch.ones(1, dtype=torch.float64)
MINE = '''
import torch
from torch import nn
from fedbench.method import Algorithm, positive, register
from fedbench.models import register_model
from fedbench.models.layers import BatchNorm2d, Dropout

@register("first_losses")
class FirstLosses(Algorithm):
    """The first numbers of theta become the losses of the first theta in the steps of a job."""
    lr: float = positive(0.1)
    def local_init(self, client, h):
        return {"y": client.down.theta * 0}
    def local_step(self, local, client, h):
        place = torch.arange(len(local.y), device=local.y.device) == client.k
        return {"y": torch.where(place, client.loss_and_grad(client.down.theta)[0], local.y)}
    def local_final(self, local, client, h):
        return {"delta": local.y - client.down.theta}, {}
    def server_step(self, server, mean, n, h):
        return {"theta": server.theta + mean.delta}

@register_model("normed")
def normed(shape, classes):
    return nn.Sequential(BatchNorm2d(1), nn.Flatten(), nn.Linear(2, classes))

@register_model("dropped")
def dropped(shape, classes):
    return nn.Sequential(nn.Flatten(), Dropout(0.5), nn.Linear(8, classes))
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    return tmp_path


def first_step(name: str, change: float = 1.0, **numbers: Any) -> float:
    """The server's first step from theta = 0 where the mean change is `change`."""
    algorithm = METHODS[name](**numbers)
    h = Record({key: ONE * value for key, value in numbers.items() if isinstance(value, int | float)})
    defaults = fields.defaults(METHODS[name])
    for key, value in defaults.items():
        if isinstance(value, int | float) and key not in numbers:
            setattr(h, key, ONE * value)
    server = Record(algorithm.server_init(0 * ONE, Record({}), h))
    mean = Record({"delta": ONE * change, "x": ONE * change})
    return float(algorithm.server_step(server, mean, Counts(S=4, N=10, K=5, T=1), h)["theta"])


def server(name: str, start: float, mean: dict[str, float], **numbers: float) -> float:
    """The server's model after one step from `start`, given the means of the uploads."""
    h = Record({key: ONE * value for key, value in numbers.items()})
    state = Record(METHODS[name]().server_init(start * ONE, Record({}), h))
    uploads = Record({key: ONE * value for key, value in mean.items()})
    return float(METHODS[name]().server_step(state, uploads, Counts(S=4, N=10, K=5, T=1), h)["theta"])


def weight_of_second(place: Path, sizes: tuple[int, int], weighting: str = "samples") -> float:
    """How much the second of two clients with so many samples counts. Each client's samples move the weights
    of one input alone, so the changes of the two inputs' weights are as the clients' weights."""
    client = np.repeat([0, 1], sizes)
    x = np.eye(2, dtype=np.float32)[client]
    np.savez(place / "two.npz", x_train=x, y_train=client, x_test=x, y_test=client, client=client)
    run = fedbench.run(
        "dataset=npz dataset.path=two.npz dataset.normalize=false partition=natural clients.total=2"
        f" clients.per_round=2 rounds=1 local.steps=1 local.batch_size={max(sizes)} model=logistic"
        f" model.init=zeros dtype=float64 algorithm=fedavg algorithm.weighting={weighting} seed=0".split()
    )
    first, second = next(iter(run.model.parameters())).detach()[0].abs().tolist()
    return second / (first + second)


def statistics(place: Path) -> float:
    """The server's running mean over its momentum of 0.1, of clients whose batches' means are 0 and 4."""
    client = np.repeat([0, 1], (2, 6))
    x = np.repeat(4.0 * client, 2).astype(np.float32).reshape(8, 1, 2, 1)
    np.savez(place / "bn.npz", x_train=x, y_train=client, x_test=x, y_test=client, client=client)
    run = fedbench.run(
        [
            "imports=[mine.py]",
            "dataset=npz",
            "dataset.path=bn.npz",
            "dataset.normalize=false",
            "partition=natural",
            "clients.total=2",
            "clients.per_round=2",
            "rounds=1",
            "local.steps=1",
            "local.batch_size=6",
            "model=normed",
        ]
    )
    return float(run.model.state_dict()["0.running_mean"]) / 0.1


def masks_of_epochs(place: Path) -> str:
    """Whether dropout is on in each of three epochs of one batch: the loss of the same model and batch
    differs from its value without dropout."""
    x, y = np.ones((6, 8), dtype=np.float32), np.array([0, 1] * 3)
    np.savez(place / "ones.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    words = (
        "imports=[mine.py] dataset=npz dataset.path=ones.npz dataset.normalize=false clients.total=1"
        " clients.per_round=1 rounds=1 local.epochs=3 local.batch_size=6 model=dropped algorithm=first_losses"
    )
    run = fedbench.run([*words.split(), "engine=loop"])
    losses = next(iter(run.model.parameters())).detach().flatten()[:3]
    initial = fedbench.run([*words.replace("rounds=1", "rounds=0").split(), "engine=loop"]).model.eval()
    plain = torch.nn.functional.cross_entropy(initial(torch.ones(6, 8)), torch.tensor(y))
    return " ".join("yes" if abs(loss - plain) > 1e-4 else "no" for loss in losses)


def participants(place: Path) -> int:
    runs("rounds=1 clients.total=10 clients.per_round=1 trace=true local.steps=1")(place / "run")
    return len((place / "run/jobs.csv").read_text().splitlines()) - 1


def labels_of(client: np.ndarray, y: np.ndarray, k: int) -> int:
    return len(np.unique(y[client == k]))


def part(name: str, y: np.ndarray, clients: int, **keys: Any) -> np.ndarray:
    return partition({"name": name, "seed": None, **keys}, y, int(y.max()) + 1, clients, 0)


def consecutive(client: np.ndarray, y: np.ndarray) -> int:
    """Clients whose rows of label 0 are consecutive among the rows of that label."""
    own = client[y == 0]
    return sum(
        np.ptp(np.flatnonzero(own == k)) + 1 == np.count_nonzero(own == k) for k in range(4) if k in own
    )


def drift_by_alpha() -> float:
    """The change of FedDyn's second local step from alpha 0 to 10."""
    ends = []
    for alpha in (0.0, 10.0):
        h, algorithm = Record({"lr": ONE * 0.1, "alpha": ONE * alpha}), METHODS["feddyn"]()
        client = algorithm_client()
        local = Record({"y": 0 * ONE})
        for _ in range(2):
            local = Record(algorithm.local_step(local, client, h))
        ends.append(float(local.y))
    return ends[1] - ends[0]


def algorithm_client() -> Any:
    from fedbench.method import Client

    class Slope(Client):
        down, mine = Record({"theta": 0 * ONE}), Record({"h": 0 * ONE})

        def grad(self, theta: torch.Tensor) -> torch.Tensor:
            return ONE

    return Slope()


def untouched() -> float:
    upload = ONE.clone()
    h = Record({"alpha": ONE * 0.6, "a": ONE * 0.5, "b": ONE * 4})
    METHODS["fedasync"]().server_step(
        Record({"theta": ONE * 0.5}), Record({"x": upload}), Counts(S=1, N=1, K=1, T=1), h
    )
    return float(upload)


def hinge() -> float:
    algorithm = METHODS["fedasync"](staleness="hinge", a=1 / 6)
    return float(algorithm.s(5, Record({"a": ONE / 6, "b": ONE * 4})))  # type: ignore[attr-defined]


def adam_again() -> float:
    """The first step of a job is that of a new Adam: its state starts at 0 unless optimizer.keep."""
    h = {key: ONE * value for key, value in Adam().numbers.items()} | {"epsilon": 0 * ONE}
    zeros = dict.fromkeys(Adam().state, 0 * ONE)
    assert not Adam().keep
    return -float(Adam().step(0 * ONE, ONE, ONE, zeros, h)[0])


def held(client: np.ndarray) -> int:
    return int(np.count_nonzero(client >= 0))


def epoch_samples() -> int:
    """Samples of the mini-batches of one epoch of a client with 10 and B = 4."""
    index = ClientIndex(np.zeros(10, dtype=int), 1)
    planner = BatchPlanner(index, 0, 4, local_steps(index.sizes, None, 1, 4))
    jobs = planner.jobs(np.array([0]), np.array([0]))
    return int(planner.draw(Stream.BATCH, jobs).known.count.sum())


def purity(client: np.ndarray) -> float:
    """The mean over 10 clients of the share of their most frequent label among TEN."""
    counts = class_counts(client, TEN, 10, 10)
    return float((counts.max(axis=1) / counts.sum(axis=1)).mean())


def batch_key(seed: int, client: int) -> tuple[int, ...]:
    return tuple(int(word) for word in make_key(seed, Stream.BATCH, client, 0))


def natural_order(place: Path) -> str:
    """The users of clients 0, 1, 2, from the samples that each has."""
    user = np.array([10, 9, 2, 10])
    client = partition({"name": "natural", "seed": None}, np.array([0, 1, 0, 1]), 2, 3, 0, user)
    return " ".join(str(user[client == k][0]) for k in range(3))


TEN, SORTED, PAIR = np.arange(1000) % 10, np.repeat([0, 1], 50), np.arange(80) % 2
HERE: dict[str, Any] = {
    "FedAdam": lambda _: first_step("fedadam", server_lr=0.1, epsilon=1e-9),
    "FedAdam, tau": lambda _: fields.defaults(METHODS["fedadam"])["epsilon"],
    "FedYogi": lambda _: first_step("fedyogi", server_lr=0.1, epsilon=1e-9),
    "FedTrimmedAvg": lambda _: trimmed_mean(
        torch.tensor([0.0, 0, 0, 100]), fields.defaults(Config)["byzantine"]
    ),
    "FedAvg, arrays of integers": lambda _: sum(
        not value.is_floating_point() for value in BatchNorm2d(1).state_dict().values()
    ),
    "fraction_fit": participants,
    "FedNovaServerHandler": lambda _: server("fednova", 0, {"d": -2, "a": 5}, lr=0.1, server_lr=1),
    "FedNova": lambda _: server("fednova", 1, {"d": 0, "a": 3}, lr=0.1, server_lr=1),
    "FedDynServerHandler": lambda _: server("feddyn", 1, {"delta": 0}, alpha=0.1),
    "FedDynSerialClientTrainer": lambda _: drift_by_alpha(),
    "SyncServerHandler": lambda place: weight_of_second(place, (1, 99)),
    "AsyncServerHandler, hinge": lambda _: hinge(),
    "FedAsyncAggregator": lambda _: server("fedasync", 0, {"x": 1}, alpha=0.6, a=0.5, b=4),
    "FedAsyncAggregator, optimize_memory": lambda _: untouched(),
    "FedBuffAggregator": lambda _: first_step("fedbuff", server_lr=1.0),
    "FedAvgMAggregator": lambda _: first_step("fedavgm", server_lr=0.1),
    "FedAvgAggregator, batch norm": statistics,
    "WeightedAggregationHelper(weigh_by_local_iter=False)": lambda place: (
        1 + 2 * weight_of_second(place, (1, 3))
    ),
    "AdamModule(amsgrad=True, round_reset=True)": lambda _: adam_again(),
    "AveragingAggregator": lambda place: weight_of_second(place, (2, 2)),
    "shuffle_repeat_batch": lambda _: epoch_samples(),
    "UniformGetClientSampler": lambda _: sum(batch_key(0, k) != batch_key(1, k) for k in range(100)),
    "Client.train": lambda _: str(fedbench.compose_config([]).choices["optimizer"]).upper(),
    "Client.train, epochs": masks_of_epochs,
    "IidPartitioner": lambda _: labels_of(part("iid", SORTED, 2), SORTED, 0),
    "ShardPartitioner": lambda _: held(part("shards", TEN[:100], 4, labels=3)),
    "shards_partition": lambda _: held(part("shards", TEN[:996], 10, labels=2)),
    "DirichletPartitioner": lambda _: consecutive(part("dirichlet", PAIR, 4, alpha=5.0, min_size=1), PAIR),
    "label_dirichlet_skew": lambda _: class_counts(
        part("dirichlet", TEN, 10, alpha=0.1, min_size=1), TEN, 10, 10
    ).min(),
    "label_dirichlet_skew(balanced=True)": lambda _: held(
        part("dirichlet", TEN, 10, alpha=0.1, balance=True)
    ),
    "client_inner_dirichlet_partition": lambda _: labels_of(
        part("dirichlet_clients", TEN, 10, alpha=0.01), TEN, 0
    ),
    "dirichlet_unbalance_split": lambda _: held(part("quantity", TEN, 10, alpha=0.5, min_size=1)),
    "percent_noniid_method": lambda _: np.bincount(part("similarity", TEN, 20, share=0.0)).max(),
    "partition_by_dirichlet_class_distribution": lambda _: held(
        part("dirichlet_clients", np.repeat(np.arange(10), 101), 10)
    ),
    "NaturalIdPartitioner": natural_order,
    "divide_dataset": lambda _: sum(map(len, held_out(np.zeros(101, int), 0.5, np.random.default_rng(0)))),
}
"""What the other suite calls it -> fedbench's number."""


def test_every_row_is_computed_here() -> None:
    assert [row.theirs for row in rows()] == list(HERE)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.theirs)
def test_fedbench_gives_what_the_table_says(row: Elsewhere, place: Path) -> None:
    number = HERE[row.theirs](place)
    if isinstance(number, str):
        assert number == row.here
    elif row.here.startswith("above "):
        assert number > float(row.here.split()[1])
    else:
        assert number == pytest.approx(float(row.here), rel=5e-4)


def test_the_page_has_the_table_and_show_a_methods_rows(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "conf/other_suites.md").read_text()
    assert page.split("<!-- suites: begin -->\n")[1].split("<!-- suites: end -->")[0] == markdown(), (
        "scripts/readme_table writes it"
    )
    assert len(page.splitlines()) <= 150
    assert main(["show", "fednova"]) == 0
    printed = capsys.readouterr().out
    assert len(of_method("fednova")) == 2
    assert all(sentence in printed for sentence in of_method("fednova"))
    assert {row.name for row in rows() if row.kind == "method"} <= set(METHODS)
    assert {row.name for row in rows() if row.kind == "partition"} <= {*PARTITIONS, "pool"}
