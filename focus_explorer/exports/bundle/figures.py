"""The figures of a bundle, with nothing in them that changes from one drawing to the next."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.exports.bundle.tables import NOT_WITHOUT_TEXT
from focus_runtime.store.database import Database

FORMATS = ("pdf", "svg")
BY_PLACE = ("loss", "mask")  # their marks are in the order of the text

if TYPE_CHECKING:
    import plotly.graph_objects as go

Row = dict[str, Any]


def write_figures(
    database: Database,
    run_id: str,
    folder: Path,
    *,
    with_text: bool,
    progress: Callable[[str, float], None] = lambda stage, fraction: None,
) -> Row:
    """Draw every figure of a run below a folder, and maps of the layers that have one.

    Args:
        database: has the run.
        run_id: its id.
        folder: of the bundle's files.
        with_text: also the figures in the order of the text.
        progress: receives the stage and the part done, 0 to 1, before each figure.

    Returns:
        `made`: paths within the bundle; `missing`: run_id, name and why of every figure that could not be drawn.
    """
    from focus_explorer.exports.figures.render import open_browser
    from focus_explorer.exports.figures.write import FIGURES

    made: list[str] = []
    missing: list[Row] = []
    drawings = [(name, layer) for name in FIGURES for layer in _layers(database, run_id, name)]
    try:
        with open_browser():
            for number, (name, layer) in enumerate(drawings):
                title = name if layer is None else f"{name}-layer{layer}"
                progress(f"Figure {title}", 0.9 + 0.08 * number / len(drawings))
                try:
                    if name in BY_PLACE and not with_text:
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
    return [row[0] for row in rows] or [fetch(database, "layer_numbers", run_id=run_id)["layer"][0].as_py()]


def _draw(database: Database, run_id: str, name: str, layer: int | None, path: Path, folder: Path) -> list[str]:
    """One figure in every format; all or none."""
    from focus_explorer.exports.figures.render import picture
    from focus_explorer.exports.figures.write import figure

    drawn = figure(database, run_id, name, layer=layer)
    if name == "map":
        without_order(drawn)
    pictures = {file_format: steady(picture(drawn, file_format), file_format) for file_format in FORMATS}
    path.parent.mkdir(parents=True, exist_ok=True)
    for file_format, data in pictures.items():
        path.with_name(f"{path.name}.{file_format}").write_bytes(data)
    return [f"{path.relative_to(folder).as_posix()}.{file_format}" for file_format in FORMATS]


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
