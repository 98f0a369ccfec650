"""Gradients and the loss are torch's, bit for bit, and nothing that only a compiler needs is imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from fedbench import torch_internals
from fedbench.engine.objective import cross_entropy
from fedbench.errors import RunError

State = dict[str, Tensor]


def loss(params: State, x: Tensor) -> tuple[Tensor, State]:
    out = torch.tanh(x @ params["w"]) + params["b"]
    return out.square().mean(), {"seen": out.detach().sum()}


def arguments(clients: int) -> tuple[State, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"w": (clients, 4, 3), "b": (clients, 3), "unused": (clients, 2)}
    params = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return params, torch.randn(clients, 5, 4, generator=generator)


def same(found: torch_internals.Found, expected: torch_internals.Found) -> bool:
    pairs = zip(
        torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected), strict=True
    )
    return all(torch.equal(a, b) for a, b in pairs)


def test_it_is_torchs_gradient_with_and_without_vmap() -> None:
    params, x = arguments(clients=3)

    def ours(params: State, x: Tensor) -> torch_internals.Found:
        return torch_internals.grad_and_value(lambda p: loss(p, x), params)

    def torchs(params: State, x: Tensor) -> torch_internals.Found:
        return torch.func.grad_and_value(lambda p: loss(p, x), has_aux=True)(params)

    assert same(vmap(ours)(params, x), vmap(torchs)(params, x))
    one = {name: value[0] for name, value in params.items()}
    assert same(ours(one, x[0]), torchs(one, x[0]))


def test_a_torch_without_the_pieces_takes_its_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    params, x = arguments(clients=1)
    expected = torch_internals.grad_and_value(lambda p: loss(p, x), params)
    monkeypatch.delattr("torch._functorch.eager_transforms.grad_increment_nesting")
    source = Path(str(torch_internals.__file__))
    without: Any = ModuleType("fedbench.without_pieces")
    monkeypatch.setitem(sys.modules, without.__name__, without)
    exec(compile(source.read_text(), source, "exec"), vars(without))
    monkeypatch.undo()
    assert same(without.grad_and_value(lambda p: loss(p, x), params), expected)
    assert without.in_transform()
    assert without.is_transformed(x)


def test_outside_of_transforms_nothing_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    params, x = arguments(clients=1)
    monkeypatch.delattr(torch_internals, "grad_increment_nesting")
    with torch.no_grad():
        grads, (value, aux) = torch_internals.grad_and_value(lambda p: loss(p, x), params)
    assert not any(found.requires_grad for found in (*grads.values(), value, *aux.values()))
    assert not any(given.requires_grad for given in params.values())


def test_a_loss_without_parameters_has_gradient_zero() -> None:
    params, _ = arguments(clients=1)
    grads, (value, _) = torch_internals.grad_and_value(lambda p: (torch.ones(()), {}), params)
    assert value == 1
    assert all(not grads[name].any() and grads[name].shape == params[name].shape for name in params)


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cross_entropy_is_torchs(classes: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(classes)
    logits = 4 * torch.randn(20, classes, generator=generator, dtype=dtype)
    logits[0, :-1] = -torch.inf  # certain, and wrong for all labels but one
    y = torch.randint(classes, (20,), generator=generator)
    y[0] = classes - 1
    weights = torch.rand(20, generator=generator, dtype=dtype)
    pairs = []
    for function in (cross_entropy, lambda a, b: torch.nn.functional.cross_entropy(a, b, reduction="none")):
        at = logits.clone().requires_grad_()
        losses = function(at, y)
        pairs.append((losses, torch.autograd.grad((losses * weights).sum(), at)[0]))
    for ours, torchs in zip(*pairs, strict=True):
        assert torch.equal(ours, torchs)


@pytest.mark.parametrize("engine", ["auto", pytest.param("loop", marks=pytest.mark.slow)])
def test_an_eager_run_loads_no_compiler(tmp_path: Path, engine: str) -> None:
    code = (
        "import sys; from fedbench import api, cli, models\n"
        "assert not cli.main(sys.argv[1:])\n"
        "assert models.size(api.compose_config(['model=resnet18']).model, (3, 32, 32), 10) > 10**7\n"
        "print(sorted({'torch._dynamo', 'torch._inductor', 'sympy'} & set(sys.modules)))"
    )
    arguments = ["rounds=1", "eval.train=true", "eval.grad_norm=true", "progress=none", f"engine={engine}"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs g++ on Linux")
def test_a_program_with_a_standard_library_of_its_own_is_refused(tmp_path: Path) -> None:
    """Loading one ended the process on a machine with a GPU whose image lacks libstdc++.so."""
    import torch._inductor.config as inductor

    compiler = tmp_path / "bin" / "g++"
    compiler.parent.mkdir()
    compiler.write_text(
        f'#!/bin/sh\ncase " $* " in *" -shared "*) set -- "$@" -static-libstdc++ ;; esac\n'
        f'exec "{shutil.which("g++")}" "$@"\n'
    )
    compiler.chmod(0o755)
    file = tmp_path / "program.pt2"
    with inductor.patch({"cpp.cxx": (None, str(compiler))}), pytest.raises(RunError, match="libstdc"):
        torch_internals.pack(lambda x: x * 3 + 1, (torch.ones(7),), (), file)
    assert not file.exists()
