"""The rows of a run -> the Plotly figure that shows them, one function a figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn of a run, given by its row, and in which size; `layer` of figures that show one."""

    database: Database
    run: dict[str, Any]
    preset: Preset
    layer: int | None
    head: int | None

    def rows(self, query: str, **more: Any) -> pa.Table:
        return fetch(self.database, query, run_id=self.run["run_id"], **more)

    def measured(self, query: str, missing: str, fix: str, **more: Any) -> pa.Table:
        """The rows of a named query, of which there must be some."""
        rows = self.rows(query, **more)
        if not rows.num_rows:
            raise InputError(f"run {self.run['run_id']} has {missing}", fix=fix)
        return rows

    def statistic(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = statistics_table(self.database, self.run["run_id"], name).to_pylist()
        return rows

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self.run["config"])
        return config


def _group_sizes(of: Drawn) -> go.Figure:
    rows = of.rows("groups")
    return groups.group_sizes_figure(rows.to_pylist(), of.preset)


def _map(of: Drawn) -> go.Figure:
    assert of.layer is not None
    rows = of.measured(
        "projection",
        f"no stored map of layer {of.layer}",
        f"open it on the page, or `focus-explorer figure {of.run['run_id']} --what map --layer {of.layer}` makes it",
        layer=of.layer,
    )
    tops = of.rows("tops")
    tops = tops.filter(pc.equal(tops["layer"], of.layer))
    of_token = dict(zip(tops["position"].to_pylist(), tops["top_group"].to_pylist(), strict=True))
    pieces = of.rows("pieces")["piece"].to_pylist()
    return groups.token_map_figure(rows.to_pylist(), of_token, pieces, of.layer, of.preset)


def _mask(of: Drawn) -> go.Figure:
    """The mask of the chosen head and of those with its setting; of the first head where none is chosen."""
    assert of.layer is not None
    parts = run_parts(of.config, of.rows("parts"))[of.layer]
    part = part_of(parts, of.layer, of.head)
    rows = of.rows("mask", layer=of.layer, part=part.number)
    return pairs.mask_figure(
        rows, of.layer, of.run["num_tokens"], of.preset, heads=part.title if len(parts) > 1 else ""
    )


def _best_scheme(available: set[str]) -> str:
    return next(scheme for scheme in SCHEMES if scheme in available)


def _structure(of: Drawn) -> go.Figure:
    rows = [row for row in of.statistic("statistics") if row["scope"] == "layer"]
    scheme = _best_scheme({row["category"] for row in rows if row["statistic"] == "nmi"})
    return groups.structure_figure([row for row in rows if row["category"] == scheme], scheme, of.preset)


def _categories(of: Drawn) -> go.Figure:
    assert of.layer is not None
    rows = [row for row in of.statistic("categories") if row["layer"] == of.layer]
    scheme = _best_scheme({row["scheme"] for row in rows})
    return groups.categories_figure([row for row in rows if row["scheme"] == scheme], scheme, of.layer, of.preset)


def _agreement(of: Drawn) -> go.Figure:
    rows = of.statistic("agreement")
    if not rows:
        raise InputError(f"run {of.run['run_id']} has one layer only", fix="agreement is between two layers")
    return groups.agreement_figure(rows, of.preset)


def _distances(of: Drawn) -> go.Figure:
    rows = [row for row in of.statistic("distances") if row["layer"] == of.layer]
    grows = of.config.get("window_growth") is not None
    sample = run_statistics(of.database, of.run["run_id"]).sample
    shown = [parts for number, parts in zip(sample.layers, sample.parts, strict=True) if of.layer in (None, number)]
    windows = [part.rule.window for parts in shown for part in parts if not part.full]
    full = full_share(shown) > 0
    return pairs.distances_figure(rows, windows, of.run["num_tokens"], of.layer, of.preset, grows=grows, full=full)


def _loss(of: Drawn) -> go.Figure:
    rows = of.measured("loss_differences", "no losses", "analyse the text again: `focus-explorer analyze`")
    differences = rows["difference"].to_numpy()
    return quality.loss_difference_figure(
        rows["position"].to_numpy(), differences, moving_block_interval(differences), of.preset
    )


def _quality(of: Drawn) -> go.Figure:
    rows = of.measured("comparisons", "no comparisons", "measure some: `focus-explorer compare --help`")
    return quality.quality_figure(rows.to_pylist(), kept_budget(of.config), of.preset)


def _timings(of: Drawn) -> go.Figure:
    rows = of.measured("timings", "no timings", "analyse the text again: `focus-explorer analyze`")
    return quality.timings_figure(rows.to_pylist(), of.run, of.preset)


def _attention(of: Drawn) -> go.Figure:
    rows = of.measured(
        "attention_mass",
        "no measured attention",
        "measure it on the page, or analyse with `focus-explorer analyze --attention`",
    )
    kept = of.rows("layers")
    share_kept = dict(zip(kept["layer"].to_pylist(), kept["retained_pairs"].to_pylist(), strict=True))
    return pairs.attention_figure(rows.to_pylist(), share_kept, of.preset)


DRAWING: dict[str, Callable[[Drawn], go.Figure]] = {
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
