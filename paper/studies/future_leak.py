"""How much the future leaks through Sinkhorn's column sums, which run over the whole text (METHOD section 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from focus_runtime.composition.attach import compose
from focus_runtime.composition.observe import replace_assignment
from focus_runtime.measure.loss import final_hidden, token_nll
from focus_runtime.measure.perplexity import score
from focus_runtime.models.devices import input_device
from focus_runtime.routing.centroids import Centroids
from focus_runtime.routing.router import Assignment, CentroidRouter
from paper.studies.rows import Row, focus_row, full_row, variant


def assignment_leak(model: Any, centroids: Centroids, sequences: Tensor, *, top_ks: tuple[int, ...] = ()) -> list[Row]:
    """`sinkhorn` against `causal` assignment at every k.

    Args:
        model: the frozen model, Focus not composed; centroids: left as they are.
        sequences: (N, T) token ids.
        top_ks: values of k; 1 to K when empty.

    Returns:
        The row of full attention, then for every k one row for each assignment. The sinkhorn
        row also has `against_causal` (N differences in nats per token, negative where Sinkhorn is better) and
        `tokens_differing`: the share of tokens whose set of groups is another, by layer, both assignments reading the
        hidden states of the causal run.
    """
    full = score(model, sequences)
    rows = [full_row(full, sequences)]
    for top_k in top_ks or range(1, centroids.config.num_groups + 1):
        causal, sinkhorn = (
            focus_row(model, centroids, sequences, full, "given", top_k=top_k, assignment=assignment)
            for assignment in ("causal", "sinkhorn")
        )
        against = np.subtract(sinkhorn["differences"], causal["differences"]).tolist()
        differing = tokens_differing(model, centroids, sequences, top_k=top_k)
        rows += [causal, sinkhorn | {"against_causal": against, "tokens_differing": differing}]
    return rows


@torch.no_grad()
def tokens_differing(model: Any, centroids: Centroids, sequences: Tensor, *, top_k: int) -> dict[int, float]:
    """Share of tokens whose set of k groups Sinkhorn changes, by layer; hidden states are those of the causal run.

    Args:
        model, centroids, sequences: see `assignment_leak`.
        top_k: k.
    """
    chosen = variant(centroids, top_k=top_k, assignment="causal")
    shares: dict[int, list[float]] = {index: [] for index in chosen.routers}

    def compare(index: int, router: CentroidRouter, hidden: Tensor, padding: Tensor | None) -> Assignment:
        causal = router.own_assignment(hidden, padding=padding, assignment="causal")
        balanced = router.own_assignment(hidden, padding=padding, assignment="sinkhorn")
        shares[index].append((causal.membership != balanced.membership).double().mean().item())
        return causal

    focus = compose(model, chosen)
    device = input_device(model)
    try:
        with replace_assignment(chosen, compare):
            for ids in sequences.split(1):
                final_hidden(model, ids.to(device))
    finally:
        focus.detach()
    return {index: float(np.mean(share)) for index, share in shares.items() if share}


@torch.no_grad()
def future_effect(model: Any, centroids: Centroids, sequences: Tensor, *, top_ks: tuple[int, ...] = ()) -> list[Row]:
    """Effect of the second half of a text on Sinkhorn's perplexity of its first half: the leak itself.

    Causal attention gives the first half the same loss whatever follows; with Sinkhorn assignment the text that follows
    moves its groups. Differences to `causal` mix this with balancing on the text at hand; this row does not.

    Args:
        model, centroids, sequences, top_ks: see `assignment_leak`.

    Returns:
        One row for every k: perplexity of the first halves alone and with the whole text read, `differences` in nats
        per token by sequence (negative where the future helps) with their mean, and the tokens scored.
    """
    half = sequences.shape[1] // 2
    device = input_device(model)
    rows = []
    for top_k in top_ks or range(1, centroids.config.num_groups + 1):
        chosen = variant(centroids, top_k=top_k, assignment="sinkhorn")
        alone, with_future = [], []
        focus = compose(model, chosen)
        try:
            for row in sequences.to(device).split(1):
                first = row[:, :half]
                alone.append(token_nll(model, final_hidden(model, first), first).double().mean().item())
                with_future.append(token_nll(model, final_hidden(model, row)[:, :half], first).double().mean().item())
        finally:
            focus.detach()
        difference = np.subtract(with_future, alone)
        rows.append(
            {
                "setting": {"top_k": top_k, "assignment": "sinkhorn", "sequence_length": sequences.shape[1]},
                "perplexity_alone": float(np.exp(np.mean(alone))),
                "perplexity_with_future": float(np.exp(np.mean(with_future))),
                "difference_nats": float(difference.mean()),
                "differences": difference.tolist(),
                "scored_tokens": len(alone) * (half - 1),
            }
        )
    return rows
