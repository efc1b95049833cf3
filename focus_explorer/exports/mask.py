"""The mask of one layer as a file: every kept pair with its cause, as Parquet, CSV or a sparse matrix for SciPy."""

from __future__ import annotations

import itertools
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from focus_explorer.data.parts import executed, named_part
from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError
from focus_explorer.exports.tables.sources import provenance
from focus_explorer.progress import Progress
from focus_runtime.files import replacing
from focus_runtime.mask.counts import KeptPairs, kept_pairs
from focus_runtime.mask.rule import CAUSES
from focus_runtime.store.database import Database

MASK = "mask"  # its name among the exports
MASK_ABOUT = (
    "Every pair of tokens that one layer's mask keeps, with its cause; --layer is needed, --head where heads differ."
)
SUFFIXES = {"parquet": ".parquet", "npz": ".npz", "csv": ".csv"}


SCHEMA = pa.schema([("query", pa.int32()), ("key", pa.int32()), ("cause", pa.dictionary(pa.int8(), pa.string()))])

MATRIX_PASSES = 3  # over the pairs, see `_write_matrix`


def write_mask(
    database: Database,
    run_id: str,
    layer: int,
    file_format: str,
    out: str | Path,
    *,
    rows: tuple[int, int] | None = None,
    head: int | None = None,
    progress: Progress = lambda stage, fraction: None,
) -> Path:
    """Write the kept pairs of some queries atomically; nothing half-written stays.

    Args:
        file_format: "parquet" or "csv" with the columns query, key and cause, or "npz": a SciPy CSR matrix of shape
            (T, T), int8, in which 1 + the place in `CAUSES` stands for each kept pair.
        rows: first and one past the last query. None: the whole text.
        head: of a layer whose heads differ: key-value head, or query head where those of a key-value head differ.
    """
    if file_format not in SUFFIXES:
        raise InputError(f"there is no format {file_format!r} of a mask", expected=" or ".join(SUFFIXES))
    run = fetch_run(database, run_id)
    parts = executed(database, run, layer)[layer]
    chosen = named_part([one.part for one in parts], layer, head, "name one of them with --head")
    membership, rule = parts[chosen.number].membership, chosen.rule
    total = membership.size
    first, last = rows or (0, total)
    if not 0 <= first < last <= total:
        raise InputError(f"rows is {first}:{last}", expected=f"A:B with 0 <= A < B <= {total}, the tokens of the run")
    about = provenance(run) | {"table": MASK, "layer": str(layer), "rows": f"{first}:{last}", "causes": list(CAUSES)}
    if len(parts) > 1:
        about["heads"] = chosen.title

    passes = itertools.count()

    def pieces() -> Iterator[KeptPairs]:
        number, of = next(passes), MATRIX_PASSES if file_format == "npz" else 1
        progress("Writing the pairs", number / of)
        for piece in kept_pairs(membership, rule, (first, last)):
            yield piece
            done = (int(piece.query[-1]) + 1 - first) / (last - first) if piece.query.size else 0.0
            progress("Writing the pairs", (number + done) / of)

    target = Path(os.path.expanduser(out))
    with replacing(target) as part:
        if file_format == "npz":
            _write_matrix(pieces, total, about, part)
        else:
            _write_rows(pieces(), file_format, about, part)
    return target


def _write_rows(pieces: Iterator[KeptPairs], file_format: str, about: dict[str, Any], part: Path) -> None:
    names = pa.array(CAUSES)
    schema = SCHEMA.with_metadata({"focus_explorer": json.dumps(about, sort_keys=True, ensure_ascii=False)})
    if file_format == "csv":
        schema = schema.set(2, pa.field("cause", pa.string()))
    writer: Any = pyarrow.csv.CSVWriter if file_format == "csv" else pyarrow.parquet.ParquetWriter
    with writer(part, schema) as file:
        for piece in pieces:
            cause = pa.DictionaryArray.from_arrays(piece.cause, names)
            columns = [piece.query, piece.key, cause.dictionary_decode() if file_format == "csv" else cause]
            file.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], schema=schema))


def _write_matrix(pieces: Callable[[], Iterator[KeptPairs]], total: int, about: dict[str, Any], part: Path) -> None:
    """What `scipy.sparse.load_npz` reads; one pass counts, one writes the keys, one the causes."""
    counts = np.zeros(total, dtype=np.int64)
    for piece in pieces():
        counts += np.bincount(piece.query, minlength=total)
    starts = np.concatenate([[0], np.cumsum(counts)])
    stored = int(starts[-1])
    wide = np.int32 if max(stored, total) <= np.iinfo(np.int32).max else np.int64  # SciPy wants both alike
    with zipfile.ZipFile(part, "w") as file:
        _member(file, "indptr", starts.astype(wide))
        _member(file, "format", np.array(b"csr"))
        _member(file, "shape", np.array([total, total]))
        _member(file, "focus_explorer", np.array(json.dumps(about, sort_keys=True, ensure_ascii=False)))
        _long_member(file, "indices", stored, wide, (piece.key.astype(wide) for piece in pieces()))
        _long_member(file, "data", stored, np.int8, (piece.cause + np.int8(1) for piece in pieces()))


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry without the time of writing, so that the same mask has the same bytes."""
    info = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info._compresslevel = 1  # type: ignore[attr-defined]  # public from Python 3.13 on; the default takes thrice the time
    return info


def _member(file: zipfile.ZipFile, name: str, values: NDArray[Any]) -> None:
    with file.open(_entry(name), "w") as member:
        np.lib.format.write_array(member, values)


def _long_member(
    file: zipfile.ZipFile, name: str, length: int, kind: type[np.integer], pieces: Iterator[NDArray[Any]]
) -> None:
    header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (length,)}
    with file.open(_entry(name), "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for piece in pieces:
            member.write(np.ascontiguousarray(piece).data)
