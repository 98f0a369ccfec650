"""A recurrent layer through time as one differentiable operation: opaque to autograd, vmap, torch.compile.

Unrolled, T steps give vmap T times the operations to dispatch, and a compiler T times the code to read
(minutes). Here forward and backward are one operator each, with a rule for vmap's client axis and one that
computes shapes only, under an `autograd.Function`. This combination works under torch.compile(vmap(grad));
`torch.library.custom_op` does not. There is no second derivative.

The cells are plain arithmetic on stacks of clients, without autograd. Shapes: C clients, T steps, B samples,
H units, G gates. `driven` (C, T, B, G*H): the gates' inputs with all biases except `bias` (C, H), the one
inside the GRU's reset gate ((C, 0) for other cells). `weight`: (C, G*H, H). States start at 0. `forward`
returns the states (C, T, B, H) and what else `backward` needs, (C, T, B, kept*H). `backward` takes the
gradient with respect to the states and returns those of `driven`, `weight` and `bias`. The gradient of
`weight` is one product over all steps and samples.

On most CPUs oneDNN has an LSTM's layer as one operation (fedbench.models.onednn): then this one is not used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedbench.torch_internals import lstm_cell, lstm_cell_backward

Gradients = tuple[Tensor, Tensor, Tensor]  # of driven, weight and bias


def _space(like: Tensor, width: int) -> Tensor:
    return like.new_empty(*like.shape[:-1], width)


def _time_first(x: Tensor) -> Tensor:
    """(C, T, B, n) as a new (T, C*B, n)."""
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format).flatten(1, 2)


def _before(states: Tensor) -> Tensor:
    """The state from which each step starts: that of the step before, 0 at first."""
    return torch.cat((torch.zeros_like(states[:, :1]), states[:, :-1]), 1)


def _weight_gradient(delta: Tensor, states: Tensor) -> Tensor:
    """Sum of delta_t^T state_{t-1} over steps t (the first state is 0) and samples: (C, G*H, H)."""
    return delta[:, 1:].flatten(1, 2).mT @ states[:, :-1].flatten(1, 2)


class Tanh:
    """torch.nn.RNN: h' = tanh(driven + W h) (Elman 1990)."""

    gates, kept = 1, 0

    def forward(self, driven: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        states = driven.clone(memory_format=torch.contiguous_format)
        states[:, 0].tanh_()
        for t in range(1, driven.shape[1]):
            states[:, t].baddbmm_(states[:, t - 1], weight.mT).tanh_()
        return states, _space(driven, 0)

    def backward(self, grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor) -> Gradients:
        delta = torch.empty_like(states)
        total = grad.clone(memory_format=torch.contiguous_format)
        for t in range(states.shape[1] - 1, -1, -1):
            torch.ops.aten.tanh_backward(total[:, t], states[:, t], grad_input=delta[:, t])
            if t:
                total[:, t - 1].baddbmm_(delta[:, t], weight)
        return delta, _weight_gradient(delta, states), weight.new_empty(len(weight), 0)


class LSTM:
    """torch.nn.LSTM (Hochreiter and Schmidhuber 1997, with a forget gate): c' = f c + i g, h' = o tanh c'.

    On CUDA, launching kernels dominates the cost of a small step. There, torch's fused kernels for one cell
    replace a dozen: 4 kernels a step instead of 16, forward and backward. A CPU has no such kernels.
    """

    gates, kept = 4, 5  # i, f, g, o after their nonlinearities, and c

    def forward(self, driven: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return self.fused_forward(driven, weight) if driven.is_cuda else self.plain_forward(driven, weight)

    def backward(self, grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor) -> Gradients:
        gates = (self.fused_backward if grad.is_cuda else self.plain_backward)(grad, kept, weight)
        return gates, _weight_gradient(gates, states), weight.new_empty(len(weight), 0)

    def plain_forward(self, driven: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """States and kept values, operation by operation."""
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

    def plain_backward(self, grad: Tensor, kept: Tensor, weight: Tensor) -> Tensor:
        """The gradient of `driven`, operation by operation."""
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
        carried: Tensor | None = None  # gradient of c from the next step
        for t in range(grad.shape[1] - 1, -1, -1):
            total = grad[:, t] if carried is None else torch.baddbmm(grad[:, t], gates[:, t + 1], weight)
            inside = total * to_memory[:, t]
            if carried is not None:
                inside += carried
            torch.mul(slopes[:, t, :, :3], inside.unsqueeze(-2), out=delta[:, t, :, :3])
            torch.mul(slopes[:, t, :, 3], total, out=delta[:, t, :, 3])
            carried = inside.mul_(forget[:, t])
        return gates

    def fused_forward(self, driven: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """As `plain_forward`. The kernels take all samples as rows of one matrix, so time comes first."""
        clients, steps, samples, _ = driven.shape
        form = clients, samples, -1
        each = _time_first(driven)
        product, memory = torch.zeros_like(each[0]), each.new_zeros(len(each[0]), weight.shape[-1])
        cells: list[tuple[Tensor, Tensor, Tensor]] = []  # h, c, and the gates after their nonlinearities
        for t in range(steps):
            if t:
                product = (cells[-1][0].view(form) @ weight.mT).flatten(0, 1)
                memory = cells[-1][1]
            cells.append(lstm_cell(each[t], product, memory))
        states, memories, gates = (
            torch.stack([x.view(form) for x in values], 1) for values in zip(*cells, strict=True)
        )
        return states, torch.cat((gates, memories), -1)

    def fused_backward(self, grad: Tensor, kept: Tensor, weight: Tensor) -> Tensor:
        """As `plain_backward`."""
        clients, steps, samples, units = grad.shape
        form = clients, samples, -1
        total, gates, memory = map(_time_first, (grad, kept[..., : 4 * units], kept[..., 4 * units :]))
        deltas: list[Tensor] = []  # from the last step to the first
        carried: Tensor | None = None
        for t in range(steps - 1, -1, -1):
            if deltas:
                total[t].view(form).baddbmm_(deltas[-1].view(form), weight)
            before = memory[t - 1] if t else torch.zeros_like(memory[0])
            delta, carried, _ = lstm_cell_backward(total[t], carried, before, memory[t], gates[t], False)
            deltas.append(delta)
        return torch.stack([x.view(form) for x in reversed(deltas)], 1)


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

    def backward(self, grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor) -> Gradients:
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
        driven = torch.cat((delta[..., :2, :], delta[..., 3:, :]), -2).flatten(-2)
        return driven, _weight_gradient(recurrent, states), delta[..., 2, :].sum((1, 2))


CELLS: dict[str, Tanh | GRU | LSTM] = {"tanh": Tanh(), "gru": GRU(), "lstm": LSTM()}


_LIBRARY = torch.library.Library("fedbench", "DEF")
_LIBRARY.define("recur(Tensor driven, Tensor weight, Tensor bias, str cell) -> (Tensor, Tensor)")
_LIBRARY.define(
    "recur_back(Tensor grad, Tensor states, Tensor kept, Tensor weight, str cell) -> (Tensor, Tensor, Tensor)"
)


def recur(driven: Tensor, weight: Tensor, bias: Tensor, cell: str) -> Tensor:
    """States (T, B, H) of one layer of H units from its gates' inputs `driven` (T, B, G*H).

    `weight` (G*H, H) on the states; `bias` (H,) inside the GRU's reset gate, (0,) for other cells;
    `cell`: a name in CELLS.
    """
    states: Tensor = _Recur.apply(driven, weight, bias, cell)[0]
    return states


class _Recur(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(driven: Tensor, weight: Tensor, bias: Tensor, cell: str) -> tuple[Tensor, Tensor]:
        both: tuple[Tensor, Tensor] = torch.ops.fedbench.recur(driven, weight, bias, cell)
        return both

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, weight, _, ctx.cell = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        return *torch.ops.fedbench.recur_back(grad, *ctx.saved_tensors, ctx.cell), None


# ---- the operators: for any leading axes, for shapes only, and with a client axis anywhere ----


def stacked(x: Tensor, own: int) -> Tensor:
    """Flatten all axes before the last `own` ones into one, or add one if there are none."""
    return x.flatten(0, -own - 1) if x.dim() > own else x.unsqueeze(0)


def _forward(driven: Tensor, weight: Tensor, bias: Tensor, cell: str) -> tuple[Tensor, Tensor]:
    states, kept = CELLS[cell].forward(stacked(driven, 3), stacked(weight, 2), stacked(bias, 1))
    lead = driven.shape[:-1]
    return states.view(*lead, states.shape[-1]), kept.view(*lead, kept.shape[-1])


def _backward(grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor, cell: str) -> Gradients:
    if torch.is_grad_enabled() and (grad.requires_grad or weight.requires_grad):
        raise RuntimeError("recurrent layers have no second derivative here")
    given = [*(stacked(x, 3) for x in (grad, states, kept)), stacked(weight, 2)]
    driven, product, bias = CELLS[cell].backward(*given)
    rows = driven.view(*states.shape[:-1], driven.shape[-1])
    return rows, product.view(weight.shape), bias.view(*weight.shape[:-2], bias.shape[-1])


def _forward_shapes(driven: Tensor, weight: Tensor, bias: Tensor, cell: str) -> tuple[Tensor, Tensor]:
    lead, units = driven.shape[:-1], weight.shape[-1]
    return driven.new_empty(*lead, units), driven.new_empty(*lead, CELLS[cell].kept * units)


def _backward_shapes(grad: Tensor, states: Tensor, kept: Tensor, weight: Tensor, cell: str) -> Gradients:
    rows, units = weight.shape[-2:]
    bias = units if cell == "gru" else 0
    return (
        states.new_empty(*states.shape[:-1], rows),
        torch.empty_like(weight, memory_format=torch.contiguous_format),
        weight.new_empty(*weight.shape[:-2], bias),
    )


def clients_first(clients: int, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> list[Any]:
    """The arguments of an operation under vmap, each tensor with the client axis in front."""

    def moved(arg: Any, at: int | None) -> Any:
        if at is None:
            return arg.expand(clients, *arg.shape) if isinstance(arg, Tensor) else arg
        return arg.movedim(at, 0) if at else arg

    return list(map(moved, args, in_dims))


def _forward_vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, tuple[int, ...]]:
    return torch.ops.fedbench.recur(*clients_first(info.batch_size, in_dims, args)), (0, 0)


def _backward_vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, tuple[int, ...]]:
    return torch.ops.fedbench.recur_back(*clients_first(info.batch_size, in_dims, args)), (0, 0, 0)


for device in ("CPU", "CUDA"):
    _LIBRARY.impl("recur", _forward, device)
    _LIBRARY.impl("recur_back", _backward, device)
torch.library.register_fake("fedbench::recur", _forward_shapes, lib=_LIBRARY)
torch.library.register_fake("fedbench::recur_back", _backward_shapes, lib=_LIBRARY)
torch.library.register_vmap("fedbench::recur", _forward_vmap, lib=_LIBRARY)
torch.library.register_vmap("fedbench::recur_back", _backward_vmap, lib=_LIBRARY)
