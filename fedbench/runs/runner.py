"""`Run.go`, under the name that it had before."""

from __future__ import annotations

from pathlib import Path

from fedbench.runs.run import Run
from fedbench.runs.run_directory import Outcome
from fedbench.runs.session import Session


def run(plan: Run, directory: Path, session: Session | None = None) -> Outcome:
    """`plan.go(directory)`."""
    if session is not None:
        plan.session = session
    return plan.go(directory)
