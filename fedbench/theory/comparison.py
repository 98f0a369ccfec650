"""The comparison tables of PAdaMFed and AdaMasFL as data: rates, assumptions, step-size rules, needs.

Formulas are LaTeX, transcribed from the tables as printed; where the print is doubtful, `note` says so.
`needs` uses the names of `fedbench.theory.setting.Constants`. The powers are those of the leading term of the
number of rounds T(epsilon) after which the mean gradient norm is at most epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import pandas as pd

from fedbench.errors import ConfigError

TABLES = {
    "padamfed": "Yan et al., Problem-Parameter-Free Federated Learning, ICLR 2025, Table 1, p. 8 (sec. 4.3)",
    "adamasfl": "Yan et al., Momentum-Driven Adaptivity, ICML 2025, Table 1 (as on the talk's slides)",
}
ASSUMPTIONS = {
    "BDH": "bounded data heterogeneity: mean of |grad f_i|^2 <= B |grad f|^2 + sigma_h^2",
    "BHD": "bounded Hessian dissimilarity: |hess f_i - hess f|^2 <= delta",
    "BG": "bounded gradients: |grad f_i| <= G",
}


@dataclass(frozen=True)
class Row:
    """One method of one table."""

    table: str
    algorithm: str  # its name in fedbench
    method: str  # its name in the table
    citation: str
    rate: str
    assumptions: tuple[str, ...]
    step_sizes: str
    needs: tuple[str, ...]
    epsilon_power: float
    S_power: float
    K_power: float
    note: str = ""


_FREE = r"\beta=\sqrt{\frac{SK}{T}},\ \gamma=\frac{(SK)^{1/4}}{T^{3/4}},\ \eta=\frac{1}{K\sqrt{T}}"
_VARIANCE_REDUCED = r"\beta=\gamma=\frac{(SK)^{1/3}}{T^{2/3}},\ \eta=\frac{1}{KT}"
_SLIDE = "rate read from the slide; the paper's own text is damaged here"

ROWS: tuple[Row, ...] = (
    Row(
        "padamfed", "scaffold", "SCAFFOLD", "Karimireddy et al., ICML 2020",
        r"O((N/S)^{1/3} L/(K\epsilon^4))", (),
        r"\gamma=\sqrt{S},\ \eta\le\frac{1}{24\gamma KL}(S/N)^{2/3}",
        ("L",), -4, -1 / 3, -1, _SLIDE,
    ),
    Row(
        "padamfed", "mime", "MIME", "Karimireddy et al., arXiv:2008.03606",
        r"O(1/(SK\epsilon^4))", ("BDH", "BHD"),
        r"\eta=\sqrt{\frac{\Delta S}{L\tilde G TK^2}},\ \tilde G=\sigma_h^2+\sigma^2/K",
        ("L", "Delta", "sigma2", "sigma_h2"), -4, -1, -1,
    ),
    Row(
        "padamfed", "fedsps", "FedSPS", "Mukherjee, Loizou, Stich, TMLR 2024",
        r"O(1/(NK\epsilon^4))", ("BDH",),
        r"\eta_i^{t,k}=\min\{\frac{F(\theta_i^{t,k};\xi_i^{t,k})-\ell_i^*}"
        r"{c\|\nabla F(\theta_i^{t,k};\xi_i^{t,k})\|^2},\eta_b\},"
        r"\ \eta_b\le\min\{\frac{1}{2cL},\frac{1}{25LK}\}",
        ("L", "loss_floor"), -4, -1, -1, "full participation: the power of S is that of N",
    ),
    Row(
        "padamfed", "scaffold_m", "SCAFFOLD-M", "Cheng, Huang, Wu, Yuan, ICLR 2024",
        r"O(1/(SK\epsilon^4))", (),
        r"\beta=\min\{1,\frac{S}{N^{2/3}},\sqrt{\frac{L\Delta SK}{\sigma^2T}},"
        r"\sqrt{\frac{L\Delta S^2}{G_0N}}\},\ \gamma=\beta/L,"
        r"\ \eta KL\lesssim\min\{\frac{1}{\sqrt S},\frac{1}{\beta K^{1/4}},\frac{\sqrt S}{N}\}",
        ("L", "Delta", "sigma2", "G0"), -4, -1, -1,
    ),
    Row(
        "padamfed", "padamfed", "PAdaMFed", "Yan, Zhang, Wang, Cao, ICLR 2025",
        r"O(1/(SK\epsilon^4))", (), _FREE, (), -4, -1, -1,
    ),
    Row(
        "padamfed", "fafed", "FAFED", "Wu, Huang, Hu, Huang, AAAI 2023",
        r"O(1/(SK\epsilon^3))", ("BDH", "BG"),
        r"\eta_t\propto\frac{N^{2/3}}{Lt^{1/3}},\ \beta_t\propto\eta_t^2",
        ("L",), -3, -1, -1, "variance reduction",
    ),
    Row(
        "padamfed", "scaffold_m_vr", "SCAFFOLD-M-VR", "Cheng, Huang, Wu, Yuan, ICLR 2024",
        r"O(1/(S\sqrt{K}\epsilon^4))", (),
        r"\beta=\min\{\frac{S}{N},(\frac{KL\Delta}{\sigma^2T})^{2/3}S^{1/3}\},"
        r"\ \gamma L=\min\{1,\sqrt{\beta S}\},"
        r"\ \eta KL\lesssim\min\{\sqrt{\beta/S},(\frac{\beta}{SK})^{1/4}\}",
        ("L", "Delta", "sigma2"), -4, -1, -1 / 2,
        "variance reduction; " + _SLIDE + "; the comma printed before S^(1/3) is read as a product",
    ),
    Row(
        "padamfed", "padamfed_vr", "PAdaMFed-VR", "Yan, Zhang, Wang, Cao, ICLR 2025",
        r"O(1/(SK\epsilon^3))", (), _VARIANCE_REDUCED, (), -3, -1, -1, "variance reduction",
    ),
    Row(
        "adamasfl", "fedbuff", "FedBuff", "Nguyen et al., AISTATS 2022",
        r"O(\frac{K^{1/4}\sigma_g}{(ST)^{1/4}}+\sqrt{\tau_{\max}\bar\tau/T})", ("BDH",),
        r"\eta\gamma\le\frac{1}{4K\tau_{\max}^{3/2}}",
        ("tau_max",), -4, -1, 1, "as printed the bound has no L: not a step size's units",
    ),
    Row(
        "adamasfl", "ca2fl", "CA2FL", "Wang, Cao, Wu, Chen, Chen, ICLR 2024",
        r"O(\frac{1}{(SKT)^{1/4}}+\sqrt{\tau_{\max}/T})", ("BDH",),
        r"\eta\gamma\le\frac{S}{36K\tau_{\max}^2L^2},\ \eta\le\frac{1}{36K\sqrt{\tau_{\max}}L}",
        ("tau_max", "L"), -4, -1, -1, "as printed the first bound has L^2: not a step size's units",
    ),
    Row(
        "adamasfl", "defedavg_niid", "DeFedAvg-nIID", "Wang, Li, Jin, Zhang, arXiv:2402.11198",
        r"O(\frac{1}{(SKT)^{1/4}}+\frac{1}{\sqrt{KT}})", ("BDH", "BG"),
        r"\eta\gamma\le\frac{1}{4LK\tau_{\max}},\ \eta\le\frac{1}{4\sqrt3LK}",
        ("tau_max", "L"), -4, -1, -1,
    ),
    Row(
        "adamasfl", "fadas", "FADAS", "Wang, Wang, Lu, Chen, ICML 2024",
        r"O(\frac{1}{(ST)^{1/4}}+\sqrt{\tau_{\max}\bar\tau/T})", ("BDH", "BG"),
        r"\eta\gamma\le\min\{\frac{\epsilon^2S(N-1)}{180C_G^2N(N-S)\tau_{\max}^2KL},"
        r"\frac{\sqrt{\epsilon^3S(N-1)}}{12\sqrt{C_GN(N-S)}\tau_{\max}^2KL}\},"
        r"\ \eta\le\frac{\sqrt\epsilon}{\sqrt{360C_G}\tau_{\max}^2KL},\ C_G=\eta KG+\epsilon",
        ("tau_max", "L", "G"), -4, -1, 0,
    ),
    Row(
        "adamasfl", "masfl", "MasFL", "Yan, Zhong, Wang, Zhang, ICML 2025",
        r"O(\frac{\sqrt\kappa}{(SKT)^{1/4}}+\sqrt{\kappa/T})", (),
        r"\beta=\sqrt{\frac{SK}{T}},\ \gamma=\frac{\beta}{4L},"
        r"\ \eta\le\frac{\sqrt{T-\sqrt{SKT}-4SK\tau_{\max}^2}}{4\sqrt5eKL\sqrt T}",
        ("tau_max", "L"), -4, -1, -1, "the bound on eta is real only for T > sqrt(SKT) + 4SK tau_max^2",
    ),
    Row(
        "adamasfl", "adamasfl", "AdaMasFL", "Yan, Zhong, Wang, Zhang, ICML 2025",
        r"O(\frac{1}{(SKT)^{1/4}}+\frac{\sqrt{\tau_{\max}}}{T^{3/8}})", (), _FREE, (), -4, -1, -1,
    ),
)  # fmt: skip


def frame(table: str | None = None) -> pd.DataFrame:
    """Return one row per method: the fields of `Row`, tuples joined by ", ", and the table's `source`."""
    if table is not None and table not in TABLES:
        raise ConfigError("table", table, f"one of {', '.join(TABLES)}", TABLES)
    chosen = [row for row in ROWS if table in (None, row.table)]
    columns: dict[str, list[object]] = {
        field.name: [_text(getattr(row, field.name)) for row in chosen] for field in fields(Row)
    }
    return pd.DataFrame({**columns, "source": [TABLES[row.table] for row in chosen]})


def write_csv(path: Path, table: str | None = None) -> None:
    """Write `frame(table)` as CSV."""
    frame(table).to_csv(path, index=False, lineterminator="\n")


def markdown(table: str) -> str:
    """Return one table as GitHub Markdown with its source, the abbreviations used and the notes under it."""
    data = frame(table)
    shown = {
        "Method": data.method + " (" + data.citation + ")",
        "Rate": "$" + data.rate + "$",
        "Further assumptions": data.assumptions.replace("", "none"),
        "Step sizes": "$" + data.step_sizes + "$",
        "Needs": data.needs.replace("", "nothing"),
    }
    lines = ["| " + " | ".join(shown) + " |", "|" + " --- |" * len(shown)]
    # a bar would end the cell; \Vert is the same sign
    cells = [column.str.replace(r"\|", r"\Vert ", regex=False) for column in shown.values()]
    lines += ["| " + " | ".join(line) + " |" for line in zip(*cells, strict=True)]
    used = {name for text in data.assumptions for name in text.split(", ") if name}
    lines += ["", f"Source: {TABLES[table]}.", ""]
    lines += [f"- {name}: {meaning}." for name, meaning in ASSUMPTIONS.items() if name in used]
    lines += [f"- {row.method}: {row.note}." for row in ROWS if row.table == table and row.note]
    return "\n".join(lines) + "\n"


def _text(value: object) -> object:
    return ", ".join(value) if isinstance(value, tuple) else value
