"""AdaMasFL."""

from __future__ import annotations

from fedbench.algorithms.padamfed import PAdaMFed
from fedbench.method import register


@register("adamasfl")
class AdaMasFL(PAdaMFed):
    """Yan, Zhong, Wang, Zhang, "Momentum-driven adaptivity: towards tuning-free asynchronous federated
    learning", ICML 2025 (AdaMasFL).

        at the start, all clients:  c_i = (1/K) sum_k grad F(theta^0; xi_k);  c = g = mean_i c_i
        client:  receives theta^v and p^v = beta c + (1-beta) g;  x = theta^v;  A = U = 0
                 K times  q = grad F(x; xi);  A <- A + q
                          w = beta (q - c_i) + p^v;   u = w / ||w||;   x <- x - eta u;   U <- U + u
                 sends U/K and A/K - c_i;  c_i <- A/K
        server, on S arrivals:
                 theta <- theta - gamma mean(U/K)         not with g, which only steers the clients
                 g <- beta (D/S + c) + (1-beta) g         with the OLD c;  D/S = mean(A/K - c_i)
                 c <- c + D/N

    The rules are PAdaMFed's line by line, and this class inherits its code (p is its m, U/K its u). What is
    new is that theta^v and p^v may be old by the time a result arrives. Every U/K is measured from the
    client's own start model, so with norm=vector it has norm at most 1 and the server moves at most gamma per
    update. Travels: up 2d, down 2d, and N d up, N d down once at the start. eta = 1/(K sqrt(T)),
    gamma = (S K)^(1/4) / T^(3/4), beta = sqrt(S K / T) (Theorem 2; beta clamped to 1): nothing is tuned.
    server_lr=average is gamma = eta K: theta <- theta + mean_j (x_j - theta^v), the mean of models if none is
    late.
    """

    paper = "Yan et al., ICML 2025"
    checked_by = "tests/algorithms/test_async_rederivations.py::test_follows_the_equations_job_by_job"
