"""fedbench: federated-learning experiments from the command line, and from Python.

run = fedbench.run(["algorithm=scaffold", "rounds=20"])     # one run; run.metrics, run.summary, run.model
sweep = fedbench.sweep(["rounds=20"], {"algorithm": ["fedavg", "scaffold"], "seed": range(3)})
fedbench.results(sweep)                                     # a row per run, a column per key
fedbench.plot(sweep)                                        # a matplotlib Figure

Importing fedbench is fast: what these functions need is imported when they are called.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fedbench.version import VERSION

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# OpenMP reads it when torch is imported. Waiting threads would keep their cores busy otherwise, and beside
# other processes every operation of a small step would wait for one of them to be given a core.

__version__ = VERSION
__all__ = [
    "Run",
    "Sweep",
    "compose_config",
    "labels",
    "log_to",
    "partition_file",
    "plot",
    "results",
    "run",
    "sweep",
]

if TYPE_CHECKING:
    from fedbench.api import (
        Run,
        Sweep,
        compose_config,
        labels,
        log_to,
        partition_file,
        plot,
        results,
        run,
        sweep,
    )


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedbench' has no attribute '{name}'")
    from fedbench import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
