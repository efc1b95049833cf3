"""A stored run -> the compact JSON of the page: what all views share, then layer by layer."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.data.parts import PartPairs, full_layers, mean_over_heads
from focus_explorer.views.payloads import picked
from focus_explorer.views.payloads import runs as payloads
from focus_runtime.budget import budget_digest
from focus_runtime.config import setting_words
from focus_runtime.mask.rule import CAUSES
from focus_runtime.measure.intervals import moving_block_interval

Parts = Mapping[int, Sequence[PartPairs]]
Bits = NDArray[np.int64]
Floats = NDArray[np.float32]


def encode(values: NDArray[Any]) -> str:
    """Raw little-endian bytes as base64."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(np.ascontiguousarray(little).tobytes()).decode("ascii")


def config_payload(config: Mapping[str, Any]) -> payloads.ConfigPayload:
    """A configuration as JSON has it; one with a budget says what tells that from others."""
    named = {"budget_id": budget_digest(config["budget"])} if config.get("budget") else {}
    return cast(payloads.ConfigPayload, {**config, **named})


def run_payload(
    run: dict[str, Any], rows: Mapping[str, pa.Table], tops: NDArray[np.uint8], parts: Parts
) -> payloads.RunPayload:
    """What every view needs of one run, in the order layer, position; `cells` is empty, they follow layer by layer.

    `rows` are of the queries of these names, `tops` (L, T) most probable groups, `parts` by layer number its heads of
    equal settings with their pairs.
    """
    layers = rows["layers"].to_pylist()
    info = _info(run)
    nll = _losses(rows["losses"], run["num_tokens"])
    return {
        "run": info,
        "num_layers": len(layers),
        "layer_ids": [layer["layer"] for layer in layers],
        "pieces": rows["pieces"]["piece"].to_pylist(),
        "top": encode(tops),
        "groups": _groups(rows, len(layers), info["config"]["num_groups"]),
        "layers": [_layer(layer, parts[layer["layer"]]) for layer in layers],
        "full_layers": full_layers({number: [one.part for one in of] for number, of in parts.items()}),
        "losses": {"full": encode(nll["full"].astype(np.float32)), "focus": encode(nll["focus"].astype(np.float32))},
        "quality": _quality(nll),
        "timings": timing_payloads(rows["timings"]),
        "cells": {},
    }


def _info(run: dict[str, Any]) -> payloads.RunInfoPayload:
    config = json.loads(run["config"])
    return picked(
        payloads.RunInfoPayload,
        run,
        added_tokens=json.loads(run["added_tokens"] or "[]"),
        created_at=run["created_at"].isoformat(),
        config=config_payload(config),
        setting=setting_words(config),
        notes=json.loads(run["notes"]),
        changes=json.loads(run["changes"] or "[]"),
    )


def timing_payloads(rows: pa.Table) -> list[payloads.TimingPayload]:
    """Timings by mode and stage: rows of the query `timings`."""
    return [picked(payloads.TimingPayload, row) for row in rows.to_pylist()]


def membership_width(num_groups: int) -> int:
    """Bytes that hold one bit for each group."""
    return next(size for size in (1, 2, 4, 8) if size * 8 >= num_groups)


def cells_payload(
    membership: Bits, probabilities: Floats, entropy: Floats, others: Mapping[int, Bits] | None = None
) -> payloads.LayerCellsPayload:
    """What one layer adds to `run_payload`: (T,) bit sets, (T, K), and (T,) in nats, in order of position.

    `others`: (T,) bit sets of the parts of the layer's heads that have others than `membership`.
    """
    groups = probabilities.shape[1]
    largest = max(int(bits.max(initial=0)) for bits in (membership, *(others or {}).values()))
    width = membership_width(max(groups, largest.bit_length()))  # tokens linked by hand have bits beyond the groups
    share = entropy / np.log(groups) if groups > 1 else np.zeros_like(entropy)
    payload: payloads.LayerCellsPayload = {
        "width": width,
        "membership": encode(membership.astype(np.uint64).astype(f"u{width}")),
        "probabilities": encode(np.rint(probabilities * 255).astype(np.uint8)),
        "entropy": encode(np.rint(np.clip(share, 0, 1) * 255).astype(np.uint8)),
    }
    if others:
        payload["part_memberships"] = {
            str(part): encode(bits.astype(np.uint64).astype(f"u{width}")) for part, bits in others.items()
        }
    return payload


def _losses(losses: pa.Table, count: int) -> dict[str, NDArray[np.float64]]:
    modes, values = losses["mode"].to_numpy(zero_copy_only=False), losses["nll"].to_numpy()
    by_mode = {mode: values[modes == mode] for mode in ("full", "focus")}
    assert all(nll.size == count - 1 for nll in by_mode.values()), "a visible run is whole"
    return by_mode


def _quality(nll: dict[str, NDArray[np.float64]]) -> payloads.QualityPayload:
    mean, low, high = moving_block_interval(nll["focus"] - nll["full"])
    return {
        "full": float(np.exp(nll["full"].mean())),
        "focus": float(np.exp(nll["focus"].mean())),
        "scored": int(nll["full"].size),
        "delta_mean": mean,
        "delta_low": low,
        "delta_high": high,
    }


def _groups(rows: Mapping[str, pa.Table], num_layers: int, num_groups: int) -> list[list[payloads.RunGroupPayload]]:
    frequent: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for row in rows["group_pieces"].to_pylist():
        frequent.setdefault((row["layer"], row["top_group"]), []).append((row["piece"], row["uses"]))
    cells: list[payloads.RunGroupPayload] = [
        {
            "share": row["share"],
            "confidence": row["mean_confidence"],
            "tokens": frequent.get((row["layer"], row["group_index"]), []),
        }
        for row in rows["groups"].to_pylist()
    ]
    assert len(cells) == num_layers * num_groups
    return [cells[start : start + num_groups] for start in range(0, len(cells), num_groups)]


def part_payload(one: PartPairs) -> payloads.PartPayload:
    """Heads of one setting, and the pairs of one of them."""
    part = one.part
    return {
        "heads": list(part.heads),
        "query_heads": part.by_query,
        "top_k": part.top_k,
        "window": part.rule.window,
        "full": part.full,
        "retained_pairs": one.retained_pairs,
        "pairs": picked(payloads.CausesPayload, one.pairs),
    }


def _layer(row: dict[str, Any], parts: Sequence[PartPairs]) -> payloads.LayerPayload:
    by_part = [[one.pairs[cause] for cause in CAUSES] for one in parts]
    pairs = mean_over_heads(by_part, [one.part for one in parts])
    return picked(
        payloads.LayerPayload,
        row,
        pairs=picked(payloads.CausesPayload, dict(zip(CAUSES, np.asarray(pairs).tolist(), strict=True))),
        parts=[part_payload(one) for one in parts],
    )


def mask_payload(mask: pa.Table) -> payloads.MaskPayload:
    """Block counts of one layer, lower triangle row by row."""
    counts = np.stack([mask[cause].to_numpy() for cause in CAUSES])
    return {
        "block_size": mask["block_size"][0].as_py(),
        "num_blocks": mask["row_block"].to_numpy().max().item() + 1,
        "causes": list(CAUSES),
        "counts": encode(counts.astype(np.uint32)),
    }


def projection_payload(projection: pa.Table) -> payloads.MapPayload:
    """Coordinates of a stored map: of the tokens drawn, and of the centroids, which have the positions -1 ... -K."""
    first = projection.slice(0, 1).to_pylist()[0]
    position, x, y = (projection[name].to_numpy() for name in ("position", "x", "y"))
    token, centroid = position >= 0, position < 0
    return {
        "method": first["method"],
        "parameters": json.loads(first["parameters"]),
        "seed": first["seed"],
        "trustworthiness": first["trustworthiness"],
        "positions": position[token].tolist(),
        "x": np.round(x[token], 4).tolist(),
        "y": np.round(y[token], 4).tolist(),
        "centroid_x": np.round(x[centroid][::-1], 4).tolist(),
        "centroid_y": np.round(y[centroid][::-1], 4).tolist(),
        "preliminary": False,
    }


def run_card(row: dict[str, Any]) -> payloads.RunCardPayload:
    """One run of the list, as JSON values; `deleted_at` is None while it is kept."""
    deleted = row["deleted_at"]
    return picked(
        payloads.RunCardPayload,
        row,
        added_tokens=json.loads(row["added_tokens"] or "[]"),
        config=config_payload(json.loads(row["config"])),
        created_at=row["created_at"].isoformat(),
        deleted_at=deleted.isoformat() if deleted else None,
    )
