"""Centroid files by name: the shipped ones, those a user added, any path, and repositories of a hub."""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.settings import MAX_KEPT_BYTES
from focus_explorer.usecases.budget import budget_words
from focus_explorer.usecases.centroids.fit import check_model, groups_on_samples
from focus_explorer.usecases.centroids.training_record import balanced_on
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import new_owner
from focus_explorer.words import counted
from focus_runtime.assets import SHIPPED_CENTROIDS
from focus_runtime.config import growth_words
from focus_runtime.files import replacing
from focus_runtime.routing.hub import hub_name
from focus_runtime.store.database import Database

if TYPE_CHECKING:
    from focus_runtime.routing.centroids import Centroids
    from focus_runtime.routing.places import Place


def load_named_centroids(database: Database, name: str) -> Centroids | None:
    """Centroids by name.

    Args:
        database: with the uploaded files.
        name: a shipped file's name, random, an uploaded file's name or hash, a path, or a repository of a hub.

    Returns:
        The centroids; None for random ones, which are drawn for a model.

    Raises:
        InputError: there is no such file, or it cannot be used.
    """
    return None if name == "random" else find_centroids(database, name)[1]


def find_centroids(database: Database, name: str) -> tuple[Place, Centroids]:
    """Where a named file lies, and what is in it.

    Args:
        database: with the uploaded files.
        name: as for `load_named_centroids`, but not random.

    Raises:
        InputError: there is no such file, or it cannot be used.
    """
    from focus_runtime.routing.centroid_file import MAX_BYTES, load_place
    from focus_runtime.routing.places import locate_centroids

    if name == "random":
        raise InputError("random centroids are in no file", expected="a centroid file", fix="name one")
    place = locate_centroids(_path_of(database, name), None, largest=MAX_BYTES)
    centroids = load_place(place)
    uploaded = {row["sha256"]: row["name"] for row in uploaded_centroids(database)}
    if name not in SHIPPED_CENTROIDS and not place.origin:
        centroids.name = uploaded.get(centroids.sha256, centroids.name)
    return place, centroids


def pinned_name(service: Service, name: str) -> str:
    """A name that means the same centroids from now on: of a hub's repository its commit, which is fetched and checked.

    Raises:
        InputError: the hub does not give it.
    """
    from focus_runtime.routing.places import named_repository

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
    """Validate a centroid file, against a model too when one is named.

    Args:
        service: whose model is used.
        path: of the file.
        model: name of the model; None to check the file alone.

    Returns:
        The centroids and a readable report.

    Raises:
        InputError: the file or the model cannot be used.
    """
    from focus_runtime.routing.centroid_file import load_centroids

    centroids, tried = load_centroids(path), []
    if model is not None:
        with service.models.lease(model) as loaded:
            check_model(centroids, loaded)
            centroids.check_budget(loaded.model, centroids.config.budget)
            tried = groups_on_samples(loaded, centroids)
    config, total = centroids.config, centroids.num_model_layers or len(centroids.routers)
    unfocused = total - len(centroids.routers)
    report = [
        f"{counted(len(centroids.routers), 'layer')}, K = {counted(config.num_groups, 'group')}, routing size "
        f"{config.routing_dim}, "
        f"hidden size {centroids.hidden_size}",
        f"made for {centroids.base_model or 'a model it does not name'}"
        + (f"; fits {model}" if model is not None else ""),
        f"trained for top-k {config.top_k}, window {config.window}, {counted(config.num_sinks, 'sink')}, "
        f"temperature {config.temperature:g}, {config.gate} gate",
        *([f"windows {growth_words(config.window_growth)}"] if config.window_growth is not None else []),
        *([f"{unfocused} of the model's {total} attention layers keep full attention"] if unfocused else []),
        *([f"fetched from {centroids.origin}"] if centroids.origin else []),
        *([f"text sinks from a similarity of {config.text_sinks:g}"] if config.text_sinks is not None else []),
        *(["factors of the logits, one for each query head"] if config.logit_factors else []),
        *([f"budget: {budget_words(config.budget)}"] if config.budget else []),
        "column potentials present" if centroids.has_potentials else "no column potentials",
        *([f"groups balanced on {', '.join(balanced)}"] if (balanced := balanced_on(centroids.training)) else []),
        *tried,
        *(f"note: {warning}" for warning in centroids.warnings),
    ]
    return centroids, report


def check_new(out: str | Path) -> None:
    """Refuse a file or folder that is there: a copy never replaces anything.

    Raises:
        InputError: it is there.
    """
    if Path(out).exists():
        raise InputError(f"{out} exists", expected="a new file", fix="name another or remove it")


def copy_with_text_sinks(service: Service, path: str, similarity: float, out: str) -> str:
    """Write a copy of a centroid file that also keeps sinks in the middle of a text.

    Args:
        service: whose uploads may be named.
        path: of the file, or its name.
        similarity: least cosine similarity with the first token, see `FocusConfig.text_sinks`.
        out: the new file.

    Returns:
        Its sha256.

    Raises:
        InputError: the file or the similarity cannot be used, or there is a file of that name.
    """
    return _copy_with(service, path, out, text_sinks=similarity)


def copy_with_growing_windows(service: Service, path: str, first: int, last: int, out: str) -> str:
    """Write a copy of a centroid file whose windows grow with the position.

    Args:
        service: whose uploads may be named.
        path: of the file, or its name.
        first, last: positions from which to which they grow, see `FocusConfig.window_growth`; equal ones for windows
            of one length.
        out: the new file.

    Returns:
        Its sha256.

    Raises:
        InputError: the file or the positions cannot be used, or there is a file of that name.
    """
    return _copy_with(service, path, out, window_growth=(first, last))


def _copy_with(service: Service, path: str, out: str, **changes: Any) -> str:
    from focus_runtime.routing.centroid_file import save_centroids

    centroids = find_centroids(service.database, path)[1]
    check_new(out)
    centroids.config = centroids.config.replace(**changes)
    return save_centroids(centroids, out)


@dataclass(frozen=True, slots=True)
class AddedCentroids:
    """A file that can be used from now on.

    Attributes:
        sha256: of its content.
        name: shown in lists: the name asked for, or the one it is known by already.
        report: readable lines of the validation.
        known: it was here before, and nothing was added.
    """

    sha256: str
    name: str
    report: list[str]
    known: bool


def add_centroids(service: Service, path: str | Path, name: str, model: str | None) -> AddedCentroids:
    """Validate a file, keep a copy in the folder of the database and register it, unless the same file is here already.

    Args:
        service: whose database registers it.
        path: of the file.
        name: shown in lists.
        model: check that it fits this one; None when the file was made from the model.

    Raises:
        InputError: the file is bad, or the kept files take too much space; nothing is kept.
    """
    from focus_runtime.store.centroids import register_centroids

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
    """Where copies of uploaded files lie."""
    return database.path.parent / "centroids"


def _check_space(database: Database, more: int) -> None:
    kept = sum(file.stat().st_size for file in kept_folder(database).glob("*") if file.is_file())
    if kept + more > MAX_KEPT_BYTES:
        raise InputError(
            f"the centroid files of this page take {_mebibytes(kept)}, and this one has {_mebibytes(more)}",
            expected=f"at most {_mebibytes(MAX_KEPT_BYTES)} together",
            fix="remove one that is no longer needed",
        )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def _cannot_keep(target: Path, error: OSError) -> InputError:
    return InputError(f"cannot keep the file in {target.parent}: {error.strerror}", fix="free some space")


def file_sha256(path: str | Path) -> str:
    """Hash of a valid centroid file.

    Raises:
        InputError: the file cannot be used.
    """
    from focus_runtime.routing.centroid_file import load_centroids

    return load_centroids(path).sha256


def register_in_place(database: Database, path: str | Path) -> None:
    """Register a centroid file without a copy or a report.

    Raises:
        InputError: the file cannot be used.
    """
    from focus_runtime.routing.centroid_file import load_centroids
    from focus_runtime.store.centroids import register_centroids

    register_centroids(database, load_centroids(path), [], str(path))


def centroid_row(database: Database, sha256: str) -> dict[str, Any]:
    """The shipped or uploaded file of a hash.

    Raises:
        NotFoundError: there is none.
    """
    for row in every_centroid_file(database):
        if row["sha256"] == sha256:
            return row
    raise NotFoundError(f"there is no centroid file {str(sha256)[:16]!r}", fix="reload the page")


def load_row(row: dict[str, Any]) -> Centroids:
    """The centroids of a row of `centroid_row`.

    Raises:
        InputError: the file cannot be read, or is another one than when it was added.
    """
    from focus_runtime.routing.centroid_file import load_centroids

    loaded = load_centroids(row.get("path", row["name"]))
    if loaded.sha256 != row["sha256"]:
        raise InputError(f"{row['name']} is not the file it was when it was added", fix="upload it again")
    return loaded


def every_centroid_file(database: Database) -> list[dict[str, Any]]:
    """The shipped files, the default first, and the uploaded ones, newest first."""
    return shipped_centroids() + uploaded_centroids(database)


def uploaded_centroids(database: Database) -> list[dict[str, Any]]:
    """Uploaded centroid files, newest first."""
    return fetch(database, "centroid_files").to_pylist()


def uploaded_row(database: Database, name: str) -> dict[str, Any] | None:
    """The uploaded file of a hash, or the newest of a name; None where there is none."""
    return next((row for row in uploaded_centroids(database) if name in (row["sha256"], row["name"])), None)


def shipped_centroids() -> list[dict[str, Any]]:
    """The shipped files in the form of rows of `uploaded_centroids`, the default first."""
    return [_shipped_row(name) for name in SHIPPED_CENTROIDS]


def shipped_names() -> tuple[str, ...]:
    """Names that stand for shipped files, the default first; none of them is read."""
    return tuple(SHIPPED_CENTROIDS)


def shipped_name(sha256: str) -> str | None:
    """The name of the shipped file with a hash; None where none has it."""
    return next((row["name"] for row in shipped_centroids() if row["sha256"] == sha256), None)


@functools.cache
def _shipped_row(name: str) -> dict[str, Any]:
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
