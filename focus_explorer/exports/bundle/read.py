"""A bundle as it is read: its manifest, checked before anything is made from it, and its files, checked by hash.

A manifest comes from somebody else: whatever passes here can be stored and run without another look at its types.
Times, coordinates of maps and figures are for readers only and are taken as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    model_validator,
)

from focus_explorer.errors import ConfigError, InputError
from focus_explorer.exports.tables.sources import TABLES
from focus_runtime.config import FocusConfig

FORMAT, FORMAT_VERSION = "focus-explorer bundle", 1
NAME = "manifest.json"
MOST_BYTES = 1 << 30  # of one file read into memory
MOST_MANIFEST_BYTES = 128 << 20  # its values take several times as much
MOST_COMPRESSED = 250  # times smaller: what a bundle holds compresses to a tenth
MOST_ROUTING = 65_536  # routing size that random centroids are drawn with
MOST_THREADS = 4096
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")


def _time(text: str) -> str:
    if not _TIME.fullmatch(text) or not 1900 < datetime.fromisoformat(text).year < 9000:
        raise ValueError("a time such as 2026-01-31T12:00:00+00:00")
    return text


def _inside(path: str) -> str:
    if path.startswith("/") or "\\" in path or ".." in PurePosixPath(path).parts:
        raise ValueError("a path inside the bundle")
    return path


def _table(name: str) -> str:
    if name not in TABLES:
        raise ValueError("a table that this version knows")
    return name


def _config(values: dict[str, Any]) -> dict[str, Any]:
    config = FocusConfig.from_dict(values)
    missing = sorted(FocusConfig().to_dict().keys() - values.keys())
    if missing:
        raise ConfigError(f"{missing[0]} is missing")
    if config.routing_dim > MOST_ROUTING:
        raise ConfigError(f"routing_dim is {config.routing_dim}", expected=f"at most {MOST_ROUTING:,}")
    return values


Text = Annotated[str, StringConstraints(max_length=100_000, pattern=r"^[^\x00]*$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f]*$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
RunId = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$")]
Time = Annotated[str, AfterValidator(_time)]
Small = Annotated[int, Field(ge=0, le=2**31 - 1)]
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
Texts = Annotated[list[Text], Field(fail_fast=True, max_length=10_000)]
Named = Annotated[dict[Name, Text], Field(max_length=1000)]


class _Part(BaseModel):
    """A part of a manifest: every value of its type, and no key that this version does not know."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Model(_Part):
    id: Name
    fingerprint: Name


class Tokenizer(_Part):
    """Its class and vocabulary, or why they are unknown."""

    kind: Text | None = Field(alias="class")
    vocabulary_size: Small = 0
    vocabulary_sha256: Sha256 = ""
    why: Text = ""


class CentroidFile(_Part):
    """Which centroids; `source`: "random", the name of a shipped file, or "file"."""

    name: Name
    sha256: Name
    source: Name


class RunText(_Part):
    sha256: Sha256
    characters: Whole
    bytes: Whole
    tokens: Annotated[int, Field(ge=2, le=2**31 - 1)]
    tokens_sha256: Sha256
    special_tokens: Literal["auto", "none"] | None = None
    added_tokens: list[Name] | None = None
    file: Name | None


class Execution(_Part):
    dtype: Name
    device: Name
    backend: Name
    requested_backend: Name | None = None
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None
    versions: Named


class Seeds(_Part):
    run: Whole
    random_centroids: Whole | None
    resampling: Whole


class Attention(_Part):
    """Extent of the measured attention mass; `queries`: the centroids it was measured under."""

    tokens: Whole
    heads: Small
    layers: Small
    queries: Annotated[list[Name], Field(max_length=100)]


class RandomCentroids(_Part):
    seed: Whole
    balanced_on: Whole


class Comparison(_Part):
    """A measured setting: a row of `comparisons`, of which only the setting is read."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["focus", "window", "random"]
    top_k: Small
    window_size: Small


class HeadCosts(_Part):
    verified: Small


class Measured(_Part):
    """Measurements beyond the run; None for those that were not made."""

    attention: Attention | None
    tags: dict[str, JsonValue] | None
    random_centroids: RandomCentroids | None
    comparisons: Annotated[list[Comparison], Field(fail_fast=True, min_length=1, max_length=10_000)] | None
    lengths: list[JsonValue] | None
    head_costs: HeadCosts | None = None
    explained_tokens: Annotated[list[Small], Field(fail_fast=True)] | None = None
    explained_count: Small = 0


class Run(_Part):
    run_id: RunId
    created_at: Time
    command: Text
    model: Model
    tokenizer: Tokenizer
    centroids: CentroidFile
    config: Annotated[dict[str, JsonValue], AfterValidator(_config)]
    changes: Texts = []
    text: RunText
    execution: Execution
    seeds: Seeds
    balanced_on: dict[str, JsonValue] = {}
    notes: Texts
    measured: Measured
    timing: dict[str, JsonValue]
    maps: list[JsonValue]
    tables: Annotated[list[Annotated[Text, AfterValidator(_table)]], Field(fail_fast=True)]
    left_out: Named = {}

    @model_validator(mode="after")
    def _consistent(self) -> Run:
        if self.text.file not in (None, f"text/{self.run_id}.txt"):
            raise InputError(
                f"run {self.run_id} has its text in {self.text.file!r}", expected=f"text/{self.run_id}.txt"
            )
        if self.centroids.source == "random" and self.seeds.random_centroids is None:
            raise InputError(f"run {self.run_id} has random centroids without a seed")
        _check_distinct("table", self.tables)
        return self


class File(_Part):
    path: Annotated[Name, AfterValidator(_inside)]
    bytes: Whole
    sha256: Sha256


class Manifest(_Part):
    format: str
    format_version: int
    command: Text = ""
    includes_text: bool
    machine: Annotated[dict[Name, Text | int | None], Field(max_length=100)]
    versions: Named
    runs: Annotated[list[Run], Field(fail_fast=True, min_length=1, max_length=10_000)]
    figures: dict[str, JsonValue] = {}
    files: Annotated[list[File], Field(fail_fast=True, max_length=1_000_000)]

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        _check_distinct("run", [run.run_id for run in self.runs])
        _check_distinct("file", [file.path for file in self.files])
        return self


def _check_distinct(what: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise InputError(f"it lists a {what} twice")


def _problem(error: ValidationError) -> InputError:
    """What is missing, unknown, of another type or out of range first, and where in the manifest."""
    first = error.errors(include_url=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")[:200]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # of a check of ours
        problem = f"{place}: {cause.problem}" if place else cause.problem
        return InputError(problem, expected=cause.expected, fix=cause.fix)
    if first["type"] == "missing":
        return InputError(f"{place} is missing")
    if first["type"] == "extra_forbidden":
        return InputError(f"it has {place}, which this version does not know", fix="update Focus Explorer")
    shown = repr(first["input"])
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    expected = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return InputError(f"{place} is {shown}", expected=expected)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A checked manifest and the files it came with; `source`: the zip, or the file of the manifest."""

    source: Path
    manifest: Manifest

    def file(self, path: str) -> bytes | None:
        """A file of the bundle, checked by its hash. None: the manifest came without it."""
        listed = {row.path: row.sha256 for row in self.manifest.files}
        if path not in listed:
            return None
        data = _content(self.source, path)
        if data is not None and hashlib.sha256(data).hexdigest() != listed[path]:
            raise InputError(
                f"{path} of {self.source.name} has other bytes than when the bundle was made",
                expected=f"a file with sha256 {listed[path]}",
                fix="get the bundle again",
            )
        return data

    def hashes(self) -> dict[str, str]:
        """Path -> sha256 of every data and table file."""
        return {row.path: row.sha256 for row in self.manifest.files if row.path.startswith(("data/", "tables/"))}


def read_bundle(source: str | Path) -> Bundle:
    """Read a bundle's zip, an unpacked bundle's folder, or a manifest; whatever is wrong with it is an InputError."""
    path = Path(source).expanduser()
    if path.is_dir():
        path = path / NAME
    try:
        if zipfile.is_zipfile(path):
            data = _content(path, NAME, MOST_MANIFEST_BYTES)
        elif path.stat().st_size > MOST_MANIFEST_BYTES:
            raise _too_large(NAME, path, MOST_MANIFEST_BYTES)
        else:
            data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", expected="a bundle (.zip) or its manifest.json"
        ) from error
    if data is None:
        raise InputError(f"{path.name} has no {NAME}", expected="a zip that `focus-explorer bundle` wrote")
    try:
        manifest = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        what = "is a damaged zip" if path.suffix.lower() == ".zip" else "is no readable JSON"
        raise InputError(
            f"{path.name} {what}", expected="a bundle (.zip) or its manifest.json", fix="get the bundle again"
        ) from error
    return Bundle(path, _checked(manifest, path.name))


def _checked(manifest: Any, name: str) -> Manifest:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{name} is no manifest of a bundle", expected=f'JSON with "format": "{FORMAT}"')
    version = manifest.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise InputError(
            f"{name} was made by a newer version (format {version})",
            expected=f"format {FORMAT_VERSION}",
            fix="update Focus Explorer",
        )
    try:
        return Manifest.model_validate(manifest)
    except ValidationError as error:
        problem = _problem(error)
        raise InputError(
            f"the manifest in {name} is damaged: {problem.problem}",
            expected=problem.expected,
            fix=problem.fix or "get the bundle again",
        ) from error


def _too_large(name: str, source: Path, most: int) -> InputError:
    return InputError(
        f"{name} of {source.name} is too large", expected=f"at most {most >> 20:,} MB", fix="get the bundle again"
    )


def _content(source: Path, name: str, most: int = MOST_BYTES) -> bytes | None:
    """One file of a zip, which may not unpack to more than `most` bytes, or of a manifest's folder; None without it."""
    if not zipfile.is_zipfile(source):
        path = source.parent / PurePosixPath(name)
        return path.read_bytes() if path.is_file() else None
    try:
        with zipfile.ZipFile(source) as archive:
            entry = archive.getinfo(name)
            if entry.file_size > min(most, MOST_COMPRESSED * max(entry.compress_size, 4096)):
                raise _too_large(name, source, most)
            with archive.open(name) as stream:
                data = stream.read(entry.file_size + 1)  # what it declares, however much there is
            if len(data) > entry.file_size:
                raise _too_large(name, source, most)
            return data
    except KeyError:
        return None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise InputError(
            f"{source.name} is damaged ({name}: {error})", expected="a whole zip", fix="get the bundle again"
        ) from error
