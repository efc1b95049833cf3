"""Figures of a run for papers: PDF, SVG and PNG in the width of a column, and HTML that works without a network."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa

from focus_explorer.data.corpus import CorpusData
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.exports.figures.render import picture
from focus_explorer.exports.figures.standalone import page
from focus_explorer.exports.tables.sources import as_run, provenance
from focus_explorer.statistics import mean_interval
from focus_explorer.statistics.tables import statistics_table, study
from focus_explorer.views.figures import (
    agreement,
    attention,
    categories,
    distances,
    group_sizes,
    loss_difference,
    mask,
    quality,
    structure,
    timings,
    token_map,
)
from focus_explorer.views.figures.style import PRESETS, SCREEN, Preset
from focus_runtime.files import replacing
from focus_runtime.store.corpora import corpus_row
from focus_runtime.store.database import Database

__all__ = ["FIGURES", "FIGURE_FORMATS", "LAYERED", "PRESETS", "figure", "write_figure"]

FIGURE_FORMATS = ("pdf", "svg", "png", "html")
FIGURES: dict[str, str] = {
    "group_sizes": "Size of the groups by layer.",
    "map": "Map of one layer's tokens by group, with centroids and trustworthiness.",
    "mask": "Executed mask of one layer in blocks, by what keeps or drops the pairs.",
    "structure": "Purity and mutual information of groups and word categories by layer, with baselines.",
    "categories": "Share of word categories in each group of one layer, beside the whole text.",
    "agreement": "How far every two layers sort the tokens alike.",
    "distances": "Pairs kept by distance, with baselines; of one layer or the mean over layers.",
    "loss": "Loss with Focus minus loss with full attention along the text.",
    "quality": "Loss difference against pairs kept, over the settings the run was compared at.",
    "timings": "Time by stage, full attention beside Focus, with the range over repeats.",
    "attention": "Share of full attention that the executed mask keeps, by layer and cause.",
}
LAYERED = ("map", "mask", "categories")  # of one layer, the middle one when none is named
EITHER = ("distances",)  # of one layer, or of all when none is named
OF_CORPUS = ("structure", "categories", "agreement", "distances")
SCHEMES = ("pos", "word")  # sets of categories: a tagger's parts of speech where the run was tagged


def figure(
    database: Database, run_id: str, name: str, *, preset: str = "column", layer: int | None = None
) -> go.Figure:
    """One of `FIGURES` as a Plotly figure at its final size; title, caption and provenance are in `layout.meta`.

    Args:
        preset: one of `PRESETS`, or `screen`.
        layer: of the figures in `LAYERED`, the middle one when None; of those in `EITHER`, all when None.

    Raises:
        InputError: unknown run, figure, preset or layer, or what it shows was not measured yet.
    """
    if name not in FIGURES:
        raise InputError(f"there is no figure {name!r}", expected=" or ".join(FIGURES))
    sizes = {**PRESETS, "screen": SCREEN}
    if preset not in sizes:
        raise InputError(f"there is no preset {preset!r}", expected=" or ".join(sizes))
    corpus = corpus_row(database, run_id)
    if corpus is not None and name not in OF_CORPUS:
        raise InputError(f"there is no figure {name!r} of a corpus", expected=" or ".join(OF_CORPUS))
    run = fetch_run(database, run_id) if corpus is None else _corpus_as_run(database, corpus)
    if name in LAYERED or (name in EITHER and layer is not None):
        layer = checked_layer(database, run_id, layer)
    elif layer is not None and name not in EITHER:
        raise InputError(f"the figure {name} shows all layers", fix=f"a layer is for {', '.join(LAYERED + EITHER)}")
    drawn = _DRAWN[name](database, run, sizes[preset], layer)
    known = provenance(run) | {"figure": name} | ({} if layer is None else {"layer": str(layer)})
    drawn.layout.meta = {**drawn.layout.meta, "setting": _setting(run), "provenance": known}
    return drawn


def write_figure(
    database: Database,
    run_id: str,
    name: str,
    file_format: str,
    out: str | Path,
    *,
    preset: str = "column",
    layer: int | None = None,
) -> Path:
    """Write a figure atomically; several in one `render.open_browser()` start the browser once.

    HTML is for the screen and takes no preset's size.

    Raises:
        InputError: as `figure`; or unknown format, no Chrome or Chromium, or the file cannot be written.
    """
    if file_format not in FIGURE_FORMATS:
        raise InputError(f"there is no figure format {file_format!r}", expected=" or ".join(FIGURE_FORMATS))
    drawn = figure(database, run_id, name, preset="screen" if file_format == "html" else preset, layer=layer)
    data = page(drawn).encode() if file_format == "html" else picture(drawn, file_format)
    target = Path(os.path.expanduser(out))
    with replacing(target) as part:
        part.write_bytes(data)
    return target


def checked_layer(database: Database, run_id: str, layer: int | None) -> int:
    """The layer that was asked for, or the middle one, where the page opens a run."""
    if corpus_row(database, run_id) is not None:
        layers = study(database, run_id).sample.layers
    else:
        layers = fetch(database, "layer_numbers", run_id=run_id)["layer"].to_pylist()
    if layer is None:
        return layers[len(layers) // 2]
    if layer not in layers:
        raise NotFoundError(f"run {run_id!r} has no layer {layer}", expected=f"{layers[0]} to {layers[-1]}")
    return layer


def _corpus_as_run(database: Database, corpus: dict[str, Any]) -> dict[str, Any]:
    found = CorpusData(database, corpus["corpus_id"])
    lengths = found.documents().to_pylist()
    longest = max(row["num_tokens"] for row in lengths)  # no pair reaches beyond its document
    where = {name: ", ".join(sorted({row[name] for row in lengths})) for name in ("device", "dtype")}
    return as_run(corpus) | {"num_tokens": longest} | where


def _setting(run: dict[str, Any]) -> str:
    config = json.loads(run["config"])
    return (
        f"{run['model_id']}, centroids {run['centroids_name']}, K={config['num_groups']}, k={config['top_k']}, window "
        f"{config['window']}, {config['num_sinks']} sinks, {config['assignment']} assignment, {run['dtype']} on "
        f"{run['device']}"
    )


def _rows(database: Database, run: dict[str, Any], query: str, missing: str, fix: str, **more: Any) -> pa.Table:
    rows = fetch(database, query, run_id=run["run_id"], **more)
    if not rows.num_rows:
        raise InputError(f"run {run['run_id']} has {missing}", fix=fix)
    return rows


def _group_sizes(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = fetch(database, "groups", run_id=run["run_id"])
    return group_sizes.group_sizes_figure(rows.to_pylist(), preset)


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
    tops = tops.filter(pa.compute.equal(tops["layer"], layer))
    groups = dict(zip(tops["position"].to_pylist(), tops["top_group"].to_pylist(), strict=True))
    pieces = fetch(database, "pieces", run_id=run["run_id"])["piece"].to_pylist()
    return token_map.token_map_figure(rows.to_pylist(), groups, pieces, layer, preset)


def _mask(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    assert layer is not None
    rows = fetch(database, "mask", run_id=run["run_id"], layer=layer)
    return mask.mask_figure(rows, layer, run["num_tokens"], preset)


def _statistic(database: Database, run: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = statistics_table(database, run["run_id"], name).to_pylist()
    return found


def _best_scheme(known: set[str]) -> str:
    return next(scheme for scheme in SCHEMES if scheme in known)


def _structure(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = [row for row in _statistic(database, run, "statistics") if row["scope"] == "layer"]
    scheme = _best_scheme({row["category"] for row in rows if row["statistic"] == "nmi"})
    return structure.structure_figure([row for row in rows if row["category"] == scheme], scheme, preset)


def _categories(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    assert layer is not None
    rows = [row for row in _statistic(database, run, "categories") if row["layer"] == layer]
    scheme = _best_scheme({row["scheme"] for row in rows})
    return categories.categories_figure([row for row in rows if row["scheme"] == scheme], scheme, layer, preset)


def _agreement(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = _statistic(database, run, "agreement")
    if not rows:
        raise InputError(f"run {run['run_id']} has one layer only", fix="agreement is between two layers")
    return agreement.agreement_figure(rows, preset)


def _distances(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = [row for row in _statistic(database, run, "distances") if row["layer"] == layer]
    window = json.loads(run["config"])["window"]
    return distances.distances_figure(rows, window, run["num_tokens"], layer, preset)


def _loss(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = _rows(database, run, "loss_differences", "no losses", "analyse the text again: `focus-explorer analyze`")
    differences = rows["difference"].to_numpy()
    return loss_difference.loss_difference_figure(
        rows["position"].to_numpy(), differences, mean_interval(differences), preset
    )


def _quality(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = _rows(database, run, "comparisons", "no comparisons", "measure some: `focus-explorer compare --help`")
    return quality.quality_figure(rows.to_pylist(), preset)


def _timings(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = _rows(database, run, "timings", "no timings", "analyse the text again: `focus-explorer analyze`")
    return timings.timings_figure(rows.to_pylist(), run, preset)


def _attention(database: Database, run: dict[str, Any], preset: Preset, layer: int | None) -> go.Figure:
    rows = _rows(
        database,
        run,
        "attention_mass",
        "no measured attention",
        "measure it on the page, or analyse with `focus-explorer analyze --attention`",
    )
    kept = fetch(database, "layers", run_id=run["run_id"])
    pairs = dict(zip(kept["layer"].to_pylist(), kept["retained_pairs"].to_pylist(), strict=True))
    return attention.attention_figure(rows.to_pylist(), pairs, preset)


_DRAWN: dict[str, Callable[[Database, dict[str, Any], Preset, int | None], go.Figure]] = {
    "group_sizes": _group_sizes,
    "map": _map,
    "mask": _mask,
    "structure": _structure,
    "categories": _categories,
    "agreement": _agreement,
    "distances": _distances,
    "loss": _loss,
    "quality": _quality,
    "timings": _timings,
    "attention": _attention,
}
