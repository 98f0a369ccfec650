"""The Python interface: `fedbench.run`, `sweep`, `results`, `plot`. The command line is made of the same
parts.

What a command says is said here in the same words: a list of overrides such as `["algorithm=scaffold",
"rounds=20"]`, or a mapping `{"algorithm": "scaffold", "rounds": 20}`. Runs lie in the same directories and
are resumed or reported in the same way. Errors are `fedbench.errors.UserError`, one line each.
"""

from __future__ import annotations

from fedbench.api.directories import Run, Sweep, plot, results
from fedbench.api.launch import compose_config, run, sweep

__all__ = ["Run", "Sweep", "compose_config", "plot", "results", "run", "sweep"]
