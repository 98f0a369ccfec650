"""MNIST, Fashion-MNIST, EMNIST, CIFAR-10, CIFAR-100: files as torchvision places them, or an .npz instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedbench.data.dataset import Dataset
from fedbench.data.fetch import fetch, missing
from fedbench.data.npz import load_npz
from fedbench.data.provenance import file_record
from fedbench.errors import DataError

EMNIST_CLASSES = {"balanced": 47, "bymerge": 47, "byclass": 62, "letters": 26, "digits": 10, "mnist": 10}
_EMNIST_SIZES = {
    "balanced": (112_800, 18_800),
    "bymerge": (697_932, 116_323),
    "byclass": (697_932, 116_323),
    "letters": (124_800, 20_800),
    "digits": (240_000, 40_000),
    "mnist": (60_000, 10_000),
}
_IDX = ("images-idx3-ubyte", "labels-idx1-ubyte")


@dataclass(frozen=True)
class Source:
    """Where an official data set lies below data.root, and which torchvision class brings it."""

    kind: str  # name of the class in torchvision.datasets
    classes: int
    sizes: tuple[int, int]  # training and test samples
    files: tuple[str, ...]  # needed below the root
    archives: tuple[str, ...]  # what the download consists of, before unpacking
    split: str | None = None  # EMNIST's


def _idx(kind: str) -> Source:
    files = tuple(f"{kind}/raw/{part}-{suffix}" for part in ("train", "t10k") for suffix in _IDX)
    return Source(kind, 10, (60_000, 10_000), files, (f"{kind}/raw/*.gz",))


def _emnist(split: str) -> Source:
    files = tuple(
        f"EMNIST/raw/emnist-{split}-{part}-{suffix}" for part in ("train", "test") for suffix in _IDX
    )
    return Source(
        "EMNIST", EMNIST_CLASSES[split], _EMNIST_SIZES[split], files, ("EMNIST/raw/gzip.zip",), split
    )


def source(name: str, split: str = "balanced") -> Source:
    """The source of an official data set; `split` is EMNIST's."""
    if name == "emnist":
        return _emnist(split)
    if name in ("mnist", "fmnist"):
        return _idx("MNIST" if name == "mnist" else "FashionMNIST")
    if name == "cifar10":
        parts = ["batches.meta", *(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
        folder, archive = "cifar-10-batches-py", "cifar-10-python.tar.gz"
    else:
        parts, folder, archive = ["meta", "train", "test"], "cifar-100-python", "cifar-100-python.tar.gz"
    files = tuple(f"{folder}/{part}" for part in parts)
    return Source(name.upper(), int(name.removeprefix("cifar")), (50_000, 10_000), files, (archive,))


def official(name: str, root: Path, split: str = "balanced") -> Dataset:
    """The official training and test set, uint8 images (n, C, H, W); DataError where it cannot be had.

    `root/<name>.npz` (see `load_npz`) takes the place of torchvision's files where it exists. EMNIST keeps
    the transposed orientation of its files; its letters, 1..26 there, are 0..25 here. CIFAR-100 has the
    fine labels.
    """
    origin = source(name, split)
    own = root / f"{name}.npz"
    if own.is_file():
        data = load_npz(own, name, classes=origin.classes)
        return dataclasses.replace(data, note=_difference(data, own.name, origin))
    if missing(root, origin.files):
        fetch(name, root, origin.files, origin.archives, _downloader(origin))
    files = tuple(file_record(root / file) for file in origin.files)
    x_train, y_train, x_test, y_test = _read(name, root, origin)
    if name == "emnist" and split == "letters":
        y_train, y_test = y_train - 1, y_test - 1
    return Dataset(name, x_train, y_train, x_test, y_test, classes=origin.classes, files=files)


def _difference(data: Dataset, file: str, origin: Source) -> str:
    """What sets the user's file apart from the official ones, for the captions of figures."""
    note = f"{file} was used in place of the official files"
    sizes = (len(data.y_train), len(data.y_test))
    if sizes != origin.sizes:
        whose = f"the {origin.split} split has" if origin.split else "those have"
        note += ": {:,} training and {:,} test samples, where {} {:,} and {:,}".format(
            *sizes, whose, *origin.sizes
        )
    seen = len(np.unique(data.y_train.numpy()))
    if seen < origin.classes:
        note += f"; it has training samples of {seen} of the {origin.classes} classes"
    return note


def _downloader(origin: Source) -> Callable[[Path], None]:
    def download(place: Path) -> None:
        import torchvision.datasets

        kind = getattr(torchvision.datasets, origin.kind)
        extra = {"split": origin.split} if origin.split else {}
        kind(str(place), train=True, download=True, **extra)  # brings and reads: checks that it is whole

    return download


def _read(name: str, root: Path, origin: Source) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    try:
        if origin.kind.startswith("CIFAR"):
            return (*_cifar(origin.kind, root, True), *_cifar(origin.kind, root, False))
        from torchvision.datasets.mnist import read_image_file, read_label_file

        paths = [str(root / file) for file in origin.files]
        x_train, x_test = (read_image_file(paths[i]).unsqueeze(1).contiguous() for i in (0, 2))
        y_train, y_test = (read_label_file(paths[i]) for i in (1, 3))
    except Exception as error:  # torchvision answers damaged files with errors of every kind
        folder = root / Path(origin.files[0]).parent
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"dataset={name}: the files in {folder} are damaged ({reason}); delete them to download again"
        ) from error
    if len(x_train) != len(y_train) or len(x_test) != len(y_test):
        raise DataError(
            f"dataset={name}: the files in {root / Path(origin.files[0]).parent} do not belong together"
        )
    return x_train, y_train, x_test, y_test


def _cifar(kind: str, root: Path, train: bool) -> tuple[Tensor, Tensor]:
    """torchvision compares checksums before it unpickles CIFAR's files."""
    import torchvision.datasets

    read = getattr(torchvision.datasets, kind)(str(root), train=train)
    x = np.ascontiguousarray(read.data.transpose(0, 3, 1, 2))
    return torch.from_numpy(x), torch.tensor(read.targets, dtype=torch.int64)
