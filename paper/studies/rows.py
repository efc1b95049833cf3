"""One row of an analysis: a setting, its perplexity, and the dominance and sparsity it was reached at."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
from torch import Tensor

from focus_runtime.composition.attach import compose
from focus_runtime.measure.perplexity import Scores, score
from focus_runtime.routing.centroids import Centroids, has_no_groups

Row = dict[str, Any]
SHOWN = ("num_groups", "top_k", "window", "num_sinks", "assignment", "temperature", "sinkhorn_iterations")


def variant(centroids: Centroids, **settings: Any) -> Centroids:
    """A copy with some settings of `FocusConfig` changed, also those that `compose` does not take, such as temperature.

    Composing writes its settings into the routers, so the copy has routers of its own.

    Raises:
        ConfigError: a setting is unknown or out of range.
    """
    routers = {index: copy.deepcopy(router) for index, router in centroids.routers.items()}
    config = centroids.config.replace(**settings)
    for router in routers.values():
        router.config = config
    return dataclasses.replace(centroids, routers=routers, config=config)


def full_row(full: Scores, sequences: Tensor) -> Row:
    """The row of full attention, with the same keys as `focus_row`'s."""
    return {
        "setting": {"centroids": "full attention", "sequence_length": sequences.shape[1]},
        **_measured(full, full),
        "dominance_mean": None,
        "dominance_max": None,
        "retained_pairs": 1.0,
        "distant_kept": 1.0,
    }


def focus_row(model: Any, centroids: Centroids, sequences: Tensor, full: Scores, name: str, **settings: Any) -> Row:
    """Score one setting on (N, T) sequences.

    Args:
        model: the frozen model, Focus not composed.
        centroids: left as they are.
        full: what `score(model, sequences)` gave for full attention.
        name: what to call the centroids in the row.
        settings: settings of `FocusConfig` that differ from the centroids' own.

    Returns:
        setting, perplexity, difference_nats (mean over scored tokens), differences (N nats per token, one per
        sequence, for intervals), scored_tokens, dominance_mean and dominance_max over focused layers (None without
        groups), retained_pairs and distant_kept, means over focused layers (distant_kept None without such pairs).
    """
    chosen = variant(centroids, **settings)
    focus = compose(model, chosen)
    try:
        scores = score(focus, sequences)
        layers = len(focus.focused_layers)
    finally:
        focus.detach()
    grouped = not has_no_groups(centroids)
    shown = {key: getattr(chosen.config, key) for key in SHOWN}
    return {
        "setting": {"centroids": name, "sequence_length": sequences.shape[1], "focused_layers": layers, **shown},
        **_measured(scores, full),
        "dominance_mean": float(scores.dominance.mean()) if grouped else None,
        "dominance_max": float(scores.dominance.max()) if grouped else None,
        "retained_pairs": float(scores.retained_pairs.mean()),
        "distant_kept": scores.mean_distant_kept,
    }


def _measured(scores: Scores, full: Scores) -> Row:
    difference = scores.nll - full.nll
    return {
        "perplexity": scores.perplexity,
        "difference_nats": float(np.average(difference, weights=scores.scored)),
        "differences": difference.tolist(),
        "scored_tokens": int(scores.scored.sum()),
    }


def gap_recovered(null: Row, focus: Row, full: float) -> float | None:
    """Share of the perplexity gap between a null and full attention that Focus closes.

    Args:
        null, focus: rows of a null and of Focus.
        full: perplexity of full attention.

    Returns:
        (null - Focus) / (null - full), or None where the null is no worse than full attention.
    """
    gap = null["perplexity"] - full
    return (null["perplexity"] - focus["perplexity"]) / gap if gap > 0 else None
