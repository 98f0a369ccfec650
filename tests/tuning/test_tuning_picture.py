"""The pictures of a search, by their points, on invented trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedbench.runs.records import Run
from fedbench.tuning.picture import draw
from fedbench.tuning.selection import Selection, select

LR, BETA = "algorithm.lr", "algorithm.beta"


def searched(*cases: tuple[float, float, float | None], **more: Any) -> Selection:
    """A search over (lr, beta) with these scores; None: diverged. `more`: further choices of all runs."""
    runs = [
        Run(
            Path(f"{lr}-{beta}"),
            {"algorithm": "fedcm", LR: lr, BETA: beta, "seed": 0, **more},
            {"status": "diverged" if score is None else "completed", "final_accuracy": score},
        )
        for lr, beta, score in cases
    ]
    found = select(runs, [LR, BETA])
    assert found is not None
    return found


def test_a_point_is_the_best_trial_at_a_value_over_the_other_keys() -> None:
    """Of lr 0.1 the two betas have 0.6 and 0.8; at lr 1 one has diverged, at lr 10 both have."""
    search = searched((0.1, 0.5, 0.6), (0.1, 0.9, 0.8), (1.0, 0.5, 0.7), (1.0, 0.9, None),
                      (10.0, 0.5, None), (10.0, 0.9, None))  # fmt: skip
    drawings = draw([({"algorithm": "fedcm"}, search)], "test accuracy", "The rule.", Path("searches/a"))
    by_rate, by_beta = (drawings[key].points.set_index(key) for key in (LR, BETA))
    assert by_rate.final_accuracy_mean.dropna().to_dict() == {0.1: 0.8, 1.0: 0.7}
    assert by_rate.diverged.to_dict() == {0.1: 0, 1.0: 0, 10.0: 1}
    assert by_beta.final_accuracy_mean.to_dict() == {0.5: 0.7, 0.9: 0.8}
    (text,) = drawings[LR].said["text"]
    assert "The rule." in text
    assert text.endswith("Data: searches/a.")


def test_what_selects_is_what_is_drawn() -> None:
    """Rounds to a target, twice the planned ones where it is not reached; no figure of a single value."""
    near = searched((0.1, 0.5, 0.6), (1.0, 0.5, 0.7), target=0.9, rounds=100)
    (only,) = draw([({"algorithm": "fedcm"}, near)], "test accuracy", "", Path("a")).items()
    assert only[0] == LR
    assert only[1].points.rounds_to_target_mean.tolist() == [200, 200]
    (ax,) = only[1].figure.axes
    assert ax.get_ylabel() == "Rounds to target"


def test_each_task_has_a_panel_in_which_the_winner_has_a_ring() -> None:
    """At alpha 0.1 the best rate is 0.1, at alpha 1 it is 1; the method is one line in both."""
    tasks = []
    for alpha, scores in ((0.1, (0.9, 0.2)), (1.0, (0.3, 0.8))):
        found = searched(*((lr, 0.5, score) for lr, score in zip((0.1, 1.0), scores, strict=True)),
                         partition="dirichlet", **{"partition.alpha": alpha})  # fmt: skip
        tasks.append(({"algorithm": "fedcm", "partition.alpha": alpha}, found))
    figure = draw(tasks, "test accuracy", "", Path("a"))[LR].figure
    rings = [[line.get_xydata().tolist() for line in ax.lines if line.get_gid() == "winner"]
             for ax in figure.axes]  # fmt: skip
    assert rings == [[[[0.1, 0.9]]], [[[1.0, 0.8]]]]
    assert [ax.get_title() for ax in figure.axes] == ["Dirichlet(0.1)", "Dirichlet(1)"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["FedCM", "winner", "n = 1 seed"]
