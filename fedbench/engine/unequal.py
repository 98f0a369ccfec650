"""The local steps of a chunk whose clients make very different numbers of steps.

A vectorised step computes all rows of a chunk, those of clients that have ended included. So whenever the
rest fits a chunk of the next smaller power of two, it goes on in that. Few forms of a step are recorded then,
however many clients the rounds have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedbench.engine.executors import Work, row
from fedbench.engine.graph import State, Step, eagerly
from fedbench.method import Vectors

FEWEST = 4
"""Steps that must be left for a smaller chunk to pay for itself."""


def unequally(step: Step, local: Vectors, work: Work, first: int, lean: bool) -> State:
    """Like `eagerly`, without most of the steps that clients which have ended would ignore."""
    statistics, clients = work.statistics, len(work.batches.steps)
    for begin, end, rows in stages(work.batches.known.steps, first):
        part = replace(work, statistics=statistics, batches=work.batches.upto(end))
        if len(rows) == clients:
            local, statistics = eagerly(step, local, part, begin, lean)
        else:
            at = torch.from_numpy(rows)
            moved = eagerly(step, row(local, at), part.of_clients(at), begin, lean)
            local, statistics = _put(local, moved[0], at), _put(statistics, moved[1], at)
    return local, statistics


def stages(steps: np.ndarray, first: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """The first step of each stage, the step after its last, and the rows of a chunk that it computes, for
    clients that make `steps` (C,)."""
    order, longest = np.argsort(-steps, kind="stable"), int(steps.max())
    begin, rows = first, len(steps)
    while rows > 1:
        fewer = 1 << (rows - 1).bit_length() - 1  # the next smaller power of two
        end = max(begin, int(steps[order[fewer]]))  # from here on no more rows are needed
        if longest - end < FEWEST:
            break
        if end > begin:
            yield begin, end, order[:rows]
        begin, rows = end, fewer
    yield begin, longest, order[:rows]


def _put(vectors: Vectors, rows: Vectors, at: Tensor) -> Vectors:
    """Every tensor with its rows `at` replaced."""
    return {name: value.index_copy(0, at, rows[name]) for name, value in vectors.items()}
