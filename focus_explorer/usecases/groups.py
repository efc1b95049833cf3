"""A stored run -> what the Groups tab shows of all its layers, in one answer: switching layers needs no request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.parts import placed
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.statistics.agreement import layer_agreement, shuffled_agreement
from focus_explorer.statistics.groups import DRAWS, MOST_Q, group_flags, shuffled_group_purity, standing_out, strongest
from focus_explorer.views.payloads.statistics import GroupPayload, GroupsPayload, LayerAgreementPayload
from focus_explorer.views.run import encode
from focus_runtime.measure.contingency import contingency, group_purity
from focus_runtime.store.database import Database
from focus_runtime.text.tagging import CLASSES, class_numbers

SEED = 0
CHARACTERISTIC = 6
KEPT_RUNS = 4

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Routes:
    """The groups of a run's T tokens in its L layers: (L, T) most probable groups, (T,) classes (numbers of `CLASSES`),
    V different pieces and (T,) numbers of them.
    """

    layers: list[int]
    num_groups: int
    tops: NDArray[np.uint8]
    classes: NDArray[np.uint8]
    pieces: list[str]
    codes: NDArray[np.int64]


@lru_cache(maxsize=KEPT_RUNS)  # a stored run never changes
def read_routes(database: Database, run_id: str) -> Routes:
    """Read a run's most probable groups and classify its words."""
    run = fetch_run(database, run_id)
    rows = fetch(database, "tops", run_id=run_id)
    numbers = np.unique(rows["layer"].to_numpy())
    tops = placed(rows, numbers, run["num_tokens"], "top_group")
    pieces = fetch(database, "tokens", run_id=run_id)["piece"].to_pylist()
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(piece, len(known)) for piece in pieces], dtype=np.int64)
    classes = class_numbers(pieces)
    groups = json.loads(run["config"])["num_groups"]
    return Routes(numbers.tolist(), groups, tops, classes, list(known), codes)


def group_payload(database: Database, run_id: str) -> GroupsPayload:
    """Every group of every layer, L x K rows."""
    routes = read_routes(database, run_id)
    stored = fetch(database, "groups", run_id=run_id).to_pylist()
    measured = fetch(database, "attention_mass", run_id=run_id)
    by_layer = measured.group_by("layer").aggregate([("mass_kept", "mean")])  # over heads; empty until measured
    mass = dict(zip(by_layer["layer"].to_pylist(), by_layer["mass_kept_mean"].to_pylist(), strict=True))
    base = np.bincount(routes.classes, minlength=len(CLASSES)) / len(routes.classes)
    groups = [
        [row | {"attention_mass": mass.get(layer)} for row in _layer_rows(routes, place, base)]
        for place, layer in enumerate(routes.layers)
    ]
    for row in stored:
        cell = groups[routes.layers.index(row["layer"])][row["group_index"]]
        cell |= {"confidence": row["mean_confidence"], "entropy": row["mean_entropy"]}
    return {
        "groups": cast(list[list[GroupPayload]], groups),
        "class_names": list(CLASSES),
        "class_shares": np.round(base, 5).tolist(),
        "classes": encode(routes.classes),
        "seed": SEED,
        "draws": DRAWS,
        "prior_size": len(routes.classes) / routes.num_groups,
        "most_q": MOST_Q,
        "attention_tokens": measured["num_tokens"][0].as_py() if mass else None,
        "attention_heads": len(measured["head"].unique()) if mass else None,
    }


def _layer_rows(routes: Routes, place: int, base: NDArray[np.float64]) -> list[Row]:
    """Size, flags, word classes, purity with its baseline and characteristic pieces of one layer's groups."""
    top, groups = routes.tops[place], routes.num_groups
    by_class = contingency(top, routes.classes, (groups, len(CLASSES)))
    by_piece = contingency(top, routes.codes, (groups, len(routes.pieces)))
    pure, (null_mean, null_high) = group_purity(by_class), shuffled_group_purity(by_class, seed=SEED)
    scores = standing_out(by_piece).strong
    sizes = by_class.sum(axis=1)
    rows = []
    for group, marks in enumerate(group_flags(sizes)):
        size, best = int(sizes[group]), int(by_class[group].argmax())
        rows.append(
            {
                "tokens": size,
                "share": size / len(top),
                "balance": size * groups / len(top),
                "flags": marks,
                "classes": by_class[group].tolist(),
                "top_class": best if size else None,
                "purity": float(pure[group]) if size else None,
                "base_rate": float(base[best]) if size else None,
                "null_mean": float(null_mean[group]) if size else None,
                "null_high": float(null_high[group]) if size else None,
                "characteristic": [  # piece, z and uses, strongest first
                    (routes.pieces[i], round(float(scores[group, i]), 1), int(by_piece[group, i]))
                    for i in strongest(scores[group], CHARACTERISTIC)
                ],
            }
        )
    return rows


def agreement_payload(database: Database, run_id: str) -> LayerAgreementPayload:
    """Adjusted Rand indices of every two layers, L x L, and `shuffled` ones; None for a single layer."""
    routes = read_routes(database, run_id)
    shuffled = shuffled_agreement(routes.tops, routes.num_groups, seed=SEED)
    return {
        "agreement": np.round(layer_agreement(routes.tops, routes.num_groups), 4).tolist(),
        "shuffled": (float(shuffled.min()), float(shuffled.max())) if shuffled.size else None,
        "pairs": int(shuffled.size),
        "seed": SEED,
    }
