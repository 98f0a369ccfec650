"""The keys of schedule and delay: bad ones end in one line, the files in conf/ are complete."""

import re
from typing import Any

import pytest
from naive_schedule import config

from fedbench.errors import ConfigError
from fedbench.fields import defaults
from fedbench.runs.traces import build_trace, policy_and_delays
from fedbench.schedule.options import DELAYS

ASYNC = {"name": "async"}


@pytest.mark.parametrize("name", sorted(DELAYS))
def test_every_law_makes_a_trace(name):
    delay = {"name": name, **defaults(DELAYS[name])}
    if name == "table":
        delay["table"] = [1.0] * 10
    for keys in ({}, {"concurrency": 5}):
        assert build_trace(config(5, delay=delay, **keys)).updates == 5


def test_schedule_defaults():
    cfg = config(30, 20, 4).but(schedule=ASYNC)
    trace = build_trace(cfg)
    assert trace.concurrency == 8  # twice clients.per_round
    assert build_trace(cfg.but(clients={"total": 6, "per_round": 4})).concurrency == 6


def test_an_algorithm_brings_its_policy_along():
    delay = {"name": "exponential", "mean": 1.0}
    cfg = config(30, 20, 4, delay=delay).but(schedule=ASYNC)
    dispatch = {"pool": "self", "refill": "at_aggregation", "concurrency": "all"}
    assert build_trace(cfg, dispatch).in_flight.tolist() == [20 - 4] * 30
    said = {"concurrency": 6, "refill": "immediate", "pool": "all"}  # what the user says counts
    cfg = cfg.but(schedule=ASYNC | said)
    assert build_trace(cfg, dispatch).in_flight.tolist() == [6 - 1] * 30


BAD_SCHEDULES: list[tuple[dict[str, Any], str]] = [
    ({"concurrency": 0}, "schedule.concurrency=0: must be an integer from 1 to clients.total=10"),
    ({"concurrency": 11}, "schedule.concurrency=11: must be an integer from 1 to clients.total=10"),
    ({"concurrency": 2, "refill": "at_aggregation"}, "schedule.concurrency=2: must be an integer from 3 "),
    ({"refill": "imediate"}, "(did you mean 'immediate'?)"),
    ({"pool": "idel"}, "(did you mean 'idle'?)"),
    ({"concurency": 3}, "schedule.concurency=3: no such key"),
    ({"concurency": 3}, "(did you mean 'schedule.concurrency'?)"),
    ({"select": "lowest", "pool": "queue"}, "schedule.select=lowest: must be uniform"),
    ({"draw": "without_replacement"}, "schedule.draw=without_replacement: must be null or with_replacement"),
    ({"tau_cut": -1}, "schedule.tau_cut=-1: must be an integer >= 0"),
    ({"p_fail": 1.0}, "schedule.p_fail=1.0: must be a number in [0, 1)"),
    ({"leave": [[10, 1.0]]}, "schedule.leave=[[10,1.0]]: must be a list of [client, time]"),
    ({"leave": [[1, 1.0], [1, 2.0]]}, "each once"),
    ({"leave": 3}, "schedule.leave=3: must be a list of [client, time]"),
    ({"leave": [[1, 2.0]], "join": [[1, 2.0]]}, "every client must leave after it joined"),
    ({"join": [[1, -2.0]]}, "schedule.join=[[1,-2.0]]: must be a list of [client, time]"),
    ({"staleness": -1}, "schedule.staleness=-1: must be an integer >= 0 (the maximum) or a list of such"),
    ({"staleness": []}, "schedule.staleness=[]: must be an integer >= 0"),
    ({"staleness": 3, "concurrency": 5}, "schedule.concurrency=5: must be null where schedule.staleness"),
    ({"interrupt": True}, "schedule.interrupt=true: must be false unless schedule.tau_cut says"),
    ({"interrupt": True, "tau_cut": 2, "pool": "queue"}, "schedule.interrupt=true: must be false with"),
    (
        {"p_fail": 0.9999999},
        "must be at most 0.9999: of 10,000,000 jobs one arrives, so an update of clients.per_round=3 takes",
    ),
]
BAD_DELAYS: list[tuple[dict[str, Any], str]] = [
    ({"name": "constant", "d": 1, "c": 1}, "delay.d=1: no such key; delay=constant has c, speed"),
    ({"name": "uniform", "a": 2, "b": 1}, "delay.b=1: must be a number >= delay.a=2"),
    ({"name": "uniform", "a": -2, "b": 1}, "delay.a=-2: must be a number >= 0"),
    ({"name": "exponental", "mean": 1}, "(did you mean 'exponential'?)"),
    ({"name": "lognormal", "mu": 0, "sigma": -1}, "delay.sigma=-1: must be a number in [0, 20]"),
    ({"name": "pareto", "alpha": 1, "min": 2, "cap": 1}, "delay.cap=1: must be a number >= delay.min=2"),
    ({"name": "half_normal", "sd": 1, "min": -1}, "delay.min=-1: must be a number >= 0"),
    ({"name": "table", "table": [1, 2]}, "must be a list with one entry for each of the 10 clients, has 2"),
    ({"name": "table", "table": None}, "delay.table=null: must be a list with one entry"),
    ({"name": "table", "table": [1] * 9 + [-1]}, "1,-1]: every duration must be a number >= 0"),
    ({"name": "table", "table": [1] * 9 + [[]]}, "no client's list may be empty"),
    ({"name": "bands", "preset": "fadas_larg", "dirichlet": [3, 2, 1]}, "(did you mean 'fadas_large'?)"),
    ({"name": "bands", "preset": "fadas_mild", "counts": [5, 3, 1]}, "must be 3 integers >= 0 that sum to"),
    (
        {"name": "bands", "counts": [5, 3, 2], "shares": [0.5, 0.3, 0.2]},
        "delay.shares=[0.5,0.3,0.2]: must be null beside delay.counts, which assigns the clients to",
    ),
    ({"name": "bands", "shares": [0.5, 0.2, 0.2]}, "must be 3 numbers >= 0 that sum to 1"),
    (
        {"name": "bands", "counts": [5, 3, 2], "dirichlet": [9, 1, 1]},
        "dirichlet=[9,1,1]: must be [3, 2, 1]",
    ),
    (
        {"name": "bands", "preset": "fadas_mild", "classes": [[1, 2], [1, 2], [1, 3]]},
        "delay.preset=fadas_mild: must be fadas_large (or not given) beside delay.classes",
    ),
    ({"name": "bands", "dirichlet": [1, 1]}, "delay.dirichlet=[1,1]: must be 3 numbers"),
    ({"name": "bands", "classes": [[2, 1]], "shares": [1]}, "must be a list of bands [low, high] with low"),
    ({"name": "bands", "classes": [1, 2], "shares": [1]}, "must be a list of bands [low, high]"),
    ({"name": "constant", "c": 1, "speed": [1, 2]}, "must have one entry for each of the 10 clients, has 2"),
    ({"name": "constant", "c": 1, "speed": -1}, "delay.speed=-1: must be a number >= 0"),
    ({"name": "hetero_exponential", "speed": 1}, "delay.speed=1.0: must be null or a list"),
    ({"name": "none", "speed": 1}, "delay.speed=1: no such key; delay=none has no keys"),
]
ROUNDS = {"name": "uniform", "stragglers": 0.5}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"clients": {"total": 10, "per_round": 11}}, "clients.per_round=11: must be at most clients.total=10"),
    ({"schedule": {"name": "asinc"}}, "did you mean 'async'"),
    ({"schedule": {"name": "sync", "p_fail": 0.1}}, "schedule.p_fail=0.1: no such key; schedule=sync has no"),
    (
        {"schedule": ASYNC | {"staleness": 3}, "delay": {"name": "constant", "c": 1.0}},
        "delay=constant: must be none where schedule.staleness",
    ),
    ({"participation": {"name": "cyclic", "groups": 4}}, "participation.groups=4: must be at most 3"),
    ({"participation": {"name": "bernoulli"}, "schedule": ASYNC}, "participation=bernoulli: is for sync"),
    ({"participation": ROUNDS, "schedule": ASYNC}, "stragglers=0.5: must be 0 under schedule=async"),
    ({"participation": ROUNDS | {"stragglers": 1.5}}, "participation.stragglers=1.5: "),
    *(({"schedule": ASYNC | keys}, line) for keys, line in BAD_SCHEDULES),
    *(({"delay": keys}, line) for keys, line in BAD_DELAYS),
]


@pytest.mark.parametrize(("changes", "line"), REFUSED)
def test_what_does_not_fit_is_one_line(changes, line):
    with pytest.raises(ConfigError, match=re.escape(line)):
        policy_and_delays(config(5, 10, 3).but(**changes))
