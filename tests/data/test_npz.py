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
from option_helpers import load, refusal

from fedbench.api import compose_config
from fedbench.data.transforms import to_input
from fedbench.errors import ConfigError, DataError
from fedbench.machine import Memory
from fedbench.runs.run import Run

RNG = np.random.default_rng(0)
GOOD: dict[str, Any] = {
    "x_train": RNG.normal(size=(8, 3)).astype(np.float32),
    "y_train": np.array([0, 1, 2, 0, 1, 2, 0, 1]),
    "x_test": RNG.normal(size=(4, 3)).astype(np.float32),
    "y_test": np.array([0, 1, 2, 2], dtype=np.uint8),
}


def write(path: Path, save: Any = np.savez, **changes: Any) -> Path:
    """GOOD with changes (None leaves an array out), as a file."""
    save(path, **{key: value for key, value in {**GOOD, **changes}.items() if value is not None})
    return path


def read(file: Path, **keys: Any) -> Any:
    cfg = {"name": "npz", "normalize": True, "augment": "none", "path": str(file), **keys}
    return load(cfg, "unused", seed=0, clients=2)


def refused(file: Path, **keys: Any) -> str:
    """The line that refuses a file; it names it first."""
    line = refusal({"name": "npz", "path": str(file), **keys})
    assert line.startswith(f"{file}: ")
    return line.removeprefix(f"{file}: ")


@pytest.mark.parametrize(("stored", "kept"), [("f2", "float32"), (">f4", "float32"), ("f8", "float64")])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_float_types(tmp_path: Path, stored: str, kept: str, save: Any) -> None:
    x = np.arange(24).reshape(8, 3).astype(stored)
    data = read(write(tmp_path / "a.npz", save, x_train=x, x_test=x[:4]))
    assert (data.shape, data.classes, data.y_test.tolist()) == ((3,), 3, [0, 1, 2, 2])
    assert data.x_train.dtype == getattr(torch, kept)
    assert data.x_train.tolist() == np.arange(24).reshape(8, 3).tolist()


@pytest.mark.parametrize(("shape", "channels"), [((28, 20), 1), ((28, 20, 3), 3), ((6, 5, 9), 9)])
def test_images_become_channels_first(tmp_path: Path, shape: tuple[int, ...], channels: int) -> None:
    x = np.random.default_rng(1).integers(0, 256, (8, *shape), dtype=np.uint8)
    data = read(write(tmp_path / "a.npz", x_train=x, x_test=x[:4]), augment="crop_flip")
    assert data.shape == (channels, *shape[:2])
    assert data.x_train.dtype == torch.uint8
    assert data.x_train.is_contiguous()
    assert np.array_equal(data.x_train, x.reshape(8, *shape[:2], channels).transpose(0, 3, 1, 2))
    assert data.augment == "crop_flip"


def test_tokens_stay_integers_and_are_not_normalised(tmp_path: Path) -> None:
    x = {"x_train": RNG.integers(0, 9, (8, 6), dtype=np.uint8), "x_test": RNG.integers(0, 9, (4, 6))}
    data = read(write(tmp_path / "a.npz", **x), vocabulary=9)
    assert (data.vocabulary, data.mean, data.shape) == (9, None, (6,))
    given = to_input(data.x_train, None, None, torch.float32)
    assert given.dtype == torch.int64
    assert np.array_equal(given, x["x_train"])


def _float(*shape: int) -> np.ndarray:
    return np.zeros(shape, dtype=np.float32)


NOT_FINITE = GOOD["x_train"].copy()
NOT_FINITE[5, 1] = np.nan


TOKENS = {"x_train": np.zeros((8, 2), dtype=int), "x_test": np.zeros((4, 2), dtype=int)}
NUMBERS = {"y_train": np.zeros((8, 1)), "y_test": np.zeros((4, 1))}
OF_CLASSES: list[tuple[dict[str, Any], str]] = [
    ({"x_train": None}, "needs the arrays x_train, y_train, x_test, y_test; x_train is missing, found y"),
    ({"x_train": np.zeros((8, 3), dtype=np.int64)}, "x_train is int64 of shape (8, 3); uint8 or a float"),
    ({"x_train": np.where(np.isnan(NOT_FINITE), -np.inf, NOT_FINITE)}, "an infinity in sample 5"),
    ({"x_test": _float(0, 3), "y_test": np.zeros(0, int)}, "x_test is float32 of shape (0, 3)"),
    ({"x_train": _float(8, 3, 32, 32)}, "(n, h, w, c) with 1 to 4 channels, last, or more where h is"),
    ({"x_test": _float(4, 5)}, "x_train (float32 (3,)) and x_test (float32 (5,)) must have one shape"),
    ({"x_test": np.zeros((4, 3))}, "x_train (float32 (3,)) and x_test (float64 (3,)) must have one"),
    ({"x_train": NOT_FINITE}, "x_train has a NaN or an infinity in sample 5"),
    ({"y_train": np.zeros(8)}, "y_train is float64 of shape (8,); integers, one for each sample"),
    ({"y_train": np.zeros((8, 1), int)}, "y_train is int64 of shape (8, 1); (8,), one label per sample"),
    ({"y_train": np.zeros(7, int)}, "y_train is int64 of shape (7,); (8,)"),
    ({"y_train": np.array([0, 1, 2, 0, 1, 2, 0, -1])}, "y_train holds the label -1"),
    ({"y_train": np.full(8, 2**63, dtype=np.uint64)}, "y_train holds the label 9223372036854775808"),
    ({"y_test": np.array([0, 1, 2, 3])}, "y_test holds the label 3, but npz has 3 classes, 0 .. 2"),
    ({"y_train": np.array([{}] * 8)}, "y_train cannot be read (Object arrays cannot be loaded"),
    ({"client": np.zeros(8, int), "user": np.zeros(8, int)}, "has both client and user; one of them is"),
    ({"client": np.zeros(7, int)}, "client is int64 of shape (7,); integers (8,), one client per sample, or"),
    ({"client": np.array(["a", "b", "", "b"] * 2)}, "client is empty in sample 2"),
    ({"client_test": np.zeros(4)}, "client_test is float64 of shape (4,); integers (4,)"),
]  # fmt: skip
REALS, PAD = {"task": "regression"}, np.array([[1, 0], [0, 0], [1, 1], [0, 1]])
OTHERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"task": "multilabel"}, {"y_train": np.full((8, 2), 2), "y_test": np.zeros((4, 2))},
     "a value other than 0 and 1 in sample 0"),
    (REALS, NUMBERS | {"y_train": np.array([1.0, np.nan] * 4)}, "a NaN or an infinity in sample 1"),
    (REALS, NUMBERS | {"y_train": np.zeros((8, 2, 2))}, "numbers (n,) or (n, k) are expected"),
    (REALS, NUMBERS | {"y_train": np.zeros(7)}, "floats (8, 1) are expected"),
    (REALS, NUMBERS | {"y_test": np.zeros((4, 2))}, "floats (4, 1) are expected"),
    ({"task": "sequence", "vocabulary": 5}, TOKENS | {"y_train": np.ones((8, 2), int), "y_test": PAD},
     "y_test has no label in sample 1: all are 0, which is padding"),
    ({"vocabulary": 5}, {}, "tokens (n, t), integers, are expected"),
    ({"vocabulary": 5}, TOKENS | {"x_train": np.full((8, 2), 5)}, "the token 5, but the vocabulary has 5: 0"),
    ({"vocabulary": 5}, TOKENS | {"x_train": np.full((8, 2), -1)}, "the token -1, but the vocabulary has 5"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "changes", "line"), [*(({}, *case) for case in OF_CLASSES), *OTHERS])
def test_everything_wrong_is_one_line(tmp_path: Path, keys: Any, changes: Any, line: str) -> None:
    assert line in refused(write(tmp_path / "bad.npz", **changes), **keys)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", "an array", "a pickle"])
def test_files_that_are_no_archives(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "bad.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with path.open("wb") as stream:
            np.save(stream, GOOD["x_train"] if content == "an array" else np.array([{}]), allow_pickle=True)
    assert refused(path) == "cannot be read as an .npz file (File is not a zip file)"


def lying(path: Path, shape: tuple[int, ...], save: Any) -> Path:
    """GOOD, but that the header of x_train says `shape`."""
    write(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    members["x_train.npy"] = buffer.getvalue() + bytes(96)
    with zipfile.ZipFile(path, "w", save) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("save", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", [(10**12, 3), (-12,), (2, 5), (2**63, 2**63), (0,)])
def test_a_header_that_does_not_fit_the_file(tmp_path: Path, shape: tuple[int, ...], save: int) -> None:
    """96 bytes follow: too few, or more than it says. Nothing is filled with what is not there."""
    assert refused(lying(tmp_path / "bad.npz", shape, save)).startswith("x_train cannot be read (")


def test_arrays_beyond_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.npz")
    monkeypatch.setattr("fedbench.data.files.memory", lambda: Memory(total=200, available=100))
    assert re.fullmatch(r"needs \d{3} bytes of memory, this machine has 200", refused(path))


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz")
    content = bytearray(path.read_bytes())
    content[content.index(GOOD["x_train"].tobytes())] ^= 0xFF
    path.write_bytes(content)
    assert "x_train cannot be read (Bad CRC-32" in refused(path)


def test_path_is_needed_and_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^dataset.path=null: must be the path of an .npz file$"):
        read(tmp_path, path=None)
    with pytest.raises(ConfigError, match=r"^dataset.path=.*none.npz: no such file"):
        read(tmp_path / "none.npz")
    files = "x_train.npy, y_train.npy, x_test.npy, y_test.npy"
    assert refused(tmp_path) == f"needs the files {files}; x_train.npy is missing"


def test_features_are_no_images(tmp_path: Path) -> None:
    for key, value, only in (("augment", "crop_flip", "none"), ("normalize_per", "pixel", "null")):
        line = rf"^dataset.{key}={value}: must be {only}: npz has 3 features, not images"
        with pytest.raises(ConfigError, match=line):
            read(write(tmp_path / "a.npz"), **{key: value})


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
def test_any_arrays_load_or_are_refused(tmp_path_factory: Any, x: np.ndarray, y: np.ndarray) -> None:
    path = tmp_path_factory.getbasetemp() / "any.npz"
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    with contextlib.suppress(DataError):
        data = read(path, normalize=False)
        assert len(data.x_train) == len(data.y_train) == len(x)
        assert int(data.y_train.max()) < data.classes


def test_a_damaged_file_says_so_in_a_short_printable_line(tmp_path: Path) -> None:
    file = write(tmp_path / "f.npz", x_train=RNG.random((8, 30)), x_test=np.zeros((4, 30)))
    whole, rng = file.read_bytes(), np.random.default_rng(1)
    lines = []
    for _ in range(300):
        content = bytearray(whole)
        for at in rng.integers(0, len(whole), rng.choice([1, 3, 20])):
            content[at] = rng.integers(256)
        file.write_bytes(content)
        try:
            read(file)
        except DataError as error:
            lines.append(str(error).removeprefix(str(file)))
    assert len(lines) > 100
    assert max(map(len, lines)) < 260
    assert all(line.isprintable() for line in lines)


# ---- clients of its own, and labels that nobody has ------------------------------------------------------


CALLED = {
    "number": lambda u: u,
    "text": lambda u: np.char.add("writer-", u.astype(str)),
    "bytes": lambda u: u.astype("S"),
}


@pytest.mark.parametrize("names", [("client", "client_test"), ("user", "user_test")])
@pytest.mark.parametrize("kind", CALLED)
def test_clients_may_be_called_anything(names: tuple[str, str], kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    train, test = rng.permutation(np.repeat([5, 70, -2, 33], 10)), np.array([70, 33, 33, 999])
    arrays = {"x_train": rng.random((40, 3)), "y_train": np.arange(40) % 2}
    arrays |= {"x_test": rng.random((4, 3)), "y_test": np.array([0, 1, 0, 1])}
    own = {names[0]: CALLED[kind](train), names[1]: CALLED[kind](test)}
    words = ["dataset=npz", f"dataset.path={write(tmp_path / 'f.npz', **arrays, **own)}", "partition=natural"]
    words += ["progress=none", "clients.per_round=2", "local.batch_size=4", "rounds=1", "eval.clients=true"]
    run = Run(compose_config([*words, "clients.total=4"]))
    order = sorted({5, 70, -2, 33}, key=lambda u: str(u) if kind == "text" else u)
    np.testing.assert_array_equal(run.problem.division.partition, [order.index(u) for u in train])
    tested = [order.index(u) if u != 999 else -1 for u in test]
    np.testing.assert_array_equal(run.problem.division.test_client, tested)
    few = Run(compose_config([*words, "clients.total=2", "seed=3"]))
    kept = {int(u) for u, client in zip(train, few.problem.division.partition, strict=True) if client >= 0}
    assert len(kept) == 2
    assert [int(u) in kept for u in test] == (few.problem.division.test_client >= 0).tolist()
    with pytest.raises(ConfigError, match=r"^clients\.total=5: must be at most 4, the data's own clients"):
        Run(compose_config([*words, "clients.total=5"]))


@pytest.mark.parametrize(
    ("y", "note"),
    [
        ([0, 1, 2, 0, 1, 2, 0, 1], None),
        ([1, 2, 3, 1, 2, 3, 1, 1], "no training sample has the label 0 of 0 .. 3; labels start at 0"),
        ([0, 2, 5, 0, 2, 5, 0, 0], "no training sample has the label 1, 3, 4 of 0 .. 5"),
    ],
)
def test_labels_that_leave_a_class_empty_are_said(y: list[int], note: str | None, tmp_path: Path) -> None:
    assert read(write(tmp_path / "f.npz", y_train=np.array(y), y_test=np.array(y[:4]))).note == note
    many = np.array([0, 2, 900, 0, 2, 5, 0, 0])
    assert len(str(read(write(tmp_path / "f.npz", y_train=many, y_test=many[:4])).note)) < 120


def test_one_class_is_no_classification(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).random((8, 3)), np.zeros(8, dtype=int)
    file = write(tmp_path / "f.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    line = refusal({"name": "npz", "path": str(file)})
    assert line == f"{file}: all samples are of one class; at least two are needed"
