"""The most characteristic and the most frequent pieces of every group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.statistics.sample import Sample
from focus_explorer.statistics.significance import corrected_p_values, two_sided_p_values
from focus_runtime.mask.rule import group_label
from focus_runtime.measure.contingency import contingency, log_odds

CHARACTERISTIC, FREQUENT = 12, 12
LEAST_USES, MOST_Q = 2, 0.05


@dataclass(frozen=True, slots=True)
class StandingOut:
    """How far V pieces stand out in K groups of a layer, all (K, V).

    Attributes:
        z: log-odds with an informative prior, in standard errors.
        p_values, q_values: two-sided of z; corrected over all pieces and groups.
        strong: z of the pieces that stand out: used more often than elsewhere, `LEAST_USES` times or more, with a false
            discovery rate of `MOST_Q`; 0 for the others.
    """

    z: NDArray[np.float64]
    p_values: NDArray[np.float64]
    q_values: NDArray[np.float64]
    strong: NDArray[np.float64]


def prior_tokens(num_tokens: int, num_groups: int) -> float:
    """Tokens that the prior weighs: a group of even size."""
    return num_tokens / num_groups


def standing_out(uses: NDArray[np.int64]) -> StandingOut:
    """Which pieces stand out in which group.

    Args:
        uses: (K, V) uses of each piece in each group.
    """
    z = log_odds(uses, prior_size=prior_tokens(int(uses.sum()), uses.shape[0]))
    p_values = two_sided_p_values(z)
    q_values = corrected_p_values(p_values)
    strong = np.where((uses >= LEAST_USES) & (z > 0) & (q_values <= MOST_Q), z, 0.0)
    return StandingOut(z, p_values, q_values, strong)


def characteristic_table(sample: Sample) -> pa.Table:
    """The most characteristic and the most frequent pieces of every group.

    `kind` is `characteristic` (log-odds with an informative prior significantly above 0, false discovery rate 5 %
    within the layer) or `frequent`; `z` is in standard errors, `p_value` two-sided of z, `q_value` corrected over
    all pieces and groups of the layer; `uses` in the group, `uses_in_text` in all.
    """
    rows: list[dict[str, Any]] = []
    shape = (sample.num_groups, len(sample.pieces))
    everywhere = np.bincount(sample.piece, minlength=shape[1])
    for place, layer in enumerate(sample.layers):
        uses = contingency(sample.focus.tops[place], sample.piece, shape)
        found = standing_out(uses)
        for group in range(sample.num_groups):
            here = uses[group]
            for kind, order in (
                ("characteristic", strongest(found.strong[group], CHARACTERISTIC)),
                ("frequent", strongest(here, FREQUENT)),
            ):
                rows += [
                    {
                        "layer": layer,
                        "group": group_label(group),
                        "kind": kind,
                        "rank": rank + 1,
                        "piece": sample.pieces[piece],
                        "uses": int(here[piece]),
                        "uses_in_text": int(everywhere[piece]),
                        "z": float(found.z[group, piece]),
                        "p_value": float(found.p_values[group, piece]),
                        "q_value": float(found.q_values[group, piece]),
                    }
                    for rank, piece in enumerate(order)
                ]
    kinds = {"layer": pa.int32(), "rank": pa.int32(), "uses": pa.int64(), "uses_in_text": pa.int64()}
    names = ("layer", "group", "kind", "rank", "piece", "uses", "uses_in_text", "z", "p_value", "q_value")
    text = ("group", "kind", "piece")
    schema = pa.schema([(name, pa.string() if name in text else kinds.get(name, pa.float64())) for name in names])
    return pa.Table.from_pylist(rows, schema=schema)


def strongest(scores: NDArray[Any], limit: int) -> list[int]:
    """Places of the largest scores above 0, largest first."""
    order = np.argsort(-scores, kind="stable")[:limit]
    return [int(place) for place in order if scores[place] > 0]
