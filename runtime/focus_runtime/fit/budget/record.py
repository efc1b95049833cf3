"""A search as it is kept: its measurements while it runs, and the record in the centroid file it ends with."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from torch import Tensor

from focus_runtime.budget import HeadCounts, HeadSetting, read_budget
from focus_runtime.composition.attach import FocusModel
from focus_runtime.errors import ConfigError, TrainingError
from focus_runtime.files import cannot_write, replacing
from focus_runtime.fit.budget.costs import Costs
from focus_runtime.fit.budget.meter import Budget, BudgetMeter, Measured
from focus_runtime.fit.budget.search import Progress, Search, Target, pareto
from focus_runtime.measure.perplexity import compare, score

OTHER_SEARCH = "delete the file, or choose another --out"


def save_progress(path: Path, identity: Mapping[str, Any], progress: Progress) -> None:
    """Write the measurements of an unfinished search.

    Args:
        path: of the file.
        identity: what they were measured on.
        progress: with the measurements.

    Raises:
        TrainingError: it cannot be written; an older file is left as it was.
    """
    rows = [
        {
            "budget": to_json(measured.budget),
            "nll": measured.nll.tolist(),
            "loss": measured.loss,
            "pairs": measured.retained_pairs,
        }
        for measured in progress.known.values()
    ]
    explain, costs = cannot_write("choose a writable folder", TrainingError), progress.costs
    if costs is not None:
        with replacing(_costs_path(path), explain=explain) as part, part.open("wb") as file:
            np.savez(file, products=costs.products, pairs=costs.pairs, sequences=costs.sequences)
    content: dict[str, Any] = {"identity": dict(identity), "measured": rows, "costs": None}
    if costs is not None:
        content["costs"] = {
            "layers": list(costs.layers),
            "counts": list(costs.counts),
            "by_query": costs.by_query,
            "settings": [dataclasses.asdict(setting) for setting in costs.settings],
        }
    with replacing(path, explain=explain) as part:
        part.write_text(json.dumps(content) + "\n", encoding="utf-8")


def load_progress(path: Path, identity: Mapping[str, Any], progress: Progress) -> None:
    """Read the measurements of an unfinished search.

    Args:
        path: from `save_progress`.
        identity: what they must have been measured on.
        progress: takes the measurements.

    Raises:
        TrainingError: it cannot be read, or is of another search.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        same = content["identity"] == json.loads(json.dumps(dict(identity)))
        rows = [
            Measured(
                read_budget(row["budget"]),
                np.array(row["nll"], dtype=np.float64),
                float(row["loss"]),
                float(row["pairs"]),
            )
            for row in content["measured"]
        ]
        costs = _read_costs(path, content["costs"]) if same else None
    except (OSError, ValueError, KeyError, TypeError, ConfigError, BadZipFile) as error:
        raise TrainingError(f"{path} cannot be read: {error}", fix=OTHER_SEARCH) from error
    if not same:
        raise TrainingError(
            f"{path} is of a search with another model, text, centroids or settings",
            expected="the same as before",
            fix=OTHER_SEARCH,
        )
    progress.known |= {row.budget: row for row in rows}
    progress.costs = costs


def _read_costs(path: Path, about: dict[str, Any] | None) -> Costs | None:
    if about is None:
        return None
    with np.load(_costs_path(path)) as arrays:
        return Costs(
            tuple(about["layers"]),
            HeadCounts(*about["counts"]),
            bool(about["by_query"]),
            tuple(HeadSetting(**setting) for setting in about["settings"]),
            arrays["products"],
            arrays["pairs"],
            int(arrays["sequences"]),
        )


def forget_progress(path: Path) -> None:
    """Remove what `save_progress` wrote.

    Args:
        path: of the file.
    """
    path.unlink(missing_ok=True)
    _costs_path(path).unlink(missing_ok=True)


def _costs_path(path: Path) -> Path:
    return path.with_suffix(".npz")


def to_json(budget: Budget) -> list[dict[str, Any]]:
    """A budget as JSON values."""
    return [entry.to_dict() for entry in budget]


def verify(
    focus: FocusModel, budgets: Sequence[Budget], sequences: Mapping[str, Tensor]
) -> list[dict[str, dict[str, Any]]]:
    """Budgets on text that the search has not seen, by domain, with intervals over sequences.

    Args:
        focus: the composition that was searched.
        budgets: each of the composition while it is scored.
        sequences: (N, T) token ids by domain.

    Returns:
        For each budget, by domain what `compare` gives.
    """
    found: list[dict[str, dict[str, Any]]] = [{} for _ in budgets]
    for name, ids in sequences.items():
        with focus.full_attention():
            full = score(focus.model, ids)
        for budget, rows in zip(budgets, found, strict=True):
            with focus.with_config(focus.config.replace(budget=budget)):
                rows[name] = compare(full, score(focus, ids))
    return found


def summary(
    meter: BudgetMeter, result: Search, target: Target, held_out: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """What a centroid file says of its budget, JSON-ready.

    Args:
        meter: the search's.
        result: of the search.
        target: of the search.
        held_out: from `verify`.
    """

    def point(measured: Measured) -> dict[str, Any]:
        return {
            "budget": to_json(measured.budget),
            "retained_pairs": measured.retained_pairs,
            "excess": meter.excess(measured),
            "estimated_divergence": result.estimated.get(measured.budget),
        }

    # the one the file gets need not be among them: the target is of the worst domain, not of the mean
    best = {measured.budget: measured for measured in [*pareto(result.points), result.offered]}
    points = sorted(best.values(), key=lambda measured: measured.retained_pairs)
    kept = ("relative_difference", "full_perplexity", "focus_perplexity", "retained_pairs", "distant_kept")
    more = ("sequences", "tokens", "p_value")
    return {
        "target": {"loss": target.loss} if target.loss is not None else {"pairs": target.pairs},
        "met": result.chosen is not None,
        "calibration": {name: meter.domains.count(name) for name in dict.fromkeys(meter.domains)},
        "pairs_counted_at": meter.counted_at,
        "without_budget": point(meter.base),
        "points": [point(measured) for measured in points],
        "held_out": {name: {key: row[key] for key in (*kept, *more)} for name, row in held_out.items()},
    }


def resume_path(out: str | os.PathLike[str]) -> Path:
    """Where an unfinished search for a file is kept."""
    return Path(f"{os.fspath(out)}.search.json")
