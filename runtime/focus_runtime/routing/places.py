"""Where a name of centroids leads: a shipped file, a path, a folder with settings beside the file, or a hub."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from focus_runtime.assets import SHIPPED_CENTROIDS, asset_path
from focus_runtime.config import BACKENDS, SLIDING_LAYERS
from focus_runtime.errors import CentroidFileError, first_line
from focus_runtime.files import cannot_write, replacing
from focus_runtime.version import __version__

CENTROIDS_FILE = "centroids.safetensors"
SETTINGS_FILE = "focus_config.json"
BASE_MODEL_FOLDER = "base_model"  # of a folder that was saved with the weights of the base model
FORMAT = "focus-composition"
FORMAT_VERSION = 1
MAX_BYTES = 512 * 1024 * 1024  # of a centroid file
MAX_SETTINGS_BYTES = 1024 * 1024
SUFFIXES = (".safetensors", ".pt", ".pth")
_FIX = "save it again, or remove the file to use the centroids alone"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedSettings:
    """What `focus_config.json` says; `base_model` is an embedded model's name, a hub id or a path, "" if unknown."""

    sha256: str
    base_model: str = ""
    base_fingerprint: str = ""
    backend: str = "auto"
    sliding_layers: str = "auto"


def write_settings(folder: Path, settings: SavedSettings) -> None:
    """Write `focus_config.json`, the same bytes for equal settings."""
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "written_by": f"focus-explorer {__version__}"}
    content = json.dumps(head | dataclasses.asdict(settings), indent=2, sort_keys=True) + "\n"
    with replacing(folder / SETTINGS_FILE, explain=cannot_write("choose a writable folder", CentroidFileError)) as part:
        part.write_text(content, encoding="utf-8")


def read_settings(path: Path, name: str) -> SavedSettings:
    """Read a `focus_config.json`, which anyone may have written."""
    file = f"{SETTINGS_FILE} of {name}"
    try:
        if path.stat().st_size > MAX_SETTINGS_BYTES:
            raise CentroidFileError(f"{file} is larger than {MAX_SETTINGS_BYTES:,} bytes", fix=_FIX)
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CentroidFileError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # ValueError: also not UTF-8
        raise CentroidFileError(f"{file} is not JSON", expected="a JSON object", fix=_FIX) from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise CentroidFileError(f"{file} is something else", expected=FORMAT, fix=_FIX)
    version = values.pop("format_version", None)
    if isinstance(version, bool) or not isinstance(version, int) or version > FORMAT_VERSION:
        expected = f"at most {FORMAT_VERSION}"
        raise CentroidFileError(
            f"{file} has format version {version!r}", expected=expected, fix="update Focus Explorer"
        )
    values.pop("written_by", None)
    fields = sorted(field.name for field in dataclasses.fields(SavedSettings))
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise CentroidFileError(f"{file} has the key {unknown[0]!r}", expected="one of " + ", ".join(fields), fix=_FIX)
    if "sha256" not in values or not all(isinstance(value, str) for value in values.values()):
        raise CentroidFileError(f"{file} has no sha256, or a value that is no text", expected="texts", fix=_FIX)
    settings = SavedSettings(**values)
    for key, allowed in (("backend", BACKENDS), ("sliding_layers", SLIDING_LAYERS)):
        value = getattr(settings, key)
        if value not in allowed:
            expected = "one of " + ", ".join(allowed)
            raise CentroidFileError(f"{file}: {key} is {value[:40]!r}", expected=expected, fix=_FIX)
    return settings


SECONDS = 5  # that the hub may take to say what a repository has
_NAME = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(@(?P<revision>[\w][\w./+-]{0,199}))?", re.ASCII
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NETWORK = "check the network connection and HF_ENDPOINT; what was fetched before is read from the cache"


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository of the hub, `user/repo`, at a branch, tag or commit; None: the newest."""

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


def fetch(name: HubName) -> Path:
    """The cache's folder of a repository at a commit, fetched unless it is there and may not have changed.

    It holds `centroids.safetensors`, and `focus_config.json` where the repository has one.

    Raises:
        CentroidFileError: there is no such repository, revision or file, it may not be read, or the hub is out of reach
            and the cache does not have it.
    """
    from huggingface_hub import hf_hub_download

    found = cached(name) if name.pinned else None
    if found is not None:
        return found
    commit = _commit(name)
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
    return path.parent


def _fetch_settings(repo: str, commit: str) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    with suppress(RemoteEntryNotFoundError):  # a repository that somebody filled by hand has none
        hf_hub_download(repo, SETTINGS_FILE, revision=commit, etag_timeout=SECONDS)


def cached(name: HubName) -> Path | None:
    """The cache's folder of a repository, without any request; None where it has no centroid file of that revision."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(name.repo, CENTROIDS_FILE, revision=name.revision)
    if not isinstance(path, str) or not os.path.exists(path):
        return None
    return Path(path).parent


def _commit(name: HubName) -> str | None:
    """Ask for the commit of a revision and the sizes of its files; None where the hub cannot be reached or fails.

    The client's own download waits half a minute for a hub that is out of reach; one request without another attempt
    does not.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    commit = None
    for file, most in ((CENTROIDS_FILE, MAX_BYTES), (SETTINGS_FILE, MAX_SETTINGS_BYTES)):
        try:
            found = get_hf_file_metadata(hf_hub_url(name.repo, file, revision=commit or name.revision), timeout=SECONDS)
        except HfHubHTTPError as error:
            if file == SETTINGS_FILE and isinstance(error, RemoteEntryNotFoundError):
                continue
            if error.response.status_code >= 500 and cached(name) is not None:
                return None
            raise _failure(name, error) from error
        except Exception as error:  # the client's for being offline, and those of the HTTP library below it
            libraries = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
            if isinstance(error, OSError) or libraries & {"httpx", "httpx2", "httpcore"}:
                return None
            raise
        if found.size is not None and found.size > most:
            size = f"{file} of {name} has {found.size:,} bytes"
            raise CentroidFileError(size, expected=f"at most {most:,}", fix="name another repository")
        commit = commit or found.commit_hash
    return commit


def _failure(name: HubName, error: Exception) -> CentroidFileError:
    """One clear message for what the hub answered."""
    from huggingface_hub import errors

    login = "log in with `hf auth login`, or set HF_TOKEN"
    if isinstance(error, errors.GatedRepoError):  # is a RepositoryNotFoundError too
        fix = f"ask for it on the repository's page, then {login}"
        return CentroidFileError(f"access to {name.repo} has to be granted by its owner", fix=fix)
    if isinstance(error, errors.RepositoryNotFoundError):
        return CentroidFileError(
            f"the hub has no repository {name.repo}, or it is private",
            expected="user/repo, a shipped file's name, or a path",
            fix=f"check the spelling; for a private one {login}",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        what = f"{name.repo} has no revision {name.revision or 'main'}"
        return CentroidFileError(what, expected="a branch, tag or whole commit hash")
    if isinstance(error, errors.RemoteEntryNotFoundError):
        fix = "name a repository that `focus-explorer centroids push` wrote"
        return CentroidFileError(f"{name} holds no centroid file", expected=CENTROIDS_FILE, fix=fix)
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        if status in (401, 403):
            return CentroidFileError(f"the hub refuses access to {name} (status {status})", fix=login)
        return CentroidFileError(f"the hub answered {status} for {name}", fix="try again later")
    return CentroidFileError(f"{name} cannot be fetched: {first_line(error)}", fix=_NETWORK)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A centroid file that was found; there may be none at a path that was named."""

    path: Path
    name: str
    settings: SavedSettings | None = None  # those beside the file
    origin: str = ""  # repository and commit it was fetched from, "" for files of this machine


def locate_centroids(source: str | os.PathLike[str], revision: str | None) -> Place:
    """Find a centroid file, and fetch it where a repository is named. What is on this machine goes first."""
    text = os.fspath(source)
    repository = named_repository(source)
    if repository is None and revision is not None:
        raise CentroidFileError(
            f"a revision was given, but {text} is no repository of a hub", expected="user/repo", fix="leave it out"
        )
    if repository is not None:
        if revision is not None and repository.revision is not None:
            raise CentroidFileError(f"{text} names a revision, and another was given", expected="one of them")
        if revision is not None:
            repository = hub_name(f"{repository.repo}@{revision}")
        if repository is None:
            what = f"the revision {revision!r:.82} is no name"
            raise CentroidFileError(what, expected="a branch, tag or commit hash")
        folder = fetch(repository)
        origin = f"{repository.repo}@{folder.name}"
        return _in_folder(folder, origin, origin)
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


def _in_folder(folder: Path, name: str, origin: str = "") -> Place:
    settings = folder / SETTINGS_FILE
    saved = read_settings(settings, name) if settings.exists() else None
    return Place(path=folder / CENTROIDS_FILE, name=name, settings=saved, origin=origin)
