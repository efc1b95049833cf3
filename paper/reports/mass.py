"""mass: share of full attention's probability that the mask keeps, by layer and head."""

import numpy as np

from focus_runtime.measure.attention_mass import attention_mass_kept
from focus_runtime.routing.centroids import no_groups
from paper.lab.lab import Lab, composed
from paper.output.report import Column, Figure, Report, Row, Series
from paper.verdicts import judge

SEQUENCES = 4  # every probability is counted


def mass(lab: Lab) -> Report:
    rows: list[Row] = []
    series = []
    for groups in (4, 8):
        trained, random = lab.trained(num_groups=groups), lab.random(num_groups=groups)
        plans = [
            (f"{name}, K={groups}, k={top_k}", centroids, top_k)
            for name, centroids in (("trained", trained), ("random", random))
            for top_k in (1, 2)
        ]
        if groups == 4:
            plans.append(("window and sinks only", no_groups(random), 1))
        for label, centroids, top_k in plans:
            with composed(lab.model, centroids, top_k=top_k) as focus:
                measured = attention_mass_kept(focus, lab.sequences(count=SEQUENCES))
            lab.log(f"mass kept, {label}: {measured.kept.mean():.3f}")
            by_layer = measured.kept.mean(axis=1)
            layer, head = np.unravel_index(int(measured.kept.argmin()), measured.kept.shape)
            rows.append(
                {
                    "setting": label,
                    "kept": float(measured.kept.mean()),
                    "low": float(by_layer.min()),
                    "head": float(measured.kept.min()),
                    "where": f"layer {measured.layers[layer]}, head {head}",
                    "distant": float(np.nanmean(measured.distant_kept)),
                }
            )
            if top_k == 1:
                dash = not label.startswith("trained")
                series.append(Series(label, list(measured.layers), [100 * share for share in by_layer], dash=dash))
    trained_row, random_row = rows[0], rows[2]
    return Report(
        [
            Column("setting", "setting"),
            Column("kept", "attention kept, mean", 1, percent=True),
            Column("low", "least layer", 1, percent=True),
            Column("head", "least head", 1, percent=True),
            Column("where", "which head"),
            Column("distant", "of attention to distant pairs", 1, percent=True),
        ],
        rows,
        lab.setting(sequences=SEQUENCES),
        ["The frozen model's own hidden states and attention; means over query positions, heads and layers."],
        [
            judge(
                "mass",
                trained_row["kept"],
                f"K = 4, k = 1 keeps {trained_row['kept']:.1%} of the probability, {trained_row['distant']:.1%} of "
                f"that on distant pairs; random groups {random_row['kept']:.1%} and {random_row['distant']:.1%}",
            )
        ],
        Figure("line", "layer", "attention kept, %", series),
    )
