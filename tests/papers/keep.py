"""Results of a figure as they are kept, invented."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedbench.papers.evidence import MADE
from fedbench.papers.figure import command, shown
from fedbench.papers.kept import write_tables
from fedbench.runs.records import Run

NAME = "adamasfl/fig1"


def keep_runs(root: Path) -> Path:
    """The tables that a figure keeps of all runs in `<root>/sweeps/<stage>/`; returns their directory."""
    places = sorted(file.parent for file in (root / "sweeps").rglob("summary.json"))
    (root / "out").mkdir()
    write_tables(root / "out", {f"{one.parent.name}/{one.name}": Run(one) for one in places})
    return root / "out"


def keep(root: Path, scores: dict[str, float], name: str = NAME, scale: str = "cpu",
         stages: Mapping[str, float] | None = None, norms: Sequence[str] = ("vector",),
         **made: object) -> Path:  # fmt: skip
    """Results of a figure: three seeds of each method; AdaMasFL's with these norms, and in these stages with
    another accuracy in each."""
    out = shown(name, scale, root)
    out.mkdir(parents=True, exist_ok=True)
    rows = [
        {"dir": f"{stage}/{method}-{norm}-{seed}", "dataset": "fmnist",
         "partition": "dirichlet", "model": "cnn", "algorithm": method, "algorithm.norm": norm,
         "algorithm.lr": "", "schedule": "async", "seed": seed, "status": "completed",
         "final_accuracy": score + 0.0001 * seed * (method == "adamasfl"), "best_accuracy": score}
        for method, usual in scores.items() for ours in [method == "adamasfl"]
        for stage, score in ((stages if ours else None) or {"final": usual}).items()
        for norm in (norms if ours else ("vector",)) for seed in (0, 1, 2)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(out / "runs.csv", index_label="run")
    pd.DataFrame({"run": range(len(rows)), "round": 1, "test_accuracy": 0.5}).to_csv(out / "rounds.csv")
    (out / "updates.png").write_bytes(b"png")
    (out / "updates.json").write_text(json.dumps({"text": ["Fifteen runs."]}))
    content = {"figure": name, "scale": scale, "digest": "", "files": ["updates.json", "updates.png"],
               "shared": {"rounds": 1000, "dataset": "digits", "model": "mlp"}, "seeds": [0, 1, 2],
               "command": command(name, scale), "validation": 0.1, "runs": {"completed": 15},
               "commit": ["0123456789abcdef"], **made}  # fmt: skip
    (out / MADE).write_text(json.dumps(content))
    return out
