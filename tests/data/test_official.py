"""The official data sets without any network: files in place, an .npz instead, downloads, and errors."""

from __future__ import annotations

import hashlib
import re
import struct
import threading
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision.datasets.mnist
import torchvision.datasets.utils
from filelock import FileLock
from option_helpers import load

from fedbench.data import Dataset
from fedbench.errors import DataError

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
    images = (rng.integers(0, 256, (n, 28, 28)) for n in (30, 10))
    arrays = (next(images), np.arange(30) % 10, next(images), np.arange(10))
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
        ("fmnist", "FashionMNIST/raw/train-images-idx3-ubyte"),
        ("emnist", "EMNIST/raw/emnist-balanced-train-images-idx3-ubyte"),
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
    assert not list(tmp_path.iterdir())  # what was made for the files is gone


def test_a_download_is_silent_and_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """After one that was interrupted, and while other processes wait for it."""
    serve(monkeypatch, Server(broken_after=3))
    with pytest.raises(DataError, match="connection lost"):
        get("mnist", tmp_path)
    server = Server()
    serve(monkeypatch, server)
    with ThreadPoolExecutor(4) as pool:
        sizes = list(pool.map(lambda _: len(get("mnist", tmp_path).y_train), range(4)))
    assert sizes == [30] * 4
    assert server.calls == 4
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["MNIST"]


def test_who_comes_while_files_are_unpacked_waits_for_all_of_them(tmp_path: Path) -> None:
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


IMAGES, LABELS = "train-images-idx3", "train-labels-idx1"


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("part", "content", "line"),
    [
        (PARTS[2], b"", "is damaged: its 0 bytes are no whole IDX file"),
        (IMAGES, b"\0\0\x08", "is damaged: its 3 bytes are no whole IDX file of 3 sizes"),
        (LABELS, b"\0\0\x08\x01" + bytes(4), "is damaged: its 8 bytes are no whole IDX file of 1 sizes"),
        (IMAGES, small_mnist()[IMAGES][:1000], "is damaged: its 1,000 bytes are no whole IDX file"),
        (LABELS, small_mnist()[LABELS] + b"\0", "is damaged: its 39 bytes are no whole IDX file"),
        (
            LABELS,
            idx(np.arange(29) % 10),
            "is damaged: it has 29 labels, and train-images-idx3-ubyte 30 images",
        ),
        ("t10k-images-idx3", idx(np.zeros((10, 28, 27))), "x_test (uint8 (1, 28, 27)) must have one shape"),
        (LABELS, small_mnist()[LABELS][:-1] + b"M", "is damaged: it has the label 77; 0 to 9 are expected"),
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


@pytest.mark.usefixtures("offline")
def test_cifar_with_a_wrong_checksum_is_not_unpickled(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("meta", "train", "test"):
        (folder / name).write_bytes(b"cos\nsystem\n(S'touch executed'\ntR.")
    with pytest.raises(DataError, match=rf"^{re.escape(str(folder))} is damaged: torchvision says .*corrupt"):
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
        DataError, match=r"emnist-letters-test-labels-idx1-ubyte is damaged: it has the label 0; 1 to 26"
    ):
        get("emnist", tmp_path, split="letters")


# ---- SVHN and CINIC-10 -----------------------------------------------------------------------------------


def svhn(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Small files in SVHN's format, with checksums that torchvision takes."""
    from scipy.io import savemat

    rng, sums, made = np.random.default_rng(0), {}, {}
    for part, n in (("train", 12), ("test", 7)):
        x = rng.integers(0, 256, (32, 32, 3, n), dtype=np.uint8)
        y = rng.integers(1, 11, (n, 1), dtype=np.uint8)
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
    """Classes have CIFAR-10's numbers in both parts, also where a part lacks one."""
    from PIL import Image

    rng, images, place = np.random.default_rng(0), {}, tmp_path / "CINIC-10"
    with pytest.raises(DataError, match=r"cinic10\.npz, nor .*CINIC-10/train/CLASS/\*\.png"):
        get("cinic10", tmp_path)
    parts = {"train": ["airplane", "cat", "truck"], "test": ["cat", "truck"], "valid": ["dog"]}
    for part, names in parts.items():
        pixels = images[part] = rng.integers(0, 256, (2 * len(names), 32, 32, 3), dtype=np.uint8)
        for number, image in enumerate(pixels):
            (folder := place / part / names[number // 2]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"cifar10-{number}.png")
    (place / "test" / ".cache").mkdir()
    data = get("cinic10", tmp_path)
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([0, 0, 3, 3, 9, 9], [3, 3, 9, 9])
    assert data.classes == 10
    assert data.note is not None
    assert data.note.startswith("without training or test images of airplane, automobile, bird, deer")
    for part, x in (("train", data.x_train), ("test", data.x_test)):
        assert np.array_equal(x, images[part].transpose(0, 3, 1, 2))
    (place / "test" / "cat" / "cifar10-0.png").write_bytes(b"x")
    with pytest.raises(DataError, match="test: cannot be read as folders of images"):
        get("cinic10", tmp_path)
    (place / "test" / "zebra").mkdir()
    with pytest.raises(DataError, match="test/zebra: no class of CINIC-10, which has airplane, "):
        get("cinic10", tmp_path)
