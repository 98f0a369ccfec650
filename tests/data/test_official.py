"""The official data sets without any network: files in place, an .npz instead, downloads, and errors."""

from __future__ import annotations

import gzip
import hashlib
import re
import struct
import threading
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.datasets.mnist
import torchvision.datasets.utils
from filelock import FileLock
from option_helpers import load
from run_files import metrics

from fedbench.api import compose_config
from fedbench.data import Dataset
from fedbench.errors import ConfigError, DataError
from fedbench.runs.run import Run

PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def get(name: str, root: Path, **keys: Any) -> Dataset:
    cfg = {"name": name, "normalize": True, "augment": "none", **keys}
    return load(cfg, str(root), seed=0, clients=2)


def idx(array: np.ndarray) -> bytes:
    """The IDX format of the MNIST files: magic number, sizes (big endian), bytes."""
    header = struct.pack(f">{array.ndim + 1}I", 0x0800 + array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def small_mnist() -> dict[str, bytes]:
    """Four tiny IDX files, by part."""
    rng = np.random.default_rng(0)
    arrays = (
        rng.integers(0, 256, (30, 28, 28)),
        np.arange(30) % 10,
        rng.integers(0, 256, (10, 28, 28)),
        np.arange(10),
    )
    return {part: idx(array) for part, array in zip(PARTS, arrays, strict=True)}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(torchvision.datasets.utils.urllib.request, "urlopen", refuse)


class Server:
    """Stands for torchvision's download of one archive: writes the unpacked file, noisily."""

    def __init__(self, broken_after: int | None = None) -> None:
        self.calls, self.broken_after = 0, broken_after

    def __call__(self, url: str, download_root: str, filename: str, md5: str) -> None:
        print("Downloading", url)
        if self.broken_after is not None and self.calls >= self.broken_after:
            raise urllib.error.URLError("connection lost")
        self.calls += 1
        part = filename.removesuffix("-ubyte.gz")
        (Path(download_root) / f"{part}-ubyte").write_bytes(small_mnist()[part])


def serve(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr(torchvision.datasets.mnist, "download_and_extract_archive", server)


def place(root: Path, folder: str = "MNIST") -> None:
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for part, content in small_mnist().items():
        (raw / f"{part}-ubyte").write_bytes(content)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fmnist", "FashionMNIST")])
def test_files_in_place_are_read_and_recorded(tmp_path: Path, name: str, folder: str) -> None:
    place(tmp_path, folder)
    data = get(name, tmp_path)
    assert (data.shape, data.classes, data.note) == ((1, 28, 28), 10, None)
    pixels = np.frombuffer(small_mnist()[PARTS[0]], np.uint8)[16:].reshape(30, 1, 28, 28)
    assert np.array_equal(data.x_train, pixels)
    assert data.y_train.tolist() == [i % 10 for i in range(30)]
    for record, part in zip(data.files, PARTS, strict=True):
        content = small_mnist()[part]
        assert record["path"].endswith(f"{folder}/raw/{part}-ubyte")
        assert record["bytes"] == len(content)
        assert record["sha256"] == hashlib.sha256(content).hexdigest()


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("name", "looked_for"),
    [
        ("mnist", "MNIST/raw/t10k-labels-idx1-ubyte"),
        ("fmnist", "FashionMNIST/raw/train-images-idx3-ubyte"),
        ("emnist", "EMNIST/raw/emnist-balanced-train-images-idx3-ubyte"),
        ("cifar10", "cifar-10-batches-py/data_batch_5"),
        ("cifar100", "cifar-100-python/train"),
        ("svhn", "test_32x32.mat"),
    ],
)
def test_offline_is_one_line_with_the_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, looked_for: str
) -> None:
    root = tmp_path / "new" / "root"
    with pytest.raises(DataError) as error:
        get(name, root)
    line = str(error.value)
    assert line.startswith(f"dataset={name}: not found: {root / name}.npz, nor {root}")
    assert str(root / looked_for) in line
    assert "Name or service not known" in line
    assert "\n" not in line
    assert capfd.readouterr() == ("", "")


def test_a_download_is_silent_and_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """After one that was interrupted, and while other processes wait for it."""
    serve(monkeypatch, Server(broken_after=3))
    with pytest.raises(DataError, match="connection lost"):
        get("mnist", tmp_path)
    server, sizes = Server(), []
    serve(monkeypatch, server)
    threads = [
        threading.Thread(target=lambda: sizes.append(len(get("mnist", tmp_path).y_train))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == [30] * 4
    assert server.calls == 4
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["MNIST"]


def test_who_comes_while_files_are_unpacked_waits_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is there as long as somebody downloads: what exists may be half of what it becomes."""
    place(tmp_path)
    file = tmp_path / "MNIST/raw/train-labels-idx1-ubyte"
    whole, sizes = file.read_bytes(), []
    with FileLock(tmp_path / ".mnist.lock"):
        file.write_bytes(whole[:20])
        reader = threading.Thread(target=lambda: sizes.append(len(get("mnist", tmp_path).y_train)))
        reader.start()
        reader.join(0.5)
        file.write_bytes(whole)
    reader.join()
    assert sizes == [30]


@pytest.mark.usefixtures("offline")
def test_archives_in_place_need_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    sums = []
    for part, content in small_mnist().items():
        packed = gzip.compress(content)
        (raw / f"{part}-ubyte.gz").write_bytes(packed)
        sums.append((f"{part}-ubyte.gz", hashlib.md5(packed).hexdigest()))
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", sums)
    assert len(get("mnist", tmp_path).y_test) == 10


IMAGES, LABELS = "train-images-idx3", "train-labels-idx1"


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("part", "content", "line"),
    [
        *((part, b"", "is damaged: its 0 bytes are no whole IDX file") for part in PARTS),
        (IMAGES, b"\0\0\x08", "is damaged: its 3 bytes are no whole IDX file of 3 sizes"),
        (IMAGES, b"\x1f\x8b\x08\x08" + bytes(100), "is damaged: its 104 bytes are no whole IDX file"),
        (LABELS, b"\0\0\x08\x01" + bytes(4), "is damaged: its 8 bytes are no whole IDX file of 1 sizes"),
        (IMAGES, b"\0\0\x08\x03" + b"\xff" * 40, "is damaged: its 44 bytes are no whole IDX file"),
        (IMAGES, small_mnist()[IMAGES][:1000], "is damaged: its 1,000 bytes are no whole IDX file"),
        (LABELS, small_mnist()[LABELS] + b"\0", "is damaged: its 39 bytes are no whole IDX file"),
        (LABELS, idx(np.arange(29) % 10), "y_train is int64 of shape (29,); (30,), one label per sample, is"),
        ("t10k-images-idx3", idx(np.zeros((10, 28, 27))), "x_test (uint8 (1, 28, 27)) must have one shape"),
        (
            LABELS,
            small_mnist()[LABELS][:-1] + b"M",
            "y_train holds the label 77, but mnist has 10 classes, 0",
        ),
        ("t10k-labels-idx1", idx(np.full(10, 77)), "y_test holds the label 77, but mnist has 10 classes, 0"),
    ],
)
def test_every_damaged_file_is_named_and_kept(tmp_path: Path, part: str, content: bytes, line: str) -> None:
    place(tmp_path)
    path = tmp_path / "MNIST/raw" / f"{part}-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        get("mnist", tmp_path)
    assert line in str(error.value)
    assert str(error.value).startswith(str(path if "damaged" in line else path.parent))
    assert path.read_bytes() == content


def test_no_dataset_is_made_with_labels_outside_its_classes() -> None:
    x = torch.zeros(3, 2)
    for y, wrong in ((torch.tensor([0, 1, 2]), "label 2"), (torch.tensor([0, -1, 1]), "label -1")):
        with pytest.raises(DataError, match=f"^dataset=own: y_test holds the {wrong}, but own has 2 classes"):
            Dataset("own", x, y.clip(0, 1), x, y, classes=2)
    with pytest.raises(DataError, match=r"^dataset=own: y_train is int64 of shape \(2,\); \(3,\)"):
        Dataset("own", x, torch.zeros(2, dtype=torch.int64), x, torch.zeros(3, dtype=torch.int64), classes=2)


@pytest.mark.usefixtures("offline")
def test_cifar_with_a_wrong_checksum_is_not_unpickled(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("meta", "train", "test"):
        (folder / name).write_bytes(b"cos\nsystem\n(S'touch executed'\ntR.")
    with pytest.raises(
        DataError, match=rf"^{re.escape(str(folder))} is damaged: torchvision says .*corrupted"
    ):
        get("cifar100", tmp_path)


def npz(root: Path, name: str, largest: int) -> None:
    x = np.random.default_rng(0).integers(0, 256, (largest + 1, 28, 28), dtype=np.uint8)
    y = np.arange(largest + 1)
    np.savez(root / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)


@pytest.mark.usefixtures("offline")
def test_npz_takes_the_place_of_the_files_and_says_so(tmp_path: Path) -> None:
    place(tmp_path)
    npz(tmp_path, "mnist", 9)
    data = get("mnist", tmp_path)
    assert len(data.y_train) == 10
    assert data.note == (
        "mnist.npz was used in place of the official files: "
        "10 training and 10 test samples, where those have 60,000 and 10,000"
    )
    assert [record["path"] for record in data.files] == [f"{tmp_path}/mnist.npz"]


@pytest.mark.usefixtures("offline")
def test_npz_with_fewer_or_more_classes(tmp_path: Path) -> None:
    npz(tmp_path, "emnist", 39)
    data = get("emnist", tmp_path, split="balanced")
    assert data.classes == 47
    assert data.note is not None
    assert "40 of the 47 classes" in data.note
    line = r"y_train holds the label 39, but emnist \(split=letters\) has 26 classes"
    with pytest.raises(DataError, match=line):
        get("emnist", tmp_path, split="letters")


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("split", ["digits", "mnist"])
def test_digits_are_the_first_ten_labels_of_an_npz(tmp_path: Path, split: str) -> None:
    npz(tmp_path, "emnist", 39)
    data, whole = get("emnist", tmp_path, split=split), get("emnist", tmp_path, split="balanced")
    assert data.classes == 10
    assert data.y_train.tolist() == list(range(10))
    assert np.array_equal(data.x_train, whole.x_train[:10])
    assert data.note is not None
    assert "(only its labels 0 to 9: 10 of 40 training and 10 of 40 test samples)" in data.note
    assert f"where the {split} split has" in data.note
    npz(tmp_path, "emnist", 9)  # a file of the digits alone is taken as it is
    assert "only" not in str(get("emnist", tmp_path, split=split).note)


@pytest.mark.usefixtures("offline")
def test_emnist_letters_start_at_zero(tmp_path: Path) -> None:
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    for part, labels in (("train", np.arange(1, 27)), ("test", np.array([26, 1]))):
        images = np.zeros((len(labels), 28, 28))
        (raw / f"emnist-letters-{part}-images-idx3-ubyte").write_bytes(idx(images))
        (raw / f"emnist-letters-{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    data = get("emnist", tmp_path, split="letters")
    assert data.classes == 26
    assert data.y_train.tolist() == list(range(26))
    assert data.y_test.tolist() == [25, 0]
    (raw / "emnist-letters-test-labels-idx1-ubyte").write_bytes(idx(np.array([0, 1])))
    with pytest.raises(
        DataError, match=r"raw: y_test holds the label -1, but emnist has 26 classes, 0 \.\. 25"
    ):
        get("emnist", tmp_path, split="letters")


def test_unknown_emnist_split(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^dataset.split=balance: must be one of .* mean 'balanced'\?\)$"):
        get("emnist", tmp_path, split="balance")


@pytest.mark.usefixtures("offline")
def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="dataset=mnist: not found"):
        get("mnist", tmp_path / "file" / "root")


# ---- SVHN and CINIC-10 -----------------------------------------------------------------------------------


def svhn(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Small files in SVHN's format, with checksums that torchvision takes."""
    from scipy.io import savemat

    rng, sums, made = np.random.default_rng(0), {}, {}
    for part, n in (("train", 12), ("test", 7)):
        x, y = (
            rng.integers(0, 256, (32, 32, 3, n), dtype=np.uint8),
            rng.integers(1, 11, (n, 1)).astype(np.uint8),
        )
        y[:2] = [[10], [1]]
        file = root / f"{part}_32x32.mat"
        savemat(file, {"X": x, "y": y})
        sums[part] = ["", file.name, hashlib.md5(file.read_bytes()).hexdigest()]
        made[part] = x, y
    monkeypatch.setattr(torchvision.datasets.SVHN, "split_list", sums)
    return made


def test_svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = svhn(tmp_path, monkeypatch)
    data = get("svhn", tmp_path)
    for part, x, y in (("train", data.x_train, data.y_train), ("test", data.x_test, data.y_test)):
        assert np.array_equal(x, made[part][0].transpose(3, 2, 0, 1))
        assert np.array_equal(y, made[part][1][:, 0] % 10)  # the digit 0 is stored as 10
    (tmp_path / "test_32x32.mat").write_bytes(b"x")
    with pytest.raises(DataError, match=r"test_32x32\.mat is damaged: .* delete it to download again"):
        get("svhn", tmp_path)


def test_cinic10(tmp_path: Path) -> None:
    from PIL import Image

    rng, images = np.random.default_rng(0), {}
    with pytest.raises(DataError, match=r"cinic10\.npz, nor .*CINIC-10/train/CLASS/\*\.png"):
        get("cinic10", tmp_path)
    for part, name, number in np.ndindex(3, 2, 3):
        folder = tmp_path / "CINIC-10" / ("train", "test", "valid")[part] / ("airplane", "cat")[name]
        folder.mkdir(parents=True, exist_ok=True)
        images[part, name, number] = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(images[part, name, number]).save(folder / f"cifar10-{number}.png")
    data = get("cinic10", tmp_path)
    assert data.y_train.tolist() == data.y_test.tolist() == [0, 0, 0, 3, 3, 3]  # CIFAR-10's numbers
    assert data.classes == 10
    assert data.note is not None
    assert data.note.startswith("without training or test images of automobile, bird, deer")
    for part, x in enumerate((data.x_train, data.x_test)):
        expected = [images[part, name, number].transpose(2, 0, 1) for name in range(2) for number in range(3)]
        assert np.array_equal(x, expected)
    (tmp_path / "CINIC-10" / "test" / "cat" / "cifar10-0.png").write_bytes(b"x")
    with pytest.raises(DataError, match="test: cannot be read as folders of images"):
        get("cinic10", tmp_path)


def test_a_class_of_cinic10_that_one_part_lacks_moves_no_other(tmp_path: Path) -> None:
    from PIL import Image

    colour = {"airplane": 40, "cat": 120, "truck": 220}
    for part, names in (("train", ["airplane", "cat", "truck"]), ("test", ["cat", "truck"])):
        for name in names:
            folder = tmp_path / "CINIC-10" / part / name
            folder.mkdir(parents=True)
            for number in range(4):
                pixels = np.full((32, 32, 3), colour[name] + number, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    words = ["dataset=cinic10", f"data.root={tmp_path}", "clients.total=1", "clients.per_round=1", "rounds=3"]
    words += ["model=mlp", "local.steps=50", "local.batch_size=12", "threads=1", "progress=none"]
    Run(compose_config([*words, "algorithm.lr=0.1"])).go(tmp_path / "run")
    assert float(metrics(tmp_path / "run")[-1]["test_accuracy"]) == 1.0
    (tmp_path / "CINIC-10" / "test" / ".cache").mkdir()
    get("cinic10", tmp_path)
    (tmp_path / "CINIC-10" / "test" / "zebra").mkdir()
    with pytest.raises(DataError, match="test/zebra: no class of CINIC-10, which has airplane, "):
        get("cinic10", tmp_path)
