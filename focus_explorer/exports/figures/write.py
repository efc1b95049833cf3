"""Figures of a run for papers: PDF, SVG and PNG in the width of a column, and HTML that works without a network."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.exports.tables.sources import as_run, provenance
from focus_explorer.usecases.runs import layer_numbers
from focus_explorer.views.figures.style import PRESETS, SCREEN
from focus_runtime.config import setting_words
from focus_runtime.files import replacing
from focus_runtime.store.corpora import corpus_row
from focus_runtime.store.database import Database

if TYPE_CHECKING:
    import plotly.graph_objects as go

FIGURE_FORMATS = ("pdf", "svg", "png", "html")
FIGURES: dict[str, str] = {
    "group_sizes": "Size of the groups by layer.",
    "map": "Map of one layer's tokens by group, with centroids and trustworthiness.",
    "mask": "Executed mask of one layer in blocks, by what keeps or drops the pairs.",
    "structure": "Purity and mutual information of groups and word categories by layer, with baselines.",
    "categories": "Share of word categories in each group of one layer, and in the whole text.",
    "agreement": "How far every two layers sort the tokens alike.",
    "distances": "Pairs kept by distance, with baselines; of one layer or the mean over layers.",
    "loss": "Loss with Focus minus loss with full attention along the text.",
    "quality": "Loss difference against pairs kept, over the settings the run was compared at.",
    "timings": "Time by stage, full attention and Focus, with the range over repeats.",
    "attention": "Share of full attention that the executed mask keeps, by layer and cause.",
}
LAYERED = ("map", "mask", "categories")  # of one layer, the middle one when none is named
EITHER = ("distances",)  # of one layer, or of all when none is named
OF_CORPUS = ("structure", "categories", "agreement", "distances")


def figure(
    database: Database,
    run_id: str,
    name: str,
    *,
    preset: str = "column",
    layer: int | None = None,
    head: int | None = None,
) -> go.Figure:
    """One of `FIGURES` as a Plotly figure at its final size; title, caption and provenance are in `layout.meta`.

    Args:
        preset: one of `PRESETS`, or `screen`.
        layer: of the figures in `LAYERED`, the middle one when None; of those in `EITHER`, all when None.
        head: of a mask whose heads differ: key-value head, or query head where those of a key-value head differ; the
            first when None.
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
    if head is not None and name != "mask":
        raise InputError(f"the figure {name} is not of one head", fix="leave the head out; it is for the mask")
    from focus_explorer.exports.figures.draw import DRAWING, Drawn

    drawn = DRAWING[name](Drawn(database, run, sizes[preset], layer, head))
    places = {"layer": layer, "head": head}
    source = provenance(run) | {"figure": name} | {key: str(at) for key, at in places.items() if at is not None}
    words = setting_words(json.loads(run["config"]))
    setting = f"{run['model_id']}, centroids {run['centroids_name']}, {words}, {run['dtype']} on {run['device']}"
    drawn.layout.meta = {**drawn.layout.meta, "setting": setting, "provenance": source}
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
    head: int | None = None,
) -> Path:
    """Write a figure of `figure` atomically; HTML is for the screen and has its own size."""
    if file_format not in FIGURE_FORMATS:
        raise InputError(f"there is no figure format {file_format!r}", expected=" or ".join(FIGURE_FORMATS))
    from focus_explorer.exports.figures.render import page, picture

    on_screen = file_format == "html"
    drawn = figure(database, run_id, name, preset="screen" if on_screen else preset, layer=layer, head=head)
    data = page(drawn).encode() if on_screen else picture(drawn, file_format)
    target = Path(os.path.expanduser(out))
    with replacing(target) as part:
        part.write_bytes(data)
    return target


def checked_layer(database: Database, run_id: str, layer: int | None) -> int:
    """The requested layer of a run or corpus; the middle one, where the page opens a run, when None."""
    if corpus_row(database, run_id) is not None:
        from focus_explorer.statistics.tables import run_statistics

        layers = run_statistics(database, run_id).sample.layers
    else:
        layers = layer_numbers(database, run_id)
    if layer is None:
        return layers[len(layers) // 2]
    if layer not in layers:
        raise NotFoundError(f"run {run_id!r} has no layer {layer}", expected=f"{layers[0]} to {layers[-1]}")
    return layer


def _corpus_as_run(database: Database, corpus: dict[str, Any]) -> dict[str, Any]:
    from focus_explorer.data.corpus import CorpusData

    documents = CorpusData(database, corpus["corpus_id"]).documents().to_pylist()
    longest = max(row["num_tokens"] for row in documents)  # no pair reaches beyond its document
    where = {name: ", ".join(sorted({row[name] for row in documents})) for name in ("device", "dtype")}
    return as_run(corpus) | {"num_tokens": longest} | where
