"""A process's later runs take over the device's data and compiled programs, and give what they gave alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import metrics, model, summary

from fedbench.api import compose_config
from fedbench.engine.compiled import MOST_KEPT, Compiled, Programs, compiler_missing
from fedbench.fields import Choice
from fedbench.runs.run import Run
from fedbench.runs.session import Session

BASE = [
    "rounds=3", "clients.total=8", "clients.per_round=3", "local.steps=2", "local.batch_size=16",
    "engine=compile", "progress=none",
]  # fmt: skip
MLP = ("model=mlp", "model.hidden=[8]")


@pytest.fixture
def session() -> Session:
    """What the runs of a test share."""
    return Session()


@pytest.fixture
def compiled(packed: list[Callable]) -> list[Callable]:
    """The functions that were to be compiled; they run as they are."""
    return packed


def refuse(*_: object) -> None:
    """In the place of `pack`: nothing can be compiled ahead of time."""
    raise RuntimeError("not here")


def outcome(
    directory: Path, *overrides: str, session: Session, model: Sequence[str] = MLP
) -> tuple[list[dict[str, str]], dict[str, torch.Tensor], dict]:
    """Metrics without times, the final model, and the summary of a run."""
    return left(Run(compose_config([*BASE, *model, *overrides]), session), directory)


def left(plan: Run, directory: Path) -> tuple[list[dict[str, str]], dict[str, torch.Tensor], dict]:
    """What running a plan leaves."""
    plan.go(directory)
    return metrics(directory), model(directory), summary(directory)


def same(one: tuple, other: tuple) -> bool:
    """Equal metrics and equal models, bit for bit."""
    return one[0] == other[0] and all(torch.equal(one[1][name], other[1][name]) for name in one[1])


def test_only_what_a_program_depends_on_compiles_it_again(
    tmp_path: Path, session: Session, compiled: list[Callable]
) -> None:
    """And the result is that of the same run in a process of its own."""
    same_program = ["algorithm.lr=0.02", "seed=3", "rounds=5", "clients.total=9", "lr_schedule=cosine"]
    others = ["clients.per_round=4", "local.batch_size=8", "algorithm=scaffold", "loss.scale=3"]
    others += ["loss.weight_decay=0.01", "model.hidden=[9]", "dataset.normalize=false", "dtype=float64"]
    outcome(tmp_path / "first", session=session)
    for number, change in enumerate([*same_program, *others]):
        before = len(compiled)
        after = outcome(tmp_path / str(number), change, session=session)
        assert len(compiled) == before + (change in others), change
        if change in ("seed=3", "clients.per_round=4"):
            assert same(after, outcome(tmp_path / "alone" / change, change, session=Session()))


CROP, NOISE = "dataset.augment=crop_flip", "dataset.noise=1"
MOMENTUM, CLIP, DECAY = "optimizer.momentum=0.9", "local.clip_norm=0.1", "optimizer.weight_decay"
BAKED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "augment_probability": ((CROP,), (CROP, "dataset.augment_probability=0.5")),
    "pad_mode": ((CROP,), (CROP, "dataset.pad_mode=reflect")),
    "augment": ((CROP,), ()),
    "noise": ((NOISE,), ()),
    "deviation": ((NOISE,), ("dataset.noise=2",)),
    "normalize": ((CROP,), (CROP, "dataset.normalize=false")),
    "classes": ((), ("dataset.classes=[0,1,2]",)),
    "norm": ((), ("model.norm=layer",)),
    "dropout": (("model.dropout=0.5",), ("model.dropout=0.25",)),
    "weight_decay": (("loss.weight_decay=0.1",), ("loss.weight_decay=0.2",)),
    "scale": ((), ("loss.scale=3",)),
    "precision": ((), ("precision=bf16",)),
    "momentum": ((), (MOMENTUM,)),
    "nesterov": ((MOMENTUM,), (MOMENTUM, "optimizer.nesterov=true")),
    "decay": ((MOMENTUM,), (MOMENTUM, "optimizer.weight_decay=0.1")),
    "optimizer": ((MOMENTUM,), ("optimizer=adam",)),
    "adamw": (("optimizer=adam", f"{DECAY}=0.5"), ("optimizer=adamw", f"{DECAY}=0.5")),
    "beta1": (("optimizer=adam",), ("optimizer=adam", "optimizer.beta1=0.5")),
    "keep": ((MOMENTUM,), (MOMENTUM, "optimizer.keep=true")),
    "clipping": ((), (CLIP,)),
    "clip_norm": ((CLIP,), ("local.clip_norm=0.2",)),
}
"""Two runs that differ in one value of what a local step computes, besides the method's."""


@pytest.mark.parametrize("change", BAKED)
def test_no_program_holds_a_value_of_another_run(
    tmp_path: Path, session: Session, packed: list, change: str
) -> None:
    """A run after one that differs in one value of its step, which finds its programs in the process and on
    disk, gives what it gives without compiled programs."""
    before, after = BAKED[change]
    outcome(tmp_path / "before", "rounds=1", *before, session=session)
    found = outcome(tmp_path / "after", "rounds=1", *after, session=session)
    alone = outcome(tmp_path / "alone", "rounds=1", *after, "engine=vmap", session=Session())
    assert packed
    for name, value in alone[1].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-4, atol=1e-6)


def test_batch_norm_statistics_start_anew(tmp_path: Path, session: Session, compiled: list[Callable]) -> None:
    """The first run's statistics move; the second starts from those of a new model."""
    model = ("model=cnn", "model.norm=batch")
    words = ["dataset.train_samples=40", "dataset.test_samples=40", "rounds=1", "local.steps=1"]
    outcome(tmp_path / "before", *words, model=model, session=session)
    after = outcome(tmp_path / "after", *words, "seed=5", model=model, session=session)
    assert len(compiled) == 1
    assert same(after, outcome(tmp_path / "alone", *words, "seed=5", model=model, session=Session()))


def test_a_given_model_is_not_shared(tmp_path: Path, session: Session, compiled: list[Callable]) -> None:
    """It brings batch-norm statistics of its own."""
    outcome(tmp_path / "first", session=session)
    outcome(tmp_path / "given", f"init_from={tmp_path / 'first' / 'model.pt'}", session=session)
    assert len(compiled) == 2


def test_a_users_model_is_not_shared(tmp_path: Path, session: Session, compiled: list[Callable]) -> None:
    """It may hold what a seed chose outside its parameters."""
    (tmp_path / "shifted.py").write_text(
        "import torch\n"
        "from fedbench.models import register_model\n"
        "@register_model('shifted')\n"
        "class Shifted(torch.nn.Module):\n"
        "    def __init__(self, shape, classes):\n"
        "        super().__init__()\n"
        "        self.linear, self.shift = torch.nn.LazyLinear(classes), torch.rand(1)\n"
        "        self(torch.zeros(1, *shape))\n"
        "    def forward(self, x):\n"
        "        return self.linear(x.flatten(1) + self.shift)\n"
    )

    def shifted(directory: Path, seed: int, session: Session) -> tuple:
        config = compose_config([*BASE, f"seed={seed}", f"imports=[{tmp_path / 'shifted.py'}]"])
        config = dataclasses.replace(config, model=Choice("shifted", {"init": "default"}))
        return left(Run(config, session), directory)

    shifted(tmp_path / "before", 1, session)
    after = shifted(tmp_path / "after", 2, session)
    assert len(compiled) == 2
    assert same(after, shifted(tmp_path / "alone", 2, Session()))


def test_no_more_programs_are_kept_than_said(compiled: list[Callable]) -> None:
    """The one not used for longest goes."""
    kept = Programs()
    for n in [*range(MOST_KEPT), 0, MOST_KEPT]:
        Compiled(lambda x: x, kept, n)(torch.zeros(2))
    assert len(kept) == MOST_KEPT
    assert len(compiled) == MOST_KEPT + 1
    Compiled(lambda x: x, kept, 0)(torch.zeros(2))  # used again in between
    assert len(compiled) == MOST_KEPT + 1
    Compiled(lambda x: x, kept, 1)(torch.zeros(2))
    assert len(compiled) == MOST_KEPT + 2


@pytest.mark.slow
@pytest.mark.skipif(compiler_missing(torch.device("cpu")) is not None, reason="no C++ compiler here")
def test_a_compiled_program_serves_another_learning_rate_and_seed(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real compiler: nothing is compiled again, and not a bit differs, in this process, another one
    that finds the program on disk, and one that compiles it anew."""
    before = outcome(tmp_path / "before", session=session)
    after = outcome(tmp_path / "after", "seed=1", "algorithm.lr=0.02", session=session)
    assert before[2]["compile_seconds"] > 0
    assert after[2]["compile_seconds"] == 0
    found = outcome(tmp_path / "found", "seed=1", "algorithm.lr=0.02", session=Session())
    assert found[2]["compile_seconds"] == 0
    assert same(after, found)
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "empty"))
    alone = outcome(tmp_path / "alone", "seed=1", "algorithm.lr=0.02", session=Session())
    assert alone[2]["compile_seconds"] > 0
    assert same(after, alone)
    assert not same(after, before)


@pytest.mark.slow
@pytest.mark.skipif(compiler_missing(torch.device("cpu")) is not None, reason="no C++ compiler here")
@pytest.mark.parametrize(
    "words",
    [
        ("model=rnn", "model.cell=gru", "algorithm=padamfed"),
        ("model=cnn_small", "algorithm=fedproxvr", "algorithm.lr=0.1"),
        ("model=resnet18", "model.norm=batch", "model.width=8", "rounds=1"),
        ("model=mlp", "local.steps=null", "local.epochs=2", "partition=dirichlet", "algorithm=scaffold"),
    ],
    ids=" ".join,
)
def test_every_model_is_found_on_disk_and_is_the_eager_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """The same bits as when it was compiled, and the eager engine's numbers to rounding."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60, 28, 28)).astype("uint8"), rng.integers(0, 3, 60)
    np.savez(tmp_path / "images.npz", x_train=x, y_train=y, x_test=x[:8], y_test=y[:8])
    common = ("dataset=npz", f"dataset.path={tmp_path / 'images.npz'}", "clients.per_round=2",
              "clients.total=4", "local.batch_size=3", "dtype=float64", "rounds=2")  # fmt: skip

    def go(name: str, *more: str) -> tuple:
        return outcome(tmp_path / name, *words, *more, session=Session(), model=common)

    first = go("first")
    assert first[2]["compile_seconds"] > 0
    monkeypatch.setattr("fedbench.engine.compiled.pack", refuse)
    found, eager = go("found"), go("eager", "engine=vmap")
    assert found[2]["compile_seconds"] == 0
    assert same(first, found)
    for name, value in eager[1].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-9, atol=1e-10)
