"""synthetic(alpha, beta): its law, its split, its addresses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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


def test_labels_are_the_argmax_of_the_users_own_model() -> None:
    for user in range(5):
        x, y, weight, bias = user_data(3, user, 0.5, 0.5, False)
        scores = np.array([[w @ row + b for w, b in zip(weight, bias, strict=True)] for row in x[:40]])
        assert np.array_equal(scores.argmax(axis=1), y[:40])


def test_moments_with_alpha_and_beta_as_standard_deviations() -> None:
    users, alpha, beta = 600, 2.0, 3.0
    drawn = [user_data(11, user, alpha, beta, False) for user in range(users)]
    sizes = np.array([len(y) for _, y, _, _ in drawn])
    assert sizes.min() >= 50
    # log of (size - 50), floored: median exp(4), standard deviation 2
    assert abs(np.log(np.median(sizes - 50)) - 4) < 4 * 2 * 1.2533 / np.sqrt(users)
    logs = np.log(np.maximum(sizes - 50, 1))
    assert abs((logs > 6).mean() - 0.15866) < 4 * np.sqrt(0.16 * 0.84 / users)
    # the mean over a user's 610 model entries is N(0, alpha^2 + 1/610)
    u = np.array([np.append(w.ravel(), b).mean() for _, _, w, b in drawn])
    assert abs(u.std() - alpha) < 4 * alpha / np.sqrt(2 * users)
    within = np.array([np.append(w.ravel(), b).var(ddof=1) for _, _, w, b in drawn])
    assert abs(within.mean() - 1) < 4 * np.sqrt(2 / 609 / users)
    # per feature, the user's centre v is N(0, beta^2 + 1); its mean over the features N(0, beta^2 + 1/60)
    big = [x.astype(np.float64) for x, _, _, _ in drawn if len(x) >= 100]
    centres = np.array([x.mean(axis=0) for x in big])
    assert abs(centres.mean(axis=1).std() - np.sqrt(beta**2 + 1 / 60)) < 4 * beta / np.sqrt(2 * len(big))
    spread = centres.var(axis=1, ddof=1).mean()  # 1, and the sampling noise of the means
    noise = np.mean([np.mean(np.arange(1, 61) ** -1.2) / len(x) for x in big])
    assert abs(spread - 1 - noise) < 4 * np.sqrt(2 / 59 / len(big))
    # features vary around the centre with variance j^-1.2
    freedom = sum(len(x) - 1 for x in big)
    pooled = sum(((x - x.mean(axis=0)) ** 2).sum(axis=0) for x in big) / freedom
    np.testing.assert_allclose(pooled, np.arange(1, 61) ** -1.2, rtol=5 * np.sqrt(2 / freedom))


def test_iid_users_share_one_model_and_a_flat_centre() -> None:
    drawn = [user_data(5, user, 0.0, 0.0, True) for user in range(30)]
    for _, _, weight, bias in drawn[1:]:
        assert np.array_equal(weight, drawn[0][2])
        assert np.array_equal(bias, drawn[0][3])
    x = np.concatenate([x for x, _, _, _ in drawn]).astype(np.float64)
    standard = x.mean(axis=0) * np.sqrt(len(x)) / np.arange(1, 61) ** -0.6
    assert abs(standard).max() < 4.5  # 60 standard normal numbers: centre 0 in every feature


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
