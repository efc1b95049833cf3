"""layers: which layers should get routers; a layer without one keeps its own full attention."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from focus_runtime.measure.perplexity import score
from focus_runtime.routing.centroids import Centroids
from paper.lab import shared
from paper.lab.lab import Lab, composed
from paper.lab.shared import quality_cells, value_of
from paper.output.report import Column, Figure, Report, Row, Series
from paper.verdicts import judge

GROUPS = 8
SEQUENCES = 4  # every layer is run alone


def layers(lab: Lab) -> Report:
    trained, full = lab.trained(num_groups=GROUPS), lab.full(count=SEQUENCES)
    prices = loss_per_dropped_pair(lab, trained)
    ranking = sorted(prices, key=lambda layer: prices[layer])
    lab.log(f"layers by loss per dropped pair, best first: {ranking}")
    total = len(ranking)
    counts = sorted({max(1, round(total * share)) for share in (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)})
    shuffled = np.random.default_rng(0).permutation(ranking).tolist()
    orders = {"best first": ranking, "worst first": ranking[::-1], "random 0": shuffled}
    rows: list[Row] = []
    known: dict[tuple[int, ...], Row] = {}
    for order, layers_in_order in orders.items():
        for count in counts:
            chosen = tuple(sorted(layers_in_order[:count]))
            if chosen not in known:
                scores = lab.focus(restrict(trained, chosen), count=SEQUENCES, top_k=1)
                known[chosen] = quality_cells(full, scores)
            rows.append({"order": order, "focused_layers": count, **known[chosen]})
    middle = counts[len(counts) // 2 - 1]
    half = {row["order"]: row["relative"].value for row in rows if row["focused_layers"] == middle}
    series = [Series(order, counts, [value_of(row) for row in rows if row["order"] == order]) for order in orders]
    return Report(
        [Column("order", "layers chosen"), Column("focused_layers", "layers under Focus", 0), *shared.QUALITY],
        rows,
        lab.setting(sequences=SEQUENCES) | {"ranking, best first": ranking},
        [
            "Layers are ranked on training text by the loss that each adds on its own per pair it drops; the curve is "
            "of held-out text. Pairs kept are of the layers under Focus only."
        ],
        [
            judge(
                "layers",
                half["best first"] < 0.5 * half["worst first"],
                "; ".join(f"{order} {gap:+.2%}" for order, gap in half.items())
                + f" with {middle} of {total} layers under Focus",
            )
        ],
        Figure("line", "layers under Focus", "perplexity", series, marks={"full attention": full.perplexity}),
        {"loss per dropped pair": prices},
    )


def restrict(centroids: Centroids, chosen: Sequence[int]) -> Centroids:
    """The same centroids for some layers only."""
    config = centroids.config.replace(layers=tuple(chosen))
    return dataclasses.replace(centroids, routers={index: centroids.routers[index] for index in chosen}, config=config)


def loss_per_dropped_pair(lab: Lab, centroids: Centroids) -> dict[int, float]:
    """Nats per token that Focus in one layer alone costs on training text, over the share of its pairs it drops.

    Only layers that run Focus when all routers are composed; one alone would run in a sliding layer too.
    """
    sequences = lab.training_sequences(SEQUENCES)
    full = score(lab.model, sequences)
    with composed(lab.model, centroids, assignment="sinkhorn") as focus:
        able = focus.focused_layers
    prices = {}
    for layer in able:
        with composed(lab.model, restrict(centroids, [layer]), top_k=1) as focus:
            alone = score(focus, sequences)
        dropped = 1.0 - float(alone.retained_pairs.mean())
        loss = float(np.average(alone.nll - full.nll, weights=alone.scored))
        prices[layer] = loss / dropped if dropped > 0 else float("inf")
    return prices
