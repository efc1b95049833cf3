"""gate: how much of what the soft gate gains is a changed sharpness of attention, and how much the groups.

Equation 2 multiplies the logit of a far pair by sigmoid(lambda g_i . g_j), between a half and one: no pair is left out,
and trained centroids may lower perplexity by making attention to far tokens flatter, whatever the groups are. Factors
of the logits without any groups are trained on the same sequences for as many steps, and compared in pairs.
"""

from typing import Any

import numpy as np

from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.perplexity import Scores, score
from focus_runtime.routing.centroids import Centroids
from paper.lab import shared
from paper.lab.lab import Lab
from paper.lab.shared import quality_cells, relative
from paper.methods import Temperature
from paper.output.report import Claim, Column, Figure, Report, Row, Series
from paper.verdicts import judge

STEEPNESS = (1.0, 4.0, 8.0, 32.0)
SCHEDULE = (1.0, 32.0)
SINKS = 4
RATE = 1e-2  # of the factors: a few hundred numbers near 1, where centroids start from noise
Measured = tuple[Row, Scores]


def gate(lab: Lab) -> Report:
    scale = lab.scale
    measured = _measure(lab)
    rows = [{"method": "nothing: full attention", "parameters": 0, "ppl": lab.full().perplexity}]
    rows += [row for row, _ in measured.values()]
    scored = {"full": lab.full()} | {key: scores for key, (_, scores) in measured.items()}
    return Report(
        [
            Column("method", "what is trained"),
            Column("parameters", "weights trained", 0),
            Column("ppl", "soft: perplexity"),
            shared.RELATIVE,
            Column("hard", "under the mask, k = 1: perplexity"),
            Column("hard_relative", "against full attention", percent=True, signed=True),
            shared.RETAINED,
            shared.DOMINANCE,
            Column("factor", "mean factor", 3),
            Column("factor_low", "least factor", 3),
            Column("factor_high", "largest factor", 3),
        ],
        rows,
        lab.setting(
            groups=lab.recipe.num_groups,
            steps=scale.gate_steps,
            learning_rates={"centroids": scale.learning_rate, "factors": RATE},
        )
        | {"lambda": "varied", "gate": "varied"},
        [
            "Soft: every pair is computed. Factors are one number for each query head of each layer, 1 before "
            "training; a pair is far beyond the window and with no sink.",
            "All are trained on the same sequences in the same order, on the text's loss; one seed.",
            "A window alone has no soft form: its perplexity stands under the mask.",
        ],
        _claims(scored, scale.gate_steps),
        _figure(rows),
        {"nll": {name: scores.nll.tolist() for name, scores in scored.items()}},
    )


def _measure(lab: Lab) -> dict[str, Measured]:
    steps, (first, last) = lab.scale.gate_steps, SCHEDULE
    measured = {"untrained": _centroids(lab, "nothing: equation 2 with random centroids", lab.random(gate="paper"))}

    def train(key: str, name: str, kind: str, **plan: Any) -> None:
        trained = lab.trained(plan={"steps": steps, **plan}, gate=kind)
        measured[key] = _centroids(lab, f"centroids, {name}", trained)

    for value in STEEPNESS:
        train(f"lambda {value:g}", f"equation 2, lambda {value:g}", "paper", steepness=value)
    train("schedule", f"equation 2, lambda {first:g} to {last:g}", "paper", steepness=last, steepness_start=first)
    train("log", "log gate", "log", steepness=8.0)
    window = lab.scale.window
    measured["far"] = _factors(lab, "a factor of far pairs", Temperature(far_only=True, window=window))
    measured["all"] = _factors(lab, "a factor of all pairs", Temperature())
    for sinks in (0, SINKS):
        alone = Temperature(window=window, num_sinks=sinks, drop_far=True)
        name = f"window and {sinks} sinks" if sinks else "window"
        measured[f"{name} alone"] = _factors(lab, f"nothing: {name} alone", alone, train=False)
        measured[name] = _factors(lab, f"a factor, {name} alone", alone)
    return measured


def _centroids(lab: Lab, name: str, centroids: Centroids) -> Measured:
    """Soft and hard scores of centroids."""
    soft = lab.soft(centroids)
    hard = quality_cells(lab.full(), lab.focus(centroids, top_k=1))
    row = {
        "method": name,
        "parameters": 0 if name.startswith("nothing") else shared.weights_of(centroids),
        **shared.plain_cells(lab.full(), soft),
        "hard": hard["ppl"],
        "hard_relative": hard["relative"],
        "retained": hard["retained"],
        "dominance": hard["dominance"],
    }
    return row, soft


def _factors(lab: Lab, name: str, method: Temperature, *, train: bool = True) -> Measured:
    """Scores of factors without groups, from disk where they were measured before."""
    steps = lab.scale.gate_steps if train else 0
    lab.full()
    kept = lab.kept(
        f"gate: {name}",
        lambda: _measured_factors(lab, name, method, steps),
        method=repr(method),
        steps=steps,
        rate=RATE,
    )
    scores: Scores = kept["scores"]
    row: Row = {"method": name, "parameters": len(kept["factors"]) if train else 0}
    cells = shared.plain_cells(lab.full(), scores)
    if method.drop_far:
        row |= {"hard": cells["ppl"], "hard_relative": cells["relative"], "retained": kept["retained"]}
    else:
        row |= cells
    if train:
        values = np.array(kept["factors"])
        row |= {"factor": values.mean(), "factor_low": values.min(), "factor_high": values.max()}
    return row, scores


def _measured_factors(lab: Lab, name: str, method: Temperature, steps: int) -> Row:
    with method.attach(lab.model, text=lab.training_sequences(1)) as handle:
        if steps:
            before = [p for p in lab.model.parameters() if p.requires_grad]
            lab.model.requires_grad_(False)
            try:
                lab.adapt(name, lab.model, handle.parameters(), RATE, steps=steps, settle=False)
            finally:
                for parameter in before:
                    parameter.requires_grad_(True)
        scores = score(lab.model, lab.sequences())
        factors = [value for p in handle.parameters() for value in p.detach().flatten().tolist()]
        lab.log(f"{name}: perplexity {scores.perplexity:.3f}")
        return {"scores": scores, "factors": factors, "retained": handle.retained_pairs()}


def _claims(scored: dict[str, Scores], steps: int) -> list[Claim]:
    gates = [*(f"lambda {value:g}" for value in STEEPNESS), "schedule"]
    best = min(gates, key=lambda name: scored[name].perplexity)
    return [
        judge(
            "gate gain",
            relative(scored[best], scored["full"]),
            f"best of {len(STEEPNESS)} lambdas and a schedule: {best}",
        ),
        judge("gate flatter", relative(scored["far"], scored["full"]), "one number a head"),
        judge(
            "gate groups",
            relative(scored[best], scored["far"]),
            f"{best} against the factors, in pairs; {steps} steps each",
        ),
        judge("gate log", relative(scored[best], scored["log"]), f"{best} against the log gate, in pairs"),
        judge(
            "gate window", relative(scored["window"], scored["window alone"]), "with factors against without, in pairs"
        ),
    ]


def _figure(rows: list[Row]) -> Figure:
    shown = [row for row in rows if isinstance(row.get("relative"), Interval)]
    cells = [row["relative"].through(lambda value: 100 * value) for row in shown]
    series = Series.of_intervals("soft", [row["method"] for row in shown], cells)
    return Figure("bar", "", "perplexity against full attention, %", [series], marks={"full attention": 0.0})
