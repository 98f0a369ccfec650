"""sweep.json: the keys that a sweep sweeps, its jobs, and the accuracies to which its tables count rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.files import read_json, write_json

MANIFEST = "sweep.json"
_DEPTH = 4  # how far above a run its sweep is looked for: `hydra.sweep.subdir` may have several parts


def write_manifest(
    directory: Path,
    swept: Sequence[str] = (),
    jobs: Mapping[str, Mapping[str, Any]] | None = None,
    levels: Iterable[float] = (),
) -> None:
    """Say it in `directory`. `jobs`: subdirectory -> its values of what is swept, in order; `levels`: beside
    the usual ones. A directory that is given to several sweeps keeps the jobs of all of them.
    """
    before = manifest(directory)
    content = {
        "swept": list(dict.fromkeys([*before.get("swept", []), *swept])),
        "jobs": {**jobs_of(before), **(jobs or {})},
    }
    asked = sorted({*before.get("levels", []), *levels})
    write_json(directory / MANIFEST, content | ({"levels": asked} if asked else {}))


def manifest(directory: Path) -> dict[str, Any]:
    """What `write_manifest` has said of a sweep; empty where nothing."""
    return read_json(directory / MANIFEST) or {}


def jobs_of(said: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The jobs of a manifest, with their choices; older ones have the names alone."""
    jobs = said.get("jobs", {})
    return dict(jobs) if isinstance(jobs, dict) else {name: {} for name in jobs}


def swept_in(places: Iterable[Path]) -> list[str]:
    """The keys, but for the seed, that the sweeps sweep to which the runs in `places` belong.

    They are columns of every table, also where all runs that are shown agree in them: what a search has found
    is what its reader wants to know.
    """
    found: dict[str, None] = {}
    for directory in dict.fromkeys(place.parent for place in places):
        said = map(manifest, [directory, *directory.parents][:_DEPTH])
        found |= dict.fromkeys(next(filter(None, said), {}).get("swept", []))
    return [key for key in found if key != "seed"]


def levels_asked(directory: Path) -> list[float]:
    """The accuracies to which the closing table of a sweep counts rounds."""
    return list(manifest(directory).get("levels", []))
