"""Reading a bundle or its manifest, with every check before anything is made from it."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.exports.bundle.manifest import FORMAT, FORMAT_VERSION, NAME

MOST_BYTES = 1 << 30  # of one file read into memory
MOST_MANIFEST_BYTES = 128 << 20  # its values take several times as much
MOST_COMPRESSED = 250  # times smaller: what a bundle holds compresses to a tenth


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
        if not zipfile.is_zipfile(path) and path.stat().st_size > MOST_MANIFEST_BYTES:
            raise _too_large(NAME, path, MOST_MANIFEST_BYTES)
        data = _content(path, NAME, MOST_MANIFEST_BYTES) if zipfile.is_zipfile(path) else path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", expected="a bundle (.zip) or its manifest.json"
        ) from error
    if data is None:
        raise InputError(f"{path.name} has no {NAME}", expected="a zip that `focus-explorer bundle` wrote")
    try:
        manifest = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        what = "is a damaged zip" if path.suffix.lower() == ".zip" else "is no readable JSON"
        raise InputError(
            f"{path.name} {what}", expected="a bundle (.zip) or its manifest.json", fix="get the bundle again"
        ) from error
    return Bundle(path, _checked(manifest, path.name))


def _too_large(name: str, source: Path, most: int) -> InputError:
    return InputError(
        f"{name} of {source.name} is too large", expected=f"at most {most >> 20:,} MB", fix="get the bundle again"
    )


def _content(source: Path, name: str, most: int = MOST_BYTES) -> bytes | None:
    """One file of a zip, or of a manifest's folder; None where there is none.

    Args:
        source: zip or manifest.
        name: of the file within.
        most: bytes it may have.

    Raises:
        InputError: the zip is damaged, or the file would unpack to more than it may.
    """
    if not zipfile.is_zipfile(source):
        path = source.parent / PurePosixPath(name)
        return path.read_bytes() if path.is_file() else None
    try:
        with zipfile.ZipFile(source) as archive:
            entry = archive.getinfo(name)
            if entry.file_size > min(most, MOST_COMPRESSED * max(entry.compress_size, 4096)):
                raise _too_large(name, source, most)
            with archive.open(name) as stream:
                data = stream.read(entry.file_size + 1)  # what it declares, however much there is
            if len(data) > entry.file_size:
                raise _too_large(name, source, most)
            return data
    except KeyError:
        return None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise InputError(
            f"{source.name} is damaged ({name}: {error})", expected="a whole zip", fix="get the bundle again"
        ) from error


def _checked(manifest: Any, name: str) -> dict[str, Any]:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{name} is no manifest of a bundle", expected=f'JSON with "format": "{FORMAT}"')
    version = manifest.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise InputError(
            f"{name} was made by a newer version (format {version})",
            expected=f"format {FORMAT_VERSION}",
            fix="update Focus Explorer",
        )
    from focus_explorer.exports.bundle.schema import check_manifest

    try:
        return check_manifest(manifest)
    except InputError as error:
        raise InputError(
            f"the manifest in {name} is damaged: {error.problem}",
            expected=error.expected,
            fix=error.fix or "get the bundle again",
        ) from error
