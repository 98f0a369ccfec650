"""One run: `Run(config)` checks all that follows from a configuration, `Run.go(directory)` computes it."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbench import provenance
from fedbench.config.config import Config, flat
from fedbench.config.identity import run_hash
from fedbench.engine.choose import EngineChoice, choose_device, vmap_seconds
from fedbench.errors import RunError, UserError, first_line
from fedbench.machine import resident
from fedbench.process_group import ALONE, ProcessGroup
from fedbench.runs import checks, stored
from fedbench.runs.checkpoint import Checkpointer, Saved
from fedbench.runs.data_file import said_of
from fedbench.runs.execution import Execution, execution, foresee, refuse_full_disk, set_numerics
from fedbench.runs.metrics import ending
from fedbench.runs.observers import Files, Logged, Observer, Shown
from fedbench.runs.problem import problem_of
from fedbench.runs.results import finish, write_reproduce
from fedbench.runs.run_directory import CHECKPOINT, CONFIG, FAILED, REPRODUCE, SUMMARY, RunDirectory
from fedbench.runs.session import Session
from fedbench.runs.signals import Signals
from fedbench.runs.training import train
from fedbench.torch_internals import is_out_of_memory

log = logging.getLogger(__name__)


class Run:
    """A run that can be computed: a problem, and how it will be computed here."""

    def __init__(self, config: Config, session: Session | None = None, group: ProcessGroup = ALONE) -> None:
        """Check everything that can be checked. Raises ConfigError or DataError with a one-line message.

        `session`: what the runs of the process share; `group`: the processes that will compute.
        """
        self.config, self.session, self.group = config, session or Session(), group
        device = choose_device(group.device(config.device))
        checks.check_processes(config, device, group.size)
        self.problem = problem_of(config, self.session)
        self.placement = foresee(self.problem, device, group)

    @property
    def seconds(self) -> float:
        """What it takes, compared with other runs."""
        return vmap_seconds(self.placement.load)

    @property
    def memory(self) -> int:
        """Bytes of memory that the run will take; on a GPU, of its memory."""
        here, plan = self.placement.device, self.placement.planned
        return plan if here.type == "cuda" else plan + resident()

    def prepare(self, state: Path = Path("state"), kept: EngineChoice | None = None) -> Execution:
        """Put the run on its device, without computing anything of it. `state`: for clients' state on disk;
        `kept`: an earlier choice to keep."""
        return execution(self.problem, self.placement, self.session, state, kept)

    def refuse_full_disk(self, directory: Path) -> None:
        """Raise ConfigError if clients' state will lie on disk, and does not fit beside the run in
        `directory`. Writes nothing."""
        refuse_full_disk(
            self.problem, self.placement, stored.state_place(RunDirectory(directory), self.config)
        )

    def go(self, directory: Path) -> dict[str, Any]:
        """Compute the run in `directory`, resume it, or report it if it is finished. Returns its summary.

        Raises ConfigError, RunError, and Interrupted after SIGINT or SIGTERM (a checkpoint was saved, unless
        a second signal stopped the run at once).
        """
        config, here = self.config, RunDirectory(directory)
        if not here.has(SUMMARY):
            self.refuse_full_disk(directory)
        with here.locked():
            stored.refuse_other(here, config)
            if config.resume:
                stored.refuse_other_data(here.path, config, self.problem.dataset.files)
            if stored.finished(here, config) is None:
                self._go(here)
            summary = here.summary or {}
            log.info("%s (%s)", ending(summary), directory)
            return summary

    def _go(self, here: RunDirectory) -> None:
        """Compute it. With resume=false, the files of a run that is here are replaced when it has ended or
        paused; until then it has a staging directory, where a failed attempt stays."""
        config, group, start = self.config, self.group, time.monotonic()
        saved = Checkpointer(here.path / CHECKPOINT, run_hash(config)).load() if config.resume else None
        told = saved
        if saved and group.size > 1:  # clients' rows are handed out later
            told = replace(saved, loop_state={**saved.loop_state, "clients": {}})
        told = group.broadcast(told)
        again = not config.resume and here.has(CONFIG)
        target = here.staging() if again else here
        target.write_config(config.given)
        division, pooled = self.problem.division, self.problem.dataset.pooled
        target.write_partition(division.partition, division.assignment, pooled)
        if columns := division.table_of_users():
            target.write_users(columns)
        stored.record_data(target.path, config, self.problem.dataset)
        try:
            set_numerics(self.problem, self.placement)
            self._compute(here, target, saved or told)
        except Exception as error:
            if not isinstance(error, UserError):
                failed = {"status": FAILED, "error": first_line(error, named=True)}
                spent = {"wall_seconds": time.monotonic() - start, "config": flat(config.given)}
                code = {"versions": provenance.versions(), "commit": provenance.commit()}
                target.write_summary({**failed, **spent, **code})
            if again:
                shutil.rmtree(stored.state_place(target, config), ignore_errors=True)
                log.warning("%s is as it was; the failed attempt lies in %s", here.path, target.path)
            raise
        if again:
            stored.promote(here, target, config)

    def _compute(self, here: RunDirectory, target: RunDirectory, saved: Saved | None) -> None:
        """Compute from what is saved to the last file. If the device's memory is too small for a chunk of
        clients, the run starts again with half the chunk. Its numbers are those of the chunk that is
        recorded."""
        kept, notes = saved.engine_choice if saved else None, tuple[str, ...]()
        if saved and saved.commit != (now := provenance.commit()):
            how = f"with commit {provenance.short(saved.commit)}, here {provenance.short(now)}"
            notes = (f"rounds 1 to {saved.loop_state['version']} were computed {how}",)
        while True:
            running: Execution | None = None
            try:
                running = self.prepare(stored.state_place(target, self.config), kept)
                running = replace(running, notes=(*running.notes, *notes))
                self._train(running, here, target, saved)
                return
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                begun = running is None or running.loop.version > 0 or saved is not None
                if running is None or begun or running.choice.chunk == 1 or self.group.size > 1:
                    more = "; the same command goes on from the last checkpoint"
                    goes_on = self.config.resume and target.has(CHECKPOINT)
                    text = first_line(error) + (more if goes_on else "")
                    raise RunError(f"out of memory: {text}") from error
                kept = replace(running.choice, chunk=running.choice.chunk // 2)
                before, after = running.choice.chunk, kept.chunk
                notes = (f"out of memory with chunk={before}; started again with chunk={after}",)
                running = None  # frees its memory

    def _train(
        self, running: Execution, here: RunDirectory, target: RunDirectory, saved: Saved | None
    ) -> None:
        """Train it, and write its last files into `target`."""
        config, problem, choice, loop = self.config, self.problem, running.choice, running.loop
        write_reproduce(target.path / REPRODUCE, running)
        how = problem.layout.d, choice.engine, choice.chunk, self.placement.device
        log.info("%s: %d parameters, engine %s, chunk %d, device %s", problem.method.name, *how)
        if problem.dataset.features:
            log.info(said_of(problem.dataset.features))
        if running.every > 1 and config.eval.every is None:
            why = "for a tenth of the time at most (eval.every=1: all)"
            log.info("evaluated every %d rounds, %s", running.every, why)
        for note in running.notes:
            log.warning(note)

        def under_way() -> str:
            writes = self.group.is_writer
            at = min(loop.version + 1, config.rounds)
            compiles = loop.trainer.executor.compiling
            first = "the step to be compiled (a minute or so), then for " if compiles else ""
            return f"waits for {first}the end of round {at}, to save it" if writes else ""

        observers: list[Observer] = [Files(target), Shown()]
        observers += [Logged(here, config)] if config.logger else []
        checkpointer = Checkpointer(target.path / CHECKPOINT, run_hash(config), config.checkpoint.seconds)
        results: Mapping[str, Any] | None = {"status": FAILED}
        with Signals(under_way).installed() as signals:
            try:
                rows, seconds = train(running, saved, observers, signals, checkpointer)
                results = finish(running, rows, seconds, target)
            except KeyboardInterrupt:
                results = None
                raise
            finally:
                for observer in observers:
                    observer.end(results)
