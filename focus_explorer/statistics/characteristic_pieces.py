"""The most characteristic and the most frequent pieces of every group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.statistics.sample import Sample
from focus_explorer.statistics.significance import corrected_p_values, two_sided_p_values
from focus_runtime.mask.group_labels import group_label
from focus_runtime.measure.contingency import contingency, log_odds

CHARACTERISTIC, FREQUENT = 12, 12
LEAST_USES, MOST_Q = 2, 0.05


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
        scores = log_odds(uses, prior_size=sample.num_tokens / sample.num_groups)
        values = two_sided_p_values(scores)
        corrected = corrected_p_values(values)
        for group in range(sample.num_groups):
            z, here = scores[group], uses[group]
            strong = np.where((here >= LEAST_USES) & (z > 0) & (corrected[group] <= MOST_Q), z, 0.0)
            for kind, order in (
                ("characteristic", _best(strong, CHARACTERISTIC)),
                ("frequent", _best(here, FREQUENT)),
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
                        "z": float(z[piece]),
                        "p_value": float(values[group, piece]),
                        "q_value": float(corrected[group, piece]),
                    }
                    for rank, piece in enumerate(order)
                ]
    kinds = {"layer": pa.int32(), "rank": pa.int32(), "uses": pa.int64(), "uses_in_text": pa.int64()}
    names = ("layer", "group", "kind", "rank", "piece", "uses", "uses_in_text", "z", "p_value", "q_value")
    text = ("group", "kind", "piece")
    schema = pa.schema([(name, pa.string() if name in text else kinds.get(name, pa.float64())) for name in names])
    return pa.Table.from_pylist(rows, schema=schema)


def _best(scores: NDArray[Any], limit: int) -> list[int]:
    order = np.argsort(-scores, kind="stable")[:limit]
    return [int(place) for place in order if scores[place] > 0]
