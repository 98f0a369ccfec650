"""More rounds of a run that has ended: whether its state is that of the longer run, and going on from it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from fedbench.config.identity import run_hash
from fedbench.errors import ConfigError, RunError
from fedbench.method.cost import reads_rounds
from fedbench.runs.checkpoint import Checkpointer, Saved
from fedbench.runs.metrics import Row
from fedbench.runs.plan import Plan
from fedbench.runs.provenance import codes_of
from fedbench.runs.run_directory import CHECKPOINT, EarlierRun, RunDirectory

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Further:
    """The state that a run goes on from, and whose it is."""

    earlier: EarlierRun
    saved: Saved

    @property
    def note(self) -> str:
        """What a reader of the results should know."""
        return f"rounds 1 to {self.earlier.rounds} were computed by the run in {self.earlier.path}"


def further(plan: Plan, directory: RunDirectory) -> Further | None:
    """What the run of `plan` in `directory` can go on from: the same with fewer rounds, there or beside it.

    None where there is none, or the run has a checkpoint of its own. Raises ConfigError where `directory`
    holds one that is not the beginning of this run.
    """
    here = directory.earlier(plan.config)
    if _has_begun(plan, directory, here):
        return None
    found = here or directory.earlier_nearby(plan.config)
    if found is None:
        return None
    reason = refusal(plan, found.rounds)
    try:
        saved = Checkpointer(found.path / CHECKPOINT, 0.0, found.identity).load()
    except RunError as error:
        saved, reason = None, reason or str(error)
    if saved is not None and saved.way.state == "disk":
        reason = reason or "its clients' state was on disk and is gone"
    if saved is not None and reason is None:
        code = saved.code or tuple(codes_of(RunDirectory(found.path).summary or {}))
        return Further(found, replace(saved, rows=_due(saved, plan.config.eval.every), code=code))
    reason = reason or "it has no checkpoint.pt"
    if here is not None:
        allowed = f"the run of {found.rounds} rounds in {directory.path} cannot go on: {reason}; "
        raise ConfigError("rounds", plan.config.rounds, allowed + "give another directory, or that value")
    log.info("not going on from the %d rounds in %s: %s", found.rounds, found.path, reason)
    return None


def refusal(plan: Plan, rounds: int) -> str | None:
    """Why a run of so many rounds is not the beginning of the run of `plan`, in words; None: it is."""
    algorithm = plan.algorithm
    then = algorithm.resolve(replace(plan.counts, T=rounds))
    differ = [f"algorithm.{key}" for key, value in plan.hyper.items() if then.get(key) != value]
    if differ:
        one = len(differ) == 1
        return (
            f"{' and '.join(differ)} {'depends' if one else 'depend'} on the number of rounds (a theorem's)"
        )
    if reads_rounds(algorithm, plan.setting):
        return f"{algorithm.name} reads the number of rounds"
    if algorithm.caches:
        return f"{algorithm.name} counts in later rounds again what clients sent before its end"
    if not replace(plan, config=replace(plan.config, rounds=rounds)).trace.begins(plan.trace):
        return "what was under way at its end was never computed"
    return None


def _has_begun(plan: Plan, directory: RunDirectory, here: EarlierRun | None) -> bool:
    """Whether there is a checkpoint of this very run, or a damaged one, which is not to be passed over."""
    own = Checkpointer(directory.path / CHECKPOINT, 0.0, run_hash(plan.config.given))
    if not own.path.is_file() or here is None:
        return own.path.is_file()
    try:
        return own.load() is not None
    except RunError:
        return False


def _due(saved: Saved, every: int) -> list[Row]:
    """The rows that the longer run has too: not that of the last round, unless it was due."""
    last = saved.rows[-1].round
    return saved.rows if last % every == 0 else saved.rows[:-1]
