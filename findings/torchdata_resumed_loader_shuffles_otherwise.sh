#!/bin/sh
# torchdata 0.11.0 (with torch 2.15.0): a StatefulDataLoader that resumes gives the next epochs in another order, where
# it has been given a generator and no workers.
# Most expect: state_dict and load_state_dict are there so that a run that was stopped goes on as if it had not been; a
# generator is what one gives for that, and the number of workers, 0 by default, has no say in the order.
# Seen: the epoch that was stopped is finished as it should be, and every epoch after it is shuffled otherwise than in
# the run that was not stopped. With one or two workers, or without a generator, all epochs agree.
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
install "torchdata==0.11.0" "torch==2.15.0" "numpy==2.4.6"
(cd "$place" && cat > loader.py <<'PYTHON'
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

SIZE, EPOCHS = 24, 4


def loader(workers, generator):
    torch.manual_seed(5)
    own = torch.Generator().manual_seed(5) if generator else None
    return StatefulDataLoader([*range(SIZE)], batch_size=4, shuffle=True, num_workers=workers, generator=own)


def epoch(batches):
    return [sample for batch in batches for sample in batch.tolist()]


def resumed(workers, generator):
    first = loader(workers, generator)
    begun = iter(first)
    seen = epoch([next(begun), next(begun)])
    second = loader(workers, generator)
    second.load_state_dict(first.state_dict())
    return [seen + epoch(second), *(epoch(second) for _ in range(EPOCHS - 1))]


if __name__ == "__main__":
    for generator in (True, False):
        for workers in (0, 1, 2):
            whole = loader(workers, generator)
            expected = [epoch(whole) for _ in range(EPOCHS)]
            agree = [a == b for a, b in zip(expected, resumed(workers, generator), strict=True)]
            print(f"generator {generator}, {workers} workers: epochs in the same order {agree}")
            assert agree == [True] + [workers > 0 or not generator] * (EPOCHS - 1)
PYTHON
"$place/venv/bin/python" loader.py)
