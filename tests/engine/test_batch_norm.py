"""Running statistics of a cohort, re-derived with torch.nn.BatchNorm2d, one client after another, float64.

Clients have 3 to 12 samples and mini-batches of at most 4, so batches, passes and steps are unequal.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from async_runs import HALF_NORMAL, SIZES, make_trace
from tests_support import fixed_trace, make_walk
from torch import Tensor, nn

from fedbench import algorithms
from fedbench.engine import cohort as training
from fedbench.engine import vectorised
from fedbench.engine.batches import BatchPlanner, ClientIndex, local_steps
from fedbench.engine.cohort import STATISTICS
from fedbench.engine.evaluate import Evaluator
from fedbench.method import Algorithm, Client, Record, Vectors, positive
from fedbench.models.layers import BatchNorm2d
from fedbench.rng import Stream
from fedbench.runs.server_loop import ServerLoop

B, LR, N = 4, 0.3, len(SIZES)
ASSIGNMENT = np.repeat(np.arange(N), SIZES)
COHORTS = [[0, 1, 3, 5], [1, 2, 4, 6], [0, 1, 4, 5]]
NAMES = ("1.running_mean", "1.running_var")
EQUAL: dict[str, Any] = {"steps": 5}
UNEQUAL: dict[str, Any] = {"steps": None, "epochs": 2}


def images() -> tuple[np.ndarray, np.ndarray]:
    """Clients of different means and scales: their statistics differ much."""
    rng = np.random.default_rng(0)
    shift, scale = 2 * rng.normal(size=N)[ASSIGNMENT], rng.uniform(0.5, 3, N)[ASSIGNMENT]
    x = rng.normal(size=(len(ASSIGNMENT), 1, 4, 4)) * scale[:, None, None, None] + shift[:, None, None, None]
    return x, rng.integers(0, 3, len(ASSIGNMENT))


def network(norm: Callable[[int], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), norm(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)).double()


def start(
    algorithm: str | Algorithm, values: dict[str, Any], trace: Any, per_round: int, **options: Any
) -> ServerLoop:
    if isinstance(algorithm, str):
        algorithm = algorithms.get(algorithm).create({"lr": LR, **values})
    options = {**EQUAL, "batch": B, **options}
    x, y = images()
    return make_walk(algorithm, network(BatchNorm2d), x, y, ASSIGNMENT, trace, per_round=per_round, **options)


def mini_batches(
    client: int, n: int, steps: int | None = None, epochs: int | None = None
) -> list[np.ndarray]:
    """The samples of the steps of a client's n-th job."""
    index = ClientIndex(ASSIGNMENT, N)
    planner = BatchPlanner(index, 0, B, local_steps(index.sizes, steps, epochs, B))
    drawn = planner.draw(Stream.BATCH, planner.jobs(np.array([client]), np.array([n])))
    assert drawn.count is not None
    counts = drawn.count[:, 0].tolist()
    return [drawn.index[k, 0, : counts[k]].numpy() for k in range(int(drawn.steps[0]))]


class Reference:
    """Model and statistics at the server, and torch's own local training from them."""

    def __init__(self) -> None:
        self.net = network(nn.BatchNorm2d)
        self.theta = nn.utils.parameters_to_vector(self.net.parameters()).detach()
        self.statistics = self.read()
        self.x, self.y = (torch.from_numpy(a) for a in images())

    def read(self) -> list[Tensor]:
        return [self.net[1].running_mean.clone(), self.net[1].running_var.clone()]

    def train(
        self, theta: Tensor, statistics: list[Tensor], batches: list[np.ndarray]
    ) -> tuple[Tensor, list[Tensor]]:
        """Plain gradient steps from there: (model, statistics) at the end."""
        nn.utils.vector_to_parameters(theta.clone(), self.net.parameters())
        for buffer, value in zip(
            (self.net[1].running_mean, self.net[1].running_var), statistics, strict=True
        ):
            buffer.copy_(value)
        sgd = torch.optim.SGD(self.net.parameters(), lr=LR)
        for samples in batches:
            sgd.zero_grad()
            nn.functional.cross_entropy(self.net.train()(self.x[samples]), self.y[samples]).backward()
            sgd.step()
        return nn.utils.parameters_to_vector(self.net.parameters()).detach(), self.read()

    def average(self, jobs: list[tuple[float, float, Tensor, list[Tensor]]]) -> None:
        """From (weight of the model's change, weight of the statistics, change, statistics)."""
        self.theta = self.theta + sum(w * change for w, _, change, _ in jobs)
        self.statistics = [sum(w * s[i] for _, w, _, s in jobs) for i in range(2)]  # type: ignore[misc]

    def check(self, walk: ServerLoop) -> None:
        torch.testing.assert_close(walk.theta, self.theta, rtol=1e-9, atol=1e-11)
        assert set(walk.statistics) == set(NAMES)
        for name, value in zip(NAMES, self.statistics, strict=True):
            torch.testing.assert_close(walk.statistics[name], value, rtol=1e-10, atol=1e-12)


def shares(cohort: list[int], weighting: str) -> np.ndarray:
    sizes = np.array(SIZES)[cohort] if weighting == "samples" else np.ones(len(cohort))
    return sizes / sizes.sum()


def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """engine=compile without the compiler: its full chunks and their padding are what is looked at."""
    monkeypatch.setattr(vectorised, "Compiled", lambda function, *_: function)


@pytest.mark.parametrize(
    ("options", "weighting"), [(EQUAL, "uniform"), (UNEQUAL, "samples")], ids=["steps", "epochs"]
)
@pytest.mark.parametrize(
    ("engine", "chunk"),
    [("loop", 9), ("vmap", 3), ("compile", 1), ("compile", 3), ("compile", 9)],
)
def test_statistics_of_synchronous_rounds(
    monkeypatch: pytest.MonkeyPatch, engine: str, chunk: int, options: dict[str, Any], weighting: str
) -> None:
    """The mean over the cohort of what its clients' steps left, under the weights of the models; in chunks
    of 3, the last of which has one client, and of 9, where most of a compiled chunk is padding."""
    engines(monkeypatch)
    walk = start(
        "fedavg", {"weighting": weighting}, fixed_trace(COHORTS, N), 4, engine=engine, chunk=chunk, **options
    )
    reference, seen = Reference(), [0] * N
    reference.check(walk)
    for cohort in COHORTS:
        jobs = []
        for share, client in zip(shares(cohort, weighting), cohort, strict=True):
            batches = mini_batches(client, seen[client], **options)
            theta, statistics = reference.train(reference.theta, reference.statistics, batches)
            jobs.append((share, share, theta - reference.theta, statistics))
            seen[client] += 1
        reference.average(jobs)
        walk.update()
        reference.check(walk)


def follow(walk: ServerLoop, reference: Reference, power: float, updates: range, under_way: dict) -> None:
    """FedBuff's updates, job by job. `under_way`: by update, what started jobs will bring."""
    trace = walk.trace
    for t in updates:
        for j in np.flatnonzero((trace.start_version == t) & (trace.applied_update >= 0)):
            client, to = int(trace.client[j]), int(trace.applied_update[j])
            theta, statistics = reference.train(
                reference.theta, reference.statistics, mini_batches(client, int(trace.n[j]), **EQUAL)
            )
            weight = 1 / trace.per_update
            under_way[to].append(
                (weight / (1 + to - t) ** power, weight, theta - reference.theta, statistics)
            )
        reference.average(under_way.pop(t))
        walk.update()
        reference.check(walk)


@pytest.mark.parametrize(("engine", "power"), [("loop", 0.5), ("vmap", 2.0)])
def test_statistics_of_late_arrivals_are_averaged_without_staleness_factors(
    engine: str, power: float
) -> None:
    """FedBuff scales late updates down by factors that do not sum to 1; statistics stay a mean. And a run
    that was saved in its middle goes on with its statistics, those of jobs under way among them."""
    trace = make_trace(12, 3, HALF_NORMAL, concurrency=6)
    assert max(int(trace.staleness(t).max()) for t in range(12)) >= 2

    def fresh() -> ServerLoop:
        return start("fedbuff", {"staleness_power": power}, trace, 3, engine=engine, schedule="async")

    walk, reference = fresh(), Reference()
    under_way: dict[int, list] = defaultdict(list)
    follow(walk, reference, power, range(6), under_way)
    assert under_way  # some results of older versions are still to come
    file = io.BytesIO()
    torch.save(walk.state_dict(), file)
    file.seek(0)
    resumed = fresh()
    resumed.load_state_dict(torch.load(file, weights_only=True))
    reference.check(resumed)
    follow(resumed, reference, power, range(6, 12), under_way)


@pytest.mark.parametrize("staleness", ["constant", "polynomial"])
def test_fedasync_mixes_statistics_as_it_mixes_models(staleness: str) -> None:
    """With alpha, or less of it for a late arrival, and not outright."""
    trace = make_trace(10, 1, HALF_NORMAL, concurrency=4)
    values = {"alpha": 0.4, "rho": 0.0, "staleness": staleness}
    values |= {"a": 0.8} if staleness == "polynomial" else {}
    walk, reference = start("fedasync", values, trace, 1, schedule="async"), Reference()
    arriving: dict[int, tuple[Tensor, list[Tensor]]] = {}
    for t in range(10):
        for j in np.flatnonzero((trace.start_version == t) & (trace.applied_update >= 0)):
            batches = mini_batches(int(trace.client[j]), int(trace.n[j]), **EQUAL)
            arrived = reference.train(reference.theta, reference.statistics, batches)
            arriving[int(trace.applied_update[j])] = arrived
        theta, statistics = arriving.pop(t)
        alpha = 0.4 / (1 + int(trace.staleness(t)[0])) ** (0.8 if staleness == "polynomial" else 0)
        reference.theta = reference.theta + alpha * (theta - reference.theta)
        moved = zip(reference.statistics, statistics, strict=True)
        reference.statistics = [old + alpha * (new - old) for old, new in moved]
        walk.update()
        reference.check(walk)


class TwoGradients(Algorithm):
    """Plain gradient steps that also look at the loss elsewhere, once their gradient is known."""

    name = "two_gradients"
    lr: float = positive(LR)

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        grad, elsewhere = client.grad(local.y), client.grad(local.y + 5.0)
        return {"y": local.y - LR * (grad + 0.0 * elsewhere)}

    def server_step(self, server: Record, mean: Record, n: Any, h: Record) -> Vectors:
        return {"theta": server.theta + mean.delta}


@pytest.mark.parametrize("engine", ["loop", "compile"])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("two_gradients", {}),
        ("fedproxvr", {"mu": 0.0, "estimator": "svrg", "weighting": "uniform"}),
        ("fedproxvr", {"mu": 0.0, "estimator": "sarah", "weighting": "uniform"}),
        ("mime", {"base": "sgd"}),
        ("scaffold_m_vr", {"beta": 1.0}),
    ],
)
def test_the_first_gradient_of_a_step_moves_the_statistics(
    monkeypatch: pytest.MonkeyPatch, name: str, values: dict[str, Any], engine: str
) -> None:
    """With one client and all its data each of these is gradient descent, though a step takes a second
    gradient, at another model. Statistics are those of forward passes at the iterates, one a step: surveys
    and second gradients do not move them, but the full gradient that is FedProxVR's first step does."""
    engines(monkeypatch)
    algorithm, steps = (TwoGradients() if name == "two_gradients" else name), 4
    walk = start(algorithm, values, fixed_trace([[3], [3]], N), 1, engine=engine, batch=None, steps=steps)
    if name == "scaffold_m_vr":  # no control variates: then its first round's directions are gradients
        for vectors in (walk.server, walk.trainer.store.tensors):
            vectors.update({key: torch.zeros_like(vectors[key]) for key in ("c", "g") if key in vectors})
    reference, own = Reference(), np.flatnonzero(ASSIGNMENT == 3)
    for _ in range(1 if name == "scaffold_m_vr" else 2):
        begin = reference.theta, reference.statistics
        reference.theta, reference.statistics = reference.train(*begin, [own] * steps)
        walk.update()
        if name == "scaffold_m_vr":  # the server steps by a mean over all clients
            reference.theta = walk.theta
        reference.check(walk)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_step_along_the_full_gradient_moves_the_statistics_by_the_mean_of_its_blocks(
    monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Clients of 12 and 3 samples, blocks of 5: each block is normalised by its own samples, as torch would
    normalise it, and counts by how many it has."""
    monkeypatch.setattr(training, "FULL_PASS_WIDTH", 5)
    pair = [SIZES.index(12), SIZES.index(3)]
    values = {"mu": 0.0, "weighting": "uniform"}
    walk = start("fedproxvr", values, fixed_trace([pair], N), 2, engine=engine, steps=1)
    reference, expected = Reference(), []
    for client in pair:
        own = np.flatnonzero(client == ASSIGNMENT)
        for block in np.split(own, range(5, len(own), 5)):
            _, left = reference.train(reference.theta, reference.statistics, [block])
            expected.append([len(block) / len(own) / 2 * value for value in left])
    walk.update()
    for name, parts in zip(NAMES, zip(*expected, strict=True), strict=True):
        torch.testing.assert_close(walk.statistics[name], sum(parts), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["padamfed", "scaffold_m_vr", "mime"])
def test_surveys_do_not_move_the_statistics(name: str) -> None:
    walk = start(name, {}, fixed_trace(COHORTS, N), 4)
    assert torch.equal(walk.statistics[NAMES[0]], torch.zeros(2, dtype=torch.float64))
    assert torch.equal(walk.statistics[NAMES[1]], torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_fedbns_clients_go_on_from_their_own_statistics(engine: str) -> None:
    """Shared parameters are averaged; a client's norm layer and statistics wait for its next round, and the
    server's statistics stay those of the initial model."""
    algorithm = algorithms.get("fedbn").create({"lr": LR, "weighting": "samples"})
    norm = torch.arange(20, 24)  # after the convolution's 18 + 2 numbers
    algorithm.bind = lambda setting: type(algorithm).bind(  # type: ignore[method-assign]
        algorithm, type(setting)(setting.counts, setting.schedule, setting.d, norm, setting.sizes)
    )
    walk = start(algorithm, {}, fixed_trace(COHORTS, N), 4, engine=engine)
    reference, seen = Reference(), [0] * N
    own = [(reference.theta[norm], reference.statistics) for _ in range(N)]
    initial = reference.statistics
    for cohort in COHORTS:
        change = torch.zeros_like(reference.theta)
        for share, client in zip(shares(cohort, "samples"), cohort, strict=True):
            begin = reference.theta.clone()
            begin[norm] = own[client][0]
            batches = mini_batches(client, seen[client], **EQUAL)
            theta, statistics = reference.train(begin, own[client][1], batches)
            change += share * (theta - begin)
            own[client] = theta[norm], statistics
            seen[client] += 1
        change[norm] = 0
        reference.theta = reference.theta + change
        walk.update()
        torch.testing.assert_close(walk.theta, reference.theta, rtol=1e-9, atol=1e-11)
        kept = walk.trainer.store.tensors
        for client, (layer, statistics) in enumerate(own):
            torch.testing.assert_close(kept["own"][client], layer, rtol=1e-9, atol=1e-11)
            for i, name in enumerate(NAMES):
                torch.testing.assert_close(
                    kept[STATISTICS + name][client], statistics[i], rtol=1e-9, atol=1e-11
                )
                assert torch.equal(walk.statistics[name], initial[i])


def test_evaluation_is_torchs_eval_mode_with_the_statistics_given() -> None:
    """Test loss, accuracy, training loss and gradient; batches of 5 do not depend on one another."""
    walk = start("fedavg", {}, fixed_trace(COHORTS, N), 4)
    walk.update()
    reference = Reference()
    _, statistics = reference.train(walk.theta, [walk.statistics[name] for name in NAMES], [])
    net, objective = reference.net.eval(), walk.trainer.objective
    out = net(reference.x)
    losses = nn.functional.cross_entropy(out, reference.y, reduction="none")
    evaluator = Evaluator(objective, (reference.x, reference.y), (5, 5))
    loss, accuracy = evaluator.test(walk.theta, walk.statistics)
    assert loss == pytest.approx(losses.mean().item(), rel=1e-12)
    assert accuracy == (out.argmax(1) == reference.y).double().mean().item()
    weights = torch.rand(len(reference.y), dtype=torch.float64)
    mean = (losses * weights).sum()
    mean.backward()
    expected = torch.cat([p.grad.flatten() for p in net.parameters()])  # type: ignore[union-attr]
    found, gradient = evaluator.gradient(walk.theta, walk.statistics, weights)
    assert found.item() == pytest.approx(mean.item(), rel=1e-12)
    again = evaluator.train_loss(walk.theta, walk.statistics, weights)
    assert again.item() == pytest.approx(mean.item(), rel=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=1e-11, atol=1e-13)
    assert all(torch.equal(a, b) for a, b in zip(statistics, reference.read(), strict=True))
