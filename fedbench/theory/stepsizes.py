"""Every algorithm's prescribed step sizes: what its theorem says for given counts S, K, T, N.

`prescribe("padamfed", Counts(S=10, K=10, T=1000, N=100))` needs nothing else; every other rule names the
constants of the problem that it needs and refuses without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fedbench.errors import ConfigError
from fedbench.theory import rules_async, rules_sync
from fedbench.theory.counts import Counts
from fedbench.theory.rules_sync import Known
from fedbench.theory.setting import Constants, Prescription, Values, VoidRule, check_counts

__all__ = ["RULES", "Constants", "Counts", "Prescription", "Rule", "VoidRule", "prescribe"]


@dataclass(frozen=True)
class Rule:
    """A published rule. `needs`: constants of the problem in it, in the order of the papers' tables.

    `convention`: the server step multiplies a gradient-sized mean ("G") or a mean displacement ("D").
    `direction`: one local step moves by eta times a gradient, a normalised or an adaptively scaled direction.
    """

    compute: Callable[..., Values]
    needs: tuple[str, ...]
    convention: str
    direction: str = "gradient"

    @property
    def source(self) -> str:
        """The formula and its paper, from the docstring."""
        return " ".join((self.compute.__doc__ or "").split())


RULES: dict[str, Rule] = {
    "scaffold": Rule(rules_sync.scaffold, ("L",), "D"),
    "mime": Rule(rules_sync.mime, ("L", "Delta", "sigma2", "sigma_h2"), "D"),
    "fedsps": Rule(rules_sync.fedsps, ("L", "loss_floor"), "D"),
    "scaffold_m": Rule(rules_sync.scaffold_m, ("L", "Delta", "sigma2", "G0"), "G"),
    "padamfed": Rule(rules_sync.padamfed, (), "G", "normalised"),
    "fafed": Rule(rules_sync.fafed, ("L",), "D", "adaptive"),
    "scaffold_m_vr": Rule(rules_sync.scaffold_m_vr, ("L", "Delta", "sigma2"), "G"),
    "padamfed_vr": Rule(rules_sync.padamfed_vr, (), "G", "normalised"),
    "fedbuff": Rule(rules_async.fedbuff, ("tau_max",), "D"),
    "ca2fl": Rule(rules_async.ca2fl, ("tau_max", "L"), "D"),
    "defedavg_niid": Rule(rules_async.defedavg_niid, ("tau_max", "L"), "D"),
    "fadas": Rule(rules_async.fadas, ("tau_max", "L", "G"), "D", "adaptive"),
    "masfl": Rule(rules_async.masfl, ("tau_max", "L"), "G"),
    "adamasfl": Rule(rules_sync.padamfed, (), "G", "normalised"),
}


def prescribe(
    algorithm: str, counts: Counts, constants: Constants | None = None, **own: float
) -> Prescription:
    """Return what the algorithm's rule prescribes; `own`: its own further parameters (polyak, epsilon).

    ConfigError for an algorithm without a published rule and for a constant that is needed and not known;
    VoidRule where the rule leaves no positive step size, or restricts nothing.
    """
    rule = RULES.get(algorithm)
    if rule is None:
        raise ConfigError("algorithm", algorithm, f"one with a step-size rule: {', '.join(RULES)}", RULES)
    check_counts(counts)
    constants = constants or Constants()
    for name in rule.needs:
        if getattr(constants, name) is None:
            raise ConfigError(name, None, f"the step-size rule of {algorithm} needs {', '.join(rule.needs)}")
    given = rule.compute(counts, constants, **own)
    values = {name: value for name, (value, _) in given.items() if not math.isinf(value)}
    relation = {name: given[name][1] for name in values}
    bad = {name: value for name, value in values.items() if not value > 0}
    if bad:
        text = ", ".join(f"{name}={value:g}" for name, value in bad.items())
        raise VoidRule(f"{algorithm}: its rule leaves no positive step size here ({text})")
    if not set(values) - {"server_lr", "beta"}:
        raise VoidRule(
            f"{algorithm}: its rule restricts no step size here; give the constants that make it do so"
        )
    clamped = ("beta",) if values.get("beta", 0.0) > 1 else ()
    reach = _reach(rule, counts, values, relation)
    return Prescription(algorithm, values | dict.fromkeys(clamped, 1.0), relation, clamped, reach)


def _reach(
    rule: Rule, n: Known, values: dict[str, float], relation: dict[str, str]
) -> tuple[float, str] | None:
    if "product" in values:
        return values["product"], relation["product"]
    if "server_lr" not in values:
        return None
    if rule.convention == "G":
        return values["server_lr"] / n.K, relation["server_lr"]
    local = "lr" if "lr" in values else "lr_max"
    return values[local] * values["server_lr"], relation[local]
