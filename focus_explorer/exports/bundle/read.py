"""Reading a bundle or its manifest, with every check before anything is made from it."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.exports.bundle.manifest import FORMAT, FORMAT_VERSION, NAME
from focus_explorer.exports.tables.sources import TABLES

MOST_BYTES = 2 << 30  # of one file read into memory
_KEYS: dict[str, type] = {"includes_text": bool, "machine": dict, "versions": dict, "runs": list, "files": list}
_RUN_KEYS: dict[str, type] = {
    "run_id": str,
    "created_at": str,
    "command": str,
    "model": dict,
    "tokenizer": dict,
    "centroids": dict,
    "config": dict,
    "text": dict,
    "execution": dict,
    "seeds": dict,
    "notes": list,
    "measured": dict,
    "timing": dict,
    "maps": list,
    "tables": list,
}
_PARTS = {
    "model": ("id", "fingerprint"),
    "centroids": ("name", "sha256", "source"),
    "timing": ("repeats",),
    "text": ("sha256", "tokens", "tokens_sha256", "file"),
    "seeds": ("run",),
    "execution": ("dtype", "device", "backend", "threads", "versions"),
    "measured": ("attention", "tags", "random_centroids", "comparisons", "lengths"),
}
_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A checked manifest and the files it came with.

    Attributes:
        source: the zip, or the file of the manifest.
        manifest: as `focus_explorer.exports.bundle.manifest` writes it.
    """

    source: Path
    manifest: dict[str, Any]

    @property
    def is_zip(self) -> bool:
        """Whether it came whole, as a zip."""
        return zipfile.is_zipfile(self.source)

    def file(self, path: str) -> bytes | None:
        """A file of the bundle, checked by its hash; None where the manifest came alone.

        Raises:
            InputError: the file has other bytes than when the bundle was made.
        """
        listed = {row["path"]: row["sha256"] for row in self.manifest["files"]}
        if path not in listed:
            return None
        data = _content(self.source, path)
        if data is not None and hashlib.sha256(data).hexdigest() != listed[path]:
            raise InputError(
                f"{path} of {self.source.name} has other bytes than when the bundle was made",
                expected=f"a file with sha256 {listed[path]}",
                fix="get the bundle again",
            )
        return data

    def hashes(self) -> dict[str, str]:
        """Path -> sha256 of every data and table file."""
        return {
            row["path"]: row["sha256"] for row in self.manifest["files"] if row["path"].startswith(("data/", "tables/"))
        }


def read_bundle(source: str | Path) -> Bundle:
    """Read a bundle's zip, an unpacked bundle's folder, or a manifest.

    Raises:
        InputError: it is missing, damaged, no bundle, or from a newer version.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        path = path / NAME
    try:
        data = _content(path, NAME) if zipfile.is_zipfile(path) else path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", expected="a bundle (.zip) or its manifest.json"
        ) from error
    if data is None:
        raise InputError(f"{path.name} has no {NAME}", expected="a zip that `focus-explorer bundle` wrote")
    try:
        manifest = json.loads(data.decode("utf-8"))
    except ValueError as error:
        what = "is a damaged zip" if path.suffix.lower() == ".zip" else "is no readable JSON"
        raise InputError(
            f"{path.name} {what}", expected="a bundle (.zip) or its manifest.json", fix="get the bundle again"
        ) from error
    _check(manifest, path.name)
    return Bundle(path, manifest)


def _content(source: Path, name: str) -> bytes | None:
    """One file of a zip, or of a manifest's folder; None where there is none.

    Raises:
        InputError: the zip is damaged.
    """
    if not zipfile.is_zipfile(source):
        path = source.parent / PurePosixPath(name)
        return path.read_bytes() if path.is_file() else None
    try:
        with zipfile.ZipFile(source) as archive:
            if archive.getinfo(name).file_size > MOST_BYTES:
                raise InputError(f"{name} of {source.name} is larger than 2 GB", fix="get the bundle again")
            return archive.read(name)
    except KeyError:
        return None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise InputError(
            f"{source.name} is damaged ({name}: {error})", expected="a whole zip", fix="get the bundle again"
        ) from error


def _check(manifest: Any, name: str) -> None:
    def damaged(problem: str) -> InputError:
        return InputError(f"the manifest in {name} is damaged: {problem}", fix="get the bundle again")

    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{name} is no manifest of a bundle", expected=f'JSON with "format": "{FORMAT}"')
    version = manifest.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise damaged(f"its format version is {version!r}")
    if version > FORMAT_VERSION:
        raise InputError(
            f"{name} was made by a newer version (format {version})",
            expected=f"format {FORMAT_VERSION}",
            fix="update Focus Explorer",
        )
    _check_keys(manifest, _KEYS, "", damaged)
    for row in manifest["files"]:
        if not isinstance(row, dict) or not {"path", "sha256", "bytes"} <= row.keys() or not _inside(row["path"]):
            raise damaged("its list of files is not one")
    for run in manifest["runs"]:
        _check_run(run, damaged)
    if not manifest["runs"]:
        raise damaged("it has no runs")


def _check_run(run: Any, damaged: Any) -> None:
    if not isinstance(run, dict):
        raise damaged("a run is no object")
    _check_keys(run, _RUN_KEYS, "a run's ", damaged)
    if not _RUN_ID.fullmatch(run["run_id"]):
        raise damaged(f"{run['run_id']!r} is no run id")
    for part, keys in _PARTS.items():
        missing = [key for key in keys if key not in run[part]]
        if missing:
            raise damaged(f"{part} of run {run['run_id']} has no {missing[0]!r}")
    unknown = [what for what in run["tables"] if what not in TABLES]
    if unknown:
        raise damaged(f"it lists the table {unknown[0]!r}, which this version does not know")


def _check_keys(values: dict[str, Any], keys: dict[str, type], of: str, damaged: Any) -> None:
    for key, kind in keys.items():
        if not isinstance(values.get(key), kind):
            raise damaged(f"{of}{key!r} is {'missing' if key not in values else type(values[key]).__name__}")


def _inside(path: Any) -> bool:
    return isinstance(path, str) and not path.startswith("/") and ".." not in PurePosixPath(path).parts
