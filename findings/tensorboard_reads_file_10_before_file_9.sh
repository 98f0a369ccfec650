#!/bin/sh
# tensorboard 2.21.0: of the event files that one process begins within one second, number 10 is read before number
# 9 (and 100 before 99): their names end in a counter without leading zeros and are sorted as texts. Where number 9
# says that a run begins anew (a session start at step 0, which a writer with purge_step makes), the points of
# number 10 are taken for those of before and dropped.
# Most expect: files are read in the order in which they were begun, so that what was written last counts.
# Seen: numbers 7 and 8 give both values; numbers 9 and 10, written in the same way, lose the later one. A process
# that logs many short runs, each with a file of points and then one of hyper-parameters and results (as torch's
# add_hparams makes it), loses the results of a run at which the counter gets a digit more.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
if command -v uv >/dev/null; then
    uv venv -q -p python3 "$place/venv"
    install() { uv pip install -q --python "$place/venv/bin/python" "$@"; }
else
    python3 -m venv "$place/venv"
    install() { "$place/venv/bin/pip" install -q "$@"; }
fi
install "tensorboard==2.21.0" "numpy==2.4.6" "setuptools==80.9.0"
cd "$place"
cat >two_files.py <<'PYTHON'
import sys
import time

import tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def write(writer, **what):
    writer.add_event(Event(wall_time=time.time(), step=0, **what))
    writer.flush()


def scalar(tag):
    return {"summary": Summary(value=[Summary.Value(tag=tag, simple_value=0.5)])}


def tags(directory):
    """The scalars that are read of two files: points after a session start, then a result."""
    points, results = EventFileWriter(directory), EventFileWriter(directory)
    write(points, session_log=SessionLog(status=SessionLog.START))
    write(points, **scalar("points"))
    write(results, **scalar("results"))
    points.close(), results.close()
    read = EventAccumulator(directory).Reload()
    return [tag for tag in read.Tags()["scalars"] if read.Scalars(tag)]


before, expected = int(sys.argv[1]), {*sys.argv[2:]}
while time.time() % 1 > 0.2:  # all within one second
    time.sleep(0.01)
for _ in range(before):
    EventFileWriter("others").close()
found = tags("two")
print(f"tensorboard {tensorboard.__version__}, files number {before} and {before + 1} of a process: {sorted(found)}")
assert {*found} == expected
PYTHON
"$place/venv/bin/python" two_files.py 7 points results 2>/dev/null
"$place/venv/bin/python" two_files.py 9 points 2>/dev/null
