"""Pairs and attention of a run -> compact JSON for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.data.parts import Part, mean_over_heads
from focus_explorer.views.payloads import picked
from focus_explorer.views.payloads import statistics as payloads
from focus_explorer.views.payloads.comparisons import ChangedPairsPayload
from focus_explorer.views.run import encode
from focus_runtime.mask.distances import DistanceCounts, mean_of_some
from focus_runtime.mask.rule import CAUSES

DIGITS = 6


def tile_payload(
    counts: NDArray[np.int64], rows: tuple[int, int], keys: tuple[int, int], block_size: int
) -> payloads.MaskTilePayload:
    """Counts of a rectangle, (5, R, C) by cause, row and column of cells, in the fewest bytes that hold a full cell."""
    kind = np.min_scalar_type(block_size * block_size)
    return {
        "block_size": block_size,
        "rows": rows,
        "keys": keys,
        "num_rows": counts.shape[1],
        "num_columns": counts.shape[2],
        "causes": list(CAUSES),
        "bytes": kind.itemsize,
        "counts": encode(counts.astype(kind)),
    }


def mean_counts(counts: Sequence[DistanceCounts], parts: Sequence[Part]) -> DistanceCounts:
    """Pairs by distance of a layer, mean over the parts of its heads; whole numbers where they do not differ."""
    if len(parts) == 1:
        return counts[0]
    means, weights = ("counts", "shuffled", "window_only"), [part.weight for part in parts]
    sharing = [one.sharing for one in counts if one.distant_kept is not None]
    having = [part for one, part in zip(counts, parts, strict=True) if one.distant_kept is not None]
    return replace(
        counts[0],
        distant_kept=mean_of_some([one.distant_kept for one in counts], weights),
        sharing=float(mean_over_heads(sharing or [one.sharing for one in counts], having or parts)),
        **{name: mean_over_heads([getattr(one, name) for one in counts], parts) for name in means},
    )


def distance_payload(counts: DistanceCounts) -> payloads.DistancePayload:
    """Pairs of one layer by distance: counts by cause, and the shares of the baselines."""
    return {
        "first": counts.first.tolist(),
        "last": counts.last.tolist(),
        "causes": list(CAUSES),
        "counts": counts.counts.tolist(),
        "sharing": counts.sharing,
        "beyond": [counts.distant_kept],
        "shuffled": _rounded(counts.shuffled),
        "window_only": _rounded(counts.window_only),
    }


def mean_payload(layers: list[DistanceCounts]) -> payloads.DistanceMeanPayload:
    """Shares by distance, mean over layers, with the least and most of any layer; baselines of every layer."""
    pairs = np.rint(layers[0].counts.sum(axis=0)).astype(np.int64)
    shares = np.stack([layer.counts / pairs for layer in layers])
    kept = 1.0 - shares[:, CAUSES.index("dropped")]
    weights = pairs / pairs.sum()
    return {
        "first": layers[0].first.tolist(),
        "last": layers[0].last.tolist(),
        "causes": list(CAUSES),
        "pairs": pairs.tolist(),
        "layers": len(layers),
        "shares": [_rounded(row) for row in shares.mean(axis=0)],
        "kept_least": _rounded(kept.min(axis=0)),
        "kept_most": _rounded(kept.max(axis=0)),
        "shuffled": _rounded(np.mean([layer.shuffled for layer in layers], axis=0)),
        "window_only": _rounded(np.mean([layer.window_only for layer in layers], axis=0)),
        "sharing": [layer.sharing for layer in layers],
        "beyond": [layer.distant_kept for layer in layers],
        "layer_shuffled": [float(layer.shuffled @ weights) for layer in layers],
        "layer_window_only": [float(layer.window_only @ weights) for layer in layers],
    }


def mass_payload(rows: pa.Table, sharing: list[float]) -> payloads.AttentionMassPayload:
    """Share of full attention kept, layers x heads; `sharing`: by layer, what shuffled groups keep of the distant."""
    layers = np.unique(rows["layer"].to_numpy())

    def grid(name: str) -> list[list[Any]]:
        values = rows[name].to_pylist()
        heads = len(values) // layers.size
        return [values[start : start + heads] for start in range(0, len(values), heads)]

    grids = {name: grid(name) for name in payloads.AttentionMassPayload.__annotations__ if name in rows.column_names}
    tokens = rows["num_tokens"][0].as_py()
    return picked(payloads.AttentionMassPayload, grids, state="done", num_tokens=tokens, sharing=sharing)


def links_payload(rows: pa.Table) -> payloads.AttentionLinksPayload:
    """Strongest links by kind, strongest first: head, query, key, probability, affinity."""
    columns = ["head", "query", "key", "probability", "affinity"]
    kinds: dict[str, list[Any]] = {"dropped": [], "kept": []}
    for row in rows.to_pylist():
        kinds[row["kind"]].append(tuple(row[name] for name in columns))
    return {"columns": columns, "dropped": kinds["dropped"], "kept": kinds["kept"]}


def _rounded(values: NDArray[np.float64]) -> list[float]:
    rounded: list[float] = np.round(values, DIGITS).tolist()
    return rounded


def changed_pairs(layer: int, size: int, counts: NDArray[np.float64], num_tokens: int) -> ChangedPairsPayload:
    """Pairs that one layer gains and loses; `counts` of (2, N, N) blocks, means over heads."""
    rows = np.minimum(size, num_tokens - size * np.arange(counts.shape[1]))
    pairs = np.outer(rows, rows)
    np.fill_diagonal(pairs, rows * (rows + 1) // 2)
    lower = np.tril_indices(counts.shape[1])
    gained, lost = ((one / pairs)[lower].astype(np.float32) for one in counts)
    return {
        "layer": layer,
        "num_tokens": num_tokens,
        "block_size": size,
        "gained": float(counts[0].sum()),
        "lost": float(counts[1].sum()),
        "gained_shares": encode(gained),
        "lost_shares": encode(lost),
    }
