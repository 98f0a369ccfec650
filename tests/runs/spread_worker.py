"""One of several processes that compute the runs of cases.json in a directory, one after the other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fedbench.api import compose_config
from fedbench.process_group import connected, here
from fedbench.runs.run import Run


def main(root: Path, file: Path) -> None:
    with connected(here()) as group:
        for name, overrides in json.loads(file.read_text()).items():
            run = Run(compose_config(overrides), group=group)
            if group.rank:
                run.take_part()
                assert not (root / f"{name}-{group.rank}").exists()
            else:
                run.go(root / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
