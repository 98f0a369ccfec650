"""precision=bf16: products in bfloat16, everything that is kept in float32, for every model and engine."""

from __future__ import annotations

import pytest
import torch

from fedbench.api import compose_config
from fedbench.config.identity import identity, run_hash
from fedbench.engine.batches import Batch
from fedbench.errors import ConfigError
from fedbench.runs.run import Run

MODELS = [
    "model=logistic", "model=mlp", "model=mlp model.norm=layer", "model=cnn", "model=rnn",
    "model=rnn model.cell=lstm", "model=rnn model.cell=gru", "model=resnet18",
]  # fmt: skip


def objective(*overrides: str):
    plan = Run(compose_config(["clients.total=4", "clients.per_round=2", *overrides]))
    return plan.prepare().loop.trainer.objective, plan.problem


@pytest.mark.parametrize("model", MODELS)
def test_a_gradient_has_bfloat16s_error_and_float32s_type(model: str) -> None:
    """8 bits of mantissa: relative errors about 2^-8, nowhere near float32's 2^-24."""
    found = {}
    for precision in ("float32", "bf16"):
        made, plan = objective(*model.split(), f"precision={precision}")
        theta = plan.layout.flatten({name: p.detach() for name, p in plan.model.named_parameters()})
        keys = torch.arange(4).view(2, 2)
        batch = Batch(torch.arange(64), None, keys)
        loss, grad, _ = made.loss_and_grad(theta, made.statistics_of(made.model), batch)
        assert (loss.dtype, grad.dtype) == (torch.float32, torch.float32)
        found[precision] = grad
    error = (found["bf16"] - found["float32"]).norm() / found["float32"].norm()
    assert 1e-5 < error < 0.1


@pytest.mark.parametrize("engine", ["loop", "vmap", pytest.param("compile", marks=pytest.mark.slow)])
def test_engines_agree_and_learn_the_task(tmp_path, engine: str) -> None:
    words = ["clients.total=4", "clients.per_round=2", "rounds=15", "progress=none", "local.steps=5"]
    accuracy = {}
    for precision in ("float32", "bf16"):
        config = compose_config([*words, "model=mlp", f"engine={engine}", f"precision={precision}"])
        outcome = Run(config).go(tmp_path / precision)
        accuracy[precision] = outcome["final_accuracy"]
        state = torch.load(tmp_path / precision / "model.pt", weights_only=True)
        assert {value.dtype for value in state.values()} == {torch.float32}
    assert accuracy["bf16"] > 0.8
    assert abs(accuracy["bf16"] - accuracy["float32"]) < 0.05


def test_precision_is_part_of_a_run_where_it_is_not_the_default() -> None:
    plain = compose_config([])
    assert "precision" not in identity(plain)
    assert identity(compose_config(["precision=bf16"]))["precision"] == "bf16"
    assert run_hash(plain) != run_hash(compose_config(["precision=bf16"]))


def test_what_cannot_be_meant_is_refused_with_its_reason() -> None:
    for dtype in ("bfloat16", "float16"):
        with pytest.raises(ConfigError, match="float32, float64: a model kept in 16 bits loses"):
            compose_config([f"dtype={dtype}"])
    with pytest.raises(ConfigError, match="precision=bf16: is less than dtype=float64 promises"):
        compose_config(["dtype=float64", "precision=bf16"])
    with pytest.raises(ConfigError, match="precision=tf32: is a format of CUDA devices"):
        Run(compose_config(["precision=tf32", "device=cpu"]))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_tf32_is_on_for_its_run_alone(tmp_path) -> None:
    a = torch.randn(512, 512, device="cuda")
    exact = (a.double() @ a.double()).float()
    errors = {}
    for precision in ("tf32", "float32"):
        config = compose_config(["rounds=1", f"precision={precision}", "progress=none"])
        Run(config).go(tmp_path / precision)
        errors[precision] = ((a @ a) - exact).norm() / exact.norm()
    assert errors["float32"] < 1e-5 < errors["tf32"]
