"""One of several processes that compute the runs of cases.json in a directory, one after the other."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from fedbench.api import compose_config
from fedbench.process_group import connected, here
from fedbench.runs.run import Run


def main(root: Path, file: Path) -> None:
    with connected(here()) as group:
        for name, overrides in json.loads(file.read_text()).items():
            run = Run(compose_config(overrides), group=group)
            with tempfile.TemporaryDirectory() as place:
                run.go(root / name if group.is_writer else Path(place))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
