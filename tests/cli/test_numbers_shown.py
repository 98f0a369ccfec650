"""The numbers that `report`, `best` and `compare` show, against NumPy on invented runs; no two are equal."""

from __future__ import annotations

import base64
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.test_report import Page
from run_files import Call

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.runs.run_directory import RunDirectory

RATES, STEPS, BATCHES, SEEDS, ROUNDS = (0.2, 10.0, 0.1), (5, 2), (8, 16), (0, 1, 2), 4
KEYS = ("algorithm.lr", "local.steps", "local.batch_size")  # of which a setting has the values
LOST = (10.0, 5, 16)  # one of its runs diverges; the others are better than all
COLUMNS = ["round", "train_loss", "test_loss", "test_accuracy", "wall_seconds"]
Setting = tuple[float, int, int]


def write(place: Path, choices: dict[str, Any], rows: np.ndarray, status: str = "completed") -> None:
    """A run: `rows` has the columns COLUMNS; its best and final results are those of `rows`."""
    place.mkdir(parents=True)
    lines = [",".join(COLUMNS), *(",".join([str(int(row[0])), *map(repr, row[1:].tolist())]) for row in rows)]
    (place / "metrics.csv").write_text("\n".join(lines) + "\n")
    best, last = rows[rows[:, 3].argmax()], rows[-1]
    said = {
        "status": status, "rounds": int(last[0]), "final_test_loss": last[2], "wall_seconds": last[4],
        "final_accuracy": None if status == "diverged" else last[3],
        "best_accuracy": best[3], "best_round": int(best[0]), "versions": {"torch": "2"},
        "config": {"dataset": "digits", "model": "mlp", "algorithm": "fedavg", "rounds": ROUNDS, **choices},
    }  # fmt: skip
    (place / "summary.json").write_text(json.dumps(said))


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Setting, np.ndarray]]:
    """Setting (rate, steps, batch) -> its runs' metrics (seeds, rounds, columns); the runs lie below `d`."""
    root = tmp_path_factory.mktemp("invented")
    rng = np.random.default_rng(5)
    made: dict[Setting, np.ndarray] = {}
    for setting in itertools.product(RATES, STEPS, BATCHES):
        rows = rng.uniform(0.3, 0.7, (len(SEEDS), ROUNDS + 1, len(COLUMNS)))
        rows[:, :, 0] = np.arange(ROUNDS + 1)
        rows[:, :, 4] = np.sort(rng.uniform(1, 9, rows.shape[:2]), axis=1)
        rows[:, :, 3] += 0.25 * (setting == LOST)
        made[setting] = rows
        for seed in SEEDS:
            keys = dict(zip(KEYS, setting, strict=True))
            status = "diverged" if (setting, seed) == (LOST, 1) else "completed"
            name = "-".join(map(str, (*setting, seed)))
            write(root / "d" / name, {**keys, "seed": seed}, rows[seed], status)
            if setting == (0.1, 2, 8) and seed == 2:  # the same run once more, by other code
                write(root / "d" / f"{name}-again", {**keys, "seed": seed}, rows[seed] + 0.1)
    return root, made


@pytest.fixture
def tables(
    invented: tuple[Path, dict[Setting, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> dict[Setting, np.ndarray]:
    monkeypatch.chdir(invented[0])
    return invented[1]


def final(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows[:, -1, 3])


def ranking(tables: dict[Setting, np.ndarray]) -> list[Setting]:
    """Settings that completed, the best first."""
    return sorted(tables.keys() - {LOST}, key=lambda setting: -final(tables[setting]).mean())


def numbers(values: Any) -> np.ndarray:
    """A figure's data as plotly writes them: a list, or the bytes of an array."""
    if isinstance(values, dict):
        found = np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])
        return found.reshape([int(n) for n in values.get("shape", str(found.size)).split(",")])
    return np.array([np.nan if value is None else value for value in values], dtype=float)


@pytest.fixture(scope="module")
def page(invented: tuple[Path, object]) -> Page:
    pytest.importorskip("plotly", reason="plotly is not installed (the extra `report` has it)")
    assert main(["report", str(invented[0] / "d")]) == 0
    return Page(invented[0] / "d/report.html")


def column(page: Page, table: str, title: str) -> list[str]:
    head, *rows = page.tables[table]
    return [row[head.index(title)].strip() for row in rows]


def test_settings_are_ranked_by_their_means(tables: dict[Setting, np.ndarray], page: Page) -> None:
    ranked = [*ranking(tables), LOST]
    shown = [map(float, column(page, "settings", key)) for key in KEYS]
    assert [*zip(*shown, strict=True)] == ranked
    kept = [final(tables[setting])[[0, 2] if setting == LOST else [0, 1, 2]] for setting in ranked]
    assert column(page, "settings", "Final test accuracy") == [f"{values.mean():.4f}" for values in kept]
    assert column(page, "settings", "± std") == [f"{values.std(ddof=1):.4f}" for values in kept]
    assert column(page, "settings", "n") == [*["3"] * (len(ranked) - 1), "2"]
    ends = [*["completed"] * (len(ranked) - 1), "2 completed, 1 diverged"]
    assert column(page, "settings", "ended") == ends
    assert "1 further run with a seed that their setting already has: left out of its mean." in page.text


def test_every_run_has_its_own_numbers(tables: dict[Setting, np.ndarray], page: Page) -> None:
    head = page.tables["runs"][0]
    cells = [[cell.strip() for cell in row] for row in page.tables["runs"][1:]]
    shown = {row[0]: dict(zip(head, row, strict=True)) for row in cells}
    assert len(shown) == len(tables) * len(SEEDS) + 1
    for setting, seed in itertools.product(tables, SEEDS):
        rows, row = tables[setting][seed], shown["-".join(map(str, (*setting, seed)))]
        lost = (setting, seed) == (LOST, 1)
        assert row["Final test accuracy"] == ("" if lost else f"{rows[-1, 3]:.4f}")
        assert row["Best test accuracy"] == f"{rows[:, 3].max():.4f}"
        assert row["best round"] == str(rows[:, 3].argmax())
        assert (row["rounds done"], row["seconds"]) == (str(ROUNDS), f"{rows[-1, 4]:.1f}")
        assert (row["seed"], row["status"]) == (str(seed), "diverged" if lost else "completed")
        assert [float(row[key]) for key in KEYS] == [*setting]
        assert row["files"] == "summary.json metrics.csv"
    reason = f"a loss was no longer finite in round {ROUNDS} of {ROUNDS}"
    assert column(page, "troubles", "reason") == [reason]


def test_heat_maps_show_means_over_seeds_and_the_best_of_the_rest(
    tables: dict[Setting, np.ndarray], page: Page
) -> None:
    keys = re.findall(r"<figcaption>Final test accuracy by (\S+) and (\S+): mean over seeds and", page.text)
    assert {frozenset(pair) for pair in keys} == {frozenset(p) for p in itertools.combinations(KEYS, 2)}
    for (across, up), heat in zip(keys, page.data["heat"], strict=True):
        one, other = KEYS.index(across), KEYS.index(up)
        xs, ys = (sorted({setting[at] for setting in tables}) for at in (one, other))
        (drawn,) = heat["data"]
        assert ([float(x) for x in drawn["x"]], [float(y) for y in drawn["y"]]) == (xs, ys)
        for row, y in enumerate(ys):
            for at, x in enumerate(xs):
                held = [s for s in tables if (s[one], s[other]) == (x, y) and s != LOST]
                best = max(float(final(tables[setting]).mean()) for setting in held)
                assert float(drawn["z"][row][at]) == pytest.approx(best, abs=1e-12)
                assert drawn["text"][row][at] == f"{best:.3f}"
                assert drawn["customdata"][row][at].startswith(f"<b>{best:.4f}</b>")


@pytest.mark.parametrize(("name", "at"), [("train_loss", 1), ("test_loss", 2), ("test_accuracy", 3)])
def test_curves_are_means_with_a_standard_deviation(
    tables: dict[Setting, np.ndarray], page: Page, name: str, at: int
) -> None:
    boxes = re.findall(r'data-curve="s(\d+)"( checked)? aria-label="curve of ([^"]*)"', page.text)
    assert [int(rank) for rank, _, _ in boxes] == list(range(len(tables)))
    assert all(checked for _, checked, _ in boxes[:12])
    traces = page.data["curves"][name]["data"]
    for rank, setting in enumerate(ranking(tables)):
        line, band = [trace for trace in traces if trace["legendgroup"] == f"s{rank}"]
        assert line["name"] == boxes[rank][2]
        assert f"lr={setting[0]:g}" in line["name"].replace(" ", "")
        rows = tables[setting][:, :, at]
        mean, std = rows.mean(axis=0), rows.std(axis=0, ddof=1)
        high = np.minimum(mean + std, 1.0) if name == "test_accuracy" else mean + std
        np.testing.assert_array_equal(numbers(line["x"]), np.arange(ROUNDS + 1))
        np.testing.assert_allclose(numbers(line["y"]), mean, rtol=1e-12)
        np.testing.assert_allclose(numbers(band["y"]), [*high, *(mean - std)[::-1]], rtol=1e-12)
    lost = [trace for trace in traces if trace["legendgroup"] == f"s{len(tables) - 1}"][-1]
    assert lost["name"].endswith("(diverged)")
    np.testing.assert_allclose(numbers(lost["y"]), tables[LOST][1, :, at], rtol=1e-12)


@pytest.mark.parametrize(
    ("metric", "of", "sign"),
    [
        ("final_accuracy", lambda rows: rows[:, -1, 3], -1),
        ("best_accuracy", lambda rows: rows[:, :, 3].max(axis=1), -1),
        ("final_test_loss", lambda rows: rows[:, -1, 2], 1),
    ],
)
@pytest.mark.parametrize("by", ["algorithm", "lr", "local.steps"])
def test_the_best_setting(
    tables: dict[Setting, np.ndarray], fedbench: Call, metric: str, of: Any, sign: int, by: str
) -> None:
    """The mean over seeds decides, where all runs completed; a seed counts once; the best of each value."""
    code, out, _ = fedbench("best", "d", "--metric", metric, "--by", by)
    table, places = (part.splitlines() for part in out.split("\n\n"))
    place = {"algorithm": None, "lr": 0, "local.steps": 1}[by]
    ranked = sorted(tables.keys() - {LOST}, key=lambda setting: sign * of(tables[setting]).mean())
    expected: dict[object, Setting] = {}
    for setting in ranked:
        expected.setdefault("fedavg" if place is None else setting[place], setting)
    head = re.split(r"  +", table[0])
    notes = [line for line in table if line.startswith("(")]
    found = [dict(zip(head, re.split(r"  +", line), strict=True)) for line in table[1 : -len(notes)]]
    assert code == 0
    assert notes[0] == "(1 setting left out: a run failed, diverged or not ended)"
    assert notes[1] == "(1 further run left out, with a seed that the setting already has)"
    words = {"final_accuracy": "final test accuracy", "best_accuracy": "best test accuracy"}
    shown = words.get(metric, "final test loss")
    assert f"by the {'lowest' if sign > 0 else 'highest'} mean {shown}" in notes[2]
    assert len(found) == len(expected)
    for row, setting in zip(found, expected.values(), strict=True):
        assert [float(row[key]) for key in KEYS] == [*setting]
        values = of(tables[setting])
        assert row[shown] == f"{values.mean():.4f} +- {values.std(ddof=1):.4f}"
        assert row["n"] == "3"
    first = "-".join(map(str, next(iter(expected.values()))))
    assert places == [f"d/{first}-{seed}" for seed in SEEDS]


def test_compare_shows_the_first_row_that_differs(tmp_path: Path, fedbench: Call) -> None:
    """With all digits. Cells that are empty in both are the same, one that is empty in one is not; time does
    not count."""
    head = "round,test_loss,test_accuracy,grad_norm,wall_seconds"
    rows = {
        "a": ["0,2.5,0.1,,1", "1,2.0,0.2,,2", "2,0.1234567890123456,0.3,0.25,3", "3,1.0,0.4,,4"],
        "b": ["0,2.5,0.1,,9", "1,2.0,0.2,,9", "2,0.12345678901234562,0.3,,9", "3,0.5,0.5,,9", "4,0.2,0.6,,9"],
    }
    for name, rate in (("a", 0.25), ("b", 0.5)):
        place = RunDirectory(tmp_path / name)
        place.path.mkdir()
        config = compose_config(["algorithm=fedavg", f"algorithm.lr={rate}", "rounds=4"])
        place.write_config(config.given)
        accuracy = {"final_accuracy": rate / 5, "best_accuracy": 0.75, "status": "completed", "rounds": 3}
        more = {"engine": f"engine-{name}", "versions": {"torch": "9"}, "config": {}}
        place.write_summary({**accuracy, **more})
        (place.path / "metrics.csv").write_text("\n".join([head, *rows[name]]) + "\n")
    lines = [re.split(r"  +", line.strip()) for line in fedbench("compare", "a", "b")[1].splitlines()]
    assert lines == [
        ["a", "b"],
        ["configuration:"], ["algorithm.lr", "0.25", "0.5"],
        ["computed with:"], ["engine", "engine-a", "engine-b"],
        ["results:"], ["final_accuracy", "0.05", "0.1"],
        ["metrics.csv:"], ["test_loss in round 2", "0.1234567890123456", "0.12345678901234562"],
        ["grad_norm in round 2", "0.25", "nan"],
        ["rows", "4", "5"],
    ]  # fmt: skip
