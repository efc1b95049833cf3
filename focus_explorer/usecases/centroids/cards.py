"""Centroid files as cards: training, similarity of the groups, balance in the runs that used them, differences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.usecases.budget import BudgetRecord, read_record, record_payload
from focus_explorer.usecases.centroids.files import (
    balanced_on,
    centroid_row,
    domain_names,
    every_centroid_file,
    load_row,
)
from focus_explorer.usecases.service import Latest, Service
from focus_explorer.views.payloads import centroids as payloads
from focus_explorer.views.payloads import picked
from focus_explorer.views.payloads.runs import SettingValue
from focus_runtime.config import FocusConfig

Floats = NDArray[np.float64]
RANDOM_SEED = 0


@dataclass(frozen=True, slots=True)
class LayerCentroids:
    """(K, d_g) centroids of a layer, and the (K, d) hidden states that score highest with each: projection times
    centroid.
    """

    centroids: Floats
    directions: Floats


def cosines(a: Floats, b: Floats) -> Floats:
    """(Ka, Kb) cosines of the rows of (Ka, d) and (Kb, d); a zero vector has cosine 0 to all."""
    unit_a, unit_b = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (a, b))
    products: Floats = unit_a @ unit_b.T
    return products


def _match(a: Floats, b: Floats) -> list[tuple[int, int, float]]:
    from scipy.optimize import linear_sum_assignment

    distance = 1.0 - cosines(a, b)
    rows, columns = linear_sum_assignment(distance)
    return [(int(i), int(j), float(distance[i, j])) for i, j in zip(rows, columns, strict=True)]


def match_layers(a: LayerCentroids, b: LayerCentroids, rng: np.random.Generator) -> payloads.LayerMatch:
    """Match the groups of one layer of two files (Hungarian method) by 1 - cosine of their directions.

    `null` is the same against untrained random centroids; `unmatched` are the groups of each file without a partner.
    """
    pairs = _match(a.directions, b.directions)
    groups, width = b.directions.shape
    rank = b.centroids.shape[1]
    random = rng.standard_normal((groups, rank)) @ rng.standard_normal((rank, width))
    null = [distance for _, _, distance in _match(a.directions, random)]
    distances = [distance for _, _, distance in pairs]
    taken_a, taken_b = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    return {
        "pairs": [(i, j, round(distance, 4)) for i, j, distance in pairs],
        "mean": round(float(np.mean(distances)), 4),
        "worst": round(max(distances), 4),
        "null": round(float(np.mean(null)), 4),
        "unmatched": (
            [i for i in range(len(a.directions)) if i not in taken_a],
            [j for j in range(groups) if j not in taken_b],
        ),
    }


MOST_CACHED = 24
CARD = ("name", "sha256", "base_model", "num_groups", "routing_dim", "layers")  # of a file's row
FACTS = (
    *("texts", "domains", "balanced", "loss", "learn", "hard_steps", "training_tokens", "tokens_seen", "steps"),
    *("seq_len", "batch", "learning_rate", "train_window", "dtype", "seed", "seconds", "random_seed"),
)
HELD_OUT_VALUES = tuple(payloads.HeldOutSettingPayload.__annotations__)


@dataclass(frozen=True, slots=True)
class _File:
    """What is read of a file: its free-form training, its layers by number, and the budgets measured for it."""

    training: dict[str, Any]
    layers: dict[int, LayerCentroids]
    record: BudgetRecord | None


@dataclass(slots=True)
class CentroidCards:
    """Files of one service; those read last are kept, since a file's hash never changes its content."""

    LARGE: ClassVar[bool] = True  # see `VisitorService.part`

    service: Service
    _kept: Latest[str, _File] = field(default_factory=lambda: Latest(MOST_CACHED))

    def cards(self) -> list[payloads.CentroidCardPayload]:
        """Every shipped and uploaded file; one that cannot be read any more has `problem` in place of its details."""
        database = self.service.database
        with database.read():  # once: opening the file takes longer than the reads
            uses = {row["centroids_sha256"]: row["runs"] for row in fetch(database, "centroid_runs").to_pylist()}
            rows = every_centroid_file(database)
        return [self._card(row, uses.get(row["sha256"], 0)) for row in rows]

    def _card(self, row: dict[str, Any], runs: int) -> payloads.CentroidCardPayload:
        card: payloads.CentroidCardPayload = {
            **{name: row[name] for name in CARD},  # type: ignore[typeddict-item]
            "config": json.loads(row["config"]),
            "added": row["uploaded_at"].isoformat() if row.get("uploaded_at") else None,
            "owner": row.get("owner"),
            "runs": runs,
        }
        try:
            read = self._read(row)
        except InputError as error:
            card["problem"] = str(error)
        else:
            card["training"] = _facts(read.training)
            card["held_out"] = held_out_payload(read.training.get("validation"))
            card["budget_held_out"] = 0 if read.record is None else len(read.record.held_out)
        return card

    def detail(self, sha256: str) -> payloads.CentroidDetailPayload:
        """(K, K) cosines of the centroids in every layer; the runs that used the file, newest first; its budgets."""
        row = centroid_row(self.service.database, sha256)
        read = self._read(row)
        budget = FocusConfig.from_json(row["config"]).budget
        similar: list[payloads.SimilarityPayload] = [
            {"layer": number, "similarity": np.round(cosines(layer.centroids, layer.centroids), 3).tolist()}
            for number, layer in read.layers.items()
        ]
        return {
            "sha256": sha256,
            "name": row["name"],
            "layers": similar,
            "runs": self._runs(sha256, row["num_groups"]),
            "budgets": None if read.record is None else record_payload(read.record, budget),
        }

    def trained_on(self, run_id: str) -> payloads.TrainedOnPayload:
        """What a run's file says it was trained on; empty if it is not here, or says nothing."""
        sha256 = fetch_run(self.service.database, run_id)["centroids_sha256"]
        try:
            read = self._read(centroid_row(self.service.database, sha256))
        except InputError:  # removed, moved or damaged: its runs are shown all the same
            return {"texts": []}
        facts = _facts(read.training)
        texts = facts.get("domains") or facts.get("texts") or []
        names = texts if isinstance(texts, list) else [str(texts)]
        return {"texts": [name.rsplit("/", 1)[-1] for name in names]}

    def _runs(self, sha256: str, num_groups: int) -> list[payloads.CentroidRunPayload]:
        runs: dict[str, payloads.CentroidRunPayload] = {}
        for row in fetch(self.service.database, "centroid_uses", sha256=sha256).to_pylist():
            run = runs.setdefault(
                row["run_id"],
                picked(payloads.CentroidRunPayload, row, created_at=row["created_at"].isoformat(), layers=[]),
            )
            shares = [0.0] * num_groups
            for group, tokens in zip(row["groups"], row["tokens"], strict=True):
                shares[group] = round(tokens / row["num_tokens"], 5)
            run["layers"].append(
                {
                    "layer": row["layer"],
                    "dominance": row["dominance"],
                    "balance": round(balance(row["tokens"], num_groups), 4),
                    "shares": shares,
                }
            )
        return list(runs.values())

    def compare(self, first: str, second: str) -> payloads.CentroidChangesPayload:
        """What changed between two files: settings that differ, and the distance of the groups in every layer.

        Every training numbers groups anew, so those of a layer are matched; see `match_layers`. `problem` says why
        layers cannot be compared.
        """
        if first == second:
            raise InputError("both sides are the same file", expected="two different files")
        rows = [centroid_row(self.service.database, sha256) for sha256 in (first, second)]
        files = [self._read(row) for row in rows]
        a, b = (file.layers for file in files)
        result: payloads.CentroidChangesPayload = {
            "names": (rows[0]["name"], rows[1]["name"]),
            "problem": "",
            "layers": [],
            "settings": _differences(rows, [file.training for file in files]),
        }
        shared = [number for number in a if number in b]
        widths = {layer.directions.shape[1] for layers in (a, b) for layer in layers.values()}
        if len(widths) > 1:
            result["problem"] = "the files read hidden states of different widths, so they are for different models"
        elif not shared:
            result["problem"] = "the files have no layer in common"
        else:
            rng = np.random.default_rng(RANDOM_SEED)
            result["layers"] = [{"layer": number, **match_layers(a[number], b[number], rng)} for number in shared]
        return result

    def _read(self, row: dict[str, Any]) -> _File:
        kept = self._kept.get(row["sha256"])
        if kept is not None:
            return kept
        loaded = load_row(row)
        layers = {}
        for number, router in sorted(loaded.routers.items()):
            centroids = router.centroids.detach().double().numpy()
            layers[number] = LayerCentroids(centroids, centroids @ router.projection.detach().double().numpy().T)
        record = read_record(loaded.training, FocusConfig.from_json(row["config"]), layers)
        return self._kept.keep(row["sha256"], _File(loaded.training, layers, record))


def balance(sizes: Sequence[int], num_groups: int) -> float:
    """Entropy of the group sizes over that of even groups: 1 for even ones or a single group, 0 when one has every
    token.
    """
    if num_groups == 1:
        return 1.0
    shares = np.array([size for size in sizes if size > 0], dtype=np.float64)
    shares /= shares.sum()
    return float(-(shares * np.log(shares)).sum() / np.log(num_groups)) + 0.0


def _facts(training: dict[str, Any]) -> dict[str, payloads.Fact]:
    """Facts of the training; the file's own record is free-form, so only plain values are taken."""
    facts: dict[str, payloads.Fact] = {}
    for key in FACTS:
        value = training.get(key)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            facts[key] = value if not isinstance(value, str) else value[:200]
        elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            facts[key] = [item[:200] for item in value[:20]]
    for key, names in (("domains", domain_names(training)), ("balanced", balanced_on(training))):
        if names:
            facts[key] = [name[:200] for name in names[:20]]
    return facts


def held_out_payload(record: Any) -> payloads.HeldOutPayload | None:
    """The held-out perplexities a training wrote into its file, if it did."""
    if not isinstance(record, dict) or not _is_number(record.get("full")):
        return None
    focus: dict[str, payloads.HeldOutSettingPayload] = {}
    for name, value in record.items():
        if isinstance(value, dict) and _is_number(value.get("perplexity")):
            measured = {key: float(value[key]) for key in HELD_OUT_VALUES if _is_number(value.get(key))}
            focus[str(name)[:40]] = cast(payloads.HeldOutSettingPayload, measured)
    scored = int(record["scored_tokens"]) if _is_number(record.get("scored_tokens")) else None
    return {"full": float(record["full"]), "scored": scored, "focus": focus}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _differences(
    rows: list[dict[str, Any]], trainings: list[dict[str, Any]]
) -> list[tuple[str, SettingValue, SettingValue]]:
    sides = []
    for row, training in zip(rows, trainings, strict=True):
        facts = {
            name: ", ".join(value) if isinstance(value, list) else value for name, value in _facts(training).items()
        }
        sides.append({"base_model": row["base_model"], **json.loads(row["config"]), **facts})
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    return [
        (name, sides[0].get(name), sides[1].get(name)) for name in names if sides[0].get(name) != sides[1].get(name)
    ]
