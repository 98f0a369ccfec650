"""MNIST, Fashion-MNIST, EMNIST, CIFAR-10, CIFAR-100, SVHN from the files that torchvision downloads, CINIC-10
from folders of images; or each of them from an .npz file."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.data.dataset import Dataset, from_arrays, of_classes
from fedbench.data.files import damaged, fetch, file_record, load_npz, read_idx
from fedbench.data.options import EMNIST_CLASSES
from fedbench.errors import DataError, reason_of, refusing

CINIC10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_IDX = ("images-idx3-ubyte", "labels-idx1-ubyte")


@dataclass(frozen=True)
class Source:
    """Where an official data set lies below data.root, and which torchvision class downloads it."""

    kind: str  # name of the class in torchvision.datasets
    classes: int
    sizes: tuple[int, int]  # training and test samples
    files: tuple[str, ...]  # needed below data.root
    split: str | None = None  # EMNIST's


def _idx(folder: str, *parts: str) -> tuple[str, ...]:
    return tuple(f"{folder}/raw/{part}-{suffix}" for part in parts for suffix in _IDX)


def _emnist(split: str, *sizes: int) -> Source:
    files = _idx("EMNIST", f"emnist-{split}-train", f"emnist-{split}-test")
    return Source("EMNIST", EMNIST_CLASSES[split], (sizes[0], sizes[1]), files, split)


_CIFAR10 = ("batches.meta", *(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_CIFAR100 = ("meta", "train", "test")
SOURCES = {
    "mnist": Source("MNIST", 10, (60_000, 10_000), _idx("MNIST", "train", "t10k")),
    "fmnist": Source("FashionMNIST", 10, (60_000, 10_000), _idx("FashionMNIST", "train", "t10k")),
    "cifar10": Source("CIFAR10", 10, (50_000, 10_000), tuple(f"cifar-10-batches-py/{x}" for x in _CIFAR10)),
    "cifar100": Source("CIFAR100", 100, (50_000, 10_000), tuple(f"cifar-100-python/{x}" for x in _CIFAR100)),
    "svhn": Source("SVHN", 10, (73_257, 26_032), ("train_32x32.mat", "test_32x32.mat")),
    "cinic10": Source("ImageFolder", 10, (90_000, 90_000), ()),
    "emnist balanced": _emnist("balanced", 112_800, 18_800),
    "emnist bymerge": _emnist("bymerge", 697_932, 116_323),
    "emnist byclass": _emnist("byclass", 697_932, 116_323),
    "emnist letters": _emnist("letters", 124_800, 20_800),
    "emnist digits": _emnist("digits", 240_000, 40_000),
    "emnist mnist": _emnist("mnist", 60_000, 10_000),
}
"""By name, and of EMNIST also by split."""


def official(name: str, root: Path, split: str | None) -> Dataset:
    """The official training and test set, uint8 images (n, C, H, W). Raises DataError if unavailable.

    `root/<name>.npz` (see `load_npz`) replaces torchvision's files if it exists. If it has more classes,
    EMNIST's splits digits and mnist are its labels 0 to 9. EMNIST keeps the transposed orientation of its
    files; its letters, 1..26 there, are 0..25 here. CIFAR-100 has the fine labels.
    """
    origin = SOURCES[f"{name} {split}" if split else name]
    own = root / f"{name}.npz"
    if own.is_file():
        data = _own(own, name, origin)
        return dataclasses.replace(data, note=_difference(data, own.name, origin))
    if name == "cinic10":
        return _cinic10(root)
    fetch(name, root, origin.files, partial(_download, origin))
    files = tuple(file_record(root / file) for file in origin.files)
    read = _idx_pair if origin.files[0].endswith("ubyte") else _checked
    arrays = (*read(origin, root, True), *read(origin, root, False))
    where = (root / origin.files[0]).parent
    return from_arrays(name, *arrays, classes=origin.classes, files=files, where=where)


def _own(file: Path, name: str, origin: Source) -> Dataset:
    """Load the user's file in place of the official ones."""
    digits = origin.split in ("digits", "mnist")
    known = EMNIST_CLASSES["byclass"] if digits else origin.classes
    called = f"{name} (split={origin.split})" if origin.split else name
    data = dataclasses.replace(load_npz(file, called, classes=known), name=name)
    if digits and data.y_train.max() >= origin.classes:
        return of_classes(data, range(origin.classes))
    return dataclasses.replace(data, classes=origin.classes)


def _difference(data: Dataset, file: str, origin: Source) -> str:
    """How the user's file differs from the official ones, for the captions of figures."""
    note = f"{file} was used in place of the official files"
    note += f" ({data.note})" if data.note else ""
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


def _download(origin: Source, root: Path) -> None:
    for train in (True, False):
        _torchvisions(origin, root, train, download=True)


def _torchvisions(origin: Source, root: Path, train: bool, download: bool = False) -> Any:
    """torchvision's data set of the files, which it downloads if asked to."""
    import torchvision.datasets

    which: dict[str, Any] = {"train": train} | ({"split": origin.split} if origin.split else {})
    if origin.kind == "SVHN":
        which = {"split": "train" if train else "test"}
    return getattr(torchvision.datasets, origin.kind)(str(root), download=download, **which)


def _idx_pair(origin: Source, root: Path, train: bool) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, H, W) uint8 and labels (n,), starting at 0, from two IDX files."""
    images, labels = (root / file for file in (origin.files[:2] if train else origin.files[2:]))
    x, y = read_idx(images, 3), read_idx(labels, 1).astype(np.int64)
    first = int(origin.split == "letters")
    if len(y) != len(x):
        raise damaged(labels, f"it has {len(y):,} labels, and {images.name} {len(x):,} images")
    if (odd := y[(y < first) | (y >= first + origin.classes)]).size:
        last = first + origin.classes - 1
        raise damaged(labels, f"it has the label {odd[0]}; {first} to {last} are expected")
    return x, y - first


def _checked(origin: Source, root: Path, train: bool) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR's or SVHN's images (n, 32, 32, 3) and labels (n,). torchvision compares checksums before it reads
    or unpickles the files; of SVHN it makes the label 10, the digit 0, to 0."""
    try:
        read = _torchvisions(origin, root, train)
    except Exception as error:  # a file that changes meanwhile can raise any error
        place = Path(origin.files[0 if train else -1]).parts[0]  # CIFAR's folder, SVHN's file
        raise damaged(root / place, f"torchvision says {reason_of(error)}") from error
    if origin.kind == "SVHN":
        return read.data.transpose(0, 2, 3, 1), read.labels
    return read.data, np.array(read.targets)


def _cinic10(root: Path) -> Dataset:
    """CINIC-10 (Darlow et al., arXiv:1810.03505) from its unpacked archive: `root`/CINIC-10/train/CLASS/*.png
    and test. The validation part is left out. Classes have CIFAR-10's numbers, in both parts, also where
    folders are missing, which is noted. Any other folder is refused, but for names that begin with a dot."""
    x, y, file = _folders(root, "train")
    x_test, y_test, other = _folders(root, "test")
    absent = [name for n, name in enumerate(CINIC10) if not bool((y == n).any() and (y_test == n).any())]
    note = f"without training or test images of {', '.join(absent)}" if absent else None
    return Dataset("cinic10", x, y, x_test, y_test, classes=len(CINIC10), files=(file, other), note=note)


def _folders(root: Path, part: str) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Images (n, 3, 32, 32), labels (n,), and one record for all files, with a hash of the pixels."""
    from torchvision.datasets import folder

    place = root / "CINIC-10" / part
    if not place.is_dir():
        raise DataError(f"dataset=cinic10: not found: {root}/cinic10.npz, nor {place}/CLASS/*.png")
    visible = (path for path in place.iterdir() if path.is_dir() and not path.name.startswith("."))
    if stray := sorted(path for path in visible if path.name not in CINIC10):
        raise DataError(f"{stray[0]}: no class of CINIC-10, which has {', '.join(CINIC10)}")
    numbers = {name: number for number, name in enumerate(CINIC10)}
    with refusing(f"{place}: cannot be read as folders of images"):
        files = folder.make_dataset(place, numbers, folder.IMG_EXTENSIONS, allow_empty=True)
        x = np.stack([np.asarray(folder.default_loader(image)) for image, _ in files])
    record = {"path": str(place), "bytes": x.nbytes, "sha256": hashlib.sha256(x.tobytes()).hexdigest()}
    images = torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    return images, torch.tensor([label for _, label in files]), record
