"""gate: how much of what the soft gate gains is a changed sharpness of attention, and how much the groups.

Equation 2 multiplies the logit of a far pair by sigmoid(lambda g_i . g_j), between a half and one: no pair is left out,
and trained centroids may lower perplexity by making attention to far tokens flatter, whatever the groups are. Factors
of the logits without any groups are trained on the same sequences for as many steps, and compared in pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.perplexity import Scores
from paper.methods import Temperature
from paper.reports.adaptation import centroid_size
from paper.reports.cells import plain_cells, quality_cells, relative
from paper.reports.lab import Lab
from paper.reports.report import Claim, Column, Figure, Report, Series, judged

STEEPNESS = (1.0, 4.0, 8.0, 32.0)
SCHEDULE = (1.0, 32.0)
SINKS = 4
RATE = 1e-2  # of the factors: a few hundred numbers near 1, where centroids start from noise
COLUMNS = [
    Column("method", "what is trained"),
    Column("parameters", "weights trained", 0),
    Column("ppl", "soft: perplexity"),
    Column("relative", "against full attention", percent=True, signed=True),
    Column("hard", "under the mask, k = 1: perplexity"),
    Column("hard_relative", "against full attention", percent=True, signed=True),
    Column("retained", "pairs kept", 1, percent=True),
    Column("dominance", "largest group", 1, percent=True),
    Column("factor", "mean factor", 3),
    Column("factor_low", "least factor", 3),
    Column("factor_high", "largest factor", 3),
]
Measured = tuple[dict[str, Any], Scores]


def gate(lab: Lab) -> Report:
    """The gate with and without groups, at equal training."""
    scale = lab.scale
    rows: list[dict[str, Any]] = [{"method": "nothing: full attention", "parameters": 0, "ppl": lab.full().perplexity}]
    scored: dict[str, Scores] = {"full": lab.full()}
    for key, measured in _measure(lab):
        row, scores = measured
        rows.append(row)
        scored[key] = scores
    return Report(
        "gate",
        "The soft gate taken apart: sharpness of attention or groups",
        COLUMNS,
        rows,
        {
            **lab.base_setting(),
            "lambda": "varied",
            "gate": "varied",
            "groups": lab.recipe.num_groups,
            "steps of each training": scale.gate_steps,
            "learning rates": {"centroids": scale.learning_rate, "factors": RATE},
            "seeds": scale.seeds[:1],
        },
        [
            "Soft: every pair is computed. Factors are one number for each query head of each layer, 1 before "
            "training; a pair is far beyond the window and with no sink.",
            "All are trained on the same sequences in the same order, on the text's loss; one seed.",
            "A window alone has no soft form: its perplexity stands under the mask.",
        ],
        _claims(scored, lab),
        _figure(rows),
        {"nll": {name: scores.nll.tolist() for name, scores in scored.items()}},
    )


def trainings(lab: Lab) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Centroids that are trained: key, name, gate, and what the training changes."""
    steps = {"steps": lab.scale.gate_steps}
    first, last = SCHEDULE
    return [
        *(
            (f"lambda {value:g}", f"centroids, equation 2, lambda {value:g}", "paper", {**steps, "steepness": value})
            for value in STEEPNESS
        ),
        (
            "schedule",
            f"centroids, equation 2, lambda {first:g} to {last:g}",
            "paper",
            {**steps, "steepness": last, "steepness_start": first},
        ),
        ("log", "centroids, log gate", "log", {**steps, "steepness": 8.0}),
    ]


def _measure(lab: Lab) -> list[tuple[str, Measured]]:
    window = lab.scale.window
    made = [
        ("untrained", _centroids(lab, "nothing: equation 2 with random centroids", lab.random(gate="paper"))),
        *(
            (key, _centroids(lab, name, lab.trained(lab.scale.seeds[0], plan, gate=kind)))
            for key, name, kind, plan in trainings(lab)
        ),
        ("far", _factors(lab, "a factor of far pairs", Temperature(pairs="far", window=window))),
        ("all", _factors(lab, "a factor of all pairs", Temperature())),
    ]
    for sinks in (0, SINKS):
        alone = Temperature(window=window, num_sinks=sinks, drop_far=True)
        name = f"window and {sinks} sinks" if sinks else "window"
        made += [
            (f"{name} alone", _factors(lab, f"nothing: {name} alone", alone, train=False)),
            (name, _factors(lab, f"a factor, {name} alone", alone)),
        ]
    return made


def _centroids(lab: Lab, name: str, centroids: Any) -> Measured:
    """Soft and hard scores of centroids."""
    soft = lab.soft(centroids)
    hard = quality_cells(lab.full(), lab.focus(centroids, top_k=1))
    row = {
        "method": name,
        "parameters": 0 if name.startswith("nothing") else centroid_size(centroids),
        **plain_cells(lab.full(), soft),
        "hard": hard["ppl"],
        "hard_relative": hard["relative"],
        "retained": hard["retained"],
        "dominance": hard["dominance"],
    }
    return row, soft


def _factors(lab: Lab, name: str, method: Temperature, *, train: bool = True) -> Measured:
    """Scores of factors without groups, from disk where they were measured before."""
    settings = {"method": repr(method), "steps": lab.scale.gate_steps if train else 0, "rate": RATE}
    kept = lab.kept(f"gate: {name}", lambda: _measured_factors(lab, name, method, train=train), **settings)
    scores: Scores = kept["scores"]
    row: dict[str, Any] = {"method": name, "parameters": kept["parameters"] if train else 0}
    cells = plain_cells(lab.full(), scores)
    if method.drop_far:
        row |= {"hard": cells["ppl"], "hard_relative": cells["relative"], "retained": kept["retained"]}
    else:
        row |= cells
    if train:
        values = np.array(kept["factors"])
        row |= {"factor": values.mean(), "factor_low": values.min(), "factor_high": values.max()}
    return row, scores


def _measured_factors(lab: Lab, name: str, method: Temperature, *, train: bool) -> dict[str, Any]:
    with method.attach(lab.model, text=lab.training_sequences(1)) as handle:
        parameters = handle.parameters()
        if train:
            before = [p for p in lab.model.parameters() if p.requires_grad]
            lab.model.requires_grad_(False)
            try:
                lab.adapt(name, handle.model, parameters, RATE, steps=lab.scale.gate_steps, settle=False)
            finally:
                for parameter in before:
                    parameter.requires_grad_(True)
        scores = lab.attached(handle)
        return {
            "scores": scores,
            "parameters": sum(p.numel() for p in parameters),
            "factors": [value for p in parameters for value in p.detach().flatten().tolist()],
            "retained": handle.retained_pairs(),
        }


def _claims(scored: dict[str, Scores], lab: Lab) -> list[Claim]:
    lambdas = [f"lambda {value:g}" for value in STEEPNESS]
    best = min([*lambdas, "schedule"], key=lambda name: scored[name].perplexity)
    gain = relative(scored[best], scored["full"])
    rest = relative(scored[best], scored["far"])
    against_log = relative(scored[best], scored["log"])
    flatter = relative(scored["far"], scored["full"])
    tempered = relative(scored["window"], scored["window alone"])
    return [
        judged(
            "the soft gate of trained centroids lowers the frozen model's perplexity (36.2 against 42.8, -15 %)",
            gain,
            below=0.0,
            evidence=f"best of {len(STEEPNESS)} lambdas and a schedule: {best}",
        ),
        judged(
            "(ours) factors of far pairs lower it without any groups",
            flatter,
            below=0.0,
            evidence="one number a head",
        ),
        judged(
            "(ours) groups add to what such factors gain",
            rest,
            below=0.0,
            evidence=f"{best} against the factors, in pairs; {lab.scale.gate_steps} steps each",
        ),
        judged(
            "(ours) equation 2 is ahead of the log gate while both are soft",
            against_log,
            below=0.0,
            evidence=f"{best} against the log gate, in pairs",
        ),
        judged(
            "(ours) a temperature mends part of what a window alone loses",
            tempered,
            below=0.0,
            evidence="with factors against without, in pairs",
        ),
    ]


def _figure(rows: list[dict[str, Any]]) -> Figure:
    shown = [row for row in rows if isinstance(row.get("relative"), Interval)]
    cells = [row["relative"].through(lambda value: 100 * value) for row in shown]
    series = Series(
        "soft",
        [row["method"] for row in shown],
        [cell.value for cell in cells],
        [cell.value if cell.low is None else cell.low for cell in cells],
        [cell.value if cell.high is None else cell.high for cell in cells],
    )
    return Figure("bar", "", "perplexity against full attention, %", [series], marks={"full attention": 0.0})
