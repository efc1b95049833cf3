"""A stored run -> the numbers of its report, each with its denominator."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from focus_explorer.data.parts import full_share
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.exports.bundle.manifest import describe_measured
from focus_runtime.mask.rule import CAUSES, group_label
from focus_runtime.measure.intervals import moving_block_interval
from focus_runtime.store.database import Database

Row = dict[str, Any]
OVERALL = ("dominance", "nmi", "purity", "stability")
MOST_CATEGORIES, MOST_PIECES = 2, 7
ROUTED = "attention"


@dataclass(frozen=True, slots=True)
class RunReport:
    """The numbers of one run.

    Attributes:
        run: its row, with config, versions and notes read.
        scheme: `pos` where words were tagged, else `word`.
        overall: statistic -> its row over all layers.
        layers: rows of normalised mutual information, by layer.
        layer: the layer shown in detail, whose groups have most information on word categories.
        groups: its groups: share, categories, characteristic pieces.
        causes: rows of the table of layers.
        distances: rows over all layers.
        full_heads: share of the heads that attend fully.
        loss: full, focus and difference, each with mean, low, high.
        timings: stage -> mode -> median, low, high, repeats, values.
        settings: compared settings, if any were measured.
        mass: share of full attention the mask keeps, by layer and head, or None.
    """

    run: Row
    scheme: str
    overall: dict[str, Row]
    layers: list[Row]
    layer: int
    groups: list[Row]
    causes: list[Row]
    distances: list[Row]
    full_heads: float
    loss: dict[str, Row]
    timings: dict[str, dict[str, Row]]
    settings: list[Row]
    mass: Row | None
    measured: Row
    sample_notes: list[str]
    warnings: list[str]
    units: int

    @property
    def name(self) -> str:
        """The run's name, else the beginning of its text."""
        return str(self.run["name"] or self.run["title"])


def read_run(database: Database, run_id: str) -> RunReport:
    """The numbers of one run.

    Raises:
        NotFoundError: there is no such run.
    """
    from focus_explorer.statistics.tables import run_statistics

    run = fetch_run(database, run_id)
    run |= {name: json.loads(run[name]) for name in ("config", "versions", "notes")}
    tables = run_statistics(database, run_id)
    rows = tables.table("statistics").to_pylist()
    scheme = "pos" if any(row["category"] == "pos" for row in rows) else "word"
    overall = {}
    for row in rows:
        if row["scope"] == "run" and row["category"] in ("", scheme):
            overall[row["statistic"]] = row
    layers = [r for r in rows if r["scope"] == "layer" and r["statistic"] == "nmi" and r["category"] == scheme]
    layer = max(layers, key=lambda row: row["value"] or 0.0)["layer"]
    return RunReport(
        run=run,
        scheme=scheme,
        overall=overall,
        layers=layers,
        layer=layer,
        groups=_groups(tables, rows, layer, scheme),
        causes=fetch(database, "layers", run_id=run_id).to_pylist(),
        distances=[row for row in tables.table("distances").to_pylist() if row["layer"] is None],
        full_heads=full_share(tables.sample.parts),
        loss=_loss(database, run_id),
        timings=_timings(database, run_id),
        settings=fetch(database, "comparisons", run_id=run_id).to_pylist(),
        mass=_mass(database, run_id),
        measured=describe_measured(database, run_id),
        sample_notes=list(tables.sample.notes),
        warnings=sorted({row["warning"] for row in overall.values()} - {""}),
        units=int(rows[0]["units"]) if rows else 0,
    )


def _groups(tables: Any, rows: list[Row], layer: int, scheme: str) -> list[Row]:
    """Each group of a layer: its share, the categories it has most beyond their share of the text, and its pieces."""
    shares = {
        r["group"]: r for r in rows if r["layer"] == layer and r["statistic"] == "share" and r["scope"] == "group"
    }
    categories: dict[str, list[Row]] = {}
    for row in tables.table("categories").to_pylist():
        if row["layer"] == layer and row["scheme"] == scheme and row["share"] > row["share_of_text"]:
            categories.setdefault(row["group"], []).append(row)
    pieces: dict[str, list[Row]] = {}
    for row in tables.table("characteristic").to_pylist():
        if row["layer"] == layer and row.get("kind", "characteristic") == "characteristic":
            pieces.setdefault(row["group"], []).append(row)
    names = [group_label(number) for number in range(tables.sample.num_groups)]
    return [
        {
            "group": name,
            "share": shares.get(name),
            "categories": sorted(categories.get(name, []), key=lambda row: -row["z"])[:MOST_CATEGORIES],
            "pieces": sorted(pieces.get(name, []), key=lambda row: row["rank"])[:MOST_PIECES],
        }
        for name in names
    ]


def _loss(database: Database, run_id: str) -> dict[str, Row]:
    rows = fetch(database, "losses", run_id=run_id)
    mode, nll = rows["mode"].to_numpy(zero_copy_only=False), rows["nll"].to_numpy()
    values = {"full": nll[mode == "full"], "focus": nll[mode == "focus"]}
    values["difference"] = values["focus"] - values["full"]
    rows_by_name = {}
    for name, one in values.items():
        mean, low, high = moving_block_interval(one)
        rows_by_name[name] = {"mean": mean, "low": low, "high": high, "count": int(one.size)}
    for name in ("full", "focus"):
        rows_by_name[name] |= {
            key: None if (loss := rows_by_name[name][old]) is None else float(np.exp(loss))
            for key, old in (("perplexity", "mean"), ("perplexity_low", "low"), ("perplexity_high", "high"))
        }
    return rows_by_name


def _timings(database: Database, run_id: str) -> dict[str, dict[str, Row]]:
    stages: dict[str, dict[str, Row]] = {}
    for row in fetch(database, "timings", run_id=run_id).to_pylist():
        stages.setdefault(row["stage"], {})[row["mode"]] = row | {"values": []}
    for row in fetch(database, "timing_repeats", run_id=run_id).to_pylist():
        stages[row["stage"]][row["mode"]]["values"].append(row["milliseconds"])
    return stages


def _mass(database: Database, run_id: str) -> Row | None:
    rows = fetch(database, "attention_mass", run_id=run_id).to_pylist()
    if not rows:
        return None
    kept = [row["mass_kept"] for row in rows]
    return {
        "mean": float(np.mean(kept)),
        "low": min(kept),
        "high": max(kept),
        "tokens": rows[0]["num_tokens"],
        "layers": len({row["layer"] for row in rows}),
        "heads": len({row["head"] for row in rows}),
    }


def cause_shares(report: RunReport) -> Row:
    """Cause -> mean share of the causal pairs over layers."""
    return {cause: float(np.mean([row[cause] / row["causal_pairs"] for row in report.causes])) for cause in CAUSES}
