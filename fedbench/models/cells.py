"""The recurrent cells through time and back: plain arithmetic on stacks of clients, without autograd.

Shapes: C clients, T steps, B samples, H units, G gates. `driven` (C, T, B, G*H): the gates' inputs with all
biases but one, `bias` (C, H), the GRU's inside its reset gate ((C, 0) elsewhere). `weight` (C, G*H, H).
States start at 0. `forward` returns them, (C, T, B, H), and what else `backward` needs, (C, T, B, kept*H).
`backward` takes the gradient with respect to the states and returns those of `driven`, `weight` and `bias`;
a weight's is one product over all steps and samples.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Cell(Protocol):
    """One kind of recurrent layer."""

    gates: int
    kept: int

    def forward(self, driven: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """(states, kept)."""
        ...

    def backward(
        self, grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of driven, weight and bias."""
        ...


def _space(like: Tensor, width: int) -> Tensor:
    return like.new_empty(*like.shape[:-1], width)


def _before(states: Tensor) -> Tensor:
    """What each step started from: the states one step earlier, 0 at first."""
    return torch.cat((torch.zeros_like(states[:, :1]), states[:, :-1]), 1)


def _weight_gradient(delta: Tensor, states: Tensor) -> Tensor:
    """Sum of delta_t^T state_{t-1} over steps t (the first state is 0) and samples: (C, G*H, H)."""
    return delta[:, 1:].flatten(1, 2).mT @ states[:, :-1].flatten(1, 2)


class Tanh:
    """torch.nn.RNN: h' = tanh(driven + W h) (Elman 1990)."""

    gates, kept = 1, 0

    def forward(self, driven: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        states = torch.empty_like(driven)
        torch.tanh(driven[:, 0], out=states[:, 0])
        for t in range(1, driven.shape[1]):
            pre = torch.baddbmm(driven[:, t], states[:, t - 1], weight.mT)
            torch.tanh(pre, out=states[:, t])
        return states, _space(driven, 0)

    def backward(
        self, grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        delta = torch.empty_like(states)
        total = grad[:, -1]
        for t in range(states.shape[1] - 1, -1, -1):
            torch.ops.aten.tanh_backward(total, states[:, t], grad_input=delta[:, t])
            if t:
                total = torch.baddbmm(grad[:, t - 1], delta[:, t], weight)
        return delta, _weight_gradient(delta, states), weight.new_empty(len(weight), 0)


class LSTM:
    """torch.nn.LSTM (Hochreiter and Schmidhuber 1997, with a forget gate): c' = f c + i g, h' = o tanh c'."""

    gates, kept = 4, 5  # i, f, g, o after their nonlinearities, and c

    def forward(self, driven: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        units = weight.shape[-1]
        states, kept = _space(driven, units), _space(driven, 5 * units)
        enter, forget, candidate, out, memory = kept.chunk(5, dim=-1)
        for t in range(driven.shape[1]):
            pre = torch.baddbmm(driven[:, t], states[:, t - 1], weight.mT) if t else driven[:, 0]
            torch.sigmoid(pre[..., : 2 * units], out=kept[:, t, :, : 2 * units])
            torch.tanh(pre[..., 2 * units : 3 * units], out=candidate[:, t])
            torch.sigmoid(pre[..., 3 * units :], out=out[:, t])
            torch.mul(enter[:, t], candidate[:, t], out=memory[:, t])
            if t:
                memory[:, t].addcmul_(forget[:, t], memory[:, t - 1])
            torch.mul(torch.tanh(memory[:, t]), out[:, t], out=states[:, t])
        return states, kept

    def backward(
        self, grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        enter, forget, candidate, out, memory = kept.chunk(5, dim=-1)
        shown = torch.tanh(memory)
        to_memory = out * (1 - shown.square())
        slopes = torch.stack(
            (
                candidate * enter * (1 - enter),
                _before(memory) * forget * (1 - forget),
                enter * (1 - candidate.square()),
                shown * out * (1 - out),
            ),
            dim=-2,
        )
        delta = torch.empty_like(slopes)  # (C, T, B, 4, H)
        gates = delta.flatten(-2)
        carried: Tensor | None = None  # gradient of c from the step after
        for t in range(states.shape[1] - 1, -1, -1):
            total = grad[:, t] if carried is None else torch.baddbmm(grad[:, t], gates[:, t + 1], weight)
            inside = total * to_memory[:, t]
            if carried is not None:
                inside += carried
            torch.mul(slopes[:, t, :, :3], inside.unsqueeze(-2), out=delta[:, t, :, :3])
            torch.mul(slopes[:, t, :, 3], total, out=delta[:, t, :, 3])
            carried = inside.mul_(forget[:, t])
        return gates, _weight_gradient(gates, states), weight.new_empty(len(weight), 0)


class GRU:
    """torch.nn.GRU (Cho et al., EMNLP 2014, with the reset gate after the product):
    m = W_n h + bias, n = tanh(driven_n + r m), h' = n + z (h - n)."""

    gates, kept = 3, 4  # r, z, n, m

    def forward(self, driven: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        units = weight.shape[-1]
        states, kept = _space(driven, units), _space(driven, 4 * units)
        gates = kept[..., : 2 * units]
        reset, update, candidate, inner = kept.chunk(4, dim=-1)
        state = torch.zeros_like(states[:, 0])
        for t in range(driven.shape[1]):
            product = state @ weight.mT
            torch.add(driven[:, t, :, : 2 * units], product[..., : 2 * units], out=gates[:, t]).sigmoid_()
            torch.add(product[..., 2 * units :], bias.unsqueeze(1), out=inner[:, t])
            torch.addcmul(driven[:, t, :, 2 * units :], reset[:, t], inner[:, t], out=candidate[:, t]).tanh_()
            state = torch.lerp(candidate[:, t], state, update[:, t], out=states[:, t])
        return states, kept

    def backward(
        self, grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        reset, update, candidate, inner = kept.chunk(4, dim=-1)
        units = weight.shape[-1]
        to_candidate = (1 - update) * (1 - candidate.square())
        slopes = torch.stack(
            (
                to_candidate * inner * reset * (1 - reset),
                (_before(states) - candidate) * update * (1 - update),
                to_candidate * reset,
                to_candidate,
            ),
            dim=-2,
        )
        delta = torch.empty_like(slopes)  # (C, T, B, 4, H): r, z, m, n
        recurrent = delta.flatten(-2)[..., : 3 * units]
        total = grad[:, -1]
        for t in range(states.shape[1] - 1, -1, -1):
            torch.mul(slopes[:, t], total.unsqueeze(-2), out=delta[:, t])
            if t:
                total = torch.baddbmm(grad[:, t - 1], recurrent[:, t], weight).addcmul_(total, update[:, t])
        driven = delta[..., [0, 1, 3], :].flatten(-2)
        return driven, _weight_gradient(recurrent, states), delta[..., 2, :].sum((1, 2))


CELLS: dict[str, Cell] = {"tanh": Tanh(), "gru": GRU(), "lstm": LSTM()}
