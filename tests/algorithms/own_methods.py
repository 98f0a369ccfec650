"""Methods of a user's, which use what no method of fedbench's own does. For `imports=[...]`."""

from __future__ import annotations

import torch

from fedbench.method import Algorithm, positive, register, share


@register("mixing")
class Mixing(Algorithm):
    """The server keeps a model of each client and sends it a mixture of it and all others. The global model
    is the median of what arrives, and uploads name the clients whom they come from."""

    recalls = True
    stacks = True
    addressed = ("model",)
    lr: float = positive(0.1)
    own: float = share(0.75)

    def server_init(self, theta, survey, h):
        rows = torch.arange(self.clients, dtype=theta.dtype, device=theta.device)
        return {"theta": theta, "models": theta + 0.1 * rows[:, None], "seen": theta.new_zeros(())}

    def bind(self, setting):
        self.clients = setting.counts.N

    def broadcast(self, server, survey, n, h):
        return {
            "model": h.own * server.models + (1 - h.own) * server.models.mean(0),
            "round": server.seen + 1,
        }

    def local_init(self, client, h):
        return {"y": client.down.model}

    def local_final(self, local, client, h):
        return {"model": local.y, "steps": client.steps.to(torch.int32)}, {}

    def sent_bytes(self, upload):
        return upload.model.numel() + 3

    def server_step(self, server, mean, n, h):
        models = server.models.index_copy(0, mean.client, mean.model)
        moved = (mean.weight[:, None] * (mean.model - mean.sent_model)).sum(0)
        seen = server.seen + mean.steps.sum() / n.S + mean.sent_round.max()
        return {"theta": mean.model.sort(0).values[(n.S - 1) // 2] + moved, "models": models, "seen": seen}


@register("mixing_own")
class MixingOwn(Mixing):
    """Each client evaluates the model that the server has of it."""

    def personal(self, server, mine):
        return server.models[mine.number]


@register("drawn")
class Drawn(Algorithm):
    """Everything is drawn: where clients start, their steps, what they send, and what the server adds."""

    lr: float = positive(0.1)

    def broadcast(self, server, survey, n, h):
        return {"theta": server.theta, "noise": n.uniform(*server.theta.shape)}

    def local_init(self, client, h):
        return {"y": client.down.theta + client.down.noise + client.normal(*client.down.theta.shape)}

    def local_step(self, local, client, h):
        first, second = client.uniform(*local.y.shape), client.normal(*local.y.shape)
        return {"y": local.y - h.lr * (client.grad(local.y) + first - second)}

    def local_final(self, local, client, h):
        return {"delta": local.y - client.down.theta, "one": client.uniform()}, {}

    def server_step(self, server, mean, n, h):
        return {"theta": server.theta + mean.delta + mean.one + n.normal(*server.theta.shape)}


@register("own_loss")
class OwnLoss(Algorithm):
    """Samples weigh by how often their client has their label; logits shrink, more with a client's number.
    The server's step grows with what the clients' models say."""

    lr: float = positive(0.1)

    def local_init(self, client, h):
        return {"y": client.down.theta, "said": client.down.theta.new_zeros(2)}

    def local_step(self, local, client, h):
        share = client.labels / client.samples

        def loss(out):
            return share[out.y] * out.loss + (1 + client.number) * out.logits.square().mean(1)

        out = client.outputs(local.y)
        said = torch.stack((out.mean(out.loss), out.mean(out.features[:, 0] * out.logits[:, 1])))
        return {"y": client.descend(local.y, client.grad(local.y, loss), h.lr), "said": local.said + said}

    def local_final(self, local, client, h):
        return {"delta": local.y - client.down.theta, "said": local.said / client.steps}, {}

    def server_step(self, server, mean, n, h):
        return {"theta": server.theta + mean.delta * (1 + mean.said.sum())}


@register("dane")
class Dane(Algorithm):
    """FedDANE: steps corrected from a client's full gradient at theta to the cohort's; a proximal term."""

    survey = "cohort"
    full_gradient = True
    lr: float = positive(0.1)
    mu: float = positive(0.5)

    def broadcast(self, server, survey, n, h):
        return {"theta": server.theta, "g": survey.grad}

    def local_step(self, local, client, h):
        g = client.grad(local.y) - client.full_grad + client.down.g
        return {"y": local.y - h.lr * (g + h.mu * (local.y - client.down.theta))}

    def server_step(self, server, mean, n, h):
        return {"theta": server.theta + mean.delta}


@register("dane_elsewhere")
class DaneElsewhere(Dane):
    """The same from a copy of the model, at which full gradients are computed anew."""

    def broadcast(self, server, survey, n, h):
        return {"theta": server.theta.clone(), "g": survey.grad}


@register("dane_in_turn")
class DaneInTurn(Dane):
    """Not always from the server's own model, which is refused."""

    def broadcast(self, server, survey, n, h):
        return {"theta": server.theta if n.t < 2 else 0.5 * server.theta, "g": survey.grad}
