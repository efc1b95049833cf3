"""Table 9: what K, w, tau, N and the sinks change in training, one at a time."""

from typing import Any

from focus_runtime.measure.perplexity import Scores
from paper.lab import shared
from paper.lab.lab import Lab
from paper.lab.shared import quality_cells, relative
from paper.output.report import Claim, Column, Figure, Report, Row, Series
from paper.verdicts import judge

VARIED: dict[str, tuple[Any, ...]] = {  # windows as shares of the scale's
    "num_groups": (4, 8, 16, 32),
    "window": (0.25, 0.5, 1.0, 2.0),
    "temperature": (0.05, 0.1, 0.2, 0.5),
    "sinkhorn_iterations": (3, 10, 20),
    "num_sinks": (0, 1, 4, 8),
}
SYMBOL = {"num_groups": "K", "window": "w", "temperature": "τ", "sinkhorn_iterations": "N", "num_sinks": "sinks"}
SAME_PAIRS = ("temperature", "sinkhorn_iterations")  # settings whose values keep the base's pairs
SCORES = "scores"  # of a row at k = 1, to be compared in pairs
SWEEP = [
    Column("setting", "setting"),
    Column("training_dominance", "largest group in training", 1, percent=True),
    *shared.QUALITY,
    Column("two", "k = 2: perplexity"),
    Column("two_relative", "k = 2: against full attention", percent=True, signed=True),
    Column("two_retained", "k = 2: pairs kept", 1, percent=True),
]


def table9(lab: Lab) -> Report:
    base, rows = lab.config(), []
    for name, values in VARIED.items():
        for share in values:
            value = max(1, round(share * lab.scale.window)) if name == "window" else share
            mark = " (base)" if value == getattr(base, name) else ""
            row = trained_row(lab, f"{SYMBOL[name]} = {value}{mark}", **{name: value})
            rows.append({**row, "varied": name, "value": value})
    claims = _claims(lab, rows)
    for row in rows:
        del row[SCORES]
    series = []
    for name in VARIED:
        swept = [row for row in rows if row["varied"] == name]
        series.append(Series(SYMBOL[name], [row["setting"] for row in swept], [row["ppl"].value for row in swept]))
    full = lab.full(count=count(lab)).perplexity
    return Report(
        SWEEP,
        rows,
        sweep_setting(lab) | {"base": base.to_dict()},
        [
            f"Full attention: {full:.2f}. The paper varies these in full fine-tuning, where weights adapt; here the "
            "model is frozen and the mask is hard.",
            "Potentials are balanced on training text after training in every row, so pairs kept compare.",
            "One seed: differences within the intervals say nothing.",
        ],
        claims,
        Figure("bar", "", "perplexity, k = 1", series, marks={"full attention": full}),
    )


def count(lab: Lab) -> int:
    """Held-out sequences of a sweep: half of them, since every setting is scored twice."""
    return max(3, lab.scale.val_sequences // 2)


def sweep_setting(lab: Lab) -> dict[str, Any]:
    """The setting of a sweep's report."""
    return lab.setting(steps=lab.scale.sweep_steps, sequences_scored=count(lab))


def trained_row(lab: Lab, label: str, **config: Any) -> Row:
    """One training, scored at k = 1 and k = 2 in the setting it was trained in."""
    centroids, full = lab.trained(plan={"steps": lab.scale.sweep_steps}, **config), lab.full(count=count(lab))
    scored = [lab.focus(centroids, count=count(lab), top_k=top_k) for top_k in (1, 2)]
    one, two = (quality_cells(full, scores) for scores in scored)
    return {
        SCORES: scored[0],
        "setting": label,
        "parameters": shared.weights_of(centroids),
        "training_dominance": centroids.training["final_dominance"],
        **one,
        **{f"two{key}": two[name] for key, name in (("", "ppl"), ("_relative", "relative"), ("_retained", "retained"))},
    }


def _claims(lab: Lab, rows: list[Row]) -> list[Claim]:
    usual = next(row for row in rows if row["setting"].endswith("(base)"))[SCORES]
    bare, four = (
        next(row for row in rows if row["varied"] == "num_sinks" and row["value"] == value) for value in (0, 4)
    )
    few = next(row for row in rows if row["varied"] == "sinkhorn_iterations" and row["value"] == 3)
    return [
        settings_claim(rows, usual),
        judge(
            "table9 N = 3",
            few["training_dominance"],
            f"after {lab.scale.sweep_steps} steps the largest group of a training batch holds "
            f"{few['training_dominance']:.0%} on average",
        ),
        judge(
            "table9 sinks",
            relative(bare[SCORES], four[SCORES]),
            f"without sinks {bare['ppl'].value:.2f}, with 4 {four['ppl'].value:.2f}, in pairs",
        ),
    ]


def settings_claim(rows: list[Row], usual: Scores) -> Claim:
    """Settings that keep the base's pairs, compared with it in pairs; the others differ by the pairs they keep."""
    compared = [row for row in rows if row["varied"] in SAME_PAIRS and not row["setting"].endswith("(base)")]
    against = {row["setting"]: relative(row[SCORES], usual) for row in compared}
    return judge(
        "table9 settings",
        list(against.values()),
        "frozen model, k = 1, against the base in pairs, τ and N alone: K, windows and sinks are left out since they "
        "keep other pairs: " + ", ".join(f"{name} {gap.value:+.1%}" for name, gap in against.items()),
    )
