"""CA2FL."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import MEAN, Algorithm, Counts, Record, Setting, Vectors, positive, register, server_rate


@register("ca2fl")
class CA2FL(Algorithm):
    """Wang, Cao, Wu, Chen, Chen, "Tackling the data heterogeneity in asynchronous federated learning with
    cached update calibration", ICLR 2024, Algorithm 1.

        client:  x = theta^v;  K times  x <- x - eta grad F(x; xi);  sends Delta = x - theta^v
        server, on S arrivals:  v = h + (1/S) sum_j (Delta_j - h_{i(j)})      with the OLD h
                 theta <- theta + gamma v;   h <- h + (1/N) sum_j (Delta_j - h_{i(j)});   h_{i(j)} <- Delta_j

    The server caches h_i, the last upload of client i (`caches`; 0 before the first), and h is the mean of
    all N caches. Clients keep nothing, so they may work on several jobs at once. Travels: up 1d, down 1d.
    eta = lr and gamma = server_lr (convention D) are tuned. server_lr=average is gamma = 1: theta <- theta +
    v; if all clients send and none is late, v = (1/N) sum_i Delta_i, so theta <- (1/N) sum_i x_i.
    The caches are displacements, in units of the eta that made them. Under an lr_schedule old ones would go
    on moving the server at the rate of long ago, so it is refused. Numbers of steps that change from job to
    job (local.epochs_range, stragglers) only add noise, as their sizes do not drift.
    """

    paper = "Wang et al., ICLR 2024"
    checked_by = "tests/algorithms/test_async_rederivations.py::test_follows_the_equations_job_by_job"
    problem_dependent = ("lr", "server_lr")
    caches = True

    lr: float = positive(0.1)
    server_lr: float = server_rate(1.0, help=MEAN)

    def refusal(self, setting: Setting) -> str | None:
        if "lr" in setting.scheduled:
            return "caches displacements, which under lr_schedule keep the size of an earlier rate"
        return super().refusal(setting)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "h": torch.zeros_like(theta)}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        news = mean.delta - mean.cached_delta
        theta = server.theta + h.server_lr * (server.h + news)
        return {"theta": theta, "h": server.h + (n.S / n.N) * news}
