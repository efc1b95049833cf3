"""The tables of a bundle made again, from the database or by running the model, and compared byte by byte."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.exports.bundle import differences, manifest
from focus_explorer.exports.bundle.manifest import Row, SteadyDatabase
from focus_explorer.exports.bundle.read import Bundle, read_bundle
from focus_explorer.exports.bundle.rerun import find_centroids, find_text, recorded_models, run_again
from focus_explorer.exports.bundle.tables import files_of, share, write_tables
from focus_explorer.usecases.centroids.files import uploaded_centroids
from focus_explorer.usecases.service import Service
from focus_runtime.files import replacing_folder

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild made.

    Attributes:
        folder: where the tables are.
        files: how many were compared.
        again: ids of the runs the model ran again for; the others came from the database.
        surroundings: what is not as it was when the bundle was made: versions, machine, device.
        tables: what differs in the tables; empty when every file has the bytes it had.
    """

    folder: Path
    files: int
    again: list[str] = field(default_factory=list)
    surroundings: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether every table has the bytes it had."""
        return not self.tables


def rebuild(
    service: Service | None,
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
        service: whose database may have the runs and the centroid files; None where there is none.
        source: a bundle, its folder or its manifest.
        out: folder for the tables; made, or empty.
        texts: files with the runs' texts, for a bundle without them; found by their hashes.
        centroids: centroid files that are neither shipped nor uploaded; found by their hashes.
        model: another name or place of the model; its weights are checked.
        progress: takes each stage and the fraction done; may raise Cancelled.

    Raises:
        InputError: something is missing, damaged or another one than recorded; nothing is written then.
    """
    bundle = read_bundle(source)
    target = Path(out).expanduser()
    _check_target(target)
    _check_files(bundle)
    with tempfile.TemporaryDirectory(prefix="focus-rebuild-") as scratch:
        folder = Path(scratch) / "tables"
        folder.mkdir()
        rebuilt = Rebuilt(
            target, sum(len(files_of(e["run_id"], w)) for e in bundle.manifest["runs"] for w in e["tables"])
        )
        for number, entry in enumerate(bundle.manifest["runs"]):
            part = share(progress, number, len(bundle.manifest["runs"]))
            database = _stored(service, entry)
            if database is None:
                here = Service(Path(scratch) / f"{number}.duckdb", models=recorded_models(entry, model))
                made = _again(service, here, bundle, entry, (texts, centroids), part)
                rebuilt.again.append(entry["run_id"])
                database = SteadyDatabase(here.database.path)
                _add(rebuilt.surroundings, _execution_differences(here, made, entry))
            else:
                _add(rebuilt.tables, _row_differences(database, entry))
            _, left_out = write_tables(
                database,
                entry["run_id"],
                folder,
                with_text=bundle.manifest["includes_text"],
                only=entry["tables"],
                progress=part,
            )
            _add(rebuilt.tables, differences.of_tables(bundle, entry, folder, left_out))
        _add(rebuilt.surroundings, _machine_differences(bundle))
        with replacing_folder(target) as staging:  # the target may be on another disk than the scratch folder
            shutil.copytree(folder, staging, dirs_exist_ok=True)
    return rebuilt


def _add(lines: list[str], more: list[str]) -> None:
    lines += [line for line in more if line not in lines]


def _check_target(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is there already", expected="a new or empty folder", fix="choose one with --out")


def _check_files(bundle: Bundle) -> None:
    """Check before any work that the manifest lists every file and the bundle has them with their hashes."""
    listed = bundle.hashes()
    for entry in bundle.manifest["runs"]:
        for what in entry["tables"]:
            missing = [path for _, path in files_of(entry["run_id"], what) if path not in listed]
            if missing:
                raise InputError(
                    f"the manifest in {bundle.source.name} is damaged: it does not list {missing[0]}",
                    fix="get the bundle again",
                )
    for row in bundle.manifest["files"]:
        if bundle.file(row["path"]) is None and bundle.is_zip:
            raise InputError(f"{bundle.source.name} lacks {row['path']}", fix="get the bundle again")


def _stored(service: Service | None, entry: Row) -> SteadyDatabase | None:
    """The database, if it has the run."""
    if service is None or not service.database.path.exists():
        return None
    database = SteadyDatabase(service.database.path, wait=service.database.wait)
    try:
        fetch_run(database, entry["run_id"])
    except NotFoundError:
        return None
    return database


def _again(
    service: Service | None,
    here: Service,
    bundle: Bundle,
    entry: Row,
    given: tuple[Sequence[str], Sequence[str]],
    progress: Progress,
) -> Row:
    texts, centroids = given
    known = uploaded_centroids(service.database) if service is not None and service.database.path.exists() else []
    name = find_centroids(entry, centroids, known)
    return run_again(here, entry, find_text(bundle, entry, texts), name, progress=progress)


def _row_differences(database: SteadyDatabase, entry: Row) -> list[str]:
    """Where the database and the manifest differ about a run of this id."""
    run = fetch_run(database, entry["run_id"])
    execution = entry["execution"]
    then = {
        "text": entry["text"]["sha256"],
        "model fingerprint": entry["model"]["fingerprint"],
        "centroids": entry["centroids"]["sha256"],
        "config": entry["config"],
        "device": execution["device"],
        "dtype": execution["dtype"],
        "backend": execution["backend"],
    }
    here = {
        "text": run["text_sha256"],
        "model fingerprint": run["model_fingerprint"],
        "centroids": run["centroids_sha256"],
        "config": json.loads(run["config"]),
        "device": run["device"],
        "dtype": run["dtype"],
        "backend": run["backend"],
    }
    return differences.of_values(f"run {entry['run_id']}, ", then, here)


def _execution_differences(here: Service, made: Row, entry: Row) -> list[str]:
    """Where the second execution of the run differs from the recorded one."""
    execution, versions = entry["execution"], json.loads(made["versions"])
    threads = int(versions.pop("threads"))
    lines = differences.of_values("run with ", execution["versions"], versions)
    names = ("device", "dtype", "backend")
    lines += differences.of_values("run with ", {n: execution[n] for n in names}, {n: made[n] for n in names})
    if execution["threads"] != threads:
        lines.append(f"run with threads: {execution['threads'] or 'not recorded'} in the bundle, {threads} here")
    lines += made["problems"]
    if entry["tokenizer"].get("class"):
        with here.models.lease(entry["model"]["id"]) as loaded:
            tokenizer = manifest.tokenizer_entry(loaded.tokenizer)
        lines += differences.of_values("tokenizer ", entry["tokenizer"], tokenizer)
    return lines


def _machine_differences(bundle: Bundle) -> list[str]:
    recorded = bundle.manifest
    lines = differences.of_values("version of ", recorded["versions"], manifest.versions())
    return lines + differences.of_values("machine, ", recorded["machine"], manifest.machine())
