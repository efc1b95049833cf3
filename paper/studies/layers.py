"""Which layers should get routers: each alone, chosen greedily, and perplexity against their number.

A layer without a router keeps its own full attention. What a layer costs is the nats per token it loses; what it gives
is the pairs it drops, counted in layers: 0.5 when half of one layer's pairs go. Layers are ranked by loss per dropped
pair.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError
from focus_runtime.measure.perplexity import Scores, score
from focus_runtime.models.structure import attention_modules
from focus_runtime.routing.centroids import Centroids
from paper.studies.rows import Row, focus_row, full_row


def restrict(centroids: Centroids, layers: Iterable[int]) -> Centroids:
    """The same centroids for some layers only.

    Raises:
        InputError: no layer, or one without a router.
    """
    chosen = sorted(set(layers))
    missing = [layer for layer in chosen if layer not in centroids.routers]
    if missing or not chosen:
        raise InputError(
            f"layer {missing[0]} has no router in these centroids" if missing else "no layer was chosen",
            expected="some of " + ", ".join(map(str, sorted(centroids.routers))),
        )
    config = centroids.config.replace(layers=tuple(chosen))
    return dataclasses.replace(centroids, routers={index: centroids.routers[index] for index in chosen}, config=config)


def layers_alone(model: Any, centroids: Centroids, sequences: Tensor, **settings: Any) -> list[Row]:
    """Focus in one layer at a time: what it loses there.

    Args:
        model: the frozen model, Focus not composed; centroids: left as they are.
        sequences: (N, T) token ids.
        settings: settings of `FocusConfig` that differ from the centroids' own, such as top_k.

    Returns:
        The row of full attention, then one row for each layer that would run Focus, best first, with `layers`,
        `dropped_layers` (pairs dropped, in layers) and `loss_per_dropped_pair` (nats per token over `dropped_layers`).
    """
    full = score(model, sequences)
    rows = [_subset_row(model, centroids, sequences, full, [layer], settings) for layer in _able(model, centroids)]
    return [full_row(full, sequences), *sorted(rows, key=lambda row: row["loss_per_dropped_pair"])]


def _able(model: Any, centroids: Centroids) -> list[int]:
    """Layers that run Focus when all routers are composed; one alone would run in a sliding layer too."""
    focus = compose(model, centroids, assignment="sinkhorn")
    try:
        return focus.focused_layers
    finally:
        focus.detach()


def greedy_layers(
    model: Any,
    centroids: Centroids,
    sequences: Tensor,
    *,
    steps: int | None = None,
    candidates: int | None = None,
    **settings: Any,
) -> list[Row]:
    """Add layers one by one, each time the one that adds least loss per dropped pair to those chosen already.

    Args:
        model, centroids, sequences, settings: see `layers_alone`.
        steps: layers to choose, all when None.
        candidates: look at only so many layers a step, the best ones alone among those left; all when None.

    Returns:
        The row of full attention, then one row for every step with `layers` in the order of choice, `added` (the last)
        and `added_loss_per_dropped_pair`. At most L(L-1)/2 evaluations after the L of `layers_alone`.

    Raises:
        InputError: steps or candidates is below 1.
    """
    for name, value in (("steps", steps), ("candidates", candidates)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}", expected="at least 1, or None for all")
    full = score(model, sequences)
    alone = layers_alone(model, centroids, sequences, **settings)[1:]
    order = [row["layers"][0] for row in alone]
    last = {**alone[0], "added": order[0], "added_loss_per_dropped_pair": alone[0]["loss_per_dropped_pair"]}
    rows = [full_row(full, sequences), last]
    while len(last["layers"]) < min(steps or len(order), len(order)):
        remaining = [layer for layer in order if layer not in last["layers"]][:candidates]
        tried = [
            _subset_row(model, centroids, sequences, full, [*last["layers"], layer], settings) for layer in remaining
        ]
        prices = [_price(row, last) for row in tried]
        best = prices.index(min(prices))
        last = {**tried[best], "added": remaining[best], "added_loss_per_dropped_pair": prices[best]}
        rows.append(last)
    return rows


def _price(row: Row, before: Row) -> float:
    """Nats per token lost per pair dropped, of what was added to an earlier choice."""
    dropped = row["dropped_layers"] - before["dropped_layers"]
    return (row["difference_nats"] - before["difference_nats"]) / dropped if dropped > 0 else float("inf")


def layer_curve(
    model: Any,
    centroids: Centroids,
    sequences: Tensor,
    ranking: Sequence[int],
    *,
    counts: Sequence[int] = (),
    seeds: Sequence[int] = (0, 1, 2),
    **settings: Any,
) -> list[Row]:
    """Perplexity against the number of focused layers: the ranking best first, worst first, and in random order.

    Args:
        model, centroids, sequences, settings: see `layers_alone`.
        ranking: layers, best first, for instance the `layers` of the last row of `greedy_layers`.
        counts: numbers of focused layers; every number when empty.
        seeds: of the random orders.

    Returns:
        The row of full attention, then one row for each order ("best first", "worst first", "random 0", ...) and count.

    Raises:
        InputError: a count is not between 1 and the number of layers ranked.
    """
    for count in counts:
        if not 1 <= count <= len(ranking):
            raise InputError(f"counts has {count}", expected=f"numbers between 1 and {len(ranking)}")
    orders = {"best first": list(ranking), "worst first": list(reversed(ranking))}
    orders |= {f"random {seed}": np.random.default_rng(seed).permutation(ranking).tolist() for seed in seeds}
    full = score(model, sequences)
    rows, known = [full_row(full, sequences)], dict[tuple[int, ...], Row]()
    for name, order in orders.items():
        for count in counts or range(1, len(ranking) + 1):
            key = tuple(sorted(order[:count]))
            if key not in known:
                known[key] = _subset_row(model, centroids, sequences, full, order[:count], settings)
            rows.append({**known[key], "layers": order[:count], "order": name, "count": count})
    return rows


def _subset_row(
    model: Any, centroids: Centroids, sequences: Tensor, full: Scores, layers: Sequence[int], settings: dict[str, Any]
) -> Row:
    """A row for Focus in some layers; shares over the whole model count a layer without Focus as keeping all."""
    row = focus_row(model, restrict(centroids, layers), sequences, full, "given", **settings)
    total, focused = len(attention_modules(model)), row["setting"]["focused_layers"]
    dropped, distant = focused * (1.0 - row["retained_pairs"]), row["distant_kept"]
    return {
        **row,
        "layers": list(layers),
        "retained_pairs_of_model": 1.0 - dropped / total,
        "dropped_layers": dropped,
        "distant_kept_of_model": None if distant is None else 1.0 - focused * (1.0 - distant) / total,
        "loss_per_dropped_pair": row["difference_nats"] / dropped if dropped > 0 else float("inf"),
    }
