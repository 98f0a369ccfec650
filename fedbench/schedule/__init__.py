"""Schedules: which client starts from which version of the model, whose results make the next, and when.

A schedule is plain data (`Trace`), computed before any training. Synchronous rounds and asynchronous arrivals
have the same form. NumPy only.
"""

from fedbench.schedule.report import (
    cumulative_passes,
    cumulative_steps,
    dispatched,
    received,
    summary,
    write_jobs_csv,
)
from fedbench.schedule.trace import STATUS, Trace

__all__ = [
    "STATUS",
    "Trace",
    "cumulative_passes",
    "cumulative_steps",
    "dispatched",
    "received",
    "summary",
    "write_jobs_csv",
]
