"""What several papers share: the speed-up, a factor on the loss, relative rates, prescribed step sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fedbench.papers.claims import Claim, slope
from fedbench.papers.comparisons import Flat, FlatterThan
from fedbench.papers.figure import Figure, Paper, markdown, picture
from fedbench.papers.trends import AcrossTasks, Slope, TableTrend

FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Multiples of each algorithm's own learning rate in `lr_relative`."""
POWERS = {"padamfed": -1 / 4, "padamfed_vr": -1 / 3, "masfl": -1 / 4, "adamasfl": -1 / 4}
"""Exponents of S K T in the theorems."""
FRONT = ("padamfed", "adamasfl")
"""The methods whose shared claims stand on the report's first page."""
NORMS = {"vector": "one norm", "tensor": "norm per tensor"}
"""The two readings of a normalised step: as the papers write it, and as a loop over a model's parameters."""
SUFFIX = {"vector": "", "tensor": "-tensor"}
"""Of the names of claims, by the reading."""
UNTUNED = {
    **dict.fromkeys(("padamfed vector", "padamfed tensor"), ("fedavg", "scaffold", "scaffold_m")),
    **dict.fromkeys(("adamasfl vector", "adamasfl tensor"), ("fedbuff", "ca2fl", "masfl")),
}
"""Methods that a theorem sets, in both readings of its norm, and those that are tuned."""


def by_work(runs: Path, out: Path) -> list[Path]:
    """The mean gradient norm against S K T."""
    from fedbench.figures.comparisons import draw_speedup

    return draw_speedup(sorted(runs.glob("final*")), POWERS, slope).save(out / "speedup")


def by_loss_scale(runs: Path, out: Path) -> list[Path]:
    """Final accuracy against the factor on the loss, synchronous and asynchronous algorithms."""
    files = []
    for schedule in ("sync", "async"):
        where = {"schedule": [schedule]}
        files += picture(runs, out, schedule, "loss.scale", "final-scale", where=where)
    return files


def by_relative_lr(runs: Path, out: Path) -> list[Path]:
    """Final accuracy against the learning rate over its reference."""
    from fedbench.figures.comparisons import draw_relative

    return draw_relative(runs / "final", FACTORS).save(out / "lr_relative")


def over_tasks(runs: Path, out: Path) -> list[Path]:
    """Accuracy over a range of tasks with one setting each, and the same as a table of all tasks."""
    from fedbench.figures.tasks import by_task, draw_untuned

    drawing = draw_untuned(sorted(runs.glob("final*")))
    files = drawing.save(out / "untuned")
    table = by_task(drawing.points).unstack("method").reset_index()
    csv, text = out / "tasks.csv", out / "tasks.md"
    csv.write_text(table.to_csv(index=False, lineterminator="\n"))
    text.write_text(markdown(table))
    return [*files, csv, text]


def stepsizes(_: Path, out: Path) -> list[Path]:
    """Prescribed step sizes."""
    from fedbench.figures.theory import draw_stepsizes

    return [
        file for kind in ("sync", "async") for file in draw_stepsizes(kind).save(out / f"stepsizes_{kind}")
    ]


def comparison(_: Path, out: Path) -> list[Path]:
    """The papers' comparison tables, as comparison.csv and comparison.md."""
    from fedbench.theory.comparison import TABLES, markdown, write_csv

    table, text = out / "comparison.csv", out / "comparison.md"
    write_csv(table)
    text.write_text("\n".join(markdown(name) for name in TABLES))
    return [table, text]


def speedup(method: str, power: float, source: str) -> Iterator[Claim]:
    """A theorem's rate: the gradient norm falls with (S K T)^power."""
    for key, word in (("clients.per_round", "participating clients"), ("local.steps", "local steps")):
        yield Claim(
            f"speedup-{method}-{key.split('.')[1]}",
            f"{method} has a linear speed-up in the number of {word}: the mean gradient norm falls with"
            f" (S K T)^({power:.3g})",
            source,
            "speedup",
            Slope(method, key, power),
            published=f"slope {power:.3f}" if key == "clients.per_round" and method in FRONT else "",
        )


def variant(method: str, norm: str) -> str:
    """A method in one reading of its norm, as claims name it."""
    return f"{method} algorithm.norm={norm}"


def problem_free(method: str, kind: str, baselines: tuple[str, ...], source: str) -> Iterator[Claim]:
    """No problem parameter in a `sync` or `async` method: a factor on the loss changes nothing."""
    claim = partial(Claim, source=source, figure="loss_scale")
    for norm, words in NORMS.items():
        run = variant(method, norm)
        yield claim(
            f"problem-free-{method}{SUFFIX[norm]}",
            f"{method} needs no problem parameter: its accuracy does not change with the loss's factor"
            f" ({words})",
            test=Flat(run, "loss.scale", 0.01),
            published="no change" if method in FRONT and norm == "vector" else "",
        )
        yield claim(
            f"others-depend-{method}{SUFFIX[norm]}",
            f"the other algorithms depend on learning rates tuned to the problem (against {method}, {words})",
            test=FlatterThan(run, baselines, "loss.scale"),
        )
    yield Claim(
        f"step-size-free-{method}",
        f"{method}'s step sizes follow from S, K and T alone",
        source,
        "theory/stepsizes",
        TableTrend(f"stepsizes_{kind}", "lr", "x", 0, "axis", {"algorithm": method, "axis": "loss"}),
        scale="smoke",
    )


def untuned() -> Iterator[Claim]:
    """The argument for methods without problem parameters: they work where nobody has tuned."""
    source = "PAdaMFed, ICLR 2025, p. 2, section 1.1; AdaMasFL talk, ICML 2025; the figure is ours"
    for method, others in UNTUNED.items():
        for of, words in (("worst", "on the worst task"), ("median", "in the median")):
            yield Claim(
                f"untuned-{method.replace(' ', '-')}-{of}",
                f"{method}, never tuned, is {words} of a range of tasks ahead of methods that keep the"
                " step size tuned on one",
                source,
                "untuned",
                AcrossTasks(method, others, of),
                published="ahead",
            )


PAPER = Paper(
    "Several papers",
    (
        Figure("speedup", "Mean gradient norm against S K T, with the theorems' slopes", by_work),
        Figure(
            "loss_scale",
            "Accuracy against a factor on the loss, tuned at factor 1",
            by_loss_scale,
            tuned=True,
        ),
        Figure(
            "lr_relative",
            "Accuracy against the learning rate relative to the best one",
            by_relative_lr,
            tuned=True,
            factors=FACTORS,
        ),
        Figure(
            "untuned",
            "One setting for all tasks: accuracy relative to each task's best tuned method",
            over_tasks,
        ),
        Figure(
            "untuned_scaled",
            "The same with a constant before the theorem's gamma, chosen on the quickstart's task",
            over_tasks,
        ),
        Figure("theory/stepsizes", "Prescribed step sizes against T, S and K", stepsizes, runs=False),
        Figure("theory/comparison", "The papers' comparison tables", comparison, runs=False),
    ),
    tuple(untuned()),
    picture=("untuned", "untuned.png"),
)
