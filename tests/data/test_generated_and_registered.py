"""Generated data, synthetic(alpha, beta) and reviews: their laws, splits and addresses; and a user's
registered data set."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from option_helpers import load

from fedbench.data import from_arrays, register_dataset
from fedbench.data.builtin import NOT, user_data, user_reviews
from fedbench.data.options import DATASETS, UserDataset
from fedbench.data.registry import load as load_options
from fedbench.errors import ConfigError, DataError
from fedbench.fields import read_own
from fedbench.rng import Stream, host_generator

# ---- synthetic(alpha, beta) ------------------------------------------------------------------------------

CFG = {"name": "synthetic", "test_fraction": 0.25}


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


# ---- generated reviews ---------------------------------------------------------------------------------


def test_reviews_are_addressed_by_seed_and_user() -> None:
    cfg = {"name": "reviews"}
    few, more = (load(cfg, "unused", seed=3, clients=n) for n in (2, 4))
    n = int((more.client < 2).sum())
    assert np.array_equal(few.x_train, more.x_train[:n])
    assert few.client.tolist() == more.client[:n].tolist()
    assert not np.array_equal(few.x_train[:20], load(cfg, "unused", seed=4, clients=2).x_train[:20])
    assert np.bincount(more.test_client).tolist() == [
        max(1, round(0.2 * len(user_reviews(3, user, 40, 1.0)[1]))) for user in range(4)
    ]


def plain_reviews(seed: int, user: int, length: int, skew: float) -> tuple[np.ndarray, np.ndarray]:
    """Word by word, from draws in the code's order: 50 good words from 2 on, 50 bad ones, 89 of each of 10
    topics; a word has sentiment with probability 0.2, of which 0.85 agree with the label, and behind a
    neutral word 0.4 are the opposite word behind "not"."""
    rng = host_generator(seed, Stream.SYNTHETIC, user, 1)
    n = math.floor(rng.lognormal(5.0, 0.5)) + 10
    share = rng.beta(1 / skew, 1 / skew) if skew else 0.5
    topics = rng.dirichlet([1 / skew] * 10) if skew else [0.1] * 10
    good = rng.random(n) < share
    zipf = np.array([1 / rank for rank in range(1, 90)])
    topic, ranks = rng.choice(10, n, p=topics), rng.choice(89, (n, length), p=zipf / zipf.sum())
    words = rng.integers(math.ceil(length / 4), length + 1, n)
    agrees, says, turns = (rng.random((n, length)) < p for p in (0.85, 0.2, 0.4))
    which = rng.integers(0, 50, (n, length))
    x = np.zeros((n, length), int)
    for r, t in np.ndindex(n, length):
        if t < length - words[r]:
            continue  # padding is in front
        x[r, t] = 102 + 89 * topic[r] + ranks[r, t]
        if says[r, t]:
            positive = good[r] == agrees[r, t]
            if turns[r, t] and t > length - words[r] and not says[r, t - 1]:
                positive, x[r, t - 1] = not positive, NOT
            x[r, t] = (2 if positive else 52) + which[r, t]
    return x, good.astype(int)


@pytest.mark.parametrize(("user", "length", "skew"), [(0, 40, 0.0), (1, 40, 1.0), (2, 10, 2.0), (3, 7, 0.5)])
def test_reviews_are_made_word_by_word_as_documented(user: int, length: int, skew: float) -> None:
    made, plain = (draw(5, user, length, skew) for draw in (user_reviews, plain_reviews))
    for ours, theirs in zip(made, plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# ---- a user's own data set -----------------------------------------------------------------------------


@register_dataset("gauges")
def gauges(root: Path, clients: int, noise: float = 0.1, factor=1) -> Any:  # type: ignore[no-untyped-def]
    x = np.arange(4.0 * clients)[:, None]
    own = np.repeat(np.arange(clients), 4)
    return from_arrays("gauges", x, noise * x * factor, x, x, task="regression", client=own, test_client=own)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "gauge"}, "dataset=gauge: must be one of cifar10, .*did you mean 'gauges'"),
        ({"name": "gauges", "nois": 1}, "dataset.nois=1: no such key; dataset=gauges has noise"),
        ({"name": "gauges", "noise": "loud"}, "dataset.noise=loud: must be a number$"),
        ({"name": "gauges", "factor": "loud"}, "dataset=gauges: its function failed: UFuncTypeError|_UFunc"),
    ],
)
def test_what_is_wrong_with_a_users_data_set_is_one_line(values: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        load_options(read_own(DATASETS, UserDataset, values, "dataset"), "unused", seed=0, clients=3)


def test_our_own_names_cannot_be_taken() -> None:
    with pytest.raises(ValueError, match="dataset=mnist is one of fedbench's own"):
        register_dataset("mnist")
