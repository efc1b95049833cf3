"""A bundle: data, tables and figures of runs, README, references, and how to make the tables again, in one zip."""

from __future__ import annotations

import re
import shlex
import tempfile
import textwrap
import zipfile
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet

from focus_explorer.errors import InputError
from focus_explorer.exports import templates
from focus_explorer.exports.bundle import manifest
from focus_explorer.exports.bundle.read import FORMAT, FORMAT_VERSION, NAME
from focus_explorer.exports.tables.sources import TABLES
from focus_explorer.exports.tables.write import SUFFIXES, write_table
from focus_explorer.progress import Progress
from focus_explorer.usecases.runs import layer_numbers
from focus_explorer.usecases.service import Service
from focus_explorer.words import counted
from focus_runtime.config import setting_words
from focus_runtime.files import replacing
from focus_runtime.store.database import Database
from focus_runtime.version import __version__

if TYPE_CHECKING:
    import plotly.graph_objects as go


PACKAGE = "focus_explorer.exports.bundle"
TIMES = "Times are measured again and not compared. Figures are not made again."


def readme(manifest: dict[str, Any]) -> str:
    """README.txt of a bundle, from its manifest without the list of files."""
    runs = manifest["runs"]
    return (
        templates(PACKAGE)
        .get_template("README.txt.jinja")
        .render(
            title="Focus Explorer bundle of " + (f"run {runs[0]['run_id']}" if len(runs) == 1 else f"{len(runs)} runs"),
            runs=[_run(entry) for entry in runs],
            with_text=manifest["includes_text"],
            changed=any(run.get("changes") for run in runs),
            promise=_promise(runs),
            missing=_missing(manifest),
        )
    )


def _promise(runs: list[dict[str, Any]]) -> str:
    """When the tables come back with the same bytes: docs/bundles.md promises it of runs in fp32 on a CPU alone."""
    loose = [run for run in runs if (run["execution"]["device"], run["execution"]["dtype"]) != ("cpu", "float32")]
    sentences = []
    if len(loose) < len(runs):
        sentences.append(
            "On the same machine, with the same versions and as many threads, this gives the same bytes; elsewhere it "
            "says what differs and by how much."
        )
    if loose:
        made = sorted({f"{run['execution']['dtype']} on {run['execution']['device']}" for run in loose})
        which = "" if len(loose) == len(runs) else f" ({', '.join(run['run_id'] for run in loose)})"
        sentences.append(
            f"Of what was computed in {' or '.join(made)}{which} it does not promise the same bytes, not even on the "
            f"same machine: it says what differs and by how much."
        )
    return textwrap.fill(" ".join([*sentences, TIMES]), 118, break_long_words=False, break_on_hyphens=False)


def _run(entry: dict[str, Any]) -> str:
    return (
        f"Run {entry['run_id']}: {counted(entry['text']['tokens'], 'token')}, {entry['model']['id']}, centroids "
        f"{entry['centroids']['name']}, {setting_words(entry['config'])}."
    )


def _missing(manifest: dict[str, Any]) -> list[str]:
    lines = []
    for entry in manifest["runs"]:
        lines += [f"table {what} of {entry['run_id']}: {why}" for what, why in entry["left_out"].items()]
    reasons: dict[str, list[str]] = {}
    for one in manifest["figures"]["missing"]:
        reasons.setdefault(one["why"], []).append(f"{one['name']} of {one['run_id']}")
    lines += [f"figures {', '.join(names)}: {why}" for why, names in reasons.items()]
    if not manifest["figures"]["asked_for"]:
        lines.append("figures: none were asked for")
    return lines


def bibtex() -> str:
    """The BibTeX file: the paper, whose sources agree on the first three authors only, and this tool."""
    text = files(PACKAGE).joinpath("templates/references.bib").read_text(encoding="utf-8")
    return text.replace("VERSION", __version__)


# With the model, a token can be recovered from its loss, from its groups in all layers, or from a list of ids; so
# without the text no table has rows by place in the text.
DATA_ONLY = ("assignments", "head_assignments", "losses", "masks", "predictions")  # too many rows for a spreadsheet
BY_PLACE = (*DATA_ONLY, "tokens", "links", "pairs", "missing_links")
PLACES = {"position", "token", "token_id", "start_char", "end_char", "query", "key", "row_block", "col_block"}
FORMATS_FOR_READING = ("csv", "json", "latex", "markdown")
NOT_WITHOUT_TEXT = "its rows stand in the order of the text, which is not included"
NO_ROWS = {"head_assignments": "it has no rows: all heads have the groups of assignments"}
NOTHING_MEASURED = "it has no rows: this was not measured for the run"


def share(progress: Progress, number: int, count: int) -> Progress:
    """The progress of part `number`, from 0, of `count` equal parts, as part of the whole."""
    return lambda stage, fraction: progress(stage, (number + fraction) / count)


def files_of(run_id: str, what: str) -> list[tuple[str, str]]:
    """(format, path within the bundle) of every file of a table."""
    files = [("parquet", f"data/{run_id}/{what}.parquet")]
    formats = () if what in DATA_ONLY else ("csv",) if what == "tokens" else FORMATS_FOR_READING
    return files + [(name, f"tables/{run_id}/{what}{SUFFIXES[name]}") for name in formats]


def write_tables(
    database: Database,
    run_id: str,
    folder: Path,
    *,
    with_text: bool,
    only: Iterable[str] | None = None,
    progress: Progress = lambda stage, fraction: None,
) -> tuple[list[str], dict[str, str]]:
    """Write a run's tables below a folder, all of them unless `only` names some; returns those written and left out."""
    written, left_out = [], {}
    tables = list(TABLES if only is None else only)
    for number, what in enumerate(tables):
        if what in BY_PLACE and not with_text:
            left_out[what] = NOT_WITHOUT_TEXT
            continue
        progress(f"Table {what}", 0.1 + 0.8 * number / len(tables))
        try:
            with database.read():  # keeps the file open: opening it for every query takes longer than most queries
                problem = _write_table(database, run_id, what, folder, with_text=with_text)
        except InputError as error:
            problem = str(error)
        if problem:
            left_out[what] = problem
        else:
            written.append(what)
    return written, left_out


def _write_table(database: Database, run_id: str, what: str, folder: Path, *, with_text: bool) -> str:
    """Write one table; returns why it was left out, or ""."""
    for file_format, path in files_of(run_id, what):
        target = write_table(database, run_id, what, file_format, folder / path)
        if file_format == "parquet":  # the first one
            stored = pyarrow.parquet.ParquetFile(target)
            assert with_text or not PLACES & set(stored.schema_arrow.names), f"{what} has rows by place"
            if not stored.metadata.num_rows:
                target.unlink()
                return NO_ROWS.get(what, NOTHING_MEASURED)
    return ""


FIGURE_FORMATS = ("pdf", "svg")
FIGURES_BY_PLACE = ("loss", "mask")  # their marks are in the order of the text


def write_figures(
    database: Database, run_id: str, folder: Path, *, with_text: bool, progress: Progress = lambda stage, fraction: None
) -> dict[str, list[Any]]:
    """Draw every figure of a run below a folder, and maps of the layers that have one.

    Returns `made`, paths within the bundle, and `missing`, run_id, name and why of each that could not be drawn.
    """
    from focus_explorer.exports.figures.render import open_browser
    from focus_explorer.exports.figures.write import FIGURES

    made: list[str] = []
    missing: list[dict[str, str]] = []
    drawings = [(name, layer) for name in FIGURES for layer in _layers(database, run_id, name)]
    try:
        with open_browser():
            for number, (name, layer) in enumerate(drawings):
                title = name if layer is None else f"{name}-layer{layer}"
                progress(f"Figure {title}", 0.9 + 0.08 * number / len(drawings))
                try:
                    if name in FIGURES_BY_PLACE and not with_text:
                        raise InputError(NOT_WITHOUT_TEXT)
                    made += _draw(database, run_id, name, layer, folder / f"figures/{run_id}/{title}", folder)
                except InputError as error:
                    missing.append({"run_id": run_id, "name": title, "why": str(error)})
    except InputError as error:  # no browser
        missing += [{"run_id": run_id, "name": name, "why": str(error)} for name in FIGURES]
    return {"made": made, "missing": missing}


def _layers(database: Database, run_id: str, name: str) -> list[int | None]:
    if name != "map":
        return [None]
    with database.read() as connection:
        rows = connection.execute(
            "SELECT DISTINCT layer FROM projection_meta WHERE run_id = ? AND layer >= 0 ORDER BY layer", [run_id]
        ).fetchall()
    return [row[0] for row in rows] or [*layer_numbers(database, run_id)[:1]]


def _draw(database: Database, run_id: str, name: str, layer: int | None, path: Path, folder: Path) -> list[str]:
    """One figure in every format; all or none."""
    from focus_explorer.exports.figures.render import picture
    from focus_explorer.exports.figures.write import figure

    drawn = figure(database, run_id, name, layer=layer)
    if name == "map":
        without_order(drawn)
    pictures = {file_format: steady(picture(drawn, file_format), file_format) for file_format in FIGURE_FORMATS}
    path.parent.mkdir(parents=True, exist_ok=True)
    for file_format, data in pictures.items():
        path.with_name(f"{path.name}.{file_format}").write_bytes(data)
    return [f"{path.relative_to(folder).as_posix()}.{file_format}" for file_format in FIGURE_FORMATS]


def without_order(drawn: go.Figure) -> None:
    """Sort the points of each group by x: their order in the text would reveal where a token recurs."""
    for trace in drawn.data:
        if trace.type == "scatter" and "markers" in (trace.mode or "") and "text" not in (trace.mode or ""):
            x, y = np.asarray(trace.x, dtype=float), np.asarray(trace.y, dtype=float)
            order = np.lexsort((y, x))
            trace.update(x=x[order], y=y[order], text=None, customdata=None, hovertext=None)


def steady(data: bytes, file_format: str) -> bytes:
    """Take the time out of a PDF and the random names out of an SVG, so that the same figure has the same bytes."""
    if file_format == "pdf":  # the same number of bytes: a PDF records the offsets of its objects
        return re.sub(rb"D:\d{14}", b"D:20000101000000", data)
    names = dict.fromkeys(re.findall(rb'id="(?:defs|topdefs|clip)-?([0-9a-f]{6})', data))
    names |= dict.fromkeys(re.findall(rb"-cb([0-9a-f]{6})", data))
    names |= dict.fromkeys(re.findall(rb'class="trace [a-z ]+trace([0-9a-f]{6})"', data))
    for number, name in enumerate(names):
        data = data.replace(name, b"%06d" % number)
    return data


def write_bundle(
    service: Service,
    run_ids: Sequence[str],
    out: str | Path,
    *,
    text: bool = False,
    figures: bool = True,
    progress: Progress = lambda stage, fraction: None,
) -> Path:
    """Write runs with everything that belongs to them as one zip file; no partial file stays.

    `text` includes the texts and the tables from which they can be read. Figures are listed as missing without Chrome.
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
        entries: list[manifest.Row] = []
        drawn: dict[str, list[Any]] = {"made": [], "missing": []}
        for number, run_id in enumerate(runs):
            part = share(progress, number, len(runs))
            part("The run", 0.0)
            entry, content = manifest.describe_run(service, database, run_id, with_text=text)
            entry["tables"], entry["left_out"] = write_tables(database, run_id, folder, with_text=text, progress=part)
            if figures:
                for name, found in write_figures(database, run_id, folder, with_text=text, progress=part).items():
                    drawn[name] += found
            if text:
                _write(folder / entry["text"]["file"], content)
            entries.append(entry)
        options = ["--text"] * text + ["--no-figures"] * (not figures)
        contents = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            # the command that makes this bundle, without the places of files on one machine
            "command": shlex.join(["focus-explorer", "bundle", *runs, *options, "--out", "bundle.zip"]),
            "includes_text": text,
            "machine": manifest.machine(),
            "versions": manifest.versions(),
            "runs": entries,
            "figures": drawn | {"asked_for": figures},
        }
        _write(folder / "references.bib", bibtex())
        _write(folder / "README.txt", readme(contents))
        contents["files"] = [manifest.file_entry(folder, path) for path in _files(folder)]
        _write(folder / NAME, manifest.to_json(contents))  # the last, since it names them all
        progress("Packing", 0.98)
        with replacing(target) as temporary:
            pack(folder, temporary)
    return target


def pack(folder: Path, target: Path) -> None:
    """Zip a folder: the same files give the same bytes."""
    earliest = (1980, 1, 1, 0, 0, 0)  # time that a zip can name
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in _files(folder):
            info = zipfile.ZipInfo(path.relative_to(folder).as_posix(), earliest)
            info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            archive.writestr(info, path.read_bytes())


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
