"""balance: the largest group by layer on held-out text, with potentials balanced on training text."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from focus_runtime.measure.loss import final_hidden
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids
from paper.lab.lab import Lab, composed
from paper.output.report import Column, Figure, Report, Row, Series
from paper.verdicts import judge

LIMIT = 1.5  # times 1/K: above it the mask keeps so many pairs that perplexity says little
BLOCKS = 4  # of text positions in each sequence


def balance(lab: Lab) -> Report:
    rows, series = [], []
    for groups in (4, 8):
        layers = group_balance(lab.model, lab.trained(num_groups=groups), lab.sequences())
        shares = [row["dominance"] for row in layers]
        early, late = (float(np.mean([row["dominance_by_block"][place] for row in layers])) for place in (0, -1))
        over = ", ".join(str(row["layer"]) for row in layers if row["exceeds"]) or "none"
        cells = {"setting": f"K={groups}", "limit": LIMIT / groups, "mean": float(np.mean(shares))}
        rows.append(cells | {"most": max(shares), "over": over, "late": late, "early": early})
        series.append(Series(f"K={groups}", [r["layer"] for r in layers], [100 * groups * share for share in shares]))
        lab.log(f"K={groups}: largest group {np.mean(shares):.3f} on average, {max(shares):.3f} at most")
    return Report(
        [
            Column("setting", "setting"),
            Column("limit", "1.5 / K", 2, percent=True),
            Column("mean", "largest group, mean", 1, percent=True),
            Column("most", "worst layer", 1, percent=True),
            Column("early", "first quarter of a sequence", 1, percent=True),
            Column("late", "last quarter", 1, percent=True),
            Column("over", "layers over 1.5 / K"),
        ],
        rows,
        lab.setting(),
        ["Over all held-out tokens together. Potentials were balanced on training text."],
        [
            judge(
                "balance",
                all(row["over"] == "none" for row in rows),
                "; ".join(
                    f"{row['setting']}: at most {row['most']:.3f} (limit {row['limit']:.4f}), layers over it: "
                    f"{row['over']}"
                    for row in rows
                ),
            )
        ],
        Figure("line", "layer", "largest group, % of even", series, marks={"1.5 / K": 150.0, "even": 100.0}),
    )


@torch.no_grad()
def group_balance(model: Any, centroids: Centroids, sequences: torch.Tensor) -> list[Row]:
    """Group sizes over (N, T) held-out sequences.

    Returns:
        One row for each layer: `dominance` over all tokens (share of the largest group), `dominance_by_block` (share of
        the largest group of each of `BLOCKS` stretches of text, which small ones push up), `group_shares` (K shares),
        `exceeds` (dominance over 1.5/K).
    """
    groups, top = centroids.config.num_groups, dict[int, list[NDArray[np.int64]]]()
    with composed(model, centroids) as focus:
        for ids in sequences.split(1):
            final_hidden(model, ids.to(input_device(model)))
            for index, assignment in focus.assignments().items():
                top.setdefault(index, []).append(assignment.probabilities[0].argmax(dim=-1).cpu().numpy())
    rows = []
    for index, chosen in top.items():
        stacked = np.stack(chosen)
        shares = np.bincount(stacked.ravel(), minlength=groups) / stacked.size
        by_block = [
            float(np.bincount(part.ravel()).max() / part.size) for part in np.array_split(stacked, BLOCKS, axis=1)
        ]
        cells = {"dominance": float(shares.max()), "dominance_by_block": by_block, "group_shares": shares.tolist()}
        rows.append({"layer": index, **cells, "exceeds": bool(shares.max() > LIMIT / groups)})
    return rows
