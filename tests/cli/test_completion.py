"""Shell completion of overrides, as a shell asks Hydra for it: by bash's installed script, and word by word.

A line that cannot be completed is silent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedbench.cli import main

COMMAND = Path(sys.executable).parent / "fedbench"
ASK = """
eval "$(fedbench -sc install=bash)"
COMP_LINE={line!r}; COMP_WORDS=($COMP_LINE); COMP_CWORD={word}; COMP_POINT=${{#COMP_LINE}}
$(complete -p fedbench | sed 's/.*-F \\([^ ]*\\).*/\\1/')  # the function that Tab calls
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `fedbench -sc query=` prints for a line."""
    monkeypatch.setenv("COMP_LINE", line)
    assert main(["-sc", "query=fish"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(tmp_path: Path) -> None:
    """With the function that the script gives to `complete`, as Tab calls it."""
    script = ASK.format(line="fedbench algorithm=fedada", word=1)
    env = {**os.environ, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    found = [f"algorithm={name}" for name in ("fedadagrad", "fedadam", "fedadamw")]
    assert (done.stdout.split(), done.stderr) == (found, "")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("fedbench tune algorithm=fedavg,fedadam partition=pow", ["partition=powerlaw"]),
        ("fedbench -m algorithm.lr=0.1 clients.per", ["clients.per_round="]),
        ("fedbench -m algorithm=fedavg,scaffold_m",
         ["algorithm=fedavg,scaffold_m", "algorithm=fedavg,scaffold_m_vr"]),
        ("fedbench partition=dirichlet partition.a", ["partition.alpha="]),
        ("fedbench experiment=peers/ni",
         [f"experiment=peers/niid_{name}" for name in
          ("cifar10", "fmnist", "fmnist_labels", "fmnist_noise", "fmnist_quantity")]),
        ("fedbench -m experiment=untuned,adamasfl/fig2_", ["experiment=untuned,adamasfl/fig2_average"]),
        ("fedbench sta", ["state."]),
        ("fedbench tune --pru", []),
        ("fedbench plot DI", []),
        ("fedbench 'algorithm=(", []),
    ],
)  # fmt: skip
def test_words(
    line: str, found: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed(line, capsys, monkeypatch) == found
