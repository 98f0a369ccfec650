"""`fedbench cancel DIR`: end the cluster's jobs that were given runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.errors import Parser, counted


def main(argv: Sequence[str]) -> int:
    """End the jobs that were given the runs in the directories. Raises DataError, and UserError if the
    cluster refuses."""
    parser = Parser(
        prog="fedbench cancel",
        description="End the jobs of a cluster that were given the runs of a sweep (hydra/launcher=slurm or\n"
        "submitit_local). A run under way saves a checkpoint if its round ends within the time that the\n"
        "cluster leaves it (Slurm: KillWait, mostly 30 s). The sweep's command goes on from there.",
    )
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR", help="of a sweep or of a run")
    args = parser.parse_args(argv)
    from fedbench.runs.records import records
    from fedbench.sweeps.jobs import cancel, given, settle
    from fedbench.sweeps.slurm import joined

    for directory in args.directories:
        places = [run.directory for run in records(directory)]
        settle(places)
        jobs = given(places)
        cancel(jobs)
        runs = counted(sum(len(job.runs) for job in jobs), "run")
        ids = joined([job.id for job in jobs])
        print(f"{directory}: " + (f"ended {ids}, with {runs}" if jobs else "no job has a run of it"))
    return 0
