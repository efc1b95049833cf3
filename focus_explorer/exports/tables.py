"""Tables of a run as CSV, JSON, Parquet and LaTeX, from the same queries the screen uses."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from focus_explorer.errors import InputError
from focus_explorer.queries import fetch, fetch_run
from focus_runtime.mask import CAUSES
from focus_runtime.store.database import Database

LAST = 2**31 - 2  # beyond any position

WHAT = ("groups", "tokens", "layers")
FORMATS = ("csv", "json", "parquet", "latex")
SUFFIXES = {"csv": ".csv", "json": ".json", "parquet": ".parquet", "latex": ".tex"}
_SETTINGS = ("num_groups", "top_k", "window", "num_sinks", "assignment")


def group_label(index: int) -> str:
    """A, B, ... Z, AA, AB, ... as on the screen."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def table(database: Database, run_id: str, what: str) -> pa.Table:
    """One of the tables in `WHAT`, every row with the run and the setting it was measured in.

    Raises:
        InputError: unknown table or run.
    """
    if what not in WHAT:
        raise InputError(f"there is no table {what!r}", expected=" or ".join(WHAT))
    run = fetch_run(database, run_id)
    rows = {"groups": _groups, "tokens": _tokens, "layers": _layers}[what](database, run_id)
    config = json.loads(run["config"])
    setting = {"run_id": run_id, "model_id": run["model_id"], "centroids": run["centroids_name"]}
    setting |= {name: config[name] for name in _SETTINGS}
    for name, value in setting.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    provenance = {key: str(value) for key, value in run.items() if value is not None}
    return rows.replace_schema_metadata({"focus_explorer": json.dumps(provenance, sort_keys=True)})


def _groups(database: Database, run_id: str) -> pa.Table:
    rows = fetch(database, "groups", run_id=run_id)
    pieces: dict[tuple[int, int], list[str]] = {}
    for row in fetch(database, "group_pieces", run_id=run_id).to_pylist():
        pieces.setdefault((row["layer"], row["top_group"]), []).append(
            f"{json.dumps(row['piece'], ensure_ascii=False)}×{row['uses']}"
        )
    keys = list(zip(rows["layer"].to_pylist(), rows["group_index"].to_pylist(), strict=True))
    rows = rows.add_column(2, "label", pa.array([group_label(group) for _, group in keys]))
    return rows.append_column("frequent_tokens", pa.array([" ".join(pieces.get(key, [])) for key in keys]))


def _tokens(database: Database, run_id: str) -> pa.Table:
    return fetch(database, "token_table", run_id=run_id, first=0, last=LAST)


def _layers(database: Database, run_id: str) -> pa.Table:
    return fetch(database, "layers", run_id=run_id)


def write_table(database: Database, run_id: str, what: str, file_format: str, out: str | Path) -> Path:
    """Write a table atomically.

    Raises:
        InputError: unknown run, table or format, or the file cannot be written; nothing half-written stays.
    """
    if file_format not in FORMATS:
        raise InputError(f"there is no format {file_format!r}", expected=" or ".join(FORMATS))
    rows = table(database, run_id, what)
    writers: dict[str, Callable[[pa.Table, Path], None]] = {
        "csv": lambda t, p: pa.csv.write_csv(t, p),
        "json": _write_json,
        "parquet": lambda t, p: pa.parquet.write_table(t, p),
        "latex": lambda t, p: _write_latex(t, p, what),
    }
    target = Path(os.path.expanduser(out))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".export-")
        os.close(handle)
        try:
            writers[file_format](rows, Path(name))
            os.chmod(name, 0o644)
            os.replace(name, target)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write {target}: {error.strerror or error}", fix="choose a writable folder with space"
        ) from error
    return target


def _write_json(rows: pa.Table, path: Path) -> None:
    path.write_text(json.dumps(rows.to_pylist(), ensure_ascii=False, indent=1), encoding="utf-8")


_LATEX_COLUMNS = {
    "groups": ("layer", "label", "tokens", "share", "mean_confidence", "frequent_tokens"),
    "tokens": ("position", "piece", "nll_full", "nll_focus", "nll_difference"),
    "layers": ("layer", "dominance", "retained_pairs", *CAUSES),
}  # fmt: skip


def _write_latex(rows: pa.Table, path: Path, what: str) -> None:
    """A booktabs longtable: layers times groups outgrow one page."""
    first: dict[str, Any] = rows.slice(0, 1).to_pylist()[0]
    frame = rows.select(_LATEX_COLUMNS[what]).to_pandas()
    if "piece" in frame:
        frame["piece"] = [json.dumps(piece, ensure_ascii=False) for piece in frame["piece"]]
    setting = (
        f"{what.capitalize()} of run {first['run_id']}: {first['model_id']}, centroids {first['centroids']}, "
        f"K={first['num_groups']}, k={first['top_k']}, window {first['window']}, {first['num_sinks']} sinks, "
        f"{first['assignment']} assignment."
    )
    floats = frame.select_dtypes("float").columns
    styler = frame.style.hide(axis="index").format(escape="latex").format("{:.4f}", subset=list(floats), na_rep="--")
    styler = styler.format_index(escape="latex", axis="columns")
    text = styler.to_latex(hrules=True, environment="longtable", caption=_escape(setting), label=f"tab:focus-{what}")
    header = "% needs \\usepackage{booktabs,longtable}; compile with LuaLaTeX or XeLaTeX where tokens are not ASCII\n"
    path.write_text(header + text, encoding="utf-8")


def _escape(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, "\\" + character)
    return text
