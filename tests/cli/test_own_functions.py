"""Functions of a user's for partitions, delays and metrics: the examples of the page, what is refused, and
how they resume and are told apart."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from run_files import Call, metrics, model, read, same_model
from scipy.special import softmax

import fedbench as api
from fedbench.config import imports
from fedbench.data import register_partition
from fedbench.engine.metrics import register_metric
from fedbench.fields import REGISTERED
from fedbench.rng import Stream, fold, host_generator, make_key
from fedbench.rng import uniform as uniform_of
from fedbench.schedule import register_delay

PAGE = (Path(__file__).parents[2] / "fedbench" / "README.md").read_text()
CODE = dict(re.findall(r"<!-- registered: (\w+) -->\n```python\n(.*?)```", PAGE, flags=re.DOTALL))
WORDS = (
    *("rounds=6", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none", "threads=1"),
    "imports=[mine.py]",
)
ASYNC = ("schedule=async", "schedule.concurrency=3", "trace=true")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python keeps no bytecode of a file that a test writes twice."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "mine", raising=False)


def write(code: str) -> None:
    Path("mine.py").write_text(f"import numpy as np\n{code}")
    imports.executed.clear()


def test_a_partition_is_what_its_function_says(fedbench: Call) -> None:
    write(CODE["parity"])
    words = [*WORDS, "partition=parity", "partition.mixed=0.3", "seed=5"]
    fedbench.done(*words, "hydra.run.dir=r")
    found = np.load("r/partition.npz")["client"]
    labels, rng = np.asarray(api.labels(["dataset=digits"])), host_generator(5, Stream.PARTITION)
    own = 2 * rng.integers(2, size=len(labels)) + labels % 2
    np.testing.assert_array_equal(
        found, np.where(rng.random(len(labels)) < 0.3, rng.integers(4, size=len(labels)), own)
    )
    fedbench.done(*words, "partition.seed=5", "seed=6", "hydra.run.dir=other")
    np.testing.assert_array_equal(np.load("other/partition.npz")["client"], found)
    fedbench.done("-m", *WORDS, "partition=iid,parity", "hydra.sweep.dir=s")
    assert len([*Path("s").glob("partition_*")]) == 2
    assert "p.png" in fedbench.done("plot", "--partition", "r", "--out", "p.png")


def refused(fedbench: Call, module: str, group: str, function: str) -> str:
    """What a run says of a user's function `mine`, written from its parameters on, and begins nothing."""
    register = f"register_{group}"
    write(f"from fedbench.{module} import {register}\n@{register}('mine')\ndef mine({function}\n")
    line = fedbench.refused(*WORDS, f"{group}=mine", "hydra.run.dir=r")
    assert not Path("r/metrics.csv").exists()
    return line


def test_a_partition_may_list_the_rows_of_each_client(fedbench: Call) -> None:
    write("from fedbench.data import register_partition\n"
          "@register_partition('thirds')\n"
          "def thirds(labels, clients):\n"
          "    return np.array_split(np.arange(len(labels) // 3 * 2), clients)\n")  # fmt: skip
    fedbench.done(*WORDS, "partition=thirds", "hydra.run.dir=r")
    found = np.load("r/partition.npz")["client"]
    rows = len(found) // 3 * 2
    assert (found[rows:] == -1).all()
    assert [np.flatnonzero(found == k).tolist() for k in range(4)] == [
        part.tolist() for part in np.array_split(np.arange(rows), 4)
    ]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("labels % 2", "result does not fit: client 2 of clients.total=4 has no sample"),
        ("labels % 5", "sample 0 has the client 4; 0 .. 3, or -1 for none, is expected"),
        ("labels[1:] % 4", "client has shape (1436,), the training set 1437 samples"),
        ("labels / 4", "must be a list of whole numbers"),
        ("[[0], [1], [2], [3, 0]]", "client 3 has the row 0, which is there twice; a row has one client"),
        ("None", "result is a NoneType; the client of each sample is expected"),
        ("np.random.permutation(len(labels)) % 4", "the same call twice gave two partitions"),
        ("labels[9999]", "its function failed: IndexError: index 9999 is out of bounds"),
    ],
)
def test_what_a_partition_may_not_return(fedbench: Call, result: str, said: str) -> None:
    line = refused(
        fedbench, "data", "partition", f"labels, clients):\n    labels[0] = 4\n    return {result}"
    )
    assert "partition=mine: its function" in line
    assert said in line


def jobs(directory: str) -> list[dict[str, str]]:
    with open(f"{directory}/jobs.csv") as stream:
        return list(csv.DictReader(stream))


def test_delays_are_what_their_function_says(fedbench: Call) -> None:
    """In both schedules; a resumed run has the bytes of a whole one."""
    write(CODE["breaks"])
    words = [*WORDS, "delay=breaks", "delay.every=2", "seed=3"]
    fedbench.done(*words, *ASYNC, "hydra.run.dir=r")
    done: dict[int, int] = {}
    for row in sorted(jobs("r"), key=lambda row: float(row["dispatch_time"])):
        client = int(row["client"])
        n = done[client] = done.get(client, -1) + 1
        own = uniform_of(fold(make_key(3, Stream.CLASS, client), 2))
        drawn = -np.log1p(-uniform_of(make_key(3, Stream.DURATION, client, n)))
        expected = (0.5 + own) * drawn + (10.0 if n % 2 else 0.0)
        if row["status"] == "applied":
            np.testing.assert_allclose(
                float(row["finish_time"]) - float(row["dispatch_time"]), expected, rtol=1e-9
            )
    assert max(done.values()) > 1
    fedbench.done(*words, *ASYNC, "hydra.run.dir=two", "checkpoint.until=3")
    fedbench.done(*words, *ASYNC, "hydra.run.dir=two")
    assert metrics(Path("two")) == metrics(Path("r"))
    assert same_model(Path("two"), Path("r"))
    fedbench.done(*words, "trace=true", "hydra.run.dir=sync")
    ends = [float(row["virtual_time"]) for row in metrics(Path("sync"))]
    rounds: dict[str, float] = {}
    for row in jobs("sync"):
        spent = float(row["finish_time"]) - float(row["dispatch_time"])
        rounds[row["applied_update"]] = max(rounds.get(row["applied_update"], 0.0), spent)
    np.testing.assert_allclose(np.diff(ends), [rounds[key] for key in sorted(rounds, key=int)], rtol=1e-9)


def test_a_law_of_ones_own_draws_as_fedbenchs(fedbench: Call) -> None:
    """exponential, with a factor for each client."""
    write("from fedbench.schedule import register_delay\n"
          "@register_delay('mine')\n"
          "def mine(bits, mean: float):\n"
          "    return mean * bits.exponential()\n")  # fmt: skip
    common = [*WORDS, *ASYNC, "delay.mean=2.0", "delay.speed=0.5"]
    fedbench.done(*common, "delay=mine", "hydra.run.dir=mine")
    fedbench.done(*common, "delay=exponential", "hydra.run.dir=ours")
    assert metrics(Path("mine")) == metrics(Path("ours"))
    line = fedbench.refused(*WORDS, "delay=mine", "delay.meen=2")
    assert "delay.meen=2: no such key; delay=mine has" in line
    assert "delay.mean=null: mine needs a value" in fedbench.refused(*WORDS, "delay=mine")
    assert "delay.mean=x: must be a number" in fedbench.refused(*WORDS, "delay=mine", "delay.mean=x")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("n - 1.0", "its function returned -1.0 for job 0 of client 3; times >= 0 are expected"),
        ("1.0", "its function returned float; numbers, one for each of 1 jobs, are expected"),
        ("np.ones(2)", "its function returned (2,); numbers, one for each of 1 jobs, are expected"),
        ("bits.uniform() + np.arange(len(n))", "a job's duration depends on other jobs, or differs when"),
        ("np.random.random(len(n))", "a job's duration depends on other jobs, or differs when"),
        ("n / 0 * bits.nothing()", "its function failed: AttributeError: 'Bits' object has no attribute"),
        ("np.where(client == 3, np.nan, 1.0)", "returned nan for job 2 of client 3"),
    ],
)
def test_what_a_delay_may_not_return(fedbench: Call, result: str, said: str) -> None:
    line = refused(fedbench, "schedule", "delay", f"client, n, bits):\n    return {result}")
    assert "delay=mine: " in line
    assert said in line


def test_another_function_is_another_run(fedbench: Call) -> None:
    """The content of the file counts, as that of a method does."""
    for mixed in (0.1, 0.2):
        write(CODE["parity"].replace("mixed: float = 0.1", f"mixed: float = {mixed}"))
        fedbench.done(*WORDS, "partition=parity")
    first, second = sorted(Path("outputs/runs").iterdir())
    one, two = (np.load(place / "partition.npz")["client"] for place in (first, second))
    assert (one != two).any()


def test_what_is_registered_is_listed_and_shown(fedbench: Call) -> None:
    write(CODE["parity"] + CODE["breaks"])
    listed = fedbench.done("list", "partitions", "imports=[mine.py]")
    assert listed.splitlines()[-1].startswith("parity  Even clients have even labels and odd ones odd")
    assert "iid" in listed
    shown = fedbench.done("show", "breaks", "imports=[mine.py]").splitlines()
    assert shown[:2] == ["delay=breaks", ""]
    assert [" ".join(line.split()) for line in shown[-2:]] == [
        "delay.every=5 must be an integer",
        "delay.rest=10.0 must be a number",
    ]
    assert "delay=brakes: must be one of" in fedbench.refused(*WORDS, "delay=brakes")
    assert "or your own, which imports=[FILE.py] registers" in fedbench.refused("rounds=1", "partition=x")


def test_our_own_names_cannot_be_taken() -> None:
    for decorator, name in ((register_partition, "partition=iid"), (register_delay, "delay=pareto")):
        with pytest.raises(ValueError, match=f"{name} is one of fedbench's own"):
            decorator(name.partition("=")[2])
    assert ("partition", "iid") not in REGISTERED


# ---- metrics -------------------------------------------------------------------------------------------

N, CLASSES, FEATURES = 3, 3, 4


def data() -> dict[str, np.ndarray]:
    """Noisy classes of three clients, whose test samples are known."""
    rng = np.random.default_rng(1)
    client, owner = np.arange(45) % N, np.arange(90) % N
    y, y_test = rng.integers(0, CLASSES, 45), rng.integers(0, CLASSES, 90)
    means = rng.normal(size=(CLASSES, FEATURES))
    x, x_test = means[y] + rng.normal(size=(45, FEATURES)), means[y_test] + rng.normal(size=(90, FEATURES))
    each = {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}
    return {**each, "client": client, "client_test": owner}


METRIC = (
    *("imports=[mine.py]", "dataset=npz", "dataset.path=own.npz", "dataset.normalize=false", "rounds=4"),
    *("partition=natural", "clients.total=3", "clients.per_round=2", "model=logistic", "dtype=float64"),
    *("local.steps=2", "eval.every=1", "progress=none", "threads=1", "eval.metrics=[calibration_error]"),
)


def calibration_error(place: Path, own: np.ndarray) -> float:
    """Of a run's last model on some test samples, bin by bin."""
    weight, bias = (value.numpy() for value in model(place).values())
    logits, y = data()["x_test"][own] @ weight.T + bias, data()["y_test"][own]
    shares = softmax(logits, 1)
    sure, right = shares.max(1), shares.argmax(1) == y
    found = 0.0
    for low in np.arange(10) / 10:
        inside = (sure >= low) & (sure < low + 0.1)
        if inside.any():
            found += inside.mean() * abs(right[inside].mean() - sure[inside].mean())
    return found


def test_a_metric_is_what_its_function_says(fedbench: Call) -> None:
    """Of all samples and of each client's; in a resumed run too; tables, figures and tunings have it."""
    write(CODE["calibration_error"])
    np.savez("own.npz", **data())
    fedbench.done(*METRIC, "eval.clients=true", "dataset.validation=0.2", "hydra.run.dir=r")
    last = metrics(Path("r"))[-1]
    owner = data()["client_test"]
    each = [calibration_error(Path("r"), owner == k) for k in range(N)]
    np.testing.assert_allclose(
        float(last["test_calibration_error"]), calibration_error(Path("r"), owner >= 0)
    )
    np.testing.assert_allclose(float(last["client_calibration_error_mean"]), np.mean(each))
    np.testing.assert_allclose(float(last["client_calibration_error_worst"]), max(each))  # less is better
    assert float(last["validation_calibration_error"]) > 0
    rows = [row for row in read(Path("r/clients.csv")) if row["round"] == "4"]
    np.testing.assert_allclose([float(row["calibration_error"]) for row in rows], each)
    best = json.loads(Path("r/summary.json").read_text())["best_test_calibration_error"]
    assert best == min(float(row["test_calibration_error"]) for row in metrics(Path("r")))

    more = ("eval.clients=true", "dataset.validation=0.2", "hydra.run.dir=two")
    fedbench.done(*METRIC, *more, "checkpoint.until=2")
    fedbench.done(*METRIC, *more)
    assert metrics(Path("two")) == metrics(Path("r"))
    run = api.Run("r")
    assert run.metrics.test_calibration_error.tolist() == [
        float(row["test_calibration_error"]) for row in metrics(Path("r"))
    ]

    fedbench("-m", *METRIC, "algorithm.lr=0.01,1.0", "hydra.sweep.dir=s")
    rows = read(Path("s/rounds.csv"))
    assert len(rows) == 2 * 5
    finals = {
        row["algorithm.lr"]: float(row["final_test_calibration_error"]) for row in read(Path("s/runs.csv"))
    }
    shown = fedbench.done("best", "s", "--metric", "final_test_calibration_error")
    assert f"{min(finals.values()):.4f}" in shown
    assert f"{max(finals.values()):.4f}" not in shown
    assert "no run has a final_test_calibratio_error" in fedbench.refused(
        "best", "s", "--metric", "final_test_calibratio_error"
    )
    assert "p.png" in fedbench.done("plot", "s", "--y", "test_calibration_error", "--out", "p.png")
    assert "p.png" in fedbench.done(
        "plot", "s", "--x", "lr", "--y", "final_test_calibration_error", "--out", "p.png"
    )
    words = ["algorithm=fedavg", "algorithm.lr=0.01,1.0", "seed=0,1", "hydra.sweep.dir=t"]
    assert fedbench("tune", *METRIC, *words, "--metric", "calibration_error", "--extend", "0")[0] == 0
    assert {row["metric"] for row in read(Path("t/trials.csv"))} == {"validation calibration_error"}
    assert "(did you mean 'calibration_error'?)" in fedbench.refused(
        "tune", *METRIC, *words, "--metric", "calibratio_error"
    )


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("y", "metric=mine: its function returned a tensor of shape (360,), and a number is expected"),
        ("None", "metric=mine: its function returned None, and a number is expected"),
        ("y.nothing", "metric=mine: its function failed: AttributeError: 'Tensor' object has no attribute"),
    ],
)
def test_what_a_metric_may_not_return(fedbench: Call, result: str, said: str) -> None:
    code = "from fedbench.engine.metrics import register_metric\n@register_metric('mine')\n"
    write(f"{code}def mine(outputs, y):\n    return {result}\n")
    code, _, err = fedbench(*WORDS, "eval.metrics=[mine]", "hydra.run.dir=r")
    assert code == 2
    assert said in err


def test_a_metric_that_nobody_has_is_refused(fedbench: Call) -> None:
    write(CODE["calibration_error"])
    line = fedbench.refused(*WORDS, "eval.metrics=[calibration_eror]")
    assert "eval.metrics=[calibration_eror]: must be a list of macro_f1, auroc" in line
    assert line.endswith("or your own, which imports=[FILE.py] registers\n")
    for name in ("test_it", "Big", "perplexity"):
        with pytest.raises(ValueError, match=name):
            register_metric(name)
