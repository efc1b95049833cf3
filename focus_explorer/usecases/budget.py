"""Budgets as users give and read them, and what a centroid file says of those measured for it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, ValidationInfo, model_validator

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import ConfigError, InputError
from focus_explorer.usecases.runs import run_config
from focus_explorer.views.payloads.centroids import BudgetHeldOutPayload, BudgetPointPayload, BudgetRecordPayload
from focus_runtime.budget import EXPECTED, HeadException, budget_name, read_budget
from focus_runtime.config import CONSTANT, FocusConfig
from focus_runtime.store.database import Database

NONE = "none"
OF_THE_FILE, ALL_ALIKE = "file", "alike"  # whose budget and growth of windows an analysis has; otherwise a run's id
MAX_BYTES = 4 * 2**20  # every head of a thousand layers is far below
MOST_POINTS = 200
MOST_DOMAINS = 64
MOST_EXCEPTIONS = 50_000  # of all points together
LONGEST_NAME = 200
LARGEST = 2**53  # numbers beyond are not the same in a browser

Budget = tuple[HeadException, ...]


def budget_of(source: str | None) -> Budget | None:
    """The budget in a JSON file (docs/centroid-files.md); () for the word none. None: the centroid file's own."""
    if source is None:
        return None
    if source == NONE:
        return ()
    path = Path(os.path.expanduser(source))
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{source} has {path.stat().st_size:,} bytes", expected="a budget, a JSON file")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read the budget {source}: {error.strerror}", expected=f"a JSON file, or the word {NONE}"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not text in UTF-8", expected="a budget, a JSON file") from error
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:  # of a number with thousands of digits a plain ValueError
        where = f" (line {error.lineno}: {error.msg})" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{source} is not JSON{where}", expected=f"a list of exceptions, {EXPECTED}") from error
    try:
        return read_budget(values)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def heads_setting(database: Database, source: str) -> dict[str, Any]:
    """Budget and growth of windows as fields of `AnalyzeRequest`: the file's, none ("alike"), or a run's by its id."""
    if source == OF_THE_FILE:
        return {}
    if source == ALL_ALIKE:
        return {"budget": (), "window_growth": CONSTANT}
    config = run_config(fetch_run(database, source))
    return {"budget": config.budget, "window_growth": config.growth}


def kept_budget(config: Mapping[str, Any]) -> str:
    """What readers of other settings of a run must know of its budget, in a sentence; "" if it has none."""
    budget = read_budget(config.get("budget") or [])
    if not budget:
        return ""
    full = sum(entry.full for entry in budget)
    return (
        f"The run's {budget_name(config['budget'])} is in force at every setting: layers and heads keep what it gives "
        "them" + (f", {full} of them full attention, without groups too" if full else "") + "."
    )


class _Read(BaseModel):
    """Part of a record as it is in a file, which may be anybody's."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


def _fitting(values: Any, info: ValidationInfo) -> Budget:
    """A budget that fits the file's configuration and layers, which are the context."""
    if not isinstance(values, list) or info.context is None:
        raise ValueError("not a list")
    budget: Budget = info.context["config"].replace(budget=read_budget(values)).budget
    if any(entry.layer not in info.context["layers"] for entry in budget):
        raise ValueError("a layer without a router")
    return budget


_Fitting = Annotated[Budget, PlainValidator(_fitting)]
_Number = Annotated[float, Field(gt=-LARGEST, lt=LARGEST)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=1, lt=LARGEST)]
_Name = Annotated[str, Field(max_length=LONGEST_NAME)]
_DOMAINS = Field(min_length=1, max_length=MOST_DOMAINS)


class BudgetPoint(_Read):
    """A measured budget, () without one, with its share of causal pairs kept, on the calibration text."""

    budget: _Fitting
    retained_pairs: _Share
    excess: Annotated[dict[_Name, _Number], _DOMAINS]  # by domain, the perplexity over full attention's, minus 1


class _Interval(_Read):
    value: _Number
    low: _Number | None = None
    high: _Number | None = None

    @model_validator(mode="after")
    def _has_both_ends(self) -> Self:
        if (self.low is None) != (self.high is None):
            raise ValueError("one end of an interval")
        return self


class _HeldOut(_Read):
    change: _Interval = Field(alias="relative_difference")
    full: _Interval = Field(alias="full_perplexity")
    focus: _Interval = Field(alias="focus_perplexity")
    retained_pairs: _Share
    sequences: _Count


class _Loss(_Read, extra="forbid"):
    loss: _Number


class _Pairs(_Read, extra="forbid"):
    pairs: _Share


class _Copy(_Read):
    held_out_budget: _Fitting
    source: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Record(_Read):
    """What `focus-explorer tune` writes; `copied` is what `copy_record` adds."""

    without_budget: BudgetPoint
    points: Annotated[list[BudgetPoint], Field(min_length=1, max_length=MOST_POINTS - 1)]
    target: _Loss | _Pairs
    met: bool
    calibration: Annotated[dict[_Name, _Count], _DOMAINS]
    held_out: Annotated[dict[_Name, _HeldOut], _DOMAINS]
    copied: _Copy | None = Field(default=None, alias="copy")
    pairs_counted_at: _Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _has_few_exceptions(cls, written: dict[str, Any]) -> dict[str, Any]:
        listed = written.get("points")
        points = [written.get("without_budget"), *(listed if isinstance(listed, list) else [])]
        budgets = [point.get("budget") for point in points if isinstance(point, dict)]
        if sum(len(budget) for budget in budgets if isinstance(budget, list)) > MOST_EXCEPTIONS:
            raise ValueError("too many exceptions")
        return written

    @model_validator(mode="after")
    def _has_the_same_domains(self) -> Self:
        if any(point.excess.keys() != self.calibration.keys() for point in (self.without_budget, *self.points)):
            raise ValueError("a point of other domains")
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetRecord:
    """The measured budgets of a file.

    Attributes:
        target: ("loss" or "pairs", its number).
        held_out: rows by domain as the payload has them.
        source: sha256 of the file that this one is a copy of, with another point; "" for the file of the search.
        before_factors, before_balance, before_growth, before_text_sinks: whether the file has others now than when all
            was measured.
        pairs_counted_at: tokens of the texts on which the points' pairs were counted. None: the file does not say.
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
    """The record in a file's training, whose budgets fit its configuration. None: there is none or it is malformed."""
    written = training.get("budget")
    if not isinstance(written, dict):
        return None
    try:
        record = _Record.model_validate(written, context={"config": config, "layers": frozenset(layers)})
    except ValidationError:
        return None
    points: dict[Budget, BudgetPoint] = {}
    for point in (record.without_budget, *record.points):
        points.setdefault(point.budget, point)
    ((kind, number),) = record.target.model_dump().items()
    return BudgetRecord(
        points=tuple(sorted(points.values(), key=lambda point: point.retained_pairs)),
        target=(kind, number),
        met=record.met,
        calibration=record.calibration,
        held_out=[
            cast(BudgetHeldOutPayload, {"domain": name} | row.model_dump()) for name, row in record.held_out.items()
        ],
        held_out_budget=config.budget if record.copied is None else record.copied.held_out_budget,
        source="" if record.copied is None else record.copied.source,
        before_factors=written.get("before_factors") is True,
        before_balance=written.get("balanced") != training.get("balanced"),
        before_growth=written.get("window_growth") != config.to_dict().get("window_growth"),
        before_text_sinks=written.get("text_sinks", config.text_sinks) != config.text_sinks,
        pairs_counted_at=record.pairs_counted_at,
    )


def record_payload(record: BudgetRecord, own: Budget) -> BudgetRecordPayload:
    """A record for the browser; `own` is the file's own budget."""
    points: list[BudgetPointPayload] = [
        {
            "budget": _to_json(point.budget),  # type: ignore[typeddict-item]
            "retained_pairs": point.retained_pairs,
            "excess": point.excess,
            "own": point.budget == own,
            "held_out": point.budget == record.held_out_budget,
        }
        for point in record.points
    ]
    same = {name: getattr(record, name) for name in BudgetRecordPayload.__annotations__ if hasattr(record, name)}
    held_out_own = record.held_out_budget == own
    return cast(BudgetRecordPayload, same | {"points": points, "held_out_own": held_out_own})


def copy_record(record: Mapping[str, Any], read: BudgetRecord, point: BudgetPoint, source: str) -> dict[str, Any]:
    """The record of a copy that uses another point: the same measurements, and which point it is."""
    return dict(record) | {
        "copy": {
            "source": source,
            "point": {"budget": _to_json(point.budget), "retained_pairs": point.retained_pairs},
            "held_out_budget": _to_json(read.held_out_budget),
        }
    }


def _to_json(budget: Budget) -> list[dict[str, Any]]:
    return [entry.to_dict() for entry in budget]
