"""Centroid files by name: the shipped ones, those a user added, any path, and repositories of a hub."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.settings import MAX_KEPT_BYTES
from focus_explorer.usecases.centroids.ready import check_model, groups_on_samples
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import check_owner, log_change, new_owner
from focus_explorer.words import counted
from focus_runtime.assets import SHIPPED_CENTROIDS as SHIPPED_CENTROIDS
from focus_runtime.budget import budget_words
from focus_runtime.config import setting_words
from focus_runtime.files import replacing
from focus_runtime.routing.places import hub_name, locate_centroids, named_repository
from focus_runtime.store.database import Database
from focus_runtime.store.user_records import forget_centroids, register_centroids, rename_centroids

if TYPE_CHECKING:
    from focus_runtime.routing.centroids import Centroids
    from focus_runtime.routing.places import Place

NAME_LENGTH = 120


def load_named_centroids(database: Database, name: str) -> Centroids | None:
    """Centroids by name: shipped, uploaded (also by hash), a path, or a repository of a hub. None for "random"."""
    return None if name == "random" else find_centroids(database, name)[1]


def find_centroids(database: Database, name: str) -> tuple[Place, Centroids]:
    """Where a named file lies, and what is in it; `load_named_centroids` says what names there are, but not random."""
    from focus_runtime.routing.centroid_file import load_place

    if name == "random":
        raise InputError("random centroids are in no file", expected="a centroid file", fix="name one")
    place = locate_centroids(_path_of(database, name), None)
    centroids = load_place(place)
    uploaded = {row["sha256"]: row["name"] for row in uploaded_centroids(database)}
    if name not in SHIPPED_CENTROIDS and not place.origin:
        centroids.name = uploaded.get(centroids.sha256, centroids.name)
    return place, centroids


def pinned_name(service: Service, name: str) -> str:
    """A name that means the same centroids from now on: of a hub's repository with its commit, which is fetched."""
    return name if named_repository(name) is None else find_centroids(service.database, name)[0].origin or name


def _path_of(database: Database, name: str) -> str:
    """What the runtime finds a file by: an upload by hash, a path, the newest upload of that name, or a repository."""
    path = os.path.expanduser(name)
    if name in SHIPPED_CENTROIDS:
        return name
    for row in uploaded_centroids(database):
        if name == row["sha256"] or (name == row["name"] and not os.path.exists(path)):
            return str(row["path"])
    if os.path.exists(path) or Path(name).suffix or hub_name(name) is not None:
        return path
    raise NotFoundError(
        f"there are no centroids {name!r}",
        expected=f"{', '.join(SHIPPED_CENTROIDS)}, random, a file, an uploaded file's name, or user/repo of a hub",
    )


def check_centroids(service: Service, path: str | Path, model: str | None = None) -> tuple[Centroids, list[str]]:
    """Validate a centroid file, against a model too when one is named; returns the centroids and a readable report."""
    from focus_runtime.routing.centroid_file import load_centroids

    centroids, tried = load_centroids(path), []
    if model is not None:
        with service.models.lease(model) as loaded:
            check_model(centroids, loaded)
            centroids.check_budget(loaded.model, centroids.config.budget)
            tried = groups_on_samples(loaded, centroids)
    config, total = centroids.config, centroids.num_model_layers or len(centroids.routers)
    unfocused, balanced = total - len(centroids.routers), balanced_on(centroids.training)
    report = [
        f"{counted(len(centroids.routers), 'layer')}, K = {counted(config.num_groups, 'group')}, routing size "
        f"{config.routing_dim}, hidden size {centroids.hidden_size}",
        f"made for {centroids.base_model or 'a model it does not name'}" + (f"; fits {model}" if model else ""),
        f"trained for {setting_words(config.to_dict())}, temperature {config.temperature:g}, {config.gate} gate",
        *([f"{unfocused} of the model's {total} attention layers keep full attention"] if unfocused else []),
        *([f"fetched from {centroids.origin}"] if centroids.origin else []),
        *([f"budget: {budget_words(config.budget)}"] if config.budget else []),
        "column potentials present" if centroids.has_potentials else "no column potentials",
        *([f"groups balanced on {', '.join(balanced)}"] if balanced else []),
        *tried,
        *(f"note: {warning}" for warning in centroids.warnings),
    ]
    return centroids, report


def domain_names(record: Any) -> list[str]:
    """Names of the domains of a training, or of what groups were balanced on; the record may be anything."""
    domains = record.get("domains") if isinstance(record, Mapping) else None
    names = [one.get("name") for one in domains if isinstance(one, Mapping)] if isinstance(domains, list) else []
    return [name for name in names if isinstance(name, str)]


def balanced_on(training: Mapping[str, Any]) -> list[str]:
    """Text that the groups were balanced on after training: its domains, or how much it was; may be empty."""
    record = training.get("balanced")
    if not isinstance(record, Mapping):
        return []
    sequences, length = record.get("sequences"), record.get("seq_len")
    if names := domain_names(record):
        return names
    if isinstance(sequences, int) and isinstance(length, int):
        return [f"{counted(sequences, 'sequence')} of {counted(length, 'token')}"]
    return []


def check_new(out: str | Path) -> None:
    """Refuse a file or folder that exists, with an InputError: a copy never replaces anything."""
    if Path(out).exists():
        raise InputError(f"{out} exists", expected="a new file", fix="name another or remove it")


@dataclass(frozen=True, slots=True)
class AddedCentroids:
    """A file that can be used, under its name in lists; one `known` was here before, and nothing was added."""

    sha256: str
    name: str
    report: list[str]
    known: bool


def add_centroids(service: Service, path: str | Path, name: str, model: str | None) -> AddedCentroids:
    """Validate a file, keep a copy in the folder of the database and register it, unless the same file is here already.

    It must fit the model. None: it was made from the model.
    """
    centroids, report = check_centroids(service, path, model)
    for row in every_centroid_file(service.database):
        if row["sha256"] == centroids.sha256 and os.path.exists(row.get("path", path)):
            return AddedCentroids(row["sha256"], row["name"], report, known=True)
    centroids.name = name
    target = kept_folder(service.database) / f"{centroids.sha256}{Path(path).suffix.lower()}"
    _check_space(service.database, Path(path).stat().st_size)
    with replacing(target, explain=_cannot_keep) as part:
        shutil.copyfile(path, part)
    register_centroids(service.database, centroids, report, str(target), owner=new_owner())
    return AddedCentroids(centroids.sha256, name, report, known=False)


def kept_folder(database: Database) -> Path:
    return database.path.parent / "centroids"


def _check_space(database: Database, more: int) -> None:
    kept = sum(file.stat().st_size for file in kept_folder(database).glob("*") if file.is_file())
    if kept + more > MAX_KEPT_BYTES:
        taken, new, most = (f"{count / 2**20:,.0f} MiB" for count in (kept, more, MAX_KEPT_BYTES))
        raise InputError(
            f"the centroid files of this page take {taken}, and this one has {new}",
            expected=f"at most {most} together",
            fix="remove one that is no longer needed",
        )


def _cannot_keep(target: Path, error: OSError) -> InputError:
    return InputError(f"cannot keep the file in {target.parent}: {error.strerror}", fix="free some space")


def file_sha256(path: str | Path) -> str:
    """Hash of a valid centroid file; an InputError if it cannot be used."""
    from focus_runtime.routing.centroid_file import load_centroids

    return load_centroids(path).sha256


def register_in_place(database: Database, path: str | Path) -> None:
    """Register a centroid file without a copy or a report; an InputError if it cannot be used."""
    from focus_runtime.routing.centroid_file import load_centroids

    register_centroids(database, load_centroids(path), [], str(path))


def rename_file(service: Service, file: str, name: str) -> None:
    """Give an uploaded file, by sha256 or name, another name in every list; runs made with it keep theirs."""
    row = _own_row(service, file, "renamed")
    name = " ".join(name.split())
    if not name or len(name) > NAME_LENGTH:
        raise InputError(
            f"the name has {len(name)} characters" if name else "the name is empty",
            expected=f"1 to {NAME_LENGTH} characters",
        )
    others = [each["name"] for each in uploaded_centroids(service.database) if each["sha256"] != row["sha256"]]
    if name in (*others, "random") or name in SHIPPED_CENTROIDS:
        raise InputError(f"another file is called {name!r}", fix="choose a name that no file has yet")
    rename_centroids(service.database, row["sha256"], name)
    log_change("file renamed", file=row["sha256"])


def remove_file(service: Service, file: str) -> None:
    """Remove an uploaded file, by sha256 or name, and its copy; a file in a training's folder stays in that folder."""
    row = _own_row(service, file, "removed")
    forget_centroids(service.database, row["sha256"])
    path = Path(row["path"])
    if path.parent == kept_folder(service.database):
        with suppress(OSError):  # it is in no list any more
            path.unlink()
    log_change("file removed", file=row["sha256"])


def _own_row(service: Service, file: str, what: str) -> dict[str, Any]:
    shipped = file if file in SHIPPED_CENTROIDS else shipped_name(file)
    if shipped is not None:
        raise InputError(f"{shipped} ships with the project and cannot be {what}")
    row = uploaded_row(service.database, file)
    if row is None:
        raise NotFoundError(f"there is no centroid file {file[:64]!r}", fix="look at the list of files again")
    check_owner(f"the file {row['name']}", row["owner"])
    return row


def centroid_row(database: Database, sha256: str) -> dict[str, Any]:
    """The shipped or uploaded file of a hash; a NotFoundError if there is none."""
    for row in every_centroid_file(database):
        if row["sha256"] == sha256:
            return row
    raise NotFoundError(f"there is no centroid file {str(sha256)[:16]!r}", fix="reload the page")


def load_row(row: dict[str, Any]) -> Centroids:
    from focus_runtime.routing.centroid_file import load_centroids

    loaded = load_centroids(row.get("path", row["name"]))
    if loaded.sha256 != row["sha256"]:
        raise InputError(f"{row['name']} is not the file it was when it was added", fix="upload it again")
    return loaded


def every_centroid_file(database: Database) -> list[dict[str, Any]]:
    """The shipped files, the default first, and the uploaded ones, newest first."""
    return [shipped_row(name) for name in SHIPPED_CENTROIDS] + uploaded_centroids(database)


def uploaded_centroids(database: Database) -> list[dict[str, Any]]:
    """Uploaded centroid files, newest first."""
    return fetch(database, "centroid_files").to_pylist()


def uploaded_row(database: Database, name: str) -> dict[str, Any] | None:
    """The uploaded file of a hash, or the newest of a name, if there is one."""
    return next((row for row in uploaded_centroids(database) if name in (row["sha256"], row["name"])), None)


def shipped_name(sha256: str) -> str | None:
    """The name of the shipped file with a hash, if one has it."""
    return next((name for name in SHIPPED_CENTROIDS if shipped_row(name)["sha256"] == sha256), None)


@functools.cache
def shipped_row(name: str) -> dict[str, Any]:
    from focus_runtime.routing.centroid_file import load_centroids

    centroids = load_centroids(name)
    config = centroids.config
    return {
        "name": name,
        "sha256": centroids.sha256,
        "base_model": centroids.base_model,
        "config": config.to_json(),
        "num_groups": config.num_groups,
        "routing_dim": config.routing_dim,
        "layers": len(centroids.routers),
    }
