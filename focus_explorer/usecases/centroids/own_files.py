"""Uploaded centroid files renamed and removed, on a lab's page by who added them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.usecases.centroids.files import (
    kept_folder,
    shipped_name,
    shipped_names,
    uploaded_centroids,
    uploaded_row,
)
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import check_owner, log_change

NAME_LENGTH = 120


def rename_file(service: Service, file: str, name: str) -> None:
    """Give an uploaded file another name in every list; runs made with it keep the name they have.

    Args:
        service: whose database has the file.
        file: its sha256, or its name.
        name: at most `NAME_LENGTH` characters, and no other file's.

    Raises:
        InputError: the name cannot be used, or the file is shipped, unknown or another user's.
    """
    from focus_runtime.store.centroids import rename_centroids

    row = _own_row(service, file, "renamed")
    name = " ".join(name.split())
    if not name or len(name) > NAME_LENGTH:
        raise InputError(
            f"the name has {len(name)} characters" if name else "the name is empty",
            expected=f"1 to {NAME_LENGTH} characters",
        )
    others = [each["name"] for each in uploaded_centroids(service.database) if each["sha256"] != row["sha256"]]
    if name in (*others, "random") or name in shipped_names():
        raise InputError(f"another file is called {name!r}", fix="choose a name that no file has yet")
    rename_centroids(service.database, row["sha256"], name)
    log_change("file renamed", file=row["sha256"])


def remove_file(service: Service, file: str) -> None:
    """Remove an uploaded file and its copy. Runs made with it stay; what is measured for them later needs it again.

    A file of a training's own folder is only taken from the list.

    Args:
        service: whose database has the file.
        file: its sha256, or its name.

    Raises:
        InputError: the file is shipped, unknown or another user's.
    """
    from focus_runtime.store.centroids import forget_centroids

    row = _own_row(service, file, "removed")
    forget_centroids(service.database, row["sha256"])
    path = Path(row["path"])
    if path.parent == kept_folder(service.database):
        with suppress(OSError):  # it is in no list any more
            path.unlink()
    log_change("file removed", file=row["sha256"])


def _own_row(service: Service, file: str, what: str) -> dict[str, Any]:
    shipped = file if file in shipped_names() else shipped_name(file)
    if shipped is not None:
        raise InputError(f"{shipped} ships with the project and cannot be {what}")
    row = uploaded_row(service.database, file)
    if row is None:
        raise NotFoundError(f"there is no centroid file {file[:64]!r}", fix="look at the list of files again")
    check_owner(f"the file {row['name']}", row["owner"])
    return row
