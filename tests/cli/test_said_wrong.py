"""Damaged tables of runs, which are named."""

from __future__ import annotations

from pathlib import Path

from run_files import Call

SMALL = ("rounds=2", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none", "threads=1")


DAMAGE = {
    "header": ("round", "rund", "no column round"),
    "round": ("\n1,", "\nabc,", "column 'round': invalid literal for int() with base 10: 'abc'"),
    "number": ("\n0,0.0,", "\n0,x,", "column 'virtual_time': could not convert string to float: 'x'"),
}


def test_a_damaged_table_of_a_run_is_named(fedbench: Call) -> None:
    """By every command that reads it; and one row less is another run to `replay`."""
    assert fedbench(*SMALL, "-m", "seed=0,1", "hydra.sweep.dir=s", "hydra/launcher=basic")[0] == 0
    file = next(Path("s").glob("*seed_1*/metrics.csv"))
    whole = file.read_text()
    for was, now, line in DAMAGE.values():
        assert was in whole
        file.write_text(whole.replace(was, now, 1))
        for command in (["collect", "s"], ["plot", str(file.parent)], ["replay", str(file.parent)]):
            for table in ("runs.csv", "rounds.csv"):
                Path("s", table).unlink(missing_ok=True)
            code, _, err = fedbench(*command)
            assert code in (1, 2), command
            assert f"{file}: {line}" in err.splitlines()[-1], (command, err)
    file.write_text("\n".join(whole.splitlines()[:-1]) + "\n")
    code, out, _ = fedbench("replay", str(file.parent))
    assert code == 1
    assert "metrics.csv had 2 rows, has 3" in out
