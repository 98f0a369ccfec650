"""synthetic(alpha, beta): its law, its split, its addresses."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from option_helpers import load

from fedbench.data.builtin import user_data
from fedbench.rng import Stream, host_generator

CFG = {
    "name": "synthetic",
    "normalize": False,
    "augment": "none",
    "alpha": 1.0,
    "beta": 1.0,
    "iid": False,
    "test_fraction": 0.25,
    "seed": None,
}


def plain_user(
    seed: int, user: int, alpha: float, beta: float, iid: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """u ~ N(0, alpha), B ~ N(0, beta), v ~ N(B, 1) and W, b ~ N(u, 1), by deviations; feature j of x has the
    variance j^-1.2. iid: v = B, and W, b ~ N(0, 1) of all users. From standard normals."""
    rng = host_generator(seed, Stream.SYNTHETIC, user)
    n = math.floor(math.exp(4 + 2 * rng.standard_normal())) + 50
    u, centre = alpha * rng.standard_normal(), beta * rng.standard_normal()
    v = np.array([centre] * 60) if iid else centre + rng.standard_normal(60)
    if iid:
        model = host_generator(seed, Stream.SYNTHETIC).standard_normal((10, 61))
    else:
        model = u + rng.standard_normal((10, 61))
    deviations = [math.sqrt((j + 1) ** -1.2) for j in range(60)]
    x = v + deviations * rng.standard_normal((n, 60))
    scores = np.stack([x.astype(np.float32) @ w[:60] + w[60] for w in model])
    return x, scores.argmax(0), model[:, :60], model[:, 60]


@pytest.mark.parametrize(("alpha", "beta", "iid"), [(1.0, 1.0, False), (0.5, 2.0, False), (0.0, 3.0, True)])
def test_users_are_drawn_by_the_documented_law(alpha: float, beta: float, iid: bool) -> None:
    for user in (0, 3):
        made, plain = (draw(11, user, alpha, beta, iid) for draw in (user_data, plain_user))
        for ours, theirs in zip(made, plain, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_split_per_user_and_natural_partition(tmp_path: Path) -> None:
    data = load(CFG, str(tmp_path), seed=4, clients=12)
    assert data.client is not None
    assert (data.shape, data.classes, data.mean) == ((60,), 10, None)
    train, test = 0, 0
    for user in range(12):
        x, y, _, _ = user_data(4, user, 1.0, 1.0, False)
        mine = data.client == user
        held_out = round(0.25 * len(y))
        assert mine.sum() == len(y) - held_out
        assert np.array_equal(data.x_train.numpy()[mine], x[:-held_out])
        assert np.array_equal(data.y_train.numpy()[mine], y[:-held_out])
        assert np.array_equal(data.x_test.numpy()[test : test + held_out], x[-held_out:])
        train, test = train + len(y) - held_out, test + held_out
    assert (train, test) == (len(data.y_train), len(data.y_test))


def test_own_seed_replaces_the_runs(tmp_path: Path) -> None:
    fixed = [load({**CFG, "seed": 9}, str(tmp_path), seed=s, clients=2) for s in (0, 1)]
    run = [load(CFG, str(tmp_path), seed=s, clients=2) for s in (9, 1)]
    assert np.array_equal(fixed[0].x_train, fixed[1].x_train)
    assert np.array_equal(fixed[0].x_train, run[0].x_train)
    assert not np.array_equal(run[0].x_train[:40], run[1].x_train[:40])
    first = host_generator(9, Stream.SYNTHETIC, 0).lognormal(4.0, 2.0)
    assert (fixed[0].client == 0).sum() == int(first) + 50 - round(0.25 * (int(first) + 50))
