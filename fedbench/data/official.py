"""MNIST, Fashion-MNIST, EMNIST, CIFAR-10, CIFAR-100, SVHN from the files that torchvision downloads, CINIC-10
from folders of images; or each of them from an .npz file."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.data.dataset import Dataset, check_labels, of_classes
from fedbench.data.files import damaged, fetch, file_record, line_of, load_npz, missing, read_idx
from fedbench.data.options import EMNIST_CLASSES
from fedbench.errors import DataError

_EMNIST_SIZES = {
    "balanced": (112_800, 18_800),
    "bymerge": (697_932, 116_323),
    "byclass": (697_932, 116_323),
    "letters": (124_800, 20_800),
    "digits": (240_000, 40_000),
    "mnist": (60_000, 10_000),
}
CINIC10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_IDX = ("images-idx3-ubyte", "labels-idx1-ubyte")


@dataclass(frozen=True)
class Source:
    """Where an official data set lies below data.root, and which torchvision class downloads it."""

    kind: str  # name of the class in torchvision.datasets
    classes: int
    sizes: tuple[int, int]  # training and test samples
    files: tuple[str, ...]  # needed below data.root
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
    if name == "cinic10":
        return Source("ImageFolder", 10, (90_000, 90_000), (), ())
    if name == "emnist":
        return _emnist(split)
    if name in ("mnist", "fmnist"):
        return _idx("MNIST" if name == "mnist" else "FashionMNIST")
    if name == "svhn":
        both = ("train_32x32.mat", "test_32x32.mat")
        return Source("SVHN", 10, (73_257, 26_032), both, both)
    if name == "cifar10":
        parts = ["batches.meta", *(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
        folder, archive = "cifar-10-batches-py", "cifar-10-python.tar.gz"
    else:
        parts, folder, archive = ["meta", "train", "test"], "cifar-100-python", "cifar-100-python.tar.gz"
    files = tuple(f"{folder}/{part}" for part in parts)
    return Source(name.upper(), int(name.removeprefix("cifar")), (50_000, 10_000), files, (archive,))


def official(name: str, root: Path, split: str = "balanced") -> Dataset:
    """The official training and test set, uint8 images (n, C, H, W). Raises DataError if unavailable.

    `root/<name>.npz` (see `load_npz`) replaces torchvision's files if it exists. If it has more classes,
    EMNIST's splits digits and mnist are its labels 0 to 9. EMNIST keeps the transposed orientation of its
    files; its letters, 1..26 there, are 0..25 here. CIFAR-100 has the fine labels.
    """
    origin = source(name, split)
    own = root / f"{name}.npz"
    if own.is_file():
        data = _own(own, name, origin)
        return dataclasses.replace(data, note=_difference(data, own.name, origin))
    if name == "cinic10":
        return _cinic10(root)
    if missing(root, origin.files):
        fetch(name, root, origin.files, origin.archives, _downloader(origin))
    files = tuple(file_record(root / file) for file in origin.files)
    x_train, y_train, x_test, y_test = _read(name, root, origin)
    return Dataset(name, x_train, y_train, x_test, y_test, classes=origin.classes, files=files)


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


def _downloader(origin: Source) -> Callable[[Path], None]:
    def download(place: Path) -> None:
        import torchvision.datasets

        kind = getattr(torchvision.datasets, origin.kind)
        if origin.kind == "SVHN":
            for part in ("train", "test"):
                kind(str(place), split=part, download=True)
            return
        extra = {"split": origin.split} if origin.split else {}
        kind(str(place), train=True, download=True, **extra)  # also reads it: checks that it is whole

    return download


def _read(name: str, root: Path, origin: Source) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if origin.kind == "SVHN":
        return (*_svhn(root, "train"), *_svhn(root, "test"))
    if origin.kind.startswith("CIFAR"):
        return (*_cifar(origin.kind, root, True), *_cifar(origin.kind, root, False))
    train, test = (_pair(name, root, origin, files) for files in (origin.files[:2], origin.files[2:]))
    if train[0].shape[1:] != test[0].shape[1:]:
        sizes = " and ".join("x".join(map(str, x.shape[2:])) for x in (train[0], test[0]))
        raise DataError(
            f"dataset={name}: {root / origin.files[0]} and {root / origin.files[2]} do not belong together: "
            f"images of {sizes}; delete them to download again"
        )
    return (*train, *test)


def _pair(name: str, root: Path, origin: Source, files: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Images (n, 1, H, W) uint8 and labels (n,) int64, starting at 0, from two IDX files."""
    images, labels = (root / file for file in files)
    x, y = (torch.from_numpy(read_idx(images, 3)), torch.from_numpy(read_idx(labels, 1)))
    if len(x) != len(y):
        raise DataError(
            f"dataset={name}: {images} and {labels} do not belong together: "
            f"{len(x):,} images, {len(y):,} labels; delete them to download again"
        )
    y = y.to(torch.int64)
    lowest = 1 if origin.split == "letters" else 0
    check_labels(str(labels), y, len(x), name, origin.classes, lowest)
    return x.unsqueeze(1), y - lowest


def _cifar(kind: str, root: Path, train: bool) -> tuple[Tensor, Tensor]:
    """CIFAR's images and labels. torchvision compares checksums before it unpickles the files."""
    import torchvision.datasets

    source = getattr(torchvision.datasets, kind)
    try:
        read = source(str(root), train=train)
    except Exception as error:  # a file that changes meanwhile can raise any error
        meta = (source.meta["filename"], source.meta["md5"])
        for file, md5 in (*source.train_list, *source.test_list, meta):
            path = root / source.base_folder / file
            if not path.is_file() or hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() != md5:
                raise damaged(path, "its checksum is not the published one") from error
        raise DataError(f"{root / source.base_folder}: cannot be read ({error})") from error
    x = np.ascontiguousarray(read.data.transpose(0, 3, 1, 2))
    return torch.from_numpy(x), torch.tensor(read.targets, dtype=torch.int64)


def _svhn(root: Path, part: str) -> tuple[Tensor, Tensor]:
    """SVHN's images and labels. torchvision compares checksums here too; label 10 (the digit 0) becomes 0."""
    import torchvision.datasets

    file = root / torchvision.datasets.SVHN.split_list[part][1]
    try:
        read = torchvision.datasets.SVHN(str(root), split=part)
    except Exception as error:
        raise damaged(file, f"torchvision says {line_of(error)}") from error
    return torch.from_numpy(np.ascontiguousarray(read.data)), torch.from_numpy(read.labels.astype(np.int64))


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
    folders = sorted(one.name for one in place.iterdir() if one.is_dir() and not one.name.startswith("."))
    if stray := [name for name in folders if name not in CINIC10]:
        raise DataError(f"{place / stray[0]}: no class of CINIC-10, which has {', '.join(CINIC10)}")
    numbers = {name: number for number, name in enumerate(CINIC10)}
    try:
        found = folder.make_dataset(place, numbers, folder.IMG_EXTENSIONS, allow_empty=True)
        x = np.stack([np.asarray(folder.default_loader(image)) for image, _ in found])
    except (OSError, ValueError) as error:
        raise DataError(f"{place}: cannot be read as folders of images ({line_of(error)})") from error
    noted = {"path": str(place), "bytes": x.nbytes, "sha256": hashlib.sha256(x.tobytes()).hexdigest()}
    return (
        torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))),
        torch.tensor([label for _, label in found]),
        noted,
    )
