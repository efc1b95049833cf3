"""A bundle: data, tables and figures of runs, references, and how to make the tables again, in one zip.

The same database gives the same bytes: entries are sorted and have no time.
"""

from __future__ import annotations

import shlex
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.exports.bundle import manifest
from focus_explorer.exports.bundle.figures import write_figures
from focus_explorer.exports.bundle.readme import readme
from focus_explorer.exports.bundle.references import bibtex
from focus_explorer.exports.bundle.tables import share, write_tables
from focus_explorer.usecases.service import Service
from focus_runtime.files import replacing

_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest a zip can name
Progress = Callable[[str, float], None]


def write_bundle(
    service: Service,
    run_ids: Sequence[str],
    out: str | Path,
    *,
    text: bool = False,
    figures: bool = True,
    progress: Progress = lambda stage, fraction: None,
) -> Path:
    """Write runs with everything that belongs to them as one zip file.

    Args:
        service: whose database has the runs.
        run_ids: at least one.
        out: a name that ends in .zip.
        text: include the texts, and the tables from which they can be read.
        figures: draw figures; without Chrome or Chromium they are listed as missing.
        progress: receives the stage and the part done, 0 to 1, before each part; may raise Cancelled.

    Returns:
        The zip file.

    Raises:
        InputError: there is no such run, or the file cannot be written; nothing half-written stays.
    """
    runs = list(dict.fromkeys(run_ids))
    if not runs:
        raise InputError("no run was named", expected="the id of at least one run")
    target = Path(out).expanduser()
    if target.suffix.lower() != ".zip":
        raise InputError(f"the bundle is to be written to {target.name!r}", expected="a name that ends in .zip")
    database = manifest.SteadyDatabase(service.database.path, wait=service.database.wait)
    with tempfile.TemporaryDirectory(prefix="focus-bundle-") as scratch:
        folder = Path(scratch)
        entries, drawn = [], []
        for number, run_id in enumerate(runs):
            part = share(progress, number, len(runs))
            part("The run", 0.0)
            entry, content = manifest.describe_run(service, database, run_id, with_text=text)
            entry["tables"], entry["left_out"] = write_tables(database, run_id, folder, with_text=text, progress=part)
            if figures:
                drawn.append(write_figures(database, run_id, folder, with_text=text, progress=part))
            if text:
                _write(folder / entry["text"]["file"], content)
            entries.append(entry)
        _describe(service, folder, entries, drawn, {"text": text, "figures": figures})
        progress("Packing", 0.98)
        with replacing(target) as temporary:
            pack(folder, temporary)
    return target


def bundle_command(run_ids: Sequence[str], *, text: bool, figures: bool) -> str:
    """The command that makes this bundle, without the places of files on one machine.

    Args:
        run_ids: of the runs.
        text: whether the bundle includes the texts.
        figures: whether it includes figures.
    """
    options = ["--text"] * text + ["--no-figures"] * (not figures)
    return shlex.join(["focus-explorer", "bundle", *run_ids, *options, "--out", "bundle.zip"])


def pack(folder: Path, target: Path) -> None:
    """Zip a folder: the same files give the same bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in files:
            info = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _TIME)
            info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            archive.writestr(info, path.read_bytes())


def _describe(
    service: Service, folder: Path, entries: list[manifest.Row], drawn: list[manifest.Row], included: dict[str, bool]
) -> None:
    """The files that describe the others; the manifest last, since it names them all."""
    contents: dict[str, Any] = {
        "format": manifest.FORMAT,
        "format_version": manifest.FORMAT_VERSION,
        "command": bundle_command([entry["run_id"] for entry in entries], **included),
        "includes_text": included["text"],
        "machine": manifest.machine(),
        "versions": manifest.versions(),
        "runs": entries,
        "figures": {
            "made": [path for row in drawn for path in row["made"]],
            "missing": [one for row in drawn for one in row["missing"]],
            "asked_for": included["figures"],
        },
    }
    _write(folder / "references.bib", bibtex())
    _write(folder / "README.txt", readme(contents))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    contents["files"] = [manifest.file_entry(folder, path) for path in files]
    _write(folder / manifest.NAME, manifest.to_json(contents))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
