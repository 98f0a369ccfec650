"""Under the null CUDA device: what rounds of jobs ask of it.

null_cuda_worker.py FILE    a JSON list of jobs (lists of words); prints a JSON object for each
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import emul
import torch

from fedbench.api import compose_config
from fedbench.runs.execution import Execution, set_numerics
from fedbench.runs.measurement import Measurement
from fedbench.runs.run import Run

WAITS = ("stream_sync", "device_sync", "event_sync")
KERNELS = ("launches", "cublas", "cudnn", "driver_launches", "memset")
ROUNDS = 12


def counted(running: Execution, rounds: int) -> dict[str, Any]:
    """Kernels, graph launches, copies, waits and host milliseconds a round."""
    before, began = emul.snapshot(), time.process_time()
    for _ in range(rounds):
        running.loop.update()
    spent, found = time.process_time() - began, emul.delta(before)
    return {
        "kernels": sum(found.get(name, 0) for name in KERNELS) / rounds,
        "graph_launches": found.get("graph_launches", 0) / rounds,
        "copies": (found.get("h2d", 0) + found.get("d2h", 0)) / rounds,
        "waits": sum(found.get(name, 0) for name in WAITS),
        "host_ms": round(spent / rounds * 1e3, 2),
    }


def started(words: list[str]) -> Execution:
    """A run before its first round."""
    run = Run(compose_config(words))
    set_numerics(run.problem, run.placement)
    running = run.prepare()
    running.start()
    return running


def allocated() -> int:
    """Bytes in use. Autograd's thread may let go of a step's last tensors a moment after the step."""
    gc.collect()
    readings = []
    for _ in range(10):
        readings.append(torch.cuda.memory_allocated())
        time.sleep(0.02)
    return min(readings)


def rounds(words: list[str]) -> dict[str, Any]:
    """Of one job: `counted`, bytes grown over ROUNDS rounds, and the waits of a recorded row."""
    running = started(words)
    for _ in range(2):
        running.loop.update()
    measurement = Measurement(running)
    measurement.row(0, time.monotonic)
    held = allocated()
    found = counted(running, ROUNDS)
    found["grown"] = allocated() - held
    before = emul.snapshot()
    measurement.row(0, time.monotonic)
    row = emul.delta(before)
    found["row_waits"] = sum(row.get(name, 0) for name in WAITS)
    engine = running.choice.engine
    note = running.loop.trainer.executor.note
    return {"words": words, "engine": engine, "note": note, **found}


def main() -> None:
    """See above."""
    logging.disable(logging.WARNING)
    emul.no_values()
    for words in json.loads(Path(sys.argv[1]).read_text()):
        print(json.dumps(rounds(words)), flush=True)
    os._exit(0)  # a thread of autograd's may meet Python's end


main()
