"""The tables of a bundle made again, from the database or by running the model, and what differs from the bundle's.

A run that is made again has a database of its own and its old id. Its times are measured again and not compared.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.exports.bundle import manifest
from focus_explorer.exports.bundle.manifest import Row, SteadyDatabase
from focus_explorer.exports.bundle.read import Bundle, Run, read_bundle
from focus_explorer.exports.bundle.rerun import find_centroids, find_text, recorded_models, recorded_row, run_again
from focus_explorer.exports.bundle.write import files_of, share, write_tables
from focus_explorer.progress import Progress
from focus_explorer.usecases.centroids.files import uploaded_centroids
from focus_explorer.usecases.service import Service
from focus_explorer.words import counted
from focus_runtime.files import replacing_folder

TIMES = ("timings", "timing_repeats")  # tables of nothing but times
TIME_COLUMNS = ("measured_at", "repeats", "threads", "attention_", "total_")  # beginnings of names, in `comparisons`

PLACED = ("device", "dtype", "backend")
COMPARED = {  # what must be the same in the database and in the manifest -> column of `runs`
    "text": "text_sha256",
    "model fingerprint": "model_fingerprint",
    "centroids": "centroids_sha256",
    "config": "config",
    **{name: name for name in PLACED},
}


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild made."""

    folder: Path  # where the tables are
    files: int
    again: list[str] = field(default_factory=list)  # ids of the runs the model ran again for
    surroundings: list[str] = field(default_factory=list)  # versions, machine, device and times that differ
    tables: list[str] = field(default_factory=list)  # what differs in them, times of runs made again aside

    @property
    def same(self) -> bool:
        return not self.tables


def rebuild(
    service: Service,
    source: str | Path,
    out: str | Path,
    *,
    texts: Sequence[str] = (),
    centroids: Sequence[str] = (),
    model: str | None = None,
    progress: Progress = lambda stage, fraction: None,
) -> Rebuilt:
    """Make the tables of a bundle again.

    Args:
        service: whose database, if there is one, may have the runs and the centroid files.
        source: a bundle, its folder or its manifest.
        texts: files with the runs' texts, for a bundle without them; found by their hashes.
        centroids: centroid files that are neither shipped nor uploaded; found by their hashes.
        model: another name or place of the model; its weights are checked.

    Raises:
        InputError: something is missing, damaged or another one than recorded; nothing is written then.
    """
    bundle = read_bundle(source)
    runs = bundle.manifest.runs
    target = Path(out).expanduser()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is there already", expected="a new or empty folder", fix="choose one with --out")
    _check_files(bundle)
    with tempfile.TemporaryDirectory(prefix="focus-rebuild-") as scratch:
        folder = Path(scratch) / "tables"
        folder.mkdir()
        rebuilt = Rebuilt(target, sum(len(files_of(run.run_id, what)) for run in runs for what in run.tables))
        for number, run in enumerate(runs):
            part = share(progress, number, len(runs))
            database = _stored(service, run)
            again = database is None
            if database is None:
                here = Service(Path(scratch) / f"{number}.duckdb", models=recorded_models(run, model))
                known = uploaded_centroids(service.database) if service.database.path.exists() else []
                name = find_centroids(run, centroids, known)
                made = run_again(here, run, find_text(bundle, run, texts), name, progress=part)
                rebuilt.again.append(run.run_id)
                database = SteadyDatabase(here.database.path)
                _add(rebuilt.surroundings, _execution_differences(here, made, run))
            else:
                _add(rebuilt.tables, _row_differences(database, run))
            _, left_out = write_tables(
                database, run.run_id, folder, with_text=bundle.manifest.includes_text, only=run.tables, progress=part
            )
            _add(rebuilt.tables, table_differences(bundle, run, folder, left_out, times=not again))
        recorded = bundle.manifest
        _add(rebuilt.surroundings, value_differences("version of ", recorded.versions, manifest.versions()))
        _add(rebuilt.surroundings, value_differences("machine, ", recorded.machine, manifest.machine()))
        with replacing_folder(target) as staging:  # the target may be on another disk than the scratch folder
            shutil.copytree(folder, staging, dirs_exist_ok=True)
    return rebuilt


def _add(lines: list[str], more: list[str]) -> None:
    lines += [line for line in more if line not in lines]


def _check_files(bundle: Bundle) -> None:
    """Check before any work that the manifest lists every file and the bundle has them with their hashes."""
    listed = bundle.hashes()
    for run in bundle.manifest.runs:
        for what in run.tables:
            missing = [path for _, path in files_of(run.run_id, what) if path not in listed]
            if missing:
                raise InputError(
                    f"the manifest in {bundle.source.name} is damaged: it does not list {missing[0]}",
                    fix="get the bundle again",
                )
    for row in bundle.manifest.files:
        if bundle.file(row.path) is None and zipfile.is_zipfile(bundle.source):
            raise InputError(f"{bundle.source.name} lacks {row.path}", fix="get the bundle again")


def _stored(service: Service, run: Run) -> SteadyDatabase | None:
    if not service.database.path.exists():
        return None
    database = SteadyDatabase(service.database.path, wait=service.database.wait)
    try:
        fetch_run(database, run.run_id)
    except NotFoundError:
        return None
    return database


def _row_differences(database: SteadyDatabase, run: Run) -> list[str]:
    """Where the database and the manifest differ about a run of this id."""
    then, here = (
        {words: json.loads(row[name]) if name == "config" else row[name] for words, name in COMPARED.items()}
        for row in (recorded_row(run), fetch_run(database, run.run_id))
    )
    return value_differences(f"run {run.run_id}, ", then, here)


def _execution_differences(here: Service, made: Row, run: Run) -> list[str]:
    """Where the second execution of the run differs from the recorded one."""
    execution, versions = run.execution, json.loads(made["versions"])
    threads = int(versions.pop("threads"))
    lines = value_differences("run with ", execution.versions, versions)
    lines += value_differences(
        "run with ", {name: getattr(execution, name) for name in PLACED}, {name: made[name] for name in PLACED}
    )
    if execution.threads != threads:
        lines.append(f"run with threads: {execution.threads or 'not recorded'} in the bundle, {threads} here")
    lines += made["problems"]
    if run.tokenizer.kind:
        with here.models.lease(run.model.id) as loaded:
            tokenizer = manifest.tokenizer_entry(loaded.tokenizer)
        recorded = run.tokenizer.model_dump(by_alias=True, exclude_unset=True)
        lines += value_differences("tokenizer ", recorded, tokenizer)
    return lines


def value_differences(what: str, then: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """A line that begins with `what` for every key whose values differ; a key that one side lacks counts too."""
    lines = []
    for key in sorted(then.keys() | here.keys()):
        old, new = then.get(key), here.get(key)
        if old != new:
            lines.append(f"{what}{key}: {_shown(old)} in the bundle, {_shown(new)} here")
    return lines


def table_differences(bundle: Bundle, run: Run, folder: Path, left_out: Mapping[str, str], *, times: bool) -> list[str]:
    """Differences in the files of a run's tables, which were made again in `folder`; `left_out`: why some were not."""
    hashes, lines = bundle.hashes(), []
    for what in run.tables:
        name, files = f"table {what} of {run.run_id}", [path for _, path in files_of(run.run_id, what)]
        if what in TIMES and not times:
            continue
        if what in left_out:
            lines.append(f"{name}: cannot be made here: {left_out[what]}")
            continue
        other = [path for path in files if _sha256(folder / path) != hashes[path]]
        if other:
            timed = what == "comparisons" and not times
            found = _file_differences(bundle, folder, files[0], other, TIME_COLUMNS if timed else ())
            lines += [f"{name}: {line}" for line in found]
    return lines


def _file_differences(bundle: Bundle, folder: Path, data: str, other: list[str], apart: tuple[str, ...]) -> list[str]:
    """What differs in a table, of which the files `other` have other bytes; columns that begin with `apart` aside."""
    stored = bundle.file(data)
    if stored is None:
        unknown = f"other bytes in {', '.join(other)} (the manifest came without the tables: cells unknown)"
        return [] if apart else [unknown]
    old, new = pyarrow.parquet.read_table(io.BytesIO(stored)), pyarrow.parquet.read_table(folder / data)
    old, new = (one.select([name for name in one.column_names if not name.startswith(apart)]) for one in (old, new))
    cells = cell_differences(old, new)
    lines = cells + value_differences("metadata, ", _provenance(old), _provenance(new))
    return lines if cells or apart else [*lines, f"the same cells in other bytes: {', '.join(other)}"]


def cell_differences(old: pa.Table, new: pa.Table) -> list[str]:
    """Differences of two tables: rows, columns, and the cells of each column."""
    lines = []
    for names, place in ((_only(old, new), "the bundle"), (_only(new, old), "what was made here")):
        if names:
            lines.append(f"columns only in {place}: {', '.join(names)}")
    if old.num_rows != new.num_rows:
        return [*lines, f"{counted(old.num_rows, 'row')} in the bundle, {new.num_rows:,} here"]
    for name in old.column_names:
        if name in new.column_names:
            line = _column_difference(name, old[name], new[name])
            lines += [line] if line else []
    return lines


def _column_difference(name: str, old: pa.ChunkedArray, new: pa.ChunkedArray) -> str:
    if old.type != new.type:
        return f"column {name}: {old.type} in the bundle, {new.type} here"
    if old.equals(new):
        return ""
    a, b = old.to_pylist(), new.to_pylist()
    pairs = enumerate(zip(a, b, strict=True))
    places = [place for place, (x, y) in pairs if not (x == y or (x != x and y != y))]  # two NaNs are the same cell
    if not places:
        return ""
    first = places[0]
    line = f"column {name}: {len(places):,} of {len(a):,} cells differ"
    numbers = [abs(b[place] - a[place]) for place in places if _is_number(a[place]) and _is_number(b[place])]
    if numbers:
        line += f", by at most {np.max(numbers):.3g}"
    return f"{line} (first in row {first + 1}: {_shown(a[first])} in the bundle, {_shown(b[first])} here)"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, float) else str(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _only(table: pa.Table, other: pa.Table) -> list[str]:
    return [name for name in table.column_names if name not in other.column_names]


def _provenance(table: pa.Table) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((table.schema.metadata or {}).get(b"focus_explorer", b"{}"))
    return values


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
