"""What a centroid file says of the budgets measured for it, read strictly: the file may be anybody's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from focus_explorer.views.payloads.centroids import (
    BudgetHeldOutPayload,
    BudgetIntervalPayload,
    BudgetPointPayload,
    BudgetRecordPayload,
)
from focus_runtime.budget import HeadException, read_budget
from focus_runtime.config import FocusConfig
from focus_runtime.errors import ConfigError

MOST_POINTS = 200
MOST_DOMAINS = 64
MOST_EXCEPTIONS = 50_000  # of all points together
LONGEST_NAME = 200
LARGEST = 2**53  # numbers beyond are not the same in a browser
_SHA256 = re.compile(r"[0-9a-f]{64}")

Budget = tuple[HeadException, ...]


class _MalformedError(Exception):
    """The record is not one that `focus-explorer tune` writes."""


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """A measured budget.

    Attributes:
        budget: its exceptions; none for the point without a budget.
        retained_pairs: share of causal pairs kept on the calibration text.
        excess: by domain, perplexity over that of full attention, minus 1, on the calibration text.
    """

    budget: Budget
    retained_pairs: float
    excess: dict[str, float]


@dataclass(frozen=True, slots=True)
class BudgetRecord:
    """The measured budgets of a file.

    Attributes:
        points: fewest pairs first.
        target: ("loss" or "pairs", its number).
        met: whether a point meets the target.
        calibration: sequences by domain.
        held_out: rows by domain as the payload has them.
        held_out_budget: what the held-out rows were measured with.
        source: sha256 of the file that this one is a copy of, with another point; "" for the file of the search.
        before_factors: whether all was measured before the file's factors of logits were learned.
        before_balance: whether all was measured before the file's groups were balanced as they are.
        before_growth: whether all was measured with windows that grew otherwise.
        before_text_sinks: whether all was measured with other text sinks; False in files that do not say.
        pairs_counted_at: tokens of the texts on which the points' pairs were counted; None in files that do not say.
    """

    points: tuple[BudgetPoint, ...]
    target: tuple[str, float]
    met: bool
    calibration: dict[str, int]
    held_out: list[BudgetHeldOutPayload]
    held_out_budget: Budget
    source: str
    before_factors: bool
    before_balance: bool
    before_growth: bool
    before_text_sinks: bool
    pairs_counted_at: int | None


def read_record(training: Mapping[str, Any], config: FocusConfig, layers: Iterable[int]) -> BudgetRecord | None:
    """The record in a file's training, or None where there is none or it is malformed.

    Args:
        training: of the file.
        config: of the file, which every budget must fit.
        layers: with routers.
    """
    record = training.get("budget")
    if not isinstance(record, dict):
        return None
    try:
        return _read(record, config, frozenset(layers), balanced=training.get("balanced"))
    except (_MalformedError, ConfigError):
        return None


def record_payload(record: BudgetRecord, own: Budget) -> BudgetRecordPayload:
    """A record for the browser.

    Args:
        record: read from a file.
        own: the file's own budget.
    """
    points: list[BudgetPointPayload] = [
        {
            "budget": [entry.to_dict() for entry in point.budget],  # type: ignore[misc]
            "retained_pairs": point.retained_pairs,
            "excess": point.excess,
            "own": point.budget == own,
            "held_out": point.budget == record.held_out_budget,
        }
        for point in record.points
    ]
    return {
        "points": points,
        "target": record.target,
        "met": record.met,
        "calibration": record.calibration,
        "held_out": record.held_out,
        "held_out_own": record.held_out_budget == own,
        "before_factors": record.before_factors,
        "before_balance": record.before_balance,
        "before_growth": record.before_growth,
        "before_text_sinks": record.before_text_sinks,
        "pairs_counted_at": record.pairs_counted_at,
    }


def _read(record: dict[str, Any], config: FocusConfig, layers: frozenset[int], *, balanced: Any) -> BudgetRecord:
    listed = record.get("points")
    if not isinstance(listed, list) or not 0 < len(listed) < MOST_POINTS:
        raise _MalformedError
    raw = [record.get("without_budget"), *listed]
    if sum(_length(entry) for entry in raw) > MOST_EXCEPTIONS:
        raise _MalformedError
    calibration = {name: _whole(count, 1) for name, count in _domains(record.get("calibration")).items()}
    points: dict[Budget, BudgetPoint] = {}
    for entry in raw:
        point = _point(entry, config, layers)
        if point.excess.keys() != calibration.keys():
            raise _MalformedError
        points.setdefault(point.budget, point)
    held_out, source = config.budget, ""
    if "copy" in record:  # see `copy_record`
        held_out = _budget(_mapping(record["copy"]).get("held_out_budget"), config, layers)
        source = record["copy"].get("source")
        if not isinstance(source, str) or not _SHA256.fullmatch(source):
            raise _MalformedError
    met = record.get("met")
    if not isinstance(met, bool):
        raise _MalformedError
    return BudgetRecord(
        tuple(sorted(points.values(), key=lambda point: point.retained_pairs)),
        _target(record.get("target")),
        met,
        calibration,
        [_held_out(name, row) for name, row in _domains(record.get("held_out")).items()],
        held_out,
        source,
        record.get("before_factors") is True,
        record.get("balanced") != balanced,
        record.get("window_growth") != config.to_dict().get("window_growth"),
        record.get("text_sinks", config.text_sinks) != config.text_sinks,
        _whole(record["pairs_counted_at"], 1) if "pairs_counted_at" in record else None,
    )


def copy_record(record: Mapping[str, Any], read: BudgetRecord, point: BudgetPoint, source: str) -> dict[str, Any]:
    """The record of a copy that uses another point: the same measurements, and which point it is.

    Args:
        record: of the file that is copied, as it is in the file.
        read: the same, read.
        point: that the copy uses.
        source: sha256 of the file of the search.
    """
    return dict(record) | {
        "copy": {
            "source": source,
            "point": {"budget": _to_json(point.budget), "retained_pairs": point.retained_pairs},
            "held_out_budget": _to_json(read.held_out_budget),
        }
    }


def _to_json(budget: Budget) -> list[dict[str, Any]]:
    return [entry.to_dict() for entry in budget]


def _point(values: Any, config: FocusConfig, layers: frozenset[int]) -> BudgetPoint:
    values = _mapping(values)
    return BudgetPoint(
        _budget(values.get("budget"), config, layers),
        _share(values.get("retained_pairs")),
        {name: _number(value) for name, value in _domains(values.get("excess")).items()},
    )


def _budget(values: Any, config: FocusConfig, layers: frozenset[int]) -> Budget:
    if not isinstance(values, list) or len(values) > MOST_EXCEPTIONS:
        raise _MalformedError
    budget = config.replace(budget=read_budget(values)).budget  # checks them against the number of groups
    if any(entry.layer not in layers for entry in budget):
        raise _MalformedError
    return budget


def _held_out(domain: str, values: Any) -> BudgetHeldOutPayload:
    values = _mapping(values)
    return {
        "domain": domain,
        "change": _interval(values.get("relative_difference")),
        "full": _interval(values.get("full_perplexity")),
        "focus": _interval(values.get("focus_perplexity")),
        "retained_pairs": _share(values.get("retained_pairs")),
        "sequences": _whole(values.get("sequences"), 1),
    }


def _target(values: Any) -> tuple[str, float]:
    values = _mapping(values)
    if len(values) != 1 or not values.keys() <= {"loss", "pairs"}:
        raise _MalformedError
    ((name, value),) = values.items()
    return name, (_number(value) if name == "loss" else _share(value))


def _interval(values: Any) -> BudgetIntervalPayload:
    values = _mapping(values)
    low, high = (values.get(end) for end in ("low", "high"))
    if (low is None) != (high is None):
        raise _MalformedError
    return {
        "value": _number(values.get("value")),
        "low": None if low is None else _number(low),
        "high": None if high is None else _number(high),
    }


def _domains(values: Any) -> dict[str, Any]:
    values = _mapping(values)
    if not 0 < len(values) <= MOST_DOMAINS or any(len(name) > LONGEST_NAME for name in values):
        raise _MalformedError
    return values


def _mapping(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise _MalformedError
    return values


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST < value < LARGEST:
        raise _MalformedError
    return float(value)


def _share(value: Any) -> float:
    number = _number(value)
    if not 0 <= number <= 1:
        raise _MalformedError
    return number


def _whole(value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < LARGEST:
        raise _MalformedError
    return value


def _length(point: Any) -> int:
    budget = _mapping(point).get("budget")
    return len(budget) if isinstance(budget, list) else 0
