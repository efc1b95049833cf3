"""Where a name of centroids leads: a shipped file, a path, a folder with settings beside the file, or a hub."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from focus_runtime.assets import SHIPPED_CENTROIDS, asset_path
from focus_runtime.errors import CentroidFileError
from focus_runtime.routing.hub import HubName, fetch, hub_name
from focus_runtime.routing.saved_folder import CENTROIDS_FILE, SETTINGS_FILE, SavedSettings, read_settings

SUFFIXES = (".safetensors", ".pt", ".pth")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A centroid file that was found.

    Attributes:
        path: of the file; there may be none where a path was named.
        name: that messages, lists and runs call it by.
        settings: read from the folder or repository, None where there are none.
        origin: repository and commit it was fetched from, "" for files of this machine.
    """

    path: Path
    name: str
    settings: SavedSettings | None = None
    origin: str = ""

    @property
    def sha256(self) -> str:
        """Hash that the settings beside the file state, "" without any."""
        return self.settings.sha256 if self.settings is not None else ""


def locate_centroids(source: str | os.PathLike[str], revision: str | None, *, largest: int) -> Place:
    """Find a centroid file, and fetch it where a repository is named. What is on this machine goes first.

    Args:
        source: see `load_centroids`.
        revision: of a repository.
        largest: bytes that a fetched file may have.

    Raises:
        CentroidFileError: a revision was given for something else, or the hub does not give the file.
    """
    text = os.fspath(source)
    repository = named_repository(source)
    if repository is None and revision is not None:
        raise CentroidFileError(
            f"a revision was given, but {text} is no repository of a hub", expected="user/repo", fix="leave it out"
        )
    if repository is not None:
        if revision is not None and repository.revision is not None:
            raise CentroidFileError(f"{text} names a revision, and another was given", expected="one of them")
        found = fetch(_at(repository, revision), largest=largest)
        return _in_folder(found.folder, str(found.name), origin=str(found.name))
    if text in SHIPPED_CENTROIDS:
        return Place(path=asset_path("centroids", SHIPPED_CENTROIDS[text]), name=text)
    path = Path(source)
    if text == "random" and not path.exists():
        raise CentroidFileError(
            "random centroids are in no file: they are drawn for a model",
            expected="a centroid file",
            fix="call random_centroids(model, FocusConfig()), then calibrate_potentials(model, centroids, ids)",
        )
    if path.suffix.lower() not in SUFFIXES and (path / CENTROIDS_FILE).is_file():
        return _in_folder(path, path.name or str(path.resolve()))
    return Place(path=path, name=path.name)


def named_repository(source: str | os.PathLike[str]) -> HubName | None:
    """The repository a name stands for; None for shipped files and for whatever is or looks like a path."""
    if not isinstance(source, str) or source in SHIPPED_CENTROIDS or source.lower().endswith(SUFFIXES):
        return None
    return None if os.path.lexists(source) else hub_name(source)


def _at(repository: HubName, revision: str | None) -> HubName:
    if revision is None:
        return repository
    name = hub_name(f"{repository.repo}@{revision}")
    if name is None:
        raise CentroidFileError(f"the revision {revision[:80]!r} is no name", expected="a branch, tag or commit hash")
    return name


def _in_folder(folder: Path, name: str, *, origin: str = "") -> Place:
    settings = folder / SETTINGS_FILE
    return Place(
        path=folder / CENTROIDS_FILE,
        name=name,
        settings=read_settings(settings, name) if settings.exists() else None,
        origin=origin,
    )
