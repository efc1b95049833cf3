"""Folders with the centroids of one model and what they are composed onto: saved by FocusModel, or on a hub.

centroids.safetensors   the centroid file
focus_config.json       its hash, the base model, and how Focus is attached to it; optional
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_runtime.config import BACKENDS, SLIDING_LAYERS
from focus_runtime.errors import CentroidFileError
from focus_runtime.files import cannot_write, replacing
from focus_runtime.version import __version__

CENTROIDS_FILE = "centroids.safetensors"
SETTINGS_FILE = "focus_config.json"
BASE_MODEL_FOLDER = "base_model"  # of a folder that was saved with the weights of the base model
FORMAT = "focus-composition"
FORMAT_VERSION = 1
MAX_BYTES = 1024 * 1024
_FIX = "save it again, or remove the file to use the centroids alone"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedSettings:
    """What `focus_config.json` says.

    Attributes:
        sha256: of the centroid file in the folder.
        base_model: embedded model's name, hub id or path; "" if unknown.
        base_fingerprint: of the model that Focus was composed onto, "" if unknown.
        backend: attention backend, see `focus_attention`.
        sliding_layers: what layers with a sliding window do, see `compose`.
    """

    sha256: str
    base_model: str = ""
    base_fingerprint: str = ""
    backend: str = "auto"
    sliding_layers: str = "auto"

    def to_json(self) -> str:
        """The file's content, the same for equal settings."""
        head = {"format": FORMAT, "format_version": FORMAT_VERSION, "written_by": f"focus-explorer {__version__}"}
        return json.dumps(head | dataclasses.asdict(self), indent=2, sort_keys=True) + "\n"


def write_settings(folder: Path, settings: SavedSettings) -> None:
    """Write `focus_config.json`.

    Raises:
        CentroidFileError: the folder cannot be written.
    """
    with replacing(folder / SETTINGS_FILE, explain=cannot_write("choose a writable folder", CentroidFileError)) as part:
        part.write_text(settings.to_json(), encoding="utf-8")


def read_settings(path: Path, name: str) -> SavedSettings:
    """Read a `focus_config.json`, which may be anybody's.

    Args:
        path: of the file.
        name: of its folder or repository, for messages.

    Raises:
        CentroidFileError: it cannot be read, or says what none of ours says.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CentroidFileError(f"{SETTINGS_FILE} of {name} is larger than {MAX_BYTES:,} bytes", fix=_FIX)
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CentroidFileError(f"cannot read {SETTINGS_FILE} of {name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # ValueError: also not UTF-8
        raise CentroidFileError(f"{SETTINGS_FILE} of {name} is not JSON", expected="a JSON object", fix=_FIX) from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise CentroidFileError(f"{SETTINGS_FILE} of {name} is something else", expected=FORMAT, fix=_FIX)
    version = values.get("format_version")
    if isinstance(version, bool) or not isinstance(version, int) or version > FORMAT_VERSION:
        raise CentroidFileError(
            f"{SETTINGS_FILE} of {name} has format version {version!r}",
            expected=f"at most {FORMAT_VERSION}",
            fix="update Focus Explorer",
        )
    return _settings(values, name)


def _settings(values: dict[str, Any], name: str) -> SavedSettings:
    fields = {field.name for field in dataclasses.fields(SavedSettings)}
    unknown = sorted(set(values) - fields - {"format", "format_version", "written_by"})
    if unknown:
        expected = "one of " + ", ".join(sorted(fields))
        raise CentroidFileError(f"{SETTINGS_FILE} of {name} has the key {unknown[0]!r}", expected=expected, fix=_FIX)
    known = {key: value for key, value in values.items() if key in fields}
    if "sha256" not in known or not all(isinstance(value, str) for value in known.values()):
        raise CentroidFileError(
            f"{SETTINGS_FILE} of {name} has no sha256, or a value that is no text", expected="texts", fix=_FIX
        )
    settings = SavedSettings(**known)
    for key, allowed in (("backend", BACKENDS), ("sliding_layers", SLIDING_LAYERS)):
        if getattr(settings, key) not in allowed:
            raise CentroidFileError(
                f"{SETTINGS_FILE} of {name}: {key} is {getattr(settings, key)[:40]!r}",
                expected="one of " + ", ".join(allowed),
                fix=_FIX,
            )
    return settings
