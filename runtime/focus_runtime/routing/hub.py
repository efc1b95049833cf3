"""Repositories of a model hub with centroids in them: what names stand for one, and fetching it to the hub's cache.

Requests go through huggingface_hub, which knows the address, the access token and the cache. A repository is laid out
as in saved_folder.py. Without a network, or with HF_HUB_OFFLINE, the cache is read. What was fetched of a revision that
is a whole commit hash is read from the cache without a request.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from focus_runtime.errors import CentroidFileError, first_line
from focus_runtime.routing.saved_folder import CENTROIDS_FILE, SETTINGS_FILE
from focus_runtime.routing.saved_folder import MAX_BYTES as MAX_SETTINGS_BYTES

SECONDS = 5  # that the hub may take to say what a repository has
_NAME = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(@(?P<revision>[\w][\w./+-]{0,199}))?", re.ASCII
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NETWORK = "check the network connection and HF_ENDPOINT; what was fetched before is read from the cache"


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository of the hub at a revision.

    Attributes:
        repo: user or organisation, a slash, and the repository's name.
        revision: branch, tag or commit; None for the newest.
    """

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"

    @property
    def pinned(self) -> bool:
        """Whether the revision is a whole commit hash, whose content never changes."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None


def hub_name(name: str) -> HubName | None:
    """What `user/repo` and `user/repo@revision` stand for; None for every other form of name."""
    match = _NAME.fullmatch(name)
    if match is None or ".." in name:
        return None
    return HubName(match["repo"], match["revision"])


@dataclass(frozen=True, slots=True)
class Fetched:
    """A repository in the cache.

    Attributes:
        folder: holds `centroids.safetensors`, and `focus_config.json` where the repository has one.
        name: repository and commit.
    """

    folder: Path
    name: HubName


def fetch(name: HubName, *, largest: int) -> Fetched:
    """The centroids of a repository, from the cache where they are there and may not have changed.

    Args:
        name: repository and revision.
        largest: bytes that a centroid file may have; a larger one is not fetched.

    Raises:
        CentroidFileError: there is no such repository, revision or file, it may not be read, or the hub is out of reach
            and the cache does not have it.
    """
    from huggingface_hub import hf_hub_download

    found = cached(name) if name.pinned else None
    if found is not None:
        return found
    commit = _commit(name, largest)
    if commit is None:
        found = cached(name)
        if found is None:
            raise CentroidFileError(
                f"the hub cannot be reached, and {name} is not in the local cache",
                expected="a network connection, or a repository that was fetched before",
                fix=_NETWORK,
            )
        return found
    try:
        _fetch_settings(name.repo, commit)  # first: a cached centroid file has its hash beside it
        path = Path(hf_hub_download(name.repo, CENTROIDS_FILE, revision=name.revision, etag_timeout=SECONDS))
        if path.parent.name != commit:  # somebody pushed in between
            _fetch_settings(name.repo, path.parent.name)
    except Exception as error:  # those of the hub's client and of the HTTP library below it have no common type
        raise _failure(name, error) from error
    return Fetched(path.parent, HubName(name.repo, path.parent.name))


def _fetch_settings(repo: str, commit: str) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    with suppress(RemoteEntryNotFoundError):  # a repository that somebody filled by hand has none
        hf_hub_download(repo, SETTINGS_FILE, revision=commit, etag_timeout=SECONDS)


def cached(name: HubName) -> Fetched | None:
    """What the cache has of a repository, without any request; None where it has no centroid file of that revision."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(name.repo, CENTROIDS_FILE, revision=name.revision)
    if not isinstance(path, str) or not os.path.exists(path):
        return None
    folder = Path(path).parent
    return Fetched(folder, HubName(name.repo, folder.name))


def _commit(name: HubName, largest: int) -> str | None:
    """Ask for the commit of a revision and the sizes of its files; None where the hub cannot be reached or fails.

    The client's own download waits half a minute for a hub that is out of reach; one request without another attempt
    does not.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    commit = None
    for file, most in ((CENTROIDS_FILE, largest), (SETTINGS_FILE, MAX_SETTINGS_BYTES)):
        try:
            found = get_hf_file_metadata(hf_hub_url(name.repo, file, revision=commit or name.revision), timeout=SECONDS)
        except HfHubHTTPError as error:
            if file == SETTINGS_FILE and isinstance(error, RemoteEntryNotFoundError):
                continue
            if error.response.status_code >= 500 and cached(name) is not None:
                return None
            raise _failure(name, error) from error
        except Exception as error:  # the client's for being offline, and those of the HTTP library below it
            if isinstance(error, OSError) or _is_network(error):
                return None
            raise
        if found.size is not None and found.size > most:
            raise CentroidFileError(
                f"{file} of {name} has {found.size:,} bytes",
                expected=f"at most {most:,}",
                fix="name another repository",
            )
        commit = commit or found.commit_hash
    return commit


def _is_network(error: Exception) -> bool:
    """Whether an error is one of the HTTP library below the hub's client."""
    return any(kind.__module__.split(".")[0] in ("httpx", "httpx2", "httpcore") for kind in type(error).__mro__)


def _failure(name: HubName, error: Exception) -> CentroidFileError:
    """One clear message for what the hub answered."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RemoteEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    login = "log in with `hf auth login`, or set HF_TOKEN"
    if isinstance(error, GatedRepoError):  # is a RepositoryNotFoundError too
        return CentroidFileError(
            f"access to {name.repo} has to be granted by its owner",
            fix=f"ask for it on the repository's page, then {login}",
        )
    if isinstance(error, RepositoryNotFoundError):
        return CentroidFileError(
            f"the hub has no repository {name.repo}, or it is private",
            expected="user/repo, a shipped file's name, or a path",
            fix=f"check the spelling; for a private one {login}",
        )
    if isinstance(error, RevisionNotFoundError):
        return CentroidFileError(
            f"{name.repo} has no revision {name.revision or 'main'}", expected="a branch, tag or whole commit hash"
        )
    if isinstance(error, RemoteEntryNotFoundError):
        return CentroidFileError(
            f"{name} holds no centroid file",
            expected=CENTROIDS_FILE,
            fix="name a repository that `focus-explorer centroids push` wrote",
        )
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 403):
            return CentroidFileError(f"the hub refuses access to {name} (status {status})", fix=login)
        return CentroidFileError(f"the hub answered {status} for {name}", fix="try again later")
    return CentroidFileError(f"{name} cannot be fetched: {first_line(error)}", fix=_NETWORK)
