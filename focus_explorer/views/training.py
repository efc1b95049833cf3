"""Trainings and their steps -> what the Training tab draws; long curves are thinned to means of equal stretches."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.views.payloads import centroids as payloads
from focus_explorer.views.payloads import picked
from focus_runtime.budget import budget_digest

POINTS = 2000
_CONFIG = tuple(payloads.TrainingConfigPayload.__annotations__)
_SETTINGS = tuple(payloads.TrainingSettingsPayload.__annotations__)


def training_summary(row: dict[str, Any]) -> payloads.TrainingPayload:
    """One training as the list and the header show it; JSON-ready."""
    left = row["steps"] - row["step"]
    pace = row["seconds_per_step"]
    config, settings = row["config"], row["settings"]
    if config.get("budget"):
        config = config | {"exceptions": len(config["budget"]), "budget_id": budget_digest(config["budget"])}
    return picked(
        payloads.TrainingPayload,
        {name: _rounded(one) if isinstance(one, float) else one for name, one in row.items()},
        created_at=row["created_at"].isoformat(),
        remaining=pace * left if pace and row["status"] in ("running", "stopping") else None,
        texts=[name.rsplit("/", 1)[-1] for name in row["texts"]],
        config={name: config[name] for name in _CONFIG if name in config},
        settings={name: settings[name] for name in _SETTINGS if name in settings},
        validation=_validation(row["validation"]),
        # a resumed training does some steps again: what was drawn of it before is then out of date
        part=f"{row['pid']}-{row['process_started']}",
    )


def _validation(report: dict[str, Any]) -> payloads.ValidationPayload:
    """Held-out perplexities; empty without held-out text."""
    if "full" not in report:
        return {}
    focus = {name: row["perplexity"] for name, row in sorted(report.items()) if name.startswith("k=")}
    made: payloads.ValidationPayload = {"full": report["full"], "scored": report["scored_tokens"], "focus": focus}
    if "domains" in report:
        made["domains"] = sorted(report["domains"])
    return made


def curves_payload(steps: pa.Table) -> dict[str, dict[str, payloads.CurvePayload]]:
    """Rows of `training_steps` or of `training_evaluations`, in their order, as curves by training and mode."""
    curves: dict[str, dict[str, payloads.CurvePayload]] = {}
    ids, modes = (steps[name].to_numpy(zero_copy_only=False) for name in ("training_id", "mode"))
    for training_id in dict.fromkeys(ids):
        for mode in dict.fromkeys(modes[ids == training_id]):
            rows = steps.filter(pa.array((ids == training_id) & (modes == mode)))
            curves.setdefault(str(training_id), {})[str(mode)] = _curve(rows)
    return curves


def _curve(rows: pa.Table) -> payloads.CurvePayload:
    stride = math.ceil(rows.num_rows / POINTS)
    step = rows["step"].to_numpy()

    columns = {
        name: [_rounded(value) for value in _thin(rows[name].to_numpy(zero_copy_only=False), stride).tolist()]
        for name in payloads.CurvePayload.__annotations__
        if name in rows.column_names
    }
    steps = step[stride - 1 :: stride].tolist() + ([int(step[-1])] if step.size % stride else [])
    return picked(payloads.CurvePayload, columns, step=steps, stride=stride, last=int(step[-1]))


def _thin(values: NDArray[Any], stride: int) -> NDArray[np.float64]:
    """Means of stretches of `stride` values; the last stretch may be shorter."""
    numbers = values.astype(np.float64)
    if stride == 1:
        return numbers
    starts = np.arange(0, numbers.size, stride)
    return np.add.reduceat(numbers, starts) / np.diff(np.append(starts, numbers.size))


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def report_html(name: str, lines: list[str], *, known: bool = False) -> str:
    """The report of a valid file; of one that was here already when `known`."""
    valid = "is here already: nothing was added. It is" if known else "is valid and"
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        f'<div class="fe-done" role="status"><strong>{escape(name)}</strong> {valid} now '
        f"chosen on the Explore page.<ul>{items}</ul></div>"
    )
