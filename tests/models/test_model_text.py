"""The recurrent network over tokens: what padding means. With torch's own layers it is compared in
`test_model_sequences`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedbench.errors import ConfigError
from fedbench.fields import Choice
from fedbench.models import build, register_model

CHOSEN = Choice("embedding_rnn", {"embedding": 3, "hidden": 4, "layers": 2, "cell": "lstm"})
TOKENS = torch.tensor([[0, 0, 5, 6, 2], [1, 2, 3, 4, 5], [0, 0, 0, 0, 1]])


def model() -> nn.Module:
    return build(CHOSEN, (5,), 2, seed=0, vocabulary=7).double()


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
