"""The threads of runs that are computed together."""

from __future__ import annotations

import os

import pytest
import torch

from fedbench.engine.turns import Meeting, Seat


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no thread to a core")
@pytest.mark.parametrize("threads", [1, 2])
def test_they_work_on_the_core_of_the_main_thread_if_they_need_no_other(threads: int) -> None:
    """Those with several threads of torch's keep all cores, which these threads get from them."""
    before, own = torch.get_num_threads(), os.sched_getaffinity(0)
    found: dict[int, set[int]] = {}

    def work(seat: Seat) -> None:
        found[seat.number] = os.sched_getaffinity(0)  # of this thread

    meeting = Meeting(2)
    for number in range(2):
        meeting.add(number, work)
    try:
        torch.set_num_threads(threads)
        meeting.run()
    finally:
        torch.set_num_threads(before)
    assert [len(cores) for cores in found.values()] == ([1, 1] if threads == 1 else [len(own)] * 2)
    assert all(cores <= own for cores in found.values())
    assert os.sched_getaffinity(0) == own
