"""The numbers of a report, each with its denominator, and how they are written: with unit, interval and sign."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from focus_explorer.data.parts import full_share
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.exports.bundle.manifest import describe_measured
from focus_explorer.statistics.describe import STATISTICS
from focus_runtime.mask.rule import CAUSES, group_label
from focus_runtime.measure.intervals import moving_block_interval
from focus_runtime.store.database import Database

Row = dict[str, Any]
OVERALL = [name for name, declared in STATISTICS.items() if declared.reported]
MOST_CATEGORIES, MOST_PIECES = 2, 7


@dataclass(frozen=True, slots=True)
class RunReport:
    """The numbers of one run."""

    run: Row  # its row, with config, versions and notes read
    scheme: str  # `pos` where words were tagged, else `word`
    overall: dict[str, Row]  # statistic -> its row over all layers
    layers: list[Row]
    layer: int  # the layer shown in detail, whose groups have most information on word categories
    groups: list[Row]
    causes: list[Row]
    distances: list[Row]
    full_heads: float  # share of the heads that attend fully
    loss: dict[str, Row]  # full, focus and difference, each with mean, low, high
    timings: dict[str, dict[str, Row]]  # stage -> mode -> median, low, high, repeats, values
    settings: list[Row]
    mass: Row | None  # share of full attention that the mask keeps. None: not measured
    measured: Row
    sample_notes: list[str]
    units: int

    @property
    def name(self) -> str:
        """The run's name, else the beginning of its text."""
        return str(self.run["name"] or self.run["title"])


def read_run(database: Database, run_id: str) -> RunReport:
    from focus_explorer.statistics.tables import run_statistics

    run = fetch_run(database, run_id)
    run |= {name: json.loads(run[name]) for name in ("config", "versions", "notes")}
    tables = run_statistics(database, run_id)
    rows = tables.table("statistics").to_pylist()
    scheme = "pos" if any(row["category"] == "pos" for row in rows) else "word"
    overall = {row["statistic"]: row for row in rows if row["scope"] == "run" and row["category"] in ("", scheme)}
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
        units=int(rows[0]["units"]) if rows else 0,
    )


def _groups(tables: Any, rows: list[Row], layer: int, scheme: str) -> list[Row]:
    """Each group of a layer: its share, the categories it has most beyond their share of the text, and its pieces."""
    groups: dict[str, Row] = {
        group_label(number): {"group": group_label(number), "share": None, "categories": [], "pieces": []}
        for number in range(tables.sample.num_groups)
    }
    for row in rows:
        if row["layer"] == layer and row["statistic"] == "share" and row["scope"] == "group":
            groups[row["group"]]["share"] = row
    for row in tables.table("categories").to_pylist():
        if row["layer"] == layer and row["scheme"] == scheme and row["share"] > row["share_of_text"]:
            groups[row["group"]]["categories"].append(row)
    for row in tables.table("characteristic").to_pylist():
        if row["layer"] == layer and row.get("kind", "characteristic") == "characteristic":
            groups[row["group"]]["pieces"].append(row)
    for group in groups.values():
        group["categories"] = sorted(group["categories"], key=lambda row: -row["z"])[:MOST_CATEGORIES]
        group["pieces"] = sorted(group["pieces"], key=lambda row: row["rank"])[:MOST_PIECES]
    return list(groups.values())


def _loss(database: Database, run_id: str) -> dict[str, Row]:
    rows = fetch(database, "losses", run_id=run_id)
    mode, nll = rows["mode"].to_numpy(zero_copy_only=False), rows["nll"].to_numpy()
    values = {"full": nll[mode == "full"], "focus": nll[mode == "focus"]}
    values["difference"] = values["focus"] - values["full"]
    found = {}
    for name, one in values.items():
        interval = dict(zip(("mean", "low", "high"), moving_block_interval(one), strict=True))
        found[name] = {**interval, "count": int(one.size)}
        if name != "difference":
            for key, loss in interval.items():
                perplexity = None if loss is None else float(np.exp(loss))
                found[name]["perplexity" if key == "mean" else f"perplexity_{key}"] = perplexity
    return found


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


DASH = "–"
PARTS_OF_SPEECH = {
    "ADJ": "adjective",
    "ADP": "preposition",
    "ADV": "adverb",
    "AUX": "auxiliary verb",
    "CCONJ": "conjunction",
    "DET": "determiner",
    "INTJ": "interjection",
    "NOUN": "noun",
    "NUM": "number",
    "PART": "particle",
    "PRON": "pronoun",
    "PROPN": "name",
    "PUNCT": "punctuation",
    "SCONJ": "subordinating conjunction",
    "SYM": "symbol",
    "VERB": "verb",
    "X": "other",
    "SPACE": "space",
}


def count(value: float | None) -> str:
    """1,234."""
    return DASH if value is None else f"{value:,.0f}"


def percent(value: float | None, digits: int = 1) -> str:
    """12.3%."""
    return DASH if value is None else f"{value:.{digits}%}"


def number(value: float | None, digits: int = 3) -> str:
    """0.123, with a real minus sign."""
    return DASH if value is None else _minus(f"{value:.{digits}f}")


def signed(value: float | None, digits: int = 3) -> str:
    """+0.123."""
    return DASH if value is None else _minus(f"{value:+.{digits}f}")


def signed_percent(value: float, digits: int = 2) -> str:
    """+1.23%."""
    return _minus(f"{value:+.{digits}%}")


def between(low: float | None, high: float | None, digits: int = 3, *, share: bool = False, sign: bool = False) -> str:
    """0.10 to 0.20, or in percent; "" without both ends. With `sign` a plus in front of positive numbers."""
    if low is None or high is None:
        return ""
    if share:
        return f"{low:.{digits}%} to {high:.{digits}%}"
    return " to ".join((signed if sign else number)(value, digits) for value in (low, high))


def milliseconds(value: float) -> str:
    """With one decimal below 100."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def category(tag: str) -> str:
    """A part of speech in words; other categories as they are."""
    return PARTS_OF_SPEECH.get(tag, tag)


def piece(text: str) -> str:
    """A token on one line: spaces in front as they are, breaks as an arrow."""
    shown = text.replace("\n", "↵").replace("\t", "⇥").replace("\r", "")
    return shown if shown.strip() else shown.replace(" ", "␣")


FILTERS = (count, percent, number, signed, signed_percent, between, milliseconds, category, piece)  # of the template


def speed(stage: str, full: Row, focus: Row) -> str:
    """Which mode is faster at one stage; undecided where the repeats overlap."""
    ratio = focus["median"] / full["median"]
    if full["repeats"] < 2 or focus["repeats"] < 2:
        return f"{stage}: {ratio:.2f} times full attention’s time, measured once each, so this says little."
    if focus["high"] < full["low"]:
        return f"{stage}: Focus is faster, {full['median'] / focus['median']:.2f} times as fast by medians."
    if focus["low"] > full["high"]:
        return f"{stage}: Focus is slower, taking {ratio:.2f} times as long by medians."
    return f"{stage}: the repeats overlap, so neither is called faster ({ratio:.2f} times full attention’s time)."


def loss(difference: Row) -> str:
    """The conclusion that a loss difference and its interval allow."""
    if difference["low"] is None or difference["high"] is None:
        return "One scored token has no interval: this text does not tell the two apart."
    if difference["low"] > 0:
        return "Focus predicts this text worse than full attention does."
    if difference["high"] < 0:
        return "Focus predicts this text better than full attention does."
    return "The interval includes zero: this text does not tell the two apart."


def warm_up(devices: Collection[str]) -> str:
    """What comes before the timed passes, by the devices that were timed."""
    from focus_runtime.measure.timing import WARM_UP_TOKENS

    gpu = any("cuda" in device for device in devices)
    on_cpu = [device.startswith("cpu") for device in devices]
    beginning, whole = f"its first {WARM_UP_TOKENS} tokens", "all of it"
    read = beginning if all(on_cpu) else f"{beginning} (on a GPU all of it)" if any(on_cpu) else whole
    stages = " Attention layers alone are timed on a GPU in another pass just before." if gpu else ""
    return f"one pass of each over {read} to warm up.{stages}"


def learned(gain: Row, trained: bool) -> str:
    """What an advantage over random centroids, `gain`, allows to conclude; its ends are None without an interval."""
    if gain["low"] is None or gain["high"] is None:
        return "whether that is more than chance cannot be told without one."
    if not trained:
        return "this run’s centroids are random ones too, so a difference is that of two draws."
    if gain["low"] > 0:
        return "training found categories beyond those the model’s hidden states show by themselves."
    if gain["high"] < 0:
        return "less than untrained centroids find."
    return "not clearly more than untrained centroids find."


def joined(words: list[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def _minus(text: str) -> str:
    return text.replace("-", "−")
