#!/bin/sh
# torch 2.15.0: two models that are set from one vector by vector_to_parameters share their weights.
# Most expect: it is documented to copy slices of the vector into the parameters, so each client that is given the
# server's vector trains a model of its own.
# Seen: parameters become views of the vector. One client's step of SGD moves the other client's model and the server's
# vector: two clients that train in turn are one client with the data of both, and what the server averages are equal
# models, nearly twice as far from where it was as they should be.
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
install "torch==2.15.0" "numpy==2.4.6"
"$place/venv/bin/python" - <<'PYTHON'
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

assert "Copy slices" in vector_to_parameters.__doc__


def average(copy):
    server = torch.zeros(3)
    clients = [torch.nn.Linear(2, 1) for _ in range(2)]
    for model in clients:
        vector_to_parameters(server.clone() if copy else server, model.parameters())
    for model, target in zip(clients, (1.0, 3.0), strict=True):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        (model(torch.zeros(1, 2)) - target).square().sum().backward()
        optimizer.step()
    sent = [parameters_to_vector(model.parameters())[-1].item() for model in clients]
    return [round(number, 4) for number in (*sent, sum(sent) / 2, server[-1].item())]


own, shared = average(True), average(False)
print(f"bias of client 1, client 2, their mean, the server: with clone {own}, without {shared}")
assert own == [0.2, 0.6, 0.4, 0.0]
assert shared == [0.76, 0.76, 0.76, 0.76]
PYTHON
