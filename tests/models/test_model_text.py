"""The recurrent network over tokens: against torch's own layers, and what padding means."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedbench.errors import ConfigError
from fedbench.fields import Choice
from fedbench.models import build, count_parameters, register_model, size

CHOSEN = Choice("embedding_rnn", {"embedding": 3, "hidden": 4, "layers": 2, "cell": "lstm"})
TOKENS = torch.tensor([[0, 0, 5, 6, 2], [1, 2, 3, 4, 5], [0, 0, 0, 0, 1]])


def model() -> nn.Module:
    return build(CHOSEN, (5,), 2, seed=0, vocabulary=7).double()


def test_it_is_torchs_embedding_and_lstm() -> None:
    ours = model()
    embedding = nn.Embedding(7, 3, padding_idx=0).double()
    lstm, head = nn.LSTM(3, 4, 2, batch_first=True).double(), nn.Linear(4, 2).double()
    state = ours.state_dict()
    for part, name in ((embedding, "embedding"), (lstm, "recurrent"), (head, "head")):
        part.load_state_dict(
            {k.removeprefix(f"{name}."): v for k, v in state.items() if k.startswith(f"{name}.")}
        )
    expected = head(lstm(embedding(TOKENS))[0][:, -1])
    torch.testing.assert_close(ours(TOKENS), expected, rtol=1e-12, atol=1e-13)
    assert (
        count_parameters(ours)
        == size(CHOSEN, (5,), 2, 7)
        == 7 * 3 + (16 * 3 + 16 * 4 + 32) + (16 * 4 + 16 * 4 + 32) + (4 * 2 + 2)
    )


def test_the_row_of_padding_has_no_part() -> None:
    ours = model()
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
