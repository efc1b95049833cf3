"""dominance: the largest group and its stability, after training centroids alone and after training all weights."""

import dataclasses

from paper.lab.balancing import MITIGATIONS
from paper.lab.lab import Lab
from paper.output.report import Column, Report, Row
from paper.reported import REPORTED
from paper.reports.table8 import RATE, at_the_end, curve, dominance_figure, largest, study, study_setting
from paper.verdicts import judge

ALONE, WEIGHTS = "centroids alone", "all weights"
COMPARED = {"entropy-balance": "softmax and balance loss", "sinkhorn": "Sinkhorn"}


def dominance(lab: Lab) -> Report:
    config, settings = study(lab)
    probe = lab.sequences(lab.scale.study_len, 1)
    curves: dict[str, list[Row]] = {}
    rows: dict[tuple[str, str], Row] = {}
    for regime in (ALONE, WEIGHTS):
        for name, title in COMPARED.items():
            if regime == WEIGHTS:
                plan = dataclasses.replace(settings, learning_rate=lab.scale.weight_rate)
                made = curve(lab, MITIGATIONS[name], lab.fresh_model(), config, plan, router_rate=RATE, probe=probe)
            else:
                made = curve(lab, MITIGATIONS[name], lab.model, config, settings, probe=probe)
            curves[f"{title}, {regime}"] = made
            values = REPORTED["dominance_regimes"][name]["weights" if regime == WEIGHTS else "alone"]
            rows[name, regime] = {
                "mitigation": title,
                "regime": regime,
                **at_the_end(made),
                "stability": made[-1]["stability"],
                "paper_dominance": values["dominance"],
                "paper_stability": values["stability"],
            }
    soft, held = rows["entropy-balance", WEIGHTS], rows["sinkhorn", WEIGHTS]
    return Report(
        [
            Column("mitigation", "assignment"),
            Column("regime", "trained"),
            Column("dominance", "largest group at the end", 1, percent=True),
            Column("dominance_max", "worst layer at the end", 1, percent=True),
            Column("stability", "tokens that kept their group", 1, percent=True),
            Column("retained", "pairs kept, k = 1", 1, percent=True),
            Column("loss", "loss, last steps", 3),
            Column("paper_dominance", "largest group", 1, paper=True, percent=True),
            Column("paper_stability", "stability", 3, paper=True),
        ],
        list(rows.values()),
        study_setting(lab, config, settings, learning_rates={"centroids": RATE, "weights": lab.scale.weight_rate}),
        [
            "Stability: held-out tokens that kept their group over the last tenth of the steps, mean over layers; the "
            "paper does not define its own. Learning rates fall to a tenth by then.",
            "A collapsed assignment is stable: read it beside the largest group.",
        ],
        [
            judge("dominance softmax", soft["dominance"], largest(soft)),
            judge("dominance Sinkhorn", held["dominance"], largest(held)),
        ],
        dominance_figure(curves),
        {"curves": curves},
    )
