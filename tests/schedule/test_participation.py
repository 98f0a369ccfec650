"""Synchronous rounds: who takes part, how much of its work each job does, drawn again from the addresses,
and how long a round takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from naive_schedule import config, draw
from option_helpers import durations

from fedbench.errors import ConfigError
from fedbench.rng import Stream, fold, make_key, uniform
from fedbench.runs.traces import build_trace, policy_and_delays, survey_offset
from fedbench.schedule.report import cumulative_passes, cumulative_steps, received, summary
from fedbench.schedule.trace import Trace

N, S, T, SEED = 9, 3, 60, 5


def taking_part(name: str, rounds: int = T, samples: list[int] | None = None, **keys: object) -> Trace:
    cfg = config(rounds, N, S, SEED).but(participation={"name": name, **keys})
    policy_and_delays(cfg)
    return build_trace(cfg, samples=None if samples is None else np.array(samples))


def cohorts(trace: Trace) -> list[list[int]]:
    return [trace.client[trace.applied(t)].tolist() for t in range(trace.updates)]


def per_job(trace: Trace, word: int) -> list[float]:
    """The number of each job, of the address (client, n) and `word`."""
    pairs = zip(trace.client.tolist(), trace.n.tolist(), strict=True)
    return [uniform(fold(make_key(SEED, Stream.WORK, client, n), word)) for client, n in pairs]


@pytest.mark.parametrize(
    ("clients", "per_round"), [(1, 1), (2, 1), (2, 2), (9, 4), (40, 40), (1000, 3), (3000, 3000), (10**6, 50)]
)
def test_uniform_draws_without_replacement(clients: int, per_round: int) -> None:
    """Draw number S t + k takes out one of the clients that round t still has; all of them if S = N."""
    rounds = 2 if clients > 1000 else 30
    trace = build_trace(config(rounds, clients, per_round, SEED))
    for t, cohort in enumerate(cohorts(trace)):
        left = list(range(clients))
        numbers = [draw(SEED, per_round * t + k) for k in range(per_round)]
        assert cohort == [left.pop(int(number * len(left))) for number in numbers]


def test_bernoulli_takes_every_client_by_itself() -> None:
    trace = taking_part("bernoulli", 300)
    expected = [[i for i in range(N) if draw(SEED, N * t + i) < S / N] for t in range(300)]
    assert cohorts(trace) == expected
    assert min(map(len, expected)) == 0, "a round without anybody"
    assert trace.updates == 300
    assert trace.update_time.tolist() == np.cumsum([len(row) > 0 for row in expected]).tolist()
    assert summary(trace)["jobs"]["applied"] == sum(map(len, expected))


def test_weighted_draws_by_samples_and_counts_repetitions() -> None:
    sizes = [1, 2, 3, 4, 5, 6, 7, 8, 64]
    trace = taking_part("weighted", samples=sizes)
    edges = np.cumsum(sizes) / 100
    assert trace.copies is not None
    for t in range(T):
        drawn = [int((edges <= draw(SEED, S * t + k)).sum()) for k in range(S)]
        jobs = trace.applied(t)
        assert trace.client[jobs].tolist() == sorted(set(drawn))
        assert trace.copies[jobs].tolist() == [drawn.count(i) for i in sorted(set(drawn))]
    assert trace.copies.max() == S, "the large client is drawn in all places of some round"


@pytest.mark.parametrize(
    ("groups", "members"),
    [(1, [range(9)]), (2, [range(5), range(5, 9)]), (3, [range(3), range(3, 6), range(6, 9)])],
)
def test_groups_take_turns(groups: int, members: list[range]) -> None:
    trace = taking_part("cyclic", groups=groups)
    for t, cohort in enumerate(cohorts(trace)):
        left = list(members[t % groups])
        assert cohort == [left.pop(int(draw(SEED, S * t + k) * len(left))) for k in range(S)]


def test_a_file_says_who_is_there(tmp_path: Path) -> None:
    path = tmp_path / "there.csv"
    path.write_text("client,from,to\n" + "".join(f"{i},{i},{i + 6}\n" for i in range(8)) + "2,20,\n7,21,23\n")
    trace = taking_part("file", 26, path=str(path))
    for t, cohort in enumerate(cohorts(trace)):
        left = [i for i in range(8) if i <= t < i + 6 or (i == 2 and t >= 20) or (i == 7 and 21 <= t < 23)]
        assert cohort == [left.pop(int(draw(SEED, S * t + k) * len(left))) for k in range(min(S, len(left)))]
    lengths = [1, 2, *[3] * 9, 2, 1, *[0] * 7, *(1, 2, 2, 1, 1, 1)]
    assert [len(cohort) for cohort in cohorts(trace)] == lengths


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("client,from,to\n9,0,1\n", "line 2 must have a client from 0 to 8"),
        ("client,from,to\n1,0,1\n1,3,3\n", "line 3 must have a client"),
        ("client,from,to\n1,x,1\n", "line 2 must have the columns client, from, to"),
        ("client,begin,to\n1,0,1\n", "line 2 must have the columns client, from, to"),
        ("client,from,to\n1,0,1\n\n1_0,0,1\n", "line 4 must have the columns client, from, to"),
        (f"client,from,to\n1,0,{2**63}\n", "line 2 must have a client from 0 to 8, and 0 <= from < to"),
        ("client,from,to\n", "must have a row"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(text: str | None, line: str, tmp_path: Path) -> None:
    path = tmp_path / "there.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=f"^participation.path=.*{line}"):
        taking_part("file", path=str(path))


def test_stragglers_send_a_part_of_their_work() -> None:
    cfg = config(T, N, 5, SEED).but(participation={"name": "uniform", "stragglers": 0.5})
    trace, plain = build_trace(cfg, steps=4), build_trace(config(T, N, 5, SEED))
    assert cohorts(trace) == cohorts(plain)
    order, part = per_job(trace, 1), per_job(trace, 2)
    for t in range(T):
        jobs = trace.applied(t).tolist()
        slow = sorted(jobs, key=lambda j: order[j])[:3]  # floor(0.5 * 5 + 0.5)
        assert trace.work[jobs].tolist() == [(1 + int(part[j] * 4)) / 4 if j in slow else 1.0 for j in jobs]
    assert {0.25, 0.5, 0.75, 1.0} == set(trace.work.tolist())
    steps = np.cumsum([int(4 * trace.work[trace.applied(t)].sum()) for t in range(T)])
    assert cumulative_steps(trace, 4).tolist() == [0, *steps]
    assert cumulative_steps(trace, 4, first=1).tolist() == [0, *(steps - 5 * np.arange(1, T + 1))]
    assert cumulative_passes(trace, np.full(N, 7))[-1] == 7 * 5 * T, "a full pass is a whole one"


def test_how_many_straggle_is_exact() -> None:
    """floor(share * jobs + 1/2) in exact arithmetic: 15 of 50 for 0.29, a little less in binary."""
    for jobs in (50, 7):
        for percent in range(1, 100, 4):
            keys = {"name": "uniform", "stragglers": percent / 100, "straggler_work": "drop"}
            cfg = config(1, 50, jobs, SEED).but(participation=keys)
            trace = build_trace(cfg, steps=4)
            assert len(trace.applied(0)) == jobs - (2 * percent * jobs + 100) // 200


def test_rows_of_a_file_that_overlap_are_one_presence(tmp_path: Path) -> None:
    """Client 0 is there once, in rounds that two of its rows name too."""
    file = tmp_path / "there.csv"
    file.write_text("client,from,to\n0,0,6\n0,2,9\n0,2,4\n3,1,3\n")
    trace = taking_part("file", rounds=10, path=str(file))
    expected = [[0], [0, 3], [0, 3], *[[0]] * 6, []]
    assert [sorted(cohort) for cohort in cohorts(trace)] == expected


def test_dropped_stragglers_are_discarded_on_arrival() -> None:
    """Nothing of them is applied, and all that is sent is received, and costs an upload."""
    keys = {"stragglers": 0.4, "straggler_work": "drop"}
    cfg = config(T, N, 5, SEED).but(participation={"name": "uniform", **keys})
    trace, plain = build_trace(cfg, steps=4), build_trace(config(T, N, 5, SEED))
    order = per_job(trace, 1)
    for t in range(T):
        jobs = plain.applied(t).tolist()
        slow = sorted(jobs, key=lambda j: order[j])[:2]  # floor(0.4 * 5 + 0.5)
        assert trace.applied(t).tolist() == [j for j in jobs if j not in slow] == trace.training(t).tolist()
        assert [trace.STATUS[trace.status[j]] for j in slow] == ["discarded"] * 2
        assert trace.position[trace.applied(t)].tolist() == [0, 1, 2]
    assert received(trace).tolist() == [5 * t for t in range(T + 1)]
    assert summary(trace)["jobs"] == {
        **{"dispatched": 5 * T, "applied": 3 * T, "outstanding": 0},
        **{"discarded": 2 * T, "failed": 0, "interrupted": 0, "wasted": 2 * T},
    }


@pytest.mark.parametrize("schedule", [{}, {"concurrency": 4}])
def test_epochs_are_drawn_from_a_range(schedule: dict[str, int]) -> None:
    cfg = config(T, N, S, SEED, **schedule).but(local={"epochs": None, "epochs_range": (2, 5)})
    trace = build_trace(cfg)
    assert trace.work.tolist() == [(2 + int(u * 4)) / 5 for u in per_job(trace, 0)]
    assert set(trace.work.tolist()) == {0.4, 0.6, 0.8, 1.0}
    plain = build_trace(config(T, N, S, SEED, **schedule))
    assert trace.client.tolist() == plain.client.tolist()


def test_a_straggler_does_no_more_than_its_epochs() -> None:
    """FedNova's range and FedProx's stragglers together: the smaller of both."""
    both = {"epochs": None, "epochs_range": (2, 5)}
    cfg = config(T, N, S, SEED).but(local=both, participation={"name": "uniform", "stragglers": 1.0})
    trace = build_trace(cfg)
    ranged, part = per_job(trace, 0), per_job(trace, 2)
    expected = [min((2 + int(a * 4)) / 5, (1 + int(b * 5)) / 5) for a, b in zip(ranged, part, strict=True)]
    assert trace.work.tolist() == expected


@pytest.mark.parametrize(("clients", "per_round"), [(1, 1), (7, 3), (7, 7), (600, 5)])
@pytest.mark.parametrize("refill", ["immediate", "at_aggregation"])
def test_equal_durations_give_the_synchronous_cohorts(clients: int, per_round: int, refill: str) -> None:
    """The event simulation with M_c = S makes the same trace."""
    delay = {"name": "constant", "c": 0.3}
    sync = build_trace(config(40, clients, per_round, 9, delay))
    keys = {"concurrency": per_round, "refill": refill}
    event = build_trace(config(40, clients, per_round, 9, delay, **keys))
    for name, value in vars(sync).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(event, name), err_msg=name)
    assert sync.concurrency == event.concurrency == per_round
    assert not sync.starved


def test_a_round_takes_as_long_as_its_slowest_job() -> None:
    delay = {"name": "lognormal", "mu": 0.0, "sigma": 1.0}
    cfg = config(50, 12, 4, 2, delay)
    trace = build_trace(cfg)
    now, seen = 0.0, [0] * 12
    for t in range(50):
        took = []
        for j in trace.applied(t):
            client = int(trace.client[j])
            assert trace.n[j] == seen[client]
            took.append(durations(cfg, np.array([client]), np.array([seen[client]]))[0])
            assert trace.dispatch_time[j] == now
            assert trace.finish_time[j] == now + took[-1]
            seen[client] += 1
        now += max(took)
        assert trace.update_time[t] == now


def test_without_delays_a_round_takes_one() -> None:
    assert build_trace(config(7, 5, 2)).update_time.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert survey_offset(config(7, 5, 2)) == 1.0
