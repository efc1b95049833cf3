"""What a manifest may say: types, ranges and which keys there are, checked before anything is made from it.

A manifest comes from somebody else. Whatever passes here can be stored and run without another look at its types.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict  # pydantic reads those of typing from Python 3.12 on

from focus_explorer.errors import ConfigError, InputError
from focus_explorer.exports.tables.sources import TABLES
from focus_runtime.config import FocusConfig

MOST_ROUTING = 65_536  # routing size that random centroids are drawn with
MOST_THREADS = 4096
_STRICT = ConfigDict(strict=True, extra="forbid")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")


def _time(text: str) -> str:
    if not _TIME.fullmatch(text) or not 1900 < datetime.fromisoformat(text).year < 9000:
        raise ValueError("expected a time such as 2026-01-31T12:00:00+00:00")
    return text


def _inside(path: str) -> str:
    if path.startswith("/") or "\\" in path or ".." in PurePosixPath(path).parts:
        raise ValueError("expected a path inside the bundle")
    return path


def _table(name: str) -> str:
    if name not in TABLES:
        raise ValueError("this version does not know such a table")
    return name


def _distinct(values: list[str]) -> list[str]:
    if len(set(values)) < len(values):
        raise ValueError("one is there twice")
    return values


def _config(values: dict[str, Any]) -> dict[str, Any]:
    FocusConfig.from_dict(values)
    return values


Text = Annotated[str, StringConstraints(max_length=100_000, pattern=r"^[^\x00]*$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f]*$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
RunId = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$")]
Time = Annotated[str, AfterValidator(_time)]
Small = Annotated[int, Field(ge=0, le=2**31 - 1)]
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Threads = Annotated[int, Field(ge=1, le=MOST_THREADS)]
Numbers = Annotated[list[Number], Field(fail_fast=True)]
Times = Annotated[list[Positive], Field(fail_fast=True, min_length=1)]
Texts = Annotated[list[Text], Field(fail_fast=True, max_length=10_000)]
Named = Annotated[dict[Name, Text], Field(max_length=1000)]


@with_config(_STRICT)
class Model(TypedDict):
    """Which model."""

    id: Name
    fingerprint: Name


# Its vocabulary, or why that is unknown; "class" is a keyword.
Tokenizer = TypedDict(
    "Tokenizer",
    {
        "class": Text | None,
        "vocabulary_size": NotRequired[Small],
        "vocabulary_sha256": NotRequired[Sha256],
        "why": NotRequired[Text],
    },
)
with_config(_STRICT)(Tokenizer)


@with_config(_STRICT)
class CentroidFile(TypedDict):
    """Which centroids."""

    name: Name
    sha256: Name
    source: Name


@with_config(_STRICT)
class Config(TypedDict):
    """Settings the run was executed with; values are checked by FocusConfig."""

    num_groups: Small
    routing_dim: Annotated[int, Field(ge=1, le=MOST_ROUTING)]
    top_k: Small
    window: Small
    num_sinks: Small
    temperature: Number
    sinkhorn_iterations: Small
    normalisation: Name
    assignment: Name
    gate: Name
    layers: Annotated[list[Small], Field(fail_fast=True)] | None
    budget: NotRequired[Annotated[list[dict[str, JsonValue]], Field(fail_fast=True)]]
    text_sinks: NotRequired[Number]
    text_sinks_from: NotRequired[Small]
    logit_factors: NotRequired[bool]
    window_growth: NotRequired[Annotated[list[Small], Field(min_length=2, max_length=2, fail_fast=True)]]


@with_config(_STRICT)
class RunText(TypedDict):
    """Hashes and lengths of the text, and its file within the bundle."""

    sha256: Sha256
    characters: Whole
    bytes: Whole
    tokens: Annotated[int, Field(ge=2, le=2**31 - 1)]
    tokens_sha256: Sha256
    special_tokens: NotRequired[Literal["auto", "none"]]
    added_tokens: NotRequired[list[Name]]
    file: Name | None


@with_config(_STRICT)
class Execution(TypedDict):
    """On what the run was executed."""

    dtype: Name
    device: Name
    backend: Name
    requested_backend: NotRequired[Name | None]
    threads: Threads | None
    versions: Named


@with_config(_STRICT)
class Seeds(TypedDict):
    """Seeds."""

    run: Whole
    random_centroids: Whole | None
    resampling: Whole


@with_config(_STRICT)
class BalancedOn(TypedDict):
    """What random centroids were balanced on."""

    texts: Text
    tokens: Whole


@with_config(_STRICT)
class Attention(TypedDict):
    """Extent of the measured attention mass."""

    tokens: Whole
    heads: Small
    layers: Small
    queries: Annotated[list[Name], Field(max_length=100)]


@with_config(_STRICT)
class RandomCentroids(TypedDict):
    """Seed of the random baseline."""

    seed: Whole
    balanced_on: Whole


@with_config(_STRICT)
class Comparison(TypedDict):
    """A measured setting: a row of `comparisons`."""

    kind: Literal["focus", "window", "random"]
    top_k: Small
    window_size: Small
    num_sinks: Small
    assignment: Name
    measured_at: Time
    scored: Whole
    perplexity_full: Number
    perplexity_focus: Number
    delta_mean: Number
    delta_low: Number | None
    delta_high: Number | None
    retained_pairs: Number
    dominance: Number | None
    attention_full: Times
    attention_focus: Times
    total_full: Times
    total_focus: Times
    backend: Name
    device: Name
    dtype: Name
    threads: Small


@with_config(_STRICT)
class Length(TypedDict):
    """A measured length: a row of `crossovers`."""

    layer: Small
    tokens: Whole
    top_k: Small
    window_size: Small
    measured_at: Time
    full_median: Positive
    full_low: Positive
    full_high: Positive
    focus_median: Positive
    focus_low: Positive
    focus_high: Positive
    routing_median: Positive
    retained_pairs: Number
    repeats: Small
    backend: Name
    device: Name
    dtype: Name
    threads: Small


@with_config(_STRICT)
class HeadCosts(TypedDict):
    """How many heads were measured."""

    verified: Small


@with_config(_STRICT)
class Tagging(TypedDict):
    """Which tagger."""

    tagger: Text


@with_config(_STRICT)
class Measured(TypedDict):
    """Measurements beyond the run; None for those that were not made."""

    attention: Attention | None
    tags: Tagging | None
    random_centroids: RandomCentroids | None
    comparisons: Annotated[list[Comparison], Field(fail_fast=True, min_length=1, max_length=10_000)] | None
    lengths: Annotated[list[Length], Field(fail_fast=True, min_length=1, max_length=10_000)] | None
    head_costs: NotRequired[HeadCosts | None]
    explained_tokens: NotRequired[Annotated[list[Small], Field(fail_fast=True)] | None]
    explained_count: NotRequired[Small]


@with_config(_STRICT)
class Repeat(TypedDict):
    """One timed repeat: a row of `timings`."""

    mode: Literal["full", "focus"]
    stage: Name
    repeat: Small
    sequence_length: Whole
    backend: Name
    milliseconds: Positive
    peak_memory_bytes: Whole


@with_config(_STRICT)
class Timing(TypedDict):
    """Timed repeats and how they were taken."""

    protocol: Text
    repeats: Annotated[list[Repeat], Field(fail_fast=True)]


@with_config(_STRICT)
class TokenPoints(TypedDict):
    """Coordinates of tokens, in the order of the text only where positions are given."""

    x: Numbers
    y: Numbers
    top_group: Annotated[list[Small | None], Field(fail_fast=True)]
    position: NotRequired[Annotated[list[Whole], Field(fail_fast=True)]]


@with_config(_STRICT)
class CentroidPoints(TypedDict):
    """Coordinates of centroids."""

    x: Numbers
    y: Numbers


@with_config(_STRICT)
class Map(TypedDict):
    """A stored map."""

    projection_id: Name
    layer: Annotated[int, Field(ge=-1, le=2**31 - 1)]
    method: Name
    parameters: dict[str, JsonValue]
    seed: Whole
    trustworthiness: Number | None
    created_at: Time
    tokens: TokenPoints
    centroids: CentroidPoints


@with_config(_STRICT)
class Run(TypedDict):
    """A run."""

    run_id: RunId
    created_at: Time
    command: Text
    model: Model
    tokenizer: Tokenizer
    centroids: CentroidFile
    config: Annotated[Config, AfterValidator(_config)]
    changes: NotRequired[Texts]
    text: RunText
    execution: Execution
    seeds: Seeds
    balanced_on: NotRequired[BalancedOn]
    notes: Texts
    measured: Measured
    timing: Timing
    maps: Annotated[list[Map], Field(fail_fast=True, max_length=10_000)]
    tables: Annotated[list[Annotated[Text, AfterValidator(_table)]], Field(fail_fast=True), AfterValidator(_distinct)]
    left_out: NotRequired[Named]


@with_config(_STRICT)
class Figures(TypedDict):
    """Figures of the bundle."""

    made: Texts
    missing: Annotated[list[dict[str, JsonValue]], Field(fail_fast=True)]
    asked_for: bool


@with_config(_STRICT)
class File(TypedDict):
    """A file of the bundle."""

    path: Annotated[Name, AfterValidator(_inside)]
    bytes: Whole
    sha256: Sha256


@with_config(_STRICT)
class Manifest(TypedDict):
    """A manifest of format 1."""

    format: str
    format_version: int
    command: NotRequired[Text]
    includes_text: bool
    machine: Annotated[dict[Name, Text | int | None], Field(max_length=100)]
    versions: Named
    runs: Annotated[list[Run], Field(fail_fast=True, min_length=1, max_length=10_000)]
    figures: NotRequired[Figures]
    files: Annotated[list[File], Field(fail_fast=True, max_length=1_000_000)]


_MANIFEST = TypeAdapter(Manifest)


def check_manifest(values: dict[str, Any]) -> dict[str, Any]:
    """A manifest with every number of its type; one that this version cannot store and run is refused.

    Raises:
        InputError: names the first thing that is missing, unknown, of another type or out of range.
    """
    try:
        manifest: dict[str, Any] = {**_MANIFEST.validate_python(values)}
    except ValidationError as error:
        raise _problem(error) from error
    except ConfigError as error:
        raise InputError(f"a run's config: {error}") from error
    for run in manifest["runs"]:
        _check_run(run)
    for what, names in (
        ("run", [run["run_id"] for run in manifest["runs"]]),
        ("file", [row["path"] for row in manifest["files"]]),
    ):
        if len(set(names)) < len(names):
            raise InputError(f"it lists a {what} twice")
    return manifest


def _check_run(run: dict[str, Any]) -> None:
    """What single values do not show."""
    run_id = run["run_id"]
    if run["text"]["file"] not in (None, f"text/{run_id}.txt"):
        raise InputError(f"run {run_id} has its text in {run['text']['file']!r}", expected=f"text/{run_id}.txt")
    if run["centroids"]["source"] == "random" and run["seeds"]["random_centroids"] is None:
        raise InputError(f"run {run_id} has random centroids without a seed")
    ids = [stored["projection_id"] for stored in run["maps"]]
    if len(set(ids)) < len(ids):
        raise InputError(f"run {run_id} has a map twice")
    for stored in run["maps"]:
        for points in (stored["tokens"], stored["centroids"]):
            if len({len(column) for column in points.values()}) > 1:
                raise InputError(f"the coordinates of map {stored['projection_id'][:80]!r} have different lengths")


def _problem(error: ValidationError) -> InputError:
    """The first problem: its place in the manifest, what is there and what belongs there."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")[:200]
    if first["type"] == "missing":
        return InputError(f"{place} is missing")
    if first["type"] == "extra_forbidden":
        return InputError(f"it has {place}, which this version does not know", fix="update Focus Explorer")
    shown = repr(first["input"])
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    expected = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return InputError(f"{place} is {shown}", expected=expected)
