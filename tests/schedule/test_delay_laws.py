"""Delay models: distributions against closed forms, addresses, classes, the block-wise server of draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_schedule import config
from option_helpers import durations
from scipy import stats

from fedbench.rng import Stream, make_key, uniform
from fedbench.runs.traces import survey_offset
from fedbench.schedule.classes import PRESETS
from fedbench.schedule.delays import BlockwiseDraws

N, JOBS = 200, 100
WHO, WHICH = np.divmod(np.arange(N * JOBS), JOBS)


def sample(seed: int = 1, **delay) -> np.ndarray:
    return durations(config(clients=N, seed=seed, delay=delay), WHO, WHICH)


@pytest.mark.parametrize(
    ("delay", "cdf"),
    [
        ({"name": "uniform", "a": 0.5, "b": 2.5}, stats.uniform(0.5, 2.0).cdf),
        ({"name": "half_normal", "sd": 2.0, "min": 0.25}, stats.halfnorm(0.25, 2.0).cdf),
        ({"name": "exponential", "mean": 3.0}, stats.expon(0, 3.0).cdf),
        ({"name": "lognormal", "mu": 0.5, "sigma": 0.7}, stats.lognorm(0.7, 0, np.exp(0.5)).cdf),
        ({"name": "pareto", "alpha": 1.5, "min": 2.0, "cap": None}, stats.pareto(1.5, 0, 2.0).cdf),
    ],
)
def test_distribution(delay, cdf):
    assert stats.kstest(sample(**delay), cdf).pvalue > 0.01


def test_cap_of_pareto():
    free, cut = (sample(name="pareto", alpha=1.0, min=1.0, cap=cap) for cap in (None, 30.0))
    assert (free > 30).any()
    assert np.array_equal(cut, np.minimum(free, 30.0))


def test_hetero_exponential_has_one_rate_per_client():
    drawn = sample(name="hetero_exponential", sigma=1.0).reshape(N, JOBS)
    rate = 1 / drawn.mean(axis=1)
    assert stats.kstest(np.log(rate), stats.norm(0, 1).cdf).pvalue > 0.01
    flat = sample(name="hetero_exponential", sigma=0.0)
    assert np.array_equal(flat, sample(name="exponential", mean=1.0))


def test_none_constant_table():
    assert (sample(name="none") == 1.0).all()
    assert (sample(name="constant", c=2.5) == 2.5).all()
    cfg = config(clients=2, delay={"name": "table", "table": [3.0, [1.0, 2.0, 4.0]]})
    drawn = durations(cfg, np.array([0, 0, 1, 1, 1, 1]), np.array([0, 7, 0, 1, 2, 3]))
    assert drawn.tolist() == [3.0, 3.0, 1.0, 2.0, 4.0, 1.0]


@pytest.mark.parametrize("preset", ["fadas_large", "fadas_mild"])
def test_bands_by_counts(preset):
    cfg = config(clients=50, delay={"name": "bands", "preset": preset, "counts": [29, 14, 7]})
    drawn = durations(cfg, *np.divmod(np.arange(50 * 200), 200)).reshape(50, 200)
    bands = {"fadas_large": [(1, 2), (3, 5), (50, 80)], "fadas_mild": [(1, 2), (3, 5), (5, 8)]}[preset]
    assert [tuple(band) for band in PRESETS[preset]] == bands
    for (a, b), count in zip(bands, (29, 14, 7), strict=True):
        mine = ((drawn >= a) & (drawn <= b)).all(axis=1)
        assert mine.sum() == count
        assert np.abs(drawn[mine].mean(axis=1) - (a + b) / 2).max() < (b - a) / 8
    assert not mine[-7:].all()  # not simply the last ids


def test_class_shares():
    many = 40_000
    everyone = np.arange(many)
    bands = {"name": "bands", "classes": [[1, 1], [2, 2], [3, 3]], "dirichlet": [3, 2, 1]}
    drawn = durations(config(clients=many, delay=bands), everyone, np.zeros_like(everyone))
    found = [(drawn == level).mean() for level in (1, 2, 3)]
    assert found == pytest.approx([0.637, 0.284, 0.079], abs=0.01)  # specification, 11.1
    bands |= {"shares": [0.5, 0.3, 0.2]}
    drawn = durations(config(clients=many, delay=bands), everyone, np.zeros_like(everyone))
    assert [(drawn == level).mean() for level in (1, 2, 3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.01)


def test_durations_are_addressed():
    delay = {"name": "lognormal", "mu": 0.0, "sigma": 1.0, "speed": 0.5}
    cfg = config(clients=N, delay=delay)
    whole = durations(cfg, WHO, WHICH)
    order = np.random.default_rng(0).permutation(len(WHO))
    assert np.array_equal(durations(cfg, WHO[order], WHICH[order]), whole[order])
    for j in order[:20]:
        assert durations(cfg, WHO[j : j + 1], WHICH[j : j + 1]) == whole[j]
    more = durations(config(clients=3 * N, delay=delay), WHO, WHICH)
    assert np.array_equal(more, whole)  # a client's durations do not depend on how many clients there are
    assert not np.array_equal(durations(config(clients=N, seed=1, delay=delay), WHO, WHICH), whole)
    u = uniform(make_key(0, Stream.DURATION, 17, 4))
    twice = {"name": "exponential", "mean": 2.0}
    exponential = durations(config(clients=N, delay=twice), *np.array([[17], [4]]))
    assert exponential[0] == pytest.approx(-2 * np.log(1 - u), rel=1e-14)


def test_speed_is_a_factor_of_the_client():
    base = sample(name="uniform", a=1.0, b=2.0)
    factors = np.linspace(0.5, 3, N)
    listed = sample(name="uniform", a=1.0, b=2.0, speed=factors.tolist())
    np.testing.assert_allclose(listed, factors[WHO] * base, rtol=1e-15)
    ratio = (sample(name="uniform", a=1.0, b=2.0, speed=0.5) / base).reshape(N, JOBS)
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape), rtol=1e-14)
    assert stats.kstest(np.log(ratio[:, 0]), stats.norm(0, 0.5).cdf).pvalue > 0.01


def test_survey_is_the_slowest_exchange_at_its_own_address():
    bands = {"name": "bands", "preset": "fadas_large", "counts": [29, 14, 7]}
    assert 70 < survey_offset(config(clients=50, delay=bands)) < 80  # the largest of seven on [50, 80)
    assert survey_offset(config(clients=4, delay={"name": "table", "table": [1, 2.5, 4, 1.25]})) == 4
    assert (
        survey_offset(config(clients=2, delay={"name": "table", "table": [[1, 50, 2], 3]})) == 3
    )  # the first
    uniform_delay = config(clients=N, delay={"name": "uniform", "a": 0.0, "b": 1.0})
    assert survey_offset(uniform_delay) not in durations(uniform_delay, WHO, WHICH)


@given(st.integers(1, 40), st.integers(1, 2000), st.data())
@settings(max_examples=40, deadline=None)
def test_served_ahead_equals_computed_directly(clients, expected, data):
    """Value (client, n) is handed out for n = 0, 1, 2, ..., whatever the order of the clients."""
    ahead = BlockwiseDraws(lambda client, n: client * 1e6 + n, clients, expected)
    ahead.PAGE, ahead.LONGEST = 8, 16
    favourite = data.draw(st.integers(0, clients - 1))
    rng = np.random.default_rng(expected)
    used = [0] * clients
    for _ in range(400):
        client = favourite if rng.random() < 0.5 else int(rng.integers(clients))
        assert ahead.next(client) == client * 1e6 + used[client]
        used[client] += 1
