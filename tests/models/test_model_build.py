"""Parameter counts, shapes, initial parameters, and one clear line for what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from option_helpers import build
from run_files import runs
from torch import nn

from fedbench.errors import ConfigError
from fedbench.fields import Choice
from fedbench.models import count_parameters, names, register_model, size

MNIST, CIFAR, TEXT = (1, 28, 28), (3, 32, 32), (80,)
LABELLED = {"vocabulary": 90, "positions": True}
TV = {
    11_689_512: {"arch": "resnet18"},
    3_504_872: {"arch": "mobilenet_v2", "norm": "group"},
    1_366_792: {"arch": "shufflenet_v2_x0_5"},
    1_235_496: {"arch": "squeezenet1_1"},
    5_288_548: {"arch": "efficientnet_b0", "norm": "group"},
}


# logistic 784*10+10; mlp 784*200+200 + 200*10+10; cnn 832 + 51,264 + 3136*512+512 + 512*10+10;
# cnn_small 260 + 5,020 + 16,050 + 510; rnn: gates * (28*128 + 5*128*128 + 6*128) + 128*10+10
# char_lstm 90 * 8 + 4 * 256 * (8 + 256 + 1) + 4 * 256 * (512 + 1) + 257 * 90, Reddi et al.'s of Shakespeare
# transformer, width d: 170 d + 2 (12 d^2 + 13 d) + 2 d + (d + 1) 90
COUNTS: list[tuple[dict[str, Any], Any, int, int]] = [
    ({"name": "logistic"}, MNIST, 10, 7_850),
    ({"name": "mlp"}, MNIST, 10, 159_010),
    ({"name": "cnn"}, MNIST, 10, 1_663_370),
    ({"name": "cnn_small"}, MNIST, 10, 21_840),
    ({"name": "resnet18", "norm": "batch"}, CIFAR, 10, 11_173_962),
    ({"name": "resnet18", "width": 8}, CIFAR, 10, 176_402),
    ({"name": "rnn"}, MNIST, 10, 87_562),
    ({"name": "rnn", "cell": "gru"}, MNIST, 10, 260_106),
    ({"name": "rnn", "cell": "lstm"}, MNIST, 10, 346_378),
    ({"name": "char_lstm"}, TEXT, 90, 820_522),
    ({"name": "transformer"}, TEXT, 90, 170 * 64 + 2 * (12 * 64**2 + 13 * 64) + 2 * 64 + 65 * 90),
    # as the papers' code has them
    ({"name": "conv", "preset": "lenet5"}, MNIST, 10, 61_706),
    ({"name": "conv", "preset": "niid"}, MNIST, 10, 44_426),
    ({"name": "conv", "preset": "niid"}, CIFAR, 10, 62_006),
    ({"name": "conv", "preset": "pfl"}, CIFAR, 10, 1_626_442),
    ({"name": "conv", "preset": "feddyn"}, CIFAR, 10, 797_962),
    ({"name": "conv", "preset": "fedexp"}, CIFAR, 10, 744_330),
    ({"name": "conv", "preset": "vgg11"}, CIFAR, 10, 9_750_922),
    # as torchvision's documentation lists them; of one channel 7 * 7 * 64 numbers fewer for each other
    *(({"name": "torchvision", **TV[size]}, (3, 64, 64), 1000, size) for size in TV),
    ({"name": "torchvision", "arch": "resnet18"}, (1, 64, 64), 1000, 11_689_512 - 2 * 7 * 7 * 64),
]


@pytest.mark.parametrize(("config", "shape", "classes", "expected"), COUNTS)
def test_parameter_counts(config: dict[str, Any], shape: Any, classes: int, expected: int) -> None:
    made = build(config, shape, classes, 0, **(LABELLED if shape == TEXT else {}))
    assert count_parameters(made) == expected
    kinds = {type(layer) for layer in made.modules()}
    assert not kinds & {nn.BatchNorm2d, nn.Dropout}  # of which every engine could not run one reproducibly


MISFITS: list[tuple[dict[str, Any], Any, dict[str, Any], str]] = [
    ({"name": "rnn"}, (60,), {}, "model=rnn: needs images"),
    ({"name": "cnn"}, (1, 4, 4), {}, "model=cnn: needs images of at least 5x5 pixels; these are 4x4"),
    ({"name": "cnn_small"}, (1, 8, 8), {}, "model=cnn_small: needs images of at least 16x16"),
    ({"name": "cnnn"}, MNIST, {}, "(did you mean 'cnn'?)"),
    ({"name": "mlp", "hiden": [3]}, MNIST, {}, "model.hiden=[3]: no such key; model=mlp has hidden,"),
    ({"name": "mlp", "hidden": 200}, MNIST, {}, "model.hidden=200"),
    ({"name": "mlp", "hidden": [0]}, MNIST, {}, "model.hidden=[0]"),
    ({"name": "mlp", "dropout": 1.0}, MNIST, {}, "model.dropout=1.0"),
    ({"name": "mlp", "norm": "batch"}, MNIST, {}, "model.norm=batch"),
    ({"name": "mlp"}, (5,), {"vocabulary": 7}, "model=mlp: needs images or features; samples are token"),
    ({"name": "logistic"}, (6,), {"positions": True}, "must be one of char_lstm, embedding_rnn, transformer"),
    ({"name": "embedding_rnn"}, (1, 8, 8), {}, "needs token sequences; samples are images"),
    ({"name": "transformer", "heads": 3}, TEXT, LABELLED, "model.heads=3: must divide model.width=64"),
    ({"name": "cnn", "norm": "group", "groups": 5}, MNIST, {}, "model.groups=5: must divide"),
    ({"name": "resnet18", "norm": "none"}, CIFAR, {}, "model.norm=none"),
    ({"name": "conv", "kernels": [3, 3, 3]}, MNIST, {}, "model.kernels=[3,3,3]: must have 1 entry, or 2"),
    ({"name": "conv", "dropout": [0.1, 0.2]}, MNIST, {}, "model.dropout=[0.1,0.2]: must have 1 entry, or 3"),
    ({"name": "conv", "pools": [3]}, MNIST, {}, "model.pools=[3]: there are 2 convolutions"),
    ({"name": "conv", "dropout": [1.0]}, MNIST, {}, "model.dropout=[1.0]: must be a list of shares in"),
    ({"name": "conv", "preset": "vgg11"}, MNIST, {}, "nothing is left of images of 28x28 after conv"),
    ({"name": "conv", "preset": "alexnet"}, MNIST, {}, "model.preset=alexnet: must be one of lenet5"),
    ({"name": "torchvision", "arch": "resnet81"}, CIFAR, {}, "must be a classification network of"),
    ({"name": "torchvision", "arch": "fcn_resnet50"}, CIFAR, {}, "must be a classification network of"),
    ({"name": "torchvision", "arch": "alexnet"}, CIFAR, {}, "alexnet: does not take samples (3, 32, 32)"),
    ({"name": "torchvision", "arch": "vit_b_16"}, MNIST, {}, "vit_b_16: does not take samples (1, 28, 28)"),
    ({"name": "torchvision"}, (60,), {}, "model=torchvision: needs images"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "shape", "data", "line"), MISFITS)
def test_misfits_are_one_line(config: dict[str, Any], shape: Any, data: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(config, shape, 10, 0, **data)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["mlp", "rnn"])
def test_seed_addresses_the_initial_parameters(name: str) -> None:
    """They do not depend on torch's own generator, nor move it."""
    torch.manual_seed(1)
    first, before = build({"name": name}, MNIST, 10, 7).state_dict(), torch.manual_seed(2).get_state()
    again, other = build({"name": name}, MNIST, 10, 7), build({"name": name}, MNIST, 10, 2**64 - 1)
    assert torch.equal(torch.get_rng_state(), before)
    for key, value in again.state_dict().items():
        assert torch.equal(value, first[key])
        assert not torch.equal(value, other.state_dict()[key])


def test_names_and_a_model_of_the_users_own() -> None:
    assert {"logistic", "mlp", "cnn", "cnn_small", "rnn", "resnet18"} <= set(names())

    @register_model("mine")
    class Mine(nn.Module):
        def __init__(self, shape: tuple[int, ...], classes: int, width: int) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(shape[0], width), nn.Linear(width, classes))

    assert "mine" in names()
    assert count_parameters(build({"name": "mine", "width": 2}, (3,), 4, 0)) == 8 + 12
    with pytest.raises(ConfigError, match=r"model\.width=null: mine needs a value"):
        build({"name": "mine"}, (3,), 4, 0)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm2d(3), nn.GRU(3, 3)])
def test_layers_that_cannot_run_here_are_refused(layer: nn.Module) -> None:
    register_model("unsuitable")(lambda shape, classes: nn.Sequential(layer))
    line = r"model=unsuitable: torch\.nn\.\w+ \(at '0'\) does not work here"
    with pytest.raises(ConfigError, match=line):
        build({"name": "unsuitable"}, (3,), 4, 0)


def test_the_size_of_a_regnet_is_not_known_before(tmp_path: Path) -> None:
    """It reads numbers of tensors as it is built."""
    assert size(Choice("torchvision", {"arch": "regnet_y_400mf"}), CIFAR, 10) is None
    x, y = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8), np.arange(16) % 2
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    compute = runs("dataset=npz model=torchvision clients.total=1 clients.per_round=1 rounds=1 progress=none")
    words = [f"dataset.path={tmp_path / 'a.npz'}", "model.arch=regnet_y_400mf", "local.steps=1", "threads=1"]
    compute(tmp_path / "run", *words, "local.batch_size=16")
