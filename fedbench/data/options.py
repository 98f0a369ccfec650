"""The options of `dataset=`: every key with its default, range and meaning. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedbench.fields import (
    choice,
    custom,
    integer,
    nonnegative,
    number,
    switch,
    text,
)
from fedbench.fields import seed as seed_of
from fedbench.own_options import Registered

TASKS = ("classification", "regression", "multilabel", "sequence")
"""What is predicted: one of several classes, numbers, which of several labels hold, or a label per token."""
EMNIST_CLASSES = {"balanced": 47, "bymerge": 47, "byclass": 62, "letters": 26, "digits": 10, "mnist": 10}


def _samples() -> Any:
    return integer(None, low=1, null="all", help="a random subset of that size, the same for every seed")


def _vocabulary() -> Any:
    help = "x are sequences of tokens below this; 0 is padding"
    return integer(None, low=2, null="x holds no tokens", help=help)


def _user() -> Any:
    return text(None, null="none", help="the column with the user of each row (partition=natural)")


def _drop() -> Any:
    return custom(
        None,
        _columns,
        "a list of columns, such as [date, id]",
        null="none",
        help="columns that are no features: left out, whatever they hold",
    )


def _columns(value: Any) -> list[str]:
    fit = isinstance(value, list | tuple) and value and all(type(name) in (int, str) for name in value)
    if not fit or len({*map(str, value)}) < len(value):
        raise ValueError
    return [*map(str, value)]


def _test_fraction(default: float = 0.2, help: str = "of the rows, drawn at random") -> Any:
    return number(default, low=0, high=0.9, without=(0,), help=help)


def _labels(value: Any) -> list[int | str]:
    fit = isinstance(value, list | tuple) and all(type(label) in (int, str) for label in value)
    if not fit or len(value) < 2 or len({*map(str, value)}) < len(value):
        raise ValueError
    return list(value)


@dataclass(frozen=True)
class DatasetOptions:
    """The options that all data sets share."""

    name: ClassVar[str]
    partition: ClassVar[str | None] = None  # the default for a data set with clients of its own
    normalize: bool = switch(
        True,
        help="subtract the training set's mean, divide by its deviation (per channel or feature); held-out "
        "samples count, and with pool the test set's too",
    )
    augment: str = choice(
        "none",
        ("none", "crop_flip"),
        help="crop_flip: random crop after padding by 4, random horizontal flip",
    )
    pad_mode: str = choice(
        "zeros", ("zeros", "reflect"), help="what crop_flip pads with: raw zeros, or the image mirrored"
    )
    augment_probability: float = number(
        1.0,
        low=0,
        high=1,
        help="probability that crop_flip crops a sample (FedDyn: 0.5); flips have 1/2 in any case",
    )
    train_samples: int | None = _samples()
    test_samples: int | None = _samples()
    normalize_per: str | None = choice(
        None,
        ("pixel",),
        null="channel or feature",
        help="pixel: each by itself, x -> (x - mean) / (std + 0.001)",
    )
    pool: float | None = number(
        None,
        low=0,
        high=1,
        without=(0, 1),
        null="the data set's own test set",
        help="pool training and test set; the test set is this share of every client's samples: all but "
        "floor((1 - pool) n) of its n, of which one at least is for training",
    )
    noise: float = nonnegative(
        0.0,
        help="client i of N adds Gaussian noise to the model's input in every local step, anew each "
        "time, with standard deviation i/(N-1) times this value; test samples get none",
    )
    validation: float = number(
        0.0,
        low=0,
        high=1,
        without=(1,),
        help="hold out this share of every client's training samples, floor(share n + 1/2) of its n but "
        "never all: columns validation_loss and "
        "validation_accuracy, which target and patience then use to stop",
    )
    hold_out: list[str] | None = custom(
        None,
        _columns,
        "a list of users, such as [ward_a], or each",
        null="none",
        help="all samples of these users are the test set, those of all others are trained on, also of the "
        "data's own test set if it says whose they are; each: a sweep that holds out one after the other",
    )
    classes: list[int | str] | None = custom(
        None,
        _labels,
        "a list of two or more different labels, such as [0, 1, 7] or [cat, dog]",
        null="all",
        help="only samples of these labels of the data, which become 0, 1, 2, ...",
    )


class Digits(DatasetOptions):
    """1,797 handwritten digits of 8 x 8, part of scikit-learn: no download.

    Fixed split: 1,437 train, 360 test.
    """

    name = "digits"


class Mnist(DatasetOptions):
    """MNIST, 60,000 / 10,000 grey images of 28 x 28, 10 classes."""

    name = "mnist"


class FashionMnist(DatasetOptions):
    """Fashion-MNIST, 60,000 / 10,000 grey images of 28 x 28, 10 classes."""

    name = "fmnist"


@dataclass(frozen=True)
class Emnist(DatasetOptions):
    """EMNIST, grey images of 28 x 28, in the transposed orientation of the official files."""

    name = "emnist"
    split: str = choice(
        "balanced",
        tuple(EMNIST_CLASSES),
        help="classes: "
        + ", ".join(f"{name} {count}" for name, count in EMNIST_CLASSES.items())
        + "; digits and mnist of an emnist.npz with more classes: its labels 0 to 9",
    )


class Cifar10(DatasetOptions):
    """CIFAR-10, 50,000 / 10,000 colour images of 32 x 32, 10 classes."""

    name = "cifar10"


class Cifar100(DatasetOptions):
    """CIFAR-100, 50,000 / 10,000 colour images of 32 x 32, 100 (fine) classes."""

    name = "cifar100"


class Svhn(DatasetOptions):
    """SVHN, 73,257 / 26,032 colour images of 32 x 32, 10 classes: the digits."""

    name = "svhn"


class Cinic10(DatasetOptions):
    """CINIC-10, 90,000 / 90,000 colour images of 32 x 32, 10 classes.

    Unpack its archive to data.root/CINIC-10; its validation part is left out.
    """

    name = "cinic10"


@dataclass(frozen=True)
class Npz(DatasetOptions):
    """Your own data: an .npz file with x_train, y_train, x_test, y_test, or a directory of .npy files.

    x: uint8 or float; images (n, h, w) or (n, h, w, c), or features (n, f); integers (n, t) if they are
    tokens. y: integers from 0; numbers (n,) or (n, k) for regression; 0 and 1 (n, k) for multilabel; integers
    (n, t) for sequence, a label for each token (0: the token is not counted).

    x in a directory may be larger than memory. On a CPU it stays on disk, memory-mapped, and with
    normalize=false only the samples that are used are read.
    """

    name = "npz"
    path: str = text(
        None,
        words="the path of an .npz file",
        help="dataset.path=FILE.npz, or DIR with x_train.npy, ...; for partition=natural with the arrays "
        "`client` and, if known, `client_test` (or user, user_test): the client, by number or name, of each "
        "sample",
    )
    task: str = choice("classification", TASKS, help="what y is")
    vocabulary: int | None = _vocabulary()


_CLASSES = "classification, of texts, two numbers, or 0 or 1 to C without a gap; else it has to be said"


@dataclass(frozen=True)
class Table(DatasetOptions):
    """Your own table with a row per sample: CSV, TSV, Parquet (also a directory of files) or HDF5 of
    TensorFlow Federated (a group per user) by the file name, else LIBSVM.
    """

    name = "table"
    path: str = text(
        None,
        words="the path of a table",
        help="dataset.path=FILE.csv, .tsv, .parquet, .h5, ..., or DIR of .parquet",
    )
    target: str | None = text(None, null="of LIBSVM only, which has no names", help="the column to predict")
    user: str | None = _user()
    drop: list[str] | None = _drop()
    header: bool | None = switch(
        None,
        null="yes, and refused where it could be data",
        help="whether the first row of a CSV has the columns' names; false: they are called 0, 1, ...",
    )
    test_path: str | None = text(
        None, words="the path of a table", null="test_fraction of the rows", help="where the test set is"
    )
    test_fraction: float = _test_fraction()
    split_column: str | None = text(
        None,
        null="rows for the test are drawn at random",
        help="the column that says what is for the test: train or test; or a number or a date, by which the "
        "last test_fraction of every user's rows is (of all rows without a user), equal ones in the order of "
        "the file",
    )
    task: str | None = choice(None, TASKS[:2], null=_CLASSES, help="what the target is")


@dataclass(frozen=True)
class HuggingFace(DatasetOptions):
    """A data set of Hugging Face's library `datasets` (pip install -e '.[hf]'), on disk or by its name."""

    name = "hf"
    path: str = text(
        None,
        words="a directory or the name of a data set",
        help="dataset.path=DIR that save_to_disk wrote, else what load_dataset takes",
    )
    subset: str | None = text(None, null="the only one", help="which configuration of a named data set")
    train: str = text("train", help="the split to train on")
    test: str | None = text("test", null="test_fraction of the training split", help="the split to test on")
    test_fraction: float = _test_fraction()
    x: str | None = text(
        None, null="all others, as of a table", help="the column of samples: images, numbers or tokens"
    )
    target: str = text("label", help="the column to predict")
    user: str | None = _user()
    drop: list[str] | None = _drop()
    task: str | None = choice(None, TASKS, null=_CLASSES, help="what the target is")
    vocabulary: int | None = _vocabulary()


@dataclass(frozen=True)
class Leaf(DatasetOptions):
    """LEAF's JSON: FEMNIST, others of numbers, Shakespeare; a directory with train/*.json, test/*.json."""

    name = "leaf"
    partition = "natural"
    path: str = text(None, words="a directory with train/*.json and test/*.json", help="dataset.path=DIR")
    task: str = choice(
        "classification",
        ("classification", "sequence"),
        help="sequence: predict what follows each character of a text",
    )


@dataclass(frozen=True)
class Synthetic(DatasetOptions):
    """FedProx's synthetic(alpha, beta): 60 features, 10 classes, one generated user per client."""

    name = "synthetic"
    partition = "natural"
    normalize: bool = switch(False, help="off, as in the paper's code")
    alpha: float = nonnegative(
        1.0, help="standard deviation of u_k: how much the users' labelling models differ"
    )
    beta: float = nonnegative(1.0, help="standard deviation of B_k: how much the users' features differ")
    iid: bool = switch(False, help="true: one labelling model for all")
    test_fraction: float = _test_fraction(0.1, "of every user's samples (FedProx: 0.1; FedProxVR: 0.25)")
    seed: int | None = seed_of(null="the run's seed")


@dataclass(frozen=True)
class Reviews(DatasetOptions):
    """Generated reviews in the form of IMDB's: sequences of tokens, good or bad, one user per client.

    There are 1,000 words. "not" reverses the sentiment word behind it. Users differ in topics and judgement.
    """

    name = "reviews"
    partition = "natural"
    normalize: bool = switch(False, help="tokens are not normalised")
    length: int = integer(40, low=5, help="tokens of the longest review; shorter ones are padded in front")
    skew: float = nonnegative(1.0, help="how much users differ; 0: not at all")
    test_fraction: float = _test_fraction(help="of every user's reviews")
    seed: int | None = seed_of(null="the run's seed")


DATASETS: dict[str, type[DatasetOptions]] = {
    cls.name: cls
    for cls in (
        *(Digits, Synthetic, Mnist, FashionMnist, Emnist, Cifar10, Cifar100, Svhn, Cinic10),
        *(Npz, Table, HuggingFace, Leaf, Reviews),
    )
}


@dataclass(frozen=True)
class UserDataset(Registered, DatasetOptions):  # type: ignore[override]  # whose name is its own
    """A data set that a module named by `imports` registers."""

    noise: ClassVar[float] = 0.0  # type: ignore[misc]  # older functions have a key of this name as their own
