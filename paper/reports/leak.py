"""leak: how much the future leaks through Sinkhorn's column sums, which run over the whole text (METHOD section 6)."""

import numpy as np
import torch

from focus_runtime.composition.observe import replace_assignment
from focus_runtime.measure.intervals import Interval, mean_interval
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.routing.centroids import Centroids
from focus_runtime.routing.router import Assignment, CentroidRouter
from paper.lab import shared
from paper.lab.lab import Lab, composed
from paper.lab.shared import quality_cells, relative
from paper.output.report import Column, Report, Row
from paper.verdicts import judge


def leak(lab: Lab) -> Report:
    rows: list[Row] = []
    gaps, effects = [], []
    for groups in (4, 8):
        trained = lab.trained(num_groups=groups)
        for top_k in (1, 2):
            causal, sinkhorn = (
                lab.focus(trained, top_k=top_k, assignment=assignment) for assignment in ("causal", "sinkhorn")
            )
            against, future = relative(sinkhorn, causal), future_effect(lab, trained, top_k)
            same = {"num_groups": groups, "top_k": top_k}
            rows.append({**same, "assignment": "causal", **quality_cells(lab.full(), causal)})
            leaks = {"differing": tokens_differing(lab, trained, top_k), "against": against, "future": future}
            rows.append({**same, "assignment": "sinkhorn", **quality_cells(lab.full(), sinkhorn), **leaks})
            gaps.append(against)
            effects.append(future)
    listed, compared = (", ".join(f"{one.value:+.2%}" for one in values) for values in (effects, gaps))
    return Report(
        [
            Column("num_groups", "K", 0),
            Column("top_k", "k", 0),
            Column("assignment", "assignment"),
            *shared.QUALITY,
            Column("differing", "tokens with other groups", 1, percent=True),
            Column("against", "sinkhorn against causal", percent=True, signed=True),
            Column("future", "first half, with and without the second", percent=True, signed=True),
        ],
        rows,
        lab.setting(),
        ["Sinkhorn against causal mixes the leak with balancing on the text; the last column is the leak itself."],
        [
            judge(
                "leak",
                min(effects, key=lambda effect: effect.value),
                f"the largest of what the second half of a text does to its first half: {listed}; sinkhorn against "
                f"causal: {compared}",
            )
        ],
    )


@torch.no_grad()
def tokens_differing(lab: Lab, centroids: Centroids, top_k: int) -> float:
    """Share of tokens whose set of k groups Sinkhorn changes, mean over layers; hidden states are of the causal run."""
    shares: dict[int, list[float]] = {}

    def compare(index: int, router: CentroidRouter, hidden: torch.Tensor, padding: torch.Tensor | None) -> Assignment:
        causal, balanced = (
            router.own_assignment(hidden, padding=padding, assignment=kind) for kind in ("causal", "sinkhorn")
        )
        differing = (causal.membership != balanced.membership).double().mean().item()
        shares.setdefault(index, []).append(differing)
        return causal

    with composed(lab.model, centroids, top_k=top_k, assignment="causal") as focus, replace_assignment(focus, compare):
        for ids in lab.sequences().split(1):
            final_hidden(lab.model, ids)
    return float(np.mean([np.mean(values) for values in shares.values()]))


@torch.no_grad()
def future_effect(lab: Lab, centroids: Centroids, top_k: int) -> Interval:
    """Effect of the second half of a text on Sinkhorn's perplexity of its first half: the leak itself.

    Causal attention gives the first half the same loss whatever follows; with Sinkhorn assignment the text that follows
    moves its groups. Differences to `causal` mix this with balancing on the text at hand; this one does not.
    """
    differences = []
    with composed(lab.model, centroids, top_k=top_k, assignment="sinkhorn"):
        for row in lab.sequences().split(1):
            half = row[:, : row.shape[1] // 2]
            alone = token_nll(lab.model, final_hidden(lab.model, half), half)
            with_future = token_nll(lab.model, final_hidden(lab.model, row)[:, : half.shape[1]], half)
            differences.append((with_future.double().mean() - alone.double().mean()).item())
    return mean_interval(differences).through(np.expm1)
