"""One of several processes that compute the runs of cases.json in a directory, one after the other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fedbench.api import compose_config
from fedbench.engine.spread import connected
from fedbench.runs import ranks
from fedbench.runs.follow import follow
from fedbench.runs.plan import make_plan
from fedbench.runs.runner import run
from fedbench.runs.session import Session


def main(root: Path, file: Path) -> None:
    here = ranks.here()
    with connected(here.rank, here.size, here.local, here.beside) as group:
        for name, overrides in json.loads(file.read_text()).items():
            plan = make_plan(compose_config(overrides), Session(), group)
            if here.rank:
                assert follow(plan, Session()) == 0
                assert not (root / f"{name}-{here.rank}").exists()
            else:
                run(plan, root / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
