"""Centroid files pushed to a repository of a model hub, and pulled from one, through huggingface_hub."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer.errors import InputError
from focus_explorer.settings import SETTINGS, VERSION
from focus_explorer.usecases.budget import BudgetRecord, read_record
from focus_explorer.usecases.centroids.cards import held_out_payload
from focus_explorer.usecases.centroids.files import check_new, find_centroids
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.centroids import HeldOutPayload
from focus_runtime.errors import first_line
from focus_runtime.files import replacing, replacing_folder
from focus_runtime.routing.places import (
    CENTROIDS_FILE,
    SavedSettings,
    hub_name,
    locate_centroids,
    named_repository,
    write_settings,
)

if TYPE_CHECKING:
    from focus_runtime.routing.centroids import Centroids

CARD_FILE = "README.md"
EMBEDDED = SETTINGS["model"].default
_LOGIN = "log in with `hf auth login`, or set HF_TOKEN to a token that may write"


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """A centroid file as it is published, and all that its card tells of it."""

    repo: str
    path: Path
    settings: SavedSettings
    size: int
    centroids: Centroids
    held_out: HeldOutPayload | None
    budget_record: BudgetRecord | None
    table: tuple[str, Mapping[str, Any]] | None  # its name in a file of benchmarks/domains.py, and the content of that
    licence: str | None  # identifier that the hub knows
    hub_base_model: str | None  # hub id of the base model, if known
    notes: tuple[str, ...]


def prepare(
    service: Service,
    file: str,
    repo: str,
    *,
    base_model: str | None = None,
    licence: str | None = None,
    table: str | None = None,
) -> Publication:
    """Check a file and gather what its card tells; nothing is written or sent.

    `file` may be a folder of `FocusModel.save_pretrained` too; `table` is a JSON file of benchmarks/domains.py that has
    measured it.
    """
    target = hub_name(repo)
    if target is None or target.revision is not None:
        raise InputError(f"{repo[:80]!r} is no repository of a hub", expected="user/repo")
    if base_model is not None and hub_name(base_model) is None:
        raise InputError(f"--base-model is {base_model[:80]!r}", expected="a hub id such as Qwen/Qwen3-0.6B")
    place, centroids = find_centroids(service.database, file)
    if place.path.suffix != ".safetensors":
        raise InputError(
            f"{place.name} is a {place.path.suffix} file, which a hub's users cannot trust",
            expected="a .safetensors file",
            fix="write one with focus_runtime.save_centroids(load_centroids(path), new_path)",
        )
    saved = place.settings or SavedSettings(
        sha256=centroids.sha256, base_model=centroids.base_model, base_fingerprint=centroids.base_fingerprint
    )
    on_hub = base_model or (saved.base_model if hub_name(saved.base_model) is not None else None)
    loadable = EMBEDDED if saved.base_model == EMBEDDED else on_hub or ""
    return Publication(
        repo=repo,
        path=place.path,
        settings=dataclasses.replace(saved, sha256=centroids.sha256, base_model=loadable),
        size=place.path.stat().st_size,
        centroids=centroids,
        held_out=held_out_payload(centroids.training.get("validation")),
        budget_record=read_record(centroids.training, centroids.config, centroids.routers),
        table=None if table is None else _table(Path(table), centroids.sha256),
        licence=licence,
        hub_base_model=on_hub,
        notes=tuple(_notes(centroids.base_model, loadable, on_hub, licence)),
    )


def _notes(recorded: str, loadable: str, on_hub: str | None, licence: str | None) -> list[str]:
    notes = []
    if recorded and hub_name(recorded) is None and recorded != EMBEDDED:
        notes.append(f"the file calls its base model {recorded!r}, and that is published with it")
    if on_hub is None:
        notes.append("no hub id of the base model is known; --base-model names one")
    if licence is None:
        notes.append("no licence was given; --licence names one")
    return notes


def _table(path: Path, sha256: str) -> tuple[str, Mapping[str, Any]]:
    """The content of a table, and which of its files is the one with a hash."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        name = next(name for name, digest in content["files"].items() if digest == sha256)
        for domain in content["domains"].values():
            row = domain["rows"][name]
            float(domain["full_perplexity"]), float(row["relative_difference"]["value"]), float(row["retained_pairs"])
            int(domain["sequences"])
        int(content["length"])
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", expected="a file of benchmarks/domains.py") from error
    except StopIteration as error:
        raise InputError(
            f"{path.name} has no results of the file with sha256 {sha256[:16]}",
            fix="measure it: python benchmarks/domains.py TEXTS --file NAME=FILE --out TABLE",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path.name} is no table of domains", expected="a file of benchmarks/domains.py") from error
    return name, content


def write_folder(publication: Publication, card: str, folder: str | Path) -> None:
    """Write what a push would send to a new or empty folder."""
    with replacing_folder(folder) as part:
        _fill(part, publication, card)


def _fill(folder: Path, publication: Publication, card: str) -> None:
    shutil.copyfile(publication.path, folder / CENTROIDS_FILE)
    write_settings(folder, publication.settings)
    (folder / CARD_FILE).write_text(card, encoding="utf-8")


def push(
    publication: Publication, card: str, *, private: bool = False, branch: str | None = None, message: str | None = None
) -> tuple[str, str]:
    """Put file, settings and card into a repository in one commit; a missing repository or branch is made.

    Returns repository and commit, as `--centroids` takes it, and the commit's address.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(library_name="focus-explorer", library_version=VERSION)
    repo = publication.repo
    with tempfile.TemporaryDirectory() as folder:
        _fill(Path(folder), publication, card)
        files = [
            CommitOperationAdd(path_in_repo=path.name, path_or_fileobj=path) for path in sorted(Path(folder).iterdir())
        ]
        try:
            api.create_repo(repo, private=private or None, exist_ok=True)
            if branch is not None:
                api.create_branch(repo, branch=branch, exist_ok=True)
            words = message or f"Centroids {publication.settings.sha256[:16]}"
            commit = api.create_commit(repo, files, commit_message=words, revision=branch)
        except Exception as error:  # those of the hub's client and of the HTTP library below it have no common type
            raise _refused(repo, error) from error
    return f"{repo}@{commit.oid}", commit.commit_url


def _refused(repo: str, error: Exception) -> InputError:
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

    if isinstance(error, LocalTokenNotFoundError):
        return InputError(f"there is no access token, so nothing can be pushed to {repo}", fix=_LOGIN)
    if isinstance(error, OfflineModeIsEnabled):
        return InputError(f"nothing can be pushed to {repo}: the hub's client is offline", fix="unset HF_HUB_OFFLINE")
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, HfHubHTTPError):  # uploads of large files wrap it
        cause = cause.__cause__
    if cause is None:
        return InputError(f"nothing was pushed to {repo}: {first_line(error)}", fix="check the network and HF_ENDPOINT")
    status = cause.response.status_code
    if status == 401:
        return InputError(f"the hub does not know who pushes to {repo} (status 401)", fix=_LOGIN)
    if status in (403, 404):
        return InputError(
            f"the hub does not let you write to {repo} (status {status})", fix=f"use a name of your own; {_LOGIN}"
        )
    return InputError(f"the hub answered {status}, and nothing was pushed to {repo}", fix="try again later")


@dataclass(frozen=True, slots=True)
class Pulled:
    """A file that was fetched: repository and commit, hash, and the path, which may be in the hub's cache."""

    name: str
    sha256: str
    path: Path


def pull(name: str, *, revision: str | None = None, sha256: str | None = None, out: str | None = None) -> Pulled:
    """Fetch a repository's centroids into the hub's cache, check them, and copy the file to `out` if asked to."""
    from focus_runtime.routing.centroid_file import load_place

    if named_repository(name) is None:
        raise InputError(f"{name[:80]!r} is no repository of a hub", expected="user/repo, or user/repo@revision")
    if out is not None:
        check_new(out)
    if out is not None and Path(out).suffix != ".safetensors":
        raise InputError(f"--out is {out}", expected="a name that ends in .safetensors")
    place = locate_centroids(name, revision)
    centroids = load_place(place, sha256)
    if out is None:
        return Pulled(place.origin, centroids.sha256, place.path)
    with replacing(out) as part:
        shutil.copyfile(place.path, part)
    return Pulled(place.origin, centroids.sha256, Path(out))
