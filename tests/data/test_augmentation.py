"""Random crop, flip and noise against plain NumPy derivations; together, alone and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_files import runs
from torch import Tensor

from fedbench.api import compose_config
from fedbench.data import transforms
from fedbench.data.dataset import Dataset
from fedbench.data.transforms import add_noise, augment_batch, in_slices, mean_std, normals, to_input
from fedbench.engine import objective
from fedbench.engine.batches import Batch
from fedbench.errors import ConfigError
from fedbench.rng import fold, threefry2x32
from fedbench.runs.execution import Execution
from fedbench.runs.run import Run
from fedbench.runs.run_directory import RunDirectory
from fedbench.runs.session import Session


def keys(count: int) -> tuple[Tensor, Tensor]:
    words = np.random.default_rng(5).integers(0, 2**32, (2, count))
    return torch.from_numpy(words[0]), torch.from_numpy(words[1])


def plain(x: np.ndarray, key: Any, fill: float, reflect: bool = False, probability: float = 1.0) -> Any:
    """Pad by 4, cut a window, mirror it: image by image."""
    out = np.empty_like(x)
    for b, image in enumerate(x):
        word0, word1 = threefry2x32(key, (b, 0))
        top, left = word0 * 9 // 2**32, word1 * 9 // 2**32
        if threefry2x32(key, (b, 1))[0] / 2**32 >= probability:
            top = left = 4
        how = {"mode": "reflect"} if reflect else {"constant_values": fill}
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)), **how)
        window = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
        out[b] = window[:, :, ::-1] if word0 % 2 else window
    return out


@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (40, 1, 8, 8), (200, 2, 5, 7)])
@pytest.mark.parametrize(
    ("fill", "reflect", "probability"),
    [(0.0, False, 1.0), (-0.7, False, 0.5), (-0.5, False, 0.0), (-0.5, True, 1.0), (-0.5, True, 0.3)],
)
def test_crop_and_flip_follow_the_plain_derivation(
    shape: tuple[int, ...], fill: float, reflect: bool, probability: float
) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    k0, k1 = keys(1)
    got = augment_batch(torch.from_numpy(x), (k0[0], k1[0]), "crop_flip", fill, reflect, probability)
    assert np.array_equal(got, plain(x, (int(k0[0]), int(k1[0])), np.float32(fill), reflect, probability))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["dataset.pad_mode=reflect"], r"dataset\.pad_mode=reflect: needs dataset\.augment=crop_flip"),
        (["dataset.augment_probability=0.5"], r"dataset\.augment_probability=0\.5: needs dataset\.augment="),
        (["dataset.augment=crop_flip", "dataset.augment_probability=2"], r"must be a number in \[0, 1\]"),
        (["dataset.augment=crop_flip", "dataset.pad_mode=same"], "must be one of zeros, reflect"),
    ],
)
def test_padding_that_cannot_be_is_one_line(words: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        compose_config(words)


def test_an_image_of_four_pixels_has_nothing_to_mirror(tmp_path: Path) -> None:
    x, y = np.zeros((20, 4, 9), np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    words = ["dataset=npz", f"dataset.path={tmp_path}/a.npz", "dataset.augment=crop_flip"]
    with pytest.raises(ConfigError, match=r"^dataset\.pad_mode=reflect: must be zeros: 1?x?4x9 pixels"):
        Run(compose_config([*words, "dataset.pad_mode=reflect"]))


def test_runs_differ_by_how_they_crop(tmp_path: Path) -> None:
    """Also one after another in a process, where the objective is taken over, and in what compiled programs
    are kept by."""
    words = ["rounds=1", "clients.total=4", "clients.per_round=4", "local.steps=2", "progress=none"]
    words += ["threads=1", "engine=vmap", "dataset.augment=crop_flip", "dataset.train_samples=200"]
    session, found, programs = Session(), [], set()
    for more in ([], ["dataset.pad_mode=reflect"], ["dataset.augment_probability=0.5"]):
        run = Run(compose_config([*words, *more]), session)
        run.go(tmp_path / str(len(found)))
        found.append(RunDirectory(tmp_path / str(len(found))).metrics.test_loss[1])
        compiled = Run(compose_config([*words, *more, "engine=compile"]), session).prepare()
        programs.add(compiled.loop.trainer.executor.programs.objective)  # type: ignore[attr-defined]
    assert len({*found}) == len(programs) == 3


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_clients_together_are_clients_alone(compiled: bool) -> None:
    """Also as one graph, through dynamo and AOT autograd, without a compiler of machine code."""
    x = torch.randint(0, 256, (4, 6, 3, 8, 8), dtype=torch.uint8)
    k0, k1 = keys(4)
    mean, std, deviation = *mean_std(x[0]), torch.linspace(0, 1, 6)
    y = torch.arange(6) % 2
    black = Dataset("a", x[0], y, x[0], y, 2, mean, std).black

    def one(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        x = augment_batch(to_input(x, mean, std, torch.float32), (a, b), "crop_flip", black)
        return add_noise(x, normals((a, b), x.shape, x), deviation)

    alone = torch.stack([one(x[i], k0[i], k1[i]) for i in range(4)])
    together = torch.func.vmap(one)
    if compiled:
        together = torch.compile(together, fullgraph=True, backend="aot_eager")
    assert torch.equal(together(x, k0, k1), alone)


def test_black_padding_is_cropping_before_normalisation() -> None:
    raw = torch.randint(0, 256, (20, 3, 9, 9), dtype=torch.uint8)
    mean, std = mean_std(raw)
    y = torch.arange(20) % 2
    data = Dataset("a", raw, y, raw, y, 2, mean, std)
    k0, k1 = keys(1)
    key = (k0[0], k1[0])
    after = augment_batch(to_input(raw, mean, std, torch.float64), key, "crop_flip", data.black)
    before = torch.from_numpy(plain(raw.numpy(), (int(key[0]), int(key[1])), 0))
    torch.testing.assert_close(after, to_input(before, mean, std, torch.float64))


# ---- noise -----------------------------------------------------------------------------------------------


def test_noise_is_box_and_mullers_of_the_words_at_each_pixels_address() -> None:
    x = np.random.default_rng(0).normal(size=(3, 1, 3, 3))
    k0, k1 = (int(k[0]) for k in keys(1))
    deviation = np.array([0.0, 0.5, 2.0])
    expected = x.copy()
    for b, p in np.ndindex(3, 9):
        word0, word1 = threefry2x32((k0, k1), (p // 2, b))
        radius, angle = np.sqrt(-2 * np.log((word0 + 0.5) / 2**32)), 2 * np.pi * word1 / 2**32
        expected[b].flat[p] += deviation[b] * radius * (np.sin(angle) if p % 2 else np.cos(angle))
    key, raw = (torch.tensor(k0), torch.tensor(k1)), torch.from_numpy(x)
    got = add_noise(raw, normals(key, x.shape, raw), torch.from_numpy(deviation))
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert torch.equal(got[0], torch.from_numpy(x[0]))


def step(running: Execution, client: int, key: tuple[int, int]) -> Tensor:
    """The gradient of the first two samples of a client."""
    samples = torch.from_numpy(np.flatnonzero(running.problem.division.assignment == client)[:2])
    words = torch.tensor([0, 1 << 32])  # of augmentation and noise
    batch = Batch(samples, None, torch.stack(fold((torch.tensor(key[0]), torch.tensor(key[1])), words), -1))
    loop = running.loop
    return running.evaluator.objective.loss_and_grad(loop.theta, loop.statistics, batch)[1]


def test_client_i_of_n_has_its_share_of_the_noise_in_its_gradients(tmp_path: Path) -> None:
    """The gradient of softmax regression is sum of (p - onehot) x / B, with x that has been added to."""
    words = ["dtype=float64", "clients.total=5", "rounds=1", "progress=none", "dataset.normalize=false"]
    run = Run(compose_config([*words, "dataset.noise=0.4", "engine=vmap", "model.init=zeros"]))
    running, problem = run.prepare(tmp_path), run.problem
    for client, key in ((0, (1, 2)), (3, (1, 2)), (3, (7, 2)), (4, (1, 2))):
        mine = np.flatnonzero(problem.division.assignment == client)[:2]
        x = problem.dataset.x_train[mine].double()
        address = fold((torch.tensor(key[0]), torch.tensor(key[1])), 1 << 32)
        noisy = add_noise(x, normals(address, x.shape, x), torch.full((2,), 0.4 * client / 4))
        assert torch.equal(noisy, x) == (client == 0)
        residual = np.full((2, 10), 0.1) - np.eye(10)[problem.dataset.y_train[mine].numpy()]
        expected = residual.T @ noisy.flatten(1).numpy() / 2
        got = problem.layout.unflatten(step(running, client, key))["1.weight"]
        np.testing.assert_allclose(got, expected, atol=1e-14)


def test_noise_is_the_same_in_every_engine_and_new_in_every_step(tmp_path: Path) -> None:
    compute = runs(
        "dtype=float64 rounds=2 clients.total=6 clients.per_round=3 local.steps=2 progress=none threads=1 "
        "dataset.train_samples=200 dataset.validation=0.1"
    )
    compute(tmp_path / "a", "engine=vmap", "dataset.noise=0.5")
    compute(tmp_path / "b", "engine=loop", "dataset.noise=0.5")
    compute(tmp_path / "none")
    a, b, none = (RunDirectory(tmp_path / name).metrics.test_loss for name in ("a", "b", "none"))
    np.testing.assert_allclose(a, b, rtol=1e-10)
    assert a[0] == none[0]  # tests have none
    assert abs(a - none)[1:].min() > 1e-4


@pytest.mark.parametrize("words", [[], ["model=mlp", "model.dropout=0.4"]])
def test_noise_is_drawn_before_the_steps_unless_it_is_much(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By NumPy, which gives the same bits, beside dropout's masks too."""
    compute = runs(
        "rounds=3 clients.total=6 clients.per_round=3 local.steps=4 progress=none threads=1 engine=vmap "
        "partition=dirichlet dataset.noise=0.5"
    )
    by_numpy, draw = list[bool](), transforms.threefry2x32

    def watched(key: Any, counter: Any) -> Any:
        by_numpy.append(isinstance(key[0], np.ndarray))
        return draw(key, counter)

    monkeypatch.setattr(transforms, "threefry2x32", watched)
    compute(tmp_path / "before", *words)
    assert by_numpy == [True] * 3 * 4  # once for each round and step
    monkeypatch.setattr(objective, "MASKS", 0)
    compute(tmp_path / "inside", *words)
    before, inside = (RunDirectory(tmp_path / name).metrics for name in ("before", "inside"))
    assert before.test_loss.equals(inside.test_loss)
    assert not any(by_numpy[12:])


def test_noise_where_there_can_be_none_is_one_line() -> None:
    for words, why in (
        (["dataset=reviews", "model=embedding_rnn"], "tokens take no noise"),
        (["clients.total=1", "clients.per_round=1"], "the only client gets none"),
    ):
        with pytest.raises(ConfigError, match=rf"^dataset\.noise=0\.1: must be 0: {why}$"):
            Run(compose_config([*words, "dataset.noise=0.1"]))


def test_all_samples_are_converted_some_at_a_time() -> None:
    """To the same bits, and without a copy of what is the model's input as it stands."""
    sizes: list[int] = []
    x = torch.randint(0, 256, (3000, 1, 28, 28), dtype=torch.uint8)
    mean, std = torch.tensor(0.3), torch.tensor(0.7)

    def convert(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return to_input(x, mean, std, torch.float32)

    assert torch.equal(in_slices(convert, x), to_input(x, mean, std, torch.float32))
    assert max(sizes) < 200
    assert sum(sizes) == len(x)
    features = torch.rand(5, 3)
    assert in_slices(lambda x: to_input(x, None, None, torch.float32), features) is features
