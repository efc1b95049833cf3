"""The rows of a run -> the Plotly figure that shows them, one function a figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from focus_explorer.data.parts import full_share, part_of, run_parts
from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.statistics.tables import run_statistics, statistics_table
from focus_explorer.usecases.budget import kept_budget
from focus_explorer.views.figures import groups, pairs, quality
from focus_explorer.views.figures.style import Preset
from focus_runtime.measure.intervals import moving_block_interval
from focus_runtime.store.database import Database

SCHEMES = ("pos", "word")  # sets of categories: a tagger's parts of speech where the run was tagged


def _rows(database: Database, run: dict[str, Any], query: str, missing: str, fix: str, **more: Any) -> pa.Table:
    rows = fetch(database, query, run_id=run["run_id"], **more)
    if not rows.num_rows:
        raise InputError(f"run {run['run_id']} has {missing}", fix=fix)
    return rows


def _group_sizes(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = fetch(database, "groups", run_id=run["run_id"])
    return groups.group_sizes_figure(rows.to_pylist(), preset)


def _map(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    assert layer is not None
    rows = _rows(
        database,
        run,
        "projection",
        f"no stored map of layer {layer}",
        f"open it on the page, or `focus-explorer figure {run['run_id']} --what map --layer {layer}` makes it",
        layer=layer,
    )
    tops = fetch(database, "tops", run_id=run["run_id"])
    tops = tops.filter(pc.equal(tops["layer"], layer))
    of_token = dict(zip(tops["position"].to_pylist(), tops["top_group"].to_pylist(), strict=True))
    pieces = fetch(database, "pieces", run_id=run["run_id"])["piece"].to_pylist()
    return groups.token_map_figure(rows.to_pylist(), of_token, pieces, layer, preset)


def draw_mask(
    database: Database, run: dict[str, Any], preset: Preset, layer: int | None, head: int | None = None
) -> go.Figure:
    """The mask of one layer; of the heads that are alike with one, or with the first, where they differ.

    Raises:
        NotFoundError: the layer has no such head.
    """
    assert layer is not None
    parts = run_parts(json.loads(run["config"]), fetch(database, "parts", run_id=run["run_id"]))[layer]
    part = part_of(parts, layer, head)
    rows = fetch(database, "mask", run_id=run["run_id"], layer=layer, part=part.number)
    return pairs.mask_figure(rows, layer, run["num_tokens"], preset, heads=part.title if len(parts) > 1 else "")


def _statistic(database: Database, run: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = statistics_table(database, run["run_id"], name).to_pylist()
    return rows


def _best_scheme(available: set[str]) -> str:
    return next(scheme for scheme in SCHEMES if scheme in available)


def _structure(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = [row for row in _statistic(database, run, "statistics") if row["scope"] == "layer"]
    scheme = _best_scheme({row["category"] for row in rows if row["statistic"] == "nmi"})
    return groups.structure_figure([row for row in rows if row["category"] == scheme], scheme, preset)


def _categories(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    assert layer is not None
    rows = [row for row in _statistic(database, run, "categories") if row["layer"] == layer]
    scheme = _best_scheme({row["scheme"] for row in rows})
    return groups.categories_figure([row for row in rows if row["scheme"] == scheme], scheme, layer, preset)


def _agreement(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = _statistic(database, run, "agreement")
    if not rows:
        raise InputError(f"run {run['run_id']} has one layer only", fix="agreement is between two layers")
    return groups.agreement_figure(rows, preset)


def _distances(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = [row for row in _statistic(database, run, "distances") if row["layer"] == layer]
    grows = json.loads(run["config"]).get("window_growth") is not None
    sample = run_statistics(database, run["run_id"]).sample
    shown = [parts for number, parts in zip(sample.layers, sample.parts, strict=True) if layer in (None, number)]
    windows = [part.rule.window for parts in shown for part in parts if not part.full]
    full = full_share(shown) > 0
    return pairs.distances_figure(rows, windows, run["num_tokens"], layer, preset, grows=grows, full=full)


def _loss(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = _rows(database, run, "loss_differences", "no losses", "analyse the text again: `focus-explorer analyze`")
    differences = rows["difference"].to_numpy()
    return quality.loss_difference_figure(
        rows["position"].to_numpy(), differences, moving_block_interval(differences), preset
    )


def _quality(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = _rows(database, run, "comparisons", "no comparisons", "measure some: `focus-explorer compare --help`")
    return quality.quality_figure(rows.to_pylist(), kept_budget(json.loads(run["config"])), preset)


def _timings(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = _rows(database, run, "timings", "no timings", "analyse the text again: `focus-explorer analyze`")
    return quality.timings_figure(rows.to_pylist(), run, preset)


def _attention(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = _rows(
        database,
        run,
        "attention_mass",
        "no measured attention",
        "measure it on the page, or analyse with `focus-explorer analyze --attention`",
    )
    kept = fetch(database, "layers", run_id=run["run_id"])
    share_kept = dict(zip(kept["layer"].to_pylist(), kept["retained_pairs"].to_pylist(), strict=True))
    return pairs.attention_figure(rows.to_pylist(), share_kept, preset)


DRAWING: dict[str, Callable[[Database, dict[str, Any], Preset, int | None], go.Figure]] = {
    "group_sizes": _group_sizes,
    "map": _map,
    "mask": draw_mask,
    "structure": _structure,
    "categories": _categories,
    "agreement": _agreement,
    "distances": _distances,
    "loss": _loss,
    "quality": _quality,
    "timings": _timings,
    "attention": _attention,
}
