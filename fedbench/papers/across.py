"""Figures and claims shared by several papers: speed-up, a factor on the loss, relative rates, step sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from fedbench.fields import AVERAGE
from fedbench.papers.claims import Claim, Measure, Reading, Readings, on_figure
from fedbench.papers.evidence import runs_in
from fedbench.papers.figure import Figure, Paper, Search, picture
from fedbench.papers.measures import Flat, Leads, Moves, Slope
from fedbench.papers.scores import OverTasks, Range
from fedbench.papers.untuned import write_untuned

FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Multiples of each algorithm's own learning rate in `lr_relative`."""
POWERS = {"padamfed": -1 / 4, "padamfed_vr": -1 / 3, "masfl": -1 / 4, "adamasfl": -1 / 4}
"""Exponents of S K T in the theorems."""
NORMS = {"vector": "one norm", "tensor": "norm per tensor"}
"""The two readings of a normalised step: as the papers write it, and as a loop over tensors computes it."""
AVERAGES = "algorithm.server_lr"
"""Swept or fixed to `average` in the readings in which the server takes the mean of the clients' models."""
ELSEWHERE = "elsewhere"
"""The search of a step size on the task of `untuned`, and the end of its stage's name."""
UNTUNED = {"padamfed": ("fedavg", "scaffold", "scaffold_m"), "adamasfl": ("fedbuff", "ca2fl", "masfl")}
"""Method with a theorem's step sizes -> the tuned methods that it is compared with."""


def by_work(out: Path) -> list[Path]:
    """Draw the mean gradient norm against S K T."""
    from fedbench.papers.speedup import draw_speedup

    return draw_speedup(runs_in(out), POWERS).save(out / "speedup")


def by_loss_scale(out: Path) -> list[Path]:
    """Draw the final accuracy against the factor on the loss, for synchronous and asynchronous algorithms."""
    files = []
    for schedule in ("sync", "async"):
        files += picture(out, schedule, "loss.scale", where={"schedule": [schedule]})
    return files


def by_relative_lr(out: Path) -> list[Path]:
    """Draw the final accuracy against the learning rate relative to each algorithm's own."""
    from fedbench.papers.relative import draw_relative

    return draw_relative(runs_in(out), out, FACTORS).save(out / "lr_relative")


def stepsizes(out: Path) -> list[Path]:
    """Draw the prescribed step sizes of synchronous and of asynchronous methods."""
    from fedbench.papers.theory import draw_stepsizes

    return [
        file for kind in ("sync", "async") for file in draw_stepsizes(kind).save(out / f"stepsizes_{kind}")
    ]


def comparison(out: Path) -> list[Path]:
    """Write the papers' comparison tables as comparison.csv and comparison.md."""
    from fedbench.papers.comparison import TABLES, frame, markdown

    table, text = out / "comparison.csv", out / "comparison.md"
    frame().to_csv(table, index=False, lineterminator="\n")
    text.write_text("\n".join(markdown(name) for name in TABLES))
    return [table, text]


def by_norm(
    method: str,
    figures: Mapping[str, str],
    measure: Callable[[str], Measure],
    averaged_in: str = "",
    ours: bool = False,
) -> Readings:
    """The readings of a claim on a method that normalises its steps: on each of `figures` (words -> figure)
    by each norm that was run. `averaged_in`: the stage of runs whose server averages, which were added when
    their results were known."""
    at = f" stage={averaged_in}" if averaged_in else ""
    return tuple(
        Reading(", ".join(filter(None, [words, said])), figure,
                measure(f"{method} algorithm.norm={norm}{at}"), bool(at), ours)
        for (words, figure), (norm, said) in product(figures.items(), NORMS.items())
        if not (at and method.endswith("_vr") and norm == "tensor")
    )  # fmt: skip


def elsewhere(method: str, values: Sequence[float]) -> Search:
    """The search of one eta on the task of `untuned`, with which the server averages."""
    where = {"algorithm": method, AVERAGES: AVERAGE}
    return Search(ELSEWHERE, where, {"algorithm.lr": values}, unless=("algorithm.lr",), task="untuned")


def speedup(method: str, power: float, source: str) -> Claim:
    """The claim of a theorem's rate: the gradient norm falls with (S K T)^power."""
    counts = {"S": "clients.per_round", "K": "local.steps"}
    tests = {word: Slope(method, key, power) for word, key in counts.items()}
    text = (
        f"{method}: the mean gradient norm falls with (S K T)^({power:.3g}) in S and in K (linear speed-up)"
    )
    return Claim(f"speedup-{method}", text, source, on_figure("speedup", tests))


def problem_free(method: str, kind: str, baselines: tuple[str, ...], source: str) -> Iterator[Claim]:
    """Claims that a method (`kind`: sync or async) needs no problem parameter: a factor on the loss changes
    nothing."""
    key, built = "loss.scale", partial(Claim, source=source, kind="construction")
    yield built(f"problem-free-{method}", f"{method}: a factor on the loss moves accuracy by a point at most",
                numbers=by_norm(method, {"": "loss_scale"}, lambda run: Flat(run, key, 0.01)))  # fmt: skip
    yield built(f"others-depend-{method}", f"the methods tuned at factor 1 vary more with it than {method}",
                numbers=by_norm(method, {"": "loss_scale"},
                                 lambda run: Leads(run, baselines, Range(key))))  # fmt: skip
    steps = Moves("lr", "x", 0, f"stepsizes_{kind}", {"algorithm": method, "axis": "loss"})
    yield built(f"step-size-free-{method}", f"{method}'s step sizes follow from S, K and T alone",
                numbers=on_figure("theory/stepsizes", {"": steps}), scale="smoke")  # fmt: skip


def untuned() -> Iterator[Claim]:
    """Claims that argue for methods without problem parameters: they work on tasks without any tuning."""
    ours = partial(Claim, source="our figure", kind="ours")
    for (method, others), (of, how) in product(UNTUNED.items(), (("worst", "min"), ("median", "median"))):
        beside = (
            f"the {of} over tasks is higher than that of methods that keep the step size chosen on one task"
        )
        tests = {said: Leads(f"{method} {norm}", others, OverTasks(how)) for norm, said in NORMS.items()}
        yield ours(f"untuned-{method}-{of}", f"{method} at its theorem's step sizes: {beside}",
                   numbers=on_figure("untuned", tests))  # fmt: skip
        scaled = {"one norm": Leads(method, others, OverTasks(how))}
        yield ours(f"scaled-{method}-{of}", f"{method} with a constant chosen there too: {beside}",
                   numbers=on_figure("untuned_scaled", scaled))  # fmt: skip


PAPER = Paper("across", "Across the papers", (
    Figure("speedup", "Mean gradient norm against S K T, with the theorems' slopes", by_work),
    Figure("loss_scale", "Accuracy against a factor on the loss, tuned at factor 1", by_loss_scale,
           tuned=True),
    Figure("lr_relative", "Accuracy against the learning rate relative to the best one", by_relative_lr,
           tuned=True, factors=FACTORS),
    Figure("untuned", "One setting for all tasks: accuracy relative to each task's best method",
           write_untuned),
    Figure("untuned_scaled", "The same with one constant before the theorem's gamma, chosen on one task",
           write_untuned),
    Figure("theory/stepsizes", "Prescribed step sizes against T, S and K", stepsizes, runs=False),
    Figure("theory/comparison", "The papers' comparison tables", comparison, runs=False),
), tuple(untuned()))  # fmt: skip
