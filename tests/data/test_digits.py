"""The embedded digits."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from option_helpers import load
from sklearn.datasets import load_digits

from fedbench.errors import DataError

CFG = {"name": "digits", "normalize": True, "augment": "none"}


def test_split_is_fixed_complete_and_stratified(tmp_path: Path) -> None:
    a = load(CFG, str(tmp_path), seed=0, clients=3)
    b = load(CFG, str(tmp_path), seed=7, clients=9)
    assert (len(a.y_train), len(a.y_test), a.classes, a.shape) == (1437, 360, 10, (1, 8, 8))
    for x, y in ((a.x_train, b.x_train), (a.y_train, b.y_train), (a.x_test, b.x_test), (a.y_test, b.y_test)):
        assert torch.equal(x, y)
    pixels, labels = load_digits(return_X_y=True)
    both = np.concatenate([a.x_train.numpy(), a.x_test.numpy()]).reshape(-1, 64) * 16
    rows = np.column_stack([both, np.concatenate([a.y_train, a.y_test])])
    original = np.column_stack([pixels, labels])
    assert np.array_equal(rows[np.lexsort(rows.T)], original[np.lexsort(original.T)])
    share = np.bincount(a.y_test) / np.bincount(labels)
    assert (abs(share - 0.2) < 0.005).all()  # one fifth of every class, to within one sample


def test_statistics_and_provenance(tmp_path: Path) -> None:
    data = load(CFG, str(tmp_path), seed=0, clients=3)
    assert data.mean is not None
    assert data.mean.item() == pytest.approx(data.x_train.double().mean().item(), abs=1e-12)
    (record,) = data.files
    assert record["path"].startswith("scikit-learn ")
    assert record["bytes"] == 1797 * 64
    assert data.note is None
    assert data.client is None


@pytest.mark.parametrize(
    "content",
    [b"no table", gzip.compress(b"1,2\n3,4\n"), gzip.compress(b"a" * 99)[:30]],
    ids=["no archive", "another table", "cut off"],
)
def test_a_damaged_table_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    file = tmp_path / "digits.csv.gz"
    file.write_bytes(content)
    monkeypatch.setattr("fedbench.data.builtin._file", lambda: file)
    with pytest.raises(
        DataError, match=rf"^dataset=digits: {file} is damaged, install scikit-learn again \(.+\)"
    ):
        load(CFG, str(tmp_path), seed=0, clients=3)
