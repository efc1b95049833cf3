"""Measured rows on disk, so that an interrupted reproduction goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from focus_runtime.files import cannot_write, replacing
from focus_runtime.measure.intervals import Interval
from focus_runtime.measure.perplexity import Scores

INTERVAL, SCORES = "interval", "scores of sequences"  # keys of objects that stand for one


def read_kept(file: Path) -> dict[str, Any] | None:
    """The cells of a row; None where there is no file, or none that can be read."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"), object_hook=_as_kept)
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def write_kept(file: Path, cells: dict[str, Any]) -> None:
    """Keep the cells of a row; numbers, text, lists, dictionaries, intervals and scores.

    Raises:
        InputError: the folder cannot be written.
    """
    with replacing(file, explain=cannot_write("choose a writable --work folder")) as part:
        part.write_text(json.dumps(_plain(cells)), encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, Interval):
        return {INTERVAL: [value.value, value.low, value.high, value.units, value.seeds]}
    if isinstance(value, Scores):
        return {SCORES: [getattr(value, field.name).tolist() for field in fields(value)]}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def _as_kept(values: dict[str, Any]) -> Any:
    if set(values) == {INTERVAL}:
        return Interval(*values[INTERVAL])
    if set(values) == {SCORES}:
        return Scores(*(np.array(column) for column in values[SCORES]))
    return values
