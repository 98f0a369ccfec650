"""A user's own .npz files: what is accepted, how it is read, and one line for everything that is wrong."""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from option_helpers import load

from fedbench.api import compose_config
from fedbench.data.files import load_npz
from fedbench.errors import ConfigError, DataError
from fedbench.runs.run import Run

RNG = np.random.default_rng(0)
GOOD: dict[str, Any] = {
    "x_train": RNG.normal(size=(8, 3)).astype(np.float32),
    "y_train": np.array([0, 1, 2, 0, 1, 2, 0, 1]),
    "x_test": RNG.normal(size=(4, 3)).astype(np.float32),
    "y_test": np.array([0, 1, 2, 2], dtype=np.uint8),
}


def write(path: Path, **changes: Any) -> Path:
    """GOOD with changes (None leaves an array out), as a file."""
    arrays = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    np.savez(path, **arrays)
    return path


def read(file: Path, **keys: Any) -> Any:
    cfg = {"name": "npz", "normalize": True, "augment": "none", "path": str(file), **keys}
    return load(cfg, "unused", seed=0, clients=2)


def test_features_are_taken_as_they_are(tmp_path: Path) -> None:
    data = read(write(tmp_path / "a.npz"))
    assert np.array_equal(data.x_train, GOOD["x_train"])
    assert np.array_equal(data.y_test, [0, 1, 2, 2])
    assert (data.shape, data.classes, data.name, data.note) == ((3,), 3, "npz", None)
    assert data.y_test.dtype == torch.int64
    np.testing.assert_allclose(data.mean, GOOD["x_train"].astype(float).mean(0), rtol=1e-12)


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        (np.float16, torch.float32),
        ("<f4", torch.float32),
        (">f4", torch.float32),
        (np.float64, torch.float64),
    ],
)
def test_float_types(tmp_path: Path, stored: Any, kept: torch.dtype) -> None:
    x = np.arange(24).reshape(8, 3).astype(stored)
    data = read(write(tmp_path / "a.npz", x_train=x, x_test=x[:4]))
    assert data.x_train.dtype == kept
    assert data.x_train.tolist() == np.arange(24).reshape(8, 3).tolist()


@pytest.mark.parametrize(
    ("shape", "channels"), [((28, 20), 1), ((28, 20, 3), 3), ((5, 4, 1), 1), ((6, 5, 9), 9)]
)
def test_images_become_channels_first(tmp_path: Path, shape: tuple[int, ...], channels: int) -> None:
    x = np.random.default_rng(1).integers(0, 256, (8, *shape), dtype=np.uint8)
    data = read(write(tmp_path / "a.npz", x_train=x, x_test=x[:4]), augment="crop_flip")
    assert data.shape == (channels, *shape[:2])
    assert data.x_train.dtype == torch.uint8
    assert data.x_train.is_contiguous()
    flat = x.reshape(8, *shape[:2], channels)
    for c in range(channels):
        assert np.array_equal(data.x_train[:, c], flat[..., c])
    assert data.augment == "crop_flip"


def test_a_compressed_file_reads_alike(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", **GOOD)
    assert np.array_equal(read(tmp_path / "a.npz").x_train, GOOD["x_train"])


def _float(n: int, *shape: int) -> np.ndarray:
    return np.zeros((n, *shape), dtype=np.float32)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"x_train": None},
            "needs the arrays x_train, y_train, x_test, y_test; x_train is missing, found y_",
        ),
        ({"y_test": None}, "y_test is missing"),
        ({"x_train": np.zeros((8, 3), dtype=np.int64)}, "x_train has type int64; uint8 or a float type"),
        ({"x_train": np.zeros((8, 3), dtype=np.complex64)}, "x_train has type complex64"),
        ({"x_train": np.zeros(8, dtype=np.float32)}, "x_train has shape (8,); images (n, h, w)"),
        ({"x_train": np.zeros((8, 0), dtype=np.float32)}, "x_train has shape (8, 0); images"),
        ({"x_test": _float(0, 3), "y_test": np.zeros(0, int)}, "x_test has shape (0, 3)"),
        ({"x_train": _float(8, 3, 32, 32)}, "(n, h, w, c) with 1 to 4 channels, last, is expected"),
        ({"x_test": _float(4, 5)}, "x_train (float32 (3,)) and x_test (float32 (5,)) must have one shape"),
        (
            {"x_test": np.zeros((4, 3))},
            "x_train (float32 (3,)) and x_test (float64 (3,)) must have one shape",
        ),
        ({"y_train": np.zeros(8)}, "y_train has type float64; integers are expected"),
        ({"y_train": np.zeros(8, dtype=bool)}, "y_train has type bool; integers"),
        ({"y_train": np.zeros((8, 1), int)}, "y_train has shape (8, 1); (8,), one label per sample"),
        ({"y_train": np.zeros(7, int)}, "y_train has shape (7,); (8,)"),
        ({"y_train": np.array([0, 1, 2, 0, 1, 2, 0, -1])}, "y_train holds the label -1"),
        ({"y_train": np.full(8, 2**63, dtype=np.uint64)}, "y_train holds the label 9223372036854775808"),
        ({"y_test": np.array([0, 1, 2, 3])}, "y_test holds the label 3, but the largest in y_train is 2"),
        ({"y_train": np.array([{}] * 8)}, "y_train: holds Python objects, which are not loaded"),
    ],
)
def test_everything_wrong_is_one_line(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    path = write(tmp_path / "bad.npz", **changes)
    with pytest.raises(DataError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_names_the_sample(tmp_path: Path, value: float) -> None:
    x = GOOD["x_train"].copy()
    x[5, 1] = value
    with pytest.raises(DataError, match="x_train has a NaN or an infinity in sample 5"):
        read(write(tmp_path / "bad.npz", x_train=x))


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_files_that_are_no_archives(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(f"{path}: cannot be read as an .npz file")):
        read(path)


def test_single_array_pickle_and_damaged_files(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", GOOD["x_train"])
    with pytest.raises(DataError, match=r"not an \.npz archive"):
        read(tmp_path / "one.npy")
    np.save(tmp_path / "pickle.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "pickle.npy")
    path = write(tmp_path / "a.npz")
    content = bytearray(path.read_bytes())
    at = content.index(GOOD["x_train"].tobytes())
    content[at] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match="x_train is damaged"):
        read(path)


def lying(path: Path, shape: tuple[int, ...], dtype: str = "<f8", compress: bool = False) -> Path:
    """GOOD, but that the header of x_train says `shape`."""
    write(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    buffer = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    members["x_train.npy"] = buffer.getvalue() + bytes(96)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def no_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("read although its size is wrong")

    monkeypatch.setattr(np.lib.format, "read_array", refuse)


@pytest.mark.usefixtures("no_allocation")
@pytest.mark.parametrize("compress", [False, True])
def test_a_header_that_promises_more_than_there_is(tmp_path: Path, compress: bool) -> None:
    path = lying(tmp_path / "bad.npz", (10**12, 3), compress=compress)
    with pytest.raises(DataError) as error:
        read(path)
    assert str(error.value) == (
        f"{path}: x_train is damaged: its header says shape (1000000000000, 3) of float64, "
        "24,000,000,000,000 bytes; the file holds 96"
    )
    for shape in ((-12,), (2, 5), (2**63, 2**63), (0,)):
        with pytest.raises(DataError, match=r"x_train is damaged: its header says shape"):
            read(lying(path, shape))


@pytest.mark.usefixtures("no_allocation")
def test_arrays_beyond_the_memory_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.npz")
    monkeypatch.setattr("os.sysconf", lambda name: 100 if name == "SC_PHYS_PAGES" else 2)
    bytes_ = sum(array.nbytes for array in GOOD.values())
    with pytest.raises(
        DataError, match=rf"a\.npz: its arrays need {bytes_} bytes of memory, this machine has 200$"
    ):
        read(path)


def test_an_archive_with_a_single_lying_array_or_a_password(tmp_path: Path) -> None:
    one = tmp_path / "one.npz"
    with one.open("wb") as stream:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
        np.lib.format.write_array_header_1_0(stream, header)
    with pytest.raises(DataError, match=r"one\.npz: cannot be read .*not an \.npz archive"):
        read(one)
    path = write(tmp_path / "a.npz")
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the bit "encrypted" of every member
        at = content.find(signature)
        while at >= 0:
            content[at + flags] |= 1
            at = content.find(signature, at + 1)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x_train is damaged \(.*encrypted"):
        read(path)


def test_path_is_needed_and_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^dataset.path=null: must be the path of an .npz file$"):
        read(tmp_path, path=None)
    with pytest.raises(ConfigError, match=r"^dataset.path=.*none.npz: no such file"):
        read(tmp_path / "none.npz")
    with pytest.raises(DataError, match=r": needs the files x_train.npy, .*; x_train.npy is missing$"):
        read(tmp_path)


def test_augmenting_features_is_refused(tmp_path: Path) -> None:
    line = r"^dataset.augment=crop_flip: must be none: npz has \d features, not images"
    with pytest.raises(ConfigError, match=line):
        read(write(tmp_path / "a.npz"), augment="crop_flip")


@given(
    hnp.arrays(
        st.sampled_from([np.dtype(t) for t in ("u1", "i2", "f4", "f8", "?", "U1", "c8")]),
        hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6),
    ),
    hnp.arrays(
        st.sampled_from([np.dtype(t) for t in ("i1", "u8", "f4")]),
        hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=6),
    ),
)
def test_any_arrays_load_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, x: np.ndarray, y: np.ndarray
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.npz"
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    with contextlib.suppress(DataError):
        data = load_npz(path, "npz")
        assert len(data.x_train) == len(data.y_train) == len(x)
        assert int(data.y_train.max()) < data.classes


# ---- clients of its own, labels that nobody has, and what a damaged file says ----------------------------


@pytest.mark.parametrize("names", [("client", "client_test"), ("user", "user_test")])
@pytest.mark.parametrize("kind", ["number", "text", "bytes"])
def test_clients_may_be_anything_that_tells_them_apart(
    names: tuple[str, str], kind: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    train, test = rng.permutation(np.repeat([5, 70, -2, 33], 10)), np.array([70, 33, 33, 999])
    called = {
        "number": lambda u: u,
        "text": lambda u: np.char.add("writer-", u.astype(str)),
        "bytes": lambda u: u.astype("S"),
    }
    data = {
        "x_train": rng.random((40, 3)),
        "y_train": np.arange(40) % 2,
        "x_test": rng.random((4, 3)),
        "y_test": [0, 1, 0, 1],
    }
    np.savez(tmp_path / "f.npz", **data, **{names[0]: called[kind](train), names[1]: called[kind](test)})
    words = [
        "dataset=npz",
        f"dataset.path={tmp_path}/f.npz",
        "partition=natural",
        "progress=none",
        "clients.per_round=2",
        "local.batch_size=4",
        "rounds=1",
    ]
    run = Run(compose_config([*words, "clients.total=4", "eval.clients=true"]))
    order = sorted({5, 70, -2, 33}, key=lambda u: u if kind == "number" else str(u))
    np.testing.assert_array_equal(run.problem.division.partition, [order.index(u) for u in train])
    np.testing.assert_array_equal(
        run.problem.division.test_client, [order.index(u) if u != 999 else -1 for u in test]
    )
    few = Run(compose_config([*words, "clients.total=2", "eval.clients=true", "seed=3"]))
    division = few.problem.division
    kept = {int(u) for u, client in zip(train, division.partition, strict=True) if client >= 0}
    assert len(kept) == 2
    assert [int(u) in kept for u in test] == (division.test_client >= 0).tolist()
    few.go(tmp_path / "run")
    with np.load(tmp_path / "run" / "partition.npz") as arrays:
        assert {int(u) for u, client in zip(train, arrays["client"], strict=True) if client >= 0} == kept
    with pytest.raises(ConfigError, match=r"^clients\.total=5: must be at most 4, the data's own clients"):
        Run(compose_config([*words, "clients.total=5"]))


def test_both_names_of_clients_are_one_too_many(tmp_path: Path) -> None:
    both = np.zeros(8, int)
    with pytest.raises(DataError, match="has both client and user; one of them is expected"):
        load_npz(write(tmp_path / "f.npz", client=both, user=both), "npz")
    with pytest.raises(DataError, match=r"client is float64 of shape \(8,\); integers \(8,\), one client"):
        load_npz(write(tmp_path / "f.npz", client=np.zeros(8)), "npz")


def test_labels_that_leave_a_class_empty_are_said_once(tmp_path: Path) -> None:
    def note(y: list[int]) -> str | None:
        return load_npz(write(tmp_path / "f.npz", y_train=np.array(y), y_test=np.array(y[:4])), "npz").note

    assert note([0, 1, 2, 0, 1, 2, 0, 1]) is None
    assert note([1, 2, 3, 1, 2, 3, 1, 1]) == "no training sample has the label 0 of 0 .. 3; labels start at 0"
    assert note([0, 2, 5, 0, 2, 5, 0, 0]) == "no training sample has the label 1, 3, 4 of 0 .. 5"
    assert len(str(note([0, 2, 900, 0, 2, 5, 0, 0]))) < 120


def test_a_damaged_file_says_so_in_a_short_printable_line(tmp_path: Path) -> None:
    file = write(
        tmp_path / "f.npz", x_train=np.random.default_rng(0).random((8, 30)), x_test=np.zeros((4, 30))
    )
    whole, rng = file.read_bytes(), np.random.default_rng(1)
    lines = []
    for _ in range(300):
        content = bytearray(whole)
        for at in rng.integers(0, len(whole), rng.choice([1, 3, 20])):
            content[at] = rng.integers(256)
        file.write_bytes(content)
        try:
            load_npz(file, "npz")
        except DataError as error:
            lines.append(str(error).removeprefix(str(file)))
    assert len(lines) > 100
    assert max(map(len, lines)) < 260
    assert all(line.isprintable() for line in lines)
