"""Every layer of torch.nn in a user's model: the same gradient in all engines, or refused before the run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedbench.data.dataset import from_arrays
from fedbench.engine.batches import Batch
from fedbench.engine.objective import DeviceData, Objective
from fedbench.errors import ConfigError
from fedbench.models.registry import refuse_unsuitable
from fedbench.runs.own_models import check_training
from fedbench.torch_internals import trace

Shape = tuple[int, ...]
EQUAL: dict[Shape, str] = {
    (8,): """Bilinear(8,8,3) CELU() CosineSimilarity() ELU() Flatten() GELU() GLU() GRUCell(8,3) Hardshrink()
        Hardsigmoid() Hardswish() Hardtanh() Identity() LSTMCell(8,3) LayerNorm(8) LeakyReLU()
        Linear(8,3) LogSigmoid() LogSoftmax(1) Mish()
        modules.linear.NonDynamicallyQuantizableLinear(8,3) PReLU() PairwiseDistance() RMSNorm(8)
        RNNCell(8,3) ReLU() ReLU6() SELU() SiLU() Sigmoid() Softmax(1) Softmin(1) Softplus()
        Softshrink() Softsign() Tanh() Tanhshrink() Threshold(0.1,0.0) Unflatten(1,(2,4)) Embedding(3,2)
        utils.weight_norm(nn.Linear(8,3)) utils.parametrizations.weight_norm(nn.Linear(8,3))
        utils.parametrizations.orthogonal(nn.Linear(8,3))""",
    (4, 8): """AdaptiveAvgPool1d(3) AdaptiveMaxPool1d(3) AvgPool1d(2) CircularPad1d(1) ConstantPad1d(1,2.0)
        Conv1d(4,3,2) ConvTranspose1d(4,3,2) InstanceNorm1d(4) LPPool1d(2,2) MaxPool1d(2)
        ReflectionPad1d(1) ReplicationPad1d(1) ZeroPad1d(1) MultiheadAttention(8,2,batch_first=True)
        LocalResponseNorm(2) MaxUnpool1d(2) EmbeddingBag(3,2)
        TransformerEncoderLayer(8,2,8,0.0,batch_first=True)""",
    (4, 6, 6): """AdaptiveAvgPool2d(3) AdaptiveMaxPool2d(3) AvgPool2d(2) ChannelShuffle(2) CircularPad2d(1)
        ConstantPad2d(1,2.0) Conv2d(4,3,2) ConvTranspose2d(4,3,2) GroupNorm(2,4) InstanceNorm2d(4)
        InstanceNorm2d(4,affine=True) LPPool2d(2,2) MaxPool2d(2) PixelShuffle(2) PixelUnshuffle(2)
        ReflectionPad2d(1) ReplicationPad2d(1) Softmax2d() Unfold(2) Upsample(scale_factor=2)
        UpsamplingBilinear2d(scale_factor=2) UpsamplingNearest2d(scale_factor=2) ZeroPad2d(1)
        MaxUnpool2d(2) Fold((7,7),2)""",
    (2, 4, 4, 4): """AdaptiveAvgPool3d(2) AdaptiveMaxPool3d(2) AvgPool3d(2) CircularPad3d(1)
        ConstantPad3d(1,2.0) Conv3d(2,3,2) ConvTranspose3d(2,3,2) InstanceNorm3d(2) LPPool3d(2,2) MaxPool3d(2)
        ReflectionPad3d(1) ReplicationPad3d(1) ZeroPad3d(1) MaxUnpool3d(2)""",
}  # fmt: skip
CALLS: dict[str, Any] = {
    "Bilinear": lambda f, x: f(x, x * x),
    "CosineSimilarity": lambda f, x: f(x, x * x)[:, None],
    "PairwiseDistance": lambda f, x: f(x, x * x)[:, None],
    "LSTMCell": lambda f, x: f(x)[0],
    "Embedding": lambda f, x: f((x > 0).long()) * x[..., None],
    "EmbeddingBag": lambda f, x: f((x[:, 0] > 0).long()) * x[:, 0, :1],
    "MultiheadAttention": lambda f, x: f(x, x, x)[0],
    "Fold": lambda f, x: f(x.flatten(2)),
    "Transformer": lambda f, x: f(x, x),
    "TransformerDecoder": lambda f, x: f(x, x),
    "TransformerDecoderLayer": lambda f, x: f(x, x),
    "MaxUnpool1d": lambda f, x: f(*nn.functional.max_pool1d(x, 2, return_indices=True)),
    "MaxUnpool2d": lambda f, x: f(*nn.functional.max_pool2d(x, 2, return_indices=True)),
    "MaxUnpool3d": lambda f, x: f(*nn.functional.max_pool3d(x, 2, return_indices=True)),
}  # fmt: skip
DRAWS, KEEPS = "draws random numbers of its own in training", "can be averaged over clients"
BY_TYPE, VMAP = "does not work here", "cannot be computed for several clients at once"
REFUSED: dict[tuple[Shape, str], str] = {
    ((8,), BY_TYPE): """AlphaDropout(0.2) BatchNorm1d(8) Dropout(0.2) FeatureAlphaDropout(0.2) LazyLinear(3)
        LazyBatchNorm1d() SyncBatchNorm(8) BatchNorm1d(8,track_running_stats=False)
        Embedding(3,2,max_norm=1.0) EmbeddingBag(3,2,max_norm=1.0)""",
    ((4, 8), BY_TYPE): """Dropout1d(0.2) GRU(8,3) LSTM(8,3) RNN(8,3) LazyConv1d(2,2) LazyConvTranspose1d(2,2)
        LazyInstanceNorm1d() Transformer(8,2,1,1,8) TransformerEncoderLayer(8,2,8)
        TransformerEncoder(nn.TransformerEncoderLayer(8,2,8),1) TransformerDecoderLayer(8,2,8)
        TransformerDecoder(nn.TransformerDecoderLayer(8,2,8),1)""",
    (
        (4, 6, 6),
        BY_TYPE,
    ): """BatchNorm2d(4) Dropout2d(0.2) LazyBatchNorm2d() LazyConv2d(2,2) LazyConvTranspose2d(2,2)
        LazyInstanceNorm2d()""",
    (
        (2, 4, 4, 4),
        BY_TYPE,
    ): """BatchNorm3d(2) Dropout3d(0.2) LazyBatchNorm3d() LazyConv3d(2,2) LazyConvTranspose3d(2,2)
        LazyInstanceNorm3d()""",
    ((8,), DRAWS): "RReLU()",
    ((4, 8), DRAWS): "MultiheadAttention(8,2,0.2,batch_first=True)",
    ((4, 6, 6), DRAWS): "FractionalMaxPool2d(2,output_size=3)",
    ((2, 4, 4, 4), DRAWS): "FractionalMaxPool3d(2,output_size=2)",
    ((8,), KEEPS): "utils.spectral_norm(nn.Linear(8,3)) utils.parametrizations.spectral_norm(nn.Linear(8,3))",
    ((4, 8), KEEPS): "InstanceNorm1d(4,track_running_stats=True)",
    ((4, 6, 6), KEEPS): "InstanceNorm2d(4,track_running_stats=True)",
    ((2, 4, 4, 4), KEEPS): "InstanceNorm3d(2,track_running_stats=True)",
    ((8,), "no gradient of it"): "Embedding(3,2,sparse=True)",
    ((4, 6, 6), VMAP): "CrossMapLRN2d(2)",
}
NO_LAYERS = {
    *("Container", "Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"),
    *("NLLLoss2d", "RNNBase", "RNNCellBase"),
}  # and losses, and what begins with _


def layer(text: str) -> nn.Module:
    """The layer of a table's entry."""
    made: nn.Module = eval(text if text.startswith("nn.") else f"nn.{text}")
    return made


class Net(nn.Module):
    """A gain for each input, the layer, and classes."""

    def __init__(self, text: str, shape: Shape) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = layer(text)
        self.call = CALLS.get(text.partition("(")[0], lambda f, x: f(x))
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, math.prod(shape)).view(shape))
        with torch.no_grad():
            self.out = nn.Linear(self.features(torch.randn(2, math.prod(shape))).shape[1], 3)

    def features(self, x: Tensor) -> Tensor:
        found: Tensor = self.call(self.layer, x.view(-1, *self.gain.shape) * self.gain)
        return found.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.features(x))
        return found


def samples(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(1).normal(size=(5, math.prod(shape))), np.array([0, 1, 2, 1, 0])


def each(table: dict[Any, str]) -> list[tuple[Any, str]]:
    """Texts are separated by spaces that follow a closing bracket."""
    parts = ((key, text.split()) for key, text in table.items())
    return [(key, text) for key, texts in parts for text in texts]


def of_clients(objective: Objective, theta: Tensor) -> list[Any]:
    """Two clients one after the other, without padding; and both at once, the second one's batch padded."""
    points, given = torch.stack([theta, theta - 0.05]), objective.statistics_of(objective.model)
    own = [Batch(torch.tensor(at), None, None) for at in ([0, 1, 4], [3, 2])]
    found = [objective.loss_and_grad(point, given, one)[:2] for point, one in zip(points, own, strict=True)]
    both: Any = Batch(torch.tensor([[0, 1, 4], [3, 2, 0]]), torch.tensor([3, 2]), None)
    axes: Any = Batch(0, 0, None)
    vectorised = torch.func.vmap(objective.loss_and_grad, in_dims=(0, None, axes))
    return [[torch.stack(part) for part in zip(*found, strict=True)], vectorised, (points, given, both)]


@pytest.mark.parametrize("shape", EQUAL, ids=str)
def test_these_layers_are_the_same_in_the_loop_and_vectorised(shape: Shape) -> None:
    x, y = samples(shape)
    data = DeviceData(torch.from_numpy(x), torch.from_numpy(y), lambda v: v)
    for _, text in each({shape: EQUAL[shape]}):
        net = Net(text, shape).double()
        refuse_unsuitable("mine", net)
        check_training("mine", net, from_arrays("mine", x, y, x, y), vectorised=True)
        objective = Objective(net, data)
        theta = objective.layout.flatten(dict(net.named_parameters())).detach()
        one, vectorised, given = of_clients(objective, theta)
        for mine, theirs in zip(one, vectorised(*given), strict=False):
            torch.testing.assert_close(theirs, mine, rtol=1e-9, atol=1e-12, msg=lambda m, t=text: f"{t}: {m}")


@pytest.mark.slow
@pytest.mark.parametrize("shape", EQUAL, ids=str)
def test_and_traced_as_a_compiled_step_is(shape: Shape) -> None:
    x, y = samples(shape)
    data = DeviceData(torch.from_numpy(x), torch.from_numpy(y), lambda v: v)
    for _, text in each({shape: EQUAL[shape]}):
        objective = Objective(Net(text, shape).double(), data)
        theta = objective.layout.flatten(dict(objective.model.named_parameters())).detach()
        one, vectorised, given = of_clients(objective, theta)
        graph, _ = trace(lambda *args, f=vectorised: f(*args)[:2], given, [])
        outputs = graph(
            *(tensor for tensor in (given[0], *given[1].values(), given[2].samples, given[2].real))
        )
        for mine, theirs in zip(one, outputs, strict=True):
            torch.testing.assert_close(theirs, mine, rtol=1e-9, atol=1e-12, msg=lambda m, t=text: f"{t}: {m}")


@pytest.mark.parametrize(
    ("kind", "text"), each(REFUSED), ids=lambda value: value if isinstance(value, str) else ""
)
def test_these_layers_are_refused_in_one_line(kind: tuple[Shape, str], text: str) -> None:
    shape, line = kind
    x, y = samples(shape)
    data = from_arrays("mine", x, y, x, y)
    with pytest.raises(ConfigError, match=r"^model=mine: ") as refused:  # noqa: PT012
        refuse_unsuitable("mine", nn.Sequential(layer(text)))
        check_training("mine", Net(text, shape), data, vectorised=True)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
    if line == VMAP:
        check_training("mine", Net(text, shape), data, vectorised=False)


def test_no_layer_of_torch_is_left_out() -> None:
    """A new one belongs into one of the tables above."""
    found: dict[str, Any] = {}
    for module in (value for value in vars(nn.modules).values() if isinstance(value, type(nn))):
        found |= {name: kind for name, kind in vars(module).items() if isinstance(kind, type)}
    found = {name: kind for name, kind in found.items() if issubclass(kind, nn.Module)}
    layers = {name for name in found if not name.startswith("_") and not name.endswith("Loss")} - NO_LAYERS
    named = {
        text.partition("(")[0].rpartition(".")[2] for table in (EQUAL, REFUSED) for _, text in each(table)
    }
    assert not layers - named


class Coupled(nn.Module):
    """A mean over the mini-batch, a mean that is kept, and a call that counts itself."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.out = kind, nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "counts":
            self.calls += 1
        return self.out(x - x.mean(0) if self.kind == "mean" else x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "line"),
    [("mean", "the gradient of a sample depends on the others"), ("counts", "changes calls while")],
)
def test_what_is_coupled_by_hand_is_refused_too(kind: str, line: str) -> None:
    x, y = samples((8,))
    with pytest.raises(ConfigError, match=line):
        check_training("mine", Coupled(kind), from_arrays("mine", x, y, x, y), vectorised=False)
    check_training("mine", Coupled("none"), from_arrays("mine", x, y, x, y), vectorised=True)
