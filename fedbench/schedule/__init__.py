"""Schedules: which client starts from which version of the model, whose results make the next, and when.

A schedule is plain data (`Trace`), computed before any training. Synchronous rounds and asynchronous arrivals
have the same form. NumPy only.
"""

from fedbench.schedule.own_delays import register_delay

__all__ = ["register_delay"]
