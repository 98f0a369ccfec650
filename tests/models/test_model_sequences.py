"""Networks over tokens, with one label or one at every position: against NumPy and torch's layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import metrics, runs
from torch import nn

from fedbench.data import Dataset, from_arrays
from fedbench.engine.objective import TASKS
from fedbench.errors import ConfigError, DataError
from fedbench.fields import Choice
from fedbench.models import build, register_model

SMALL = {"char_lstm": {"embedding": 3, "hidden": 4}, "transformer": {"width": 8, "heads": 2}}  # two layers
X = torch.tensor([[5, 6, 2, 1, 0, 0], [1, 2, 3, 4, 5, 6]])


def model(name: str, positions: bool = True, **more: object) -> nn.Module:
    chosen = Choice(name, {**SMALL[name], **more})
    return build(chosen, (6,), 7, 0, vocabulary=7, positions=positions).double()


def test_one_bias_is_torchs_lstm_with_the_other_at_0() -> None:
    ours = model("char_lstm")
    lstm = nn.LSTM(3, 4, 2, batch_first=True).double()
    state = {k.removeprefix("recurrent."): v for k, v in ours.state_dict().items() if "recurrent" in k}
    assert not lstm.load_state_dict(state, strict=False).unexpected_keys
    for layer in (0, 1):
        nn.init.zeros_(getattr(lstm, f"bias_hh_l{layer}"))
    words = torch.where((X == 0)[..., None], 0.0, ours.embedding(X))
    states = lstm(words)[0]
    torch.testing.assert_close(ours(X), ours.head(states), rtol=1e-12, atol=1e-13)
    last = model("char_lstm", positions=False)
    torch.testing.assert_close(last(X), last.head(states[:, -1]), rtol=1e-12, atol=1e-13)


def normed(x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + bias


def test_the_transformer_is_numpys() -> None:
    """Head by head and position by position, on one sequence; a position looks at what is before it but
    padding, and at itself."""
    ours = model("transformer")
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    p = {name: value.detach().numpy() for name, value in ours.named_parameters()}
    tokens = np.array([0, 3, 0, 2, 6, 1])
    x = p["embedding.weight"][tokens] + p["position"]
    for layer in range(2):
        prefix = f"blocks.{layer}."
        own = {key.removeprefix(prefix): value for key, value in p.items() if key.startswith(prefix)}
        inner = normed(x, own["norm1.weight"], own["norm1.bias"])
        q, k, v = np.split(inner @ own["projections.weight"].T + own["projections.bias"], 3, axis=1)
        mixed = np.zeros_like(x)
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            for t in range(6):
                seen = [s for s in range(t + 1) if tokens[s] != 0 or s == t]
                scores = np.array([q[t, part] @ k[s, part] / 2 for s in seen])  # 2: the root of 4
                share = np.exp(scores) / np.exp(scores).sum()
                mixed[t, part] = sum(w * v[s, part] for w, s in zip(share, seen, strict=True))
        x = x + mixed @ own["merge.weight"].T + own["merge.bias"]
        inner = normed(x, own["norm2.weight"], own["norm2.bias"])
        inner = inner @ own["expand.weight"].T + own["expand.bias"]
        erf = torch.erf(torch.from_numpy(inner / 2**0.5)).numpy()
        x = x + (inner * (1 + erf) / 2) @ own["contract.weight"].T + own["contract.bias"]
    out = normed(x, p["norm.weight"], p["norm.bias"]) @ p["head.weight"].T + p["head.bias"]
    np.testing.assert_allclose(ours(torch.from_numpy(tokens)[None])[0].detach(), out, rtol=1e-9)
    last = model("transformer", positions=False)
    last.load_state_dict(ours.state_dict())
    np.testing.assert_allclose(last(torch.from_numpy(tokens)[None])[0].detach(), out[-1], rtol=1e-9)


def test_loss_and_accuracy_are_over_positions_with_a_label() -> None:
    task, random = TASKS["sequence"], np.random.default_rng(0)
    logits, y = random.normal(size=(2, 3, 4)), np.array([[1, 3, 0], [2, 0, 0]])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = [-(log_p[0, 0, 1] + log_p[0, 1, 3]) / 2, -log_p[1, 0, 2]]
    given = torch.from_numpy(logits), torch.from_numpy(y)
    np.testing.assert_allclose(task.losses(*given), expected, rtol=1e-12)
    right = sum(logits[i, t].argmax() == y[i, t] for i, t in ((0, 0), (0, 1), (1, 0)))
    marks = task.marks(*given)
    assert float(task.score(marks, given[1])) == pytest.approx(right / 3)
    assert task.losses(given[0], torch.zeros_like(given[1])).tolist() == [0.0, 0.0]


def test_engines_agree(tmp_path: Path) -> None:
    tokens, who = np.random.default_rng(0).integers(1, 10, (240, 9)), np.arange(240) % 6
    tokens[::5, 7:] = 0  # no label there
    arrays = {"x_train": tokens[:180, :8], "y_train": tokens[:180, 1:], "client": who[:180]}
    arrays |= {"x_test": tokens[180:, :8], "y_test": tokens[180:, 1:], "client_test": who[180:]}
    np.savez(tmp_path / "a.npz", **arrays)
    compute = runs(
        f"dataset=npz dataset.path={tmp_path}/a.npz dataset.task=sequence dataset.vocabulary=10 "
        "clients.total=6 partition=natural clients.per_round=3 local.batch_size=8 rounds=2 local.steps=2 "
        "model=transformer model.width=16 model.dropout=0.1 algorithm.lr=0.5 dtype=float64 progress=none "
        "eval.clients=true"
    )
    for engine in ("loop", "vmap"):
        compute(tmp_path / engine, f"engine={engine}")
    one, other = (metrics(tmp_path / engine)[-1] for engine in ("loop", "vmap"))
    for column in ("test_loss", "test_accuracy", "client_accuracy_mean"):
        assert float(one[column]) == pytest.approx(float(other[column]), rel=1e-9), column


def test_what_does_not_fit_is_one_line() -> None:
    tokens = np.ones((4, 3), dtype=np.int64)
    for y in (tokens[:, :2], tokens[:, 0]):
        with pytest.raises(DataError, match=r"y_train is int64 of .*; \(4, 3\), one label per token, is"):
            from_arrays("own", tokens, y, tokens, y, task="sequence", vocabulary=5)
    with pytest.raises(DataError, match="a label for each token needs a vocabulary, and there is none"):
        Dataset("own", *(torch.ones(4, 3, dtype=torch.int64) for _ in range(4)), classes=5, task="sequence")


# ---- one label for a text ------------------------------------------------------------------------------


CHOSEN = Choice("embedding_rnn", {"embedding": 3, "hidden": 4, "layers": 2, "cell": "lstm"})
TOKENS = torch.tensor([[0, 0, 5, 6, 2], [1, 2, 3, 4, 5], [0, 0, 0, 0, 1]])


def test_the_row_of_padding_has_no_part() -> None:
    ours = build(CHOSEN, (5,), 2, seed=0, vocabulary=7).double()
    before = ours(TOKENS)
    loss = before.square().sum()
    loss.backward()
    assert not ours.embedding.weight.grad[0].any()
    assert ours.embedding.weight.grad[1].any()
    with torch.no_grad():
        ours.embedding.weight[0] = 9.0  # a server's momentum could move it
    torch.testing.assert_close(ours(TOKENS), before, rtol=0, atol=0)


def test_a_users_function_with_a_vocabulary_reads_tokens() -> None:
    @register_model("bag_of_tests")
    def bag(shape: tuple[int, ...], classes: int, vocabulary: int, width: int = 2) -> nn.Module:
        return nn.EmbeddingBag(vocabulary, classes * width)

    made = build(Choice("bag_of_tests", {"width": 3}), (5,), 2, seed=0, vocabulary=7)
    assert made.weight.shape == (7, 6)
    with pytest.raises(ConfigError, match=r"model\.vocabulary=3: no such key; model=bag_of_tests has width"):
        build(Choice("bag_of_tests", {"vocabulary": 3}), (5,), 2, seed=0, vocabulary=7)
