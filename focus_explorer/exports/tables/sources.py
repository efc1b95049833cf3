"""The tables that can be exported, read from the named queries in pieces that fit in memory.

Statistics and corpora are imported where they are read: the other tables need neither scipy nor torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from focus_explorer.data.queries import QUERIES, fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.statistics import NAMES, OF_CORPUS
from focus_explorer.usecases.runs import layer_numbers
from focus_explorer.words import counted
from focus_runtime.budget import budget_digest
from focus_runtime.config import DECLARED
from focus_runtime.mask.rule import group_label
from focus_runtime.store.corpora import corpus_row
from focus_runtime.store.database import Database
from focus_runtime.version import __version__

CHUNK_BYTES = 1 << 24


def text_array(values: Sequence[str]) -> pa.Array:
    """Texts as an array of strings; `pa.array` would import pandas."""
    encoded = [value.encode() for value in values]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def repeated(value: str | bool | int | float, length: int) -> pa.ChunkedArray:
    """A column that holds one value `length` times; its chunks share one array of at most about `CHUNK_BYTES`.

    A long text repeated often would otherwise need more bytes than the offsets of an array of strings can count.
    """
    rows = min(length, max(1, CHUNK_BYTES // max(1, len(value)))) if isinstance(value, str) else length
    chunk = _repeated(value, rows)
    whole, rest = divmod(length, max(1, rows))
    return pa.chunked_array([chunk] * whole + ([chunk.slice(0, rest)] if rest or not whole else []))


def _repeated(value: str | bool | int | float, length: int) -> pa.Array:
    """As `pa.repeat`, which would import pandas."""
    if isinstance(value, bool):
        bits = np.full(length // 8 + 1, 255 if value else 0, dtype=np.uint8)
        return pa.Array.from_buffers(pa.bool_(), length, [None, pa.py_buffer(bits)])
    if isinstance(value, int | float):
        numbers = np.full(length, value, dtype=np.int64 if isinstance(value, int) else np.float64)
        return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), length, [None, pa.py_buffer(numbers)])
    return text_array([value] * length)


TABLES: dict[str, str] = {  # of a run
    "groups": "Size, confidence and most frequent tokens of every group of every layer.",
    "group_names": "What the tokens of every group have in common, with the evidence, or that nothing is clear.",
    "tokens": "Every token with its loss under full attention and Focus, and its group in every layer.",
    "layers": "Every layer with its largest group and its pairs by what keeps or drops them.",
    "heads": "What the heads of every layer executed, those of equal settings together, with the pairs of one of them.",
    "assignments": "Every token in every layer: groups, confidence and entropy of the routing.",
    "head_assignments": "Groups of every token in the heads whose top-k is not the layer's, or that have none.",
    "losses": "Loss of every token under full attention and under Focus.",
    "predictions": "The most probable tokens at every place under full attention and Focus, with probabilities.",
    "timings": "Median and range of the time of every stage.",
    "timing_repeats": "Time of every stage in every timed repeat.",
    "masks": "Pairs by what keeps or drops them, in blocks of every layer's mask.",
    "attention": "Where full attention goes under the executed mask, by layer and head.",
    "comparisons": "The same text measured again at other settings, without groups and with random centroids.",
    "statistics": "Every statistic with its interval, beside shuffled groups, random centroids and window only.",
    "characteristic": "Tokens that are characteristic of each group, by log-odds with an informative prior.",
    "categories": "Word categories in each group, beside their shares of the text.",
    "agreement": "How far every two layers sort the tokens alike, beside shuffled groups.",
    "distances": "Pairs kept by distance, beside shuffled groups, random centroids and window only.",
    "links": "The strongest kept and dropped links of full attention.",
    "pairs": "The strongest pairs of the same group that are far apart.",
    "head_costs": "What the mask costs in each key-value head: the loss with full attention in that head alone.",
    "missing_links": "Dropped pairs that would have helped the tokens that were explained, the best of them verified.",
}
CORPUS_TABLES = {name: TABLES[name] for name in OF_CORPUS} | {
    "documents": "Every document of a corpus with its perplexities and the time of its forward passes."
}
TABLE_DESCRIPTIONS = TABLES | CORPUS_TABLES

_QUERIES = {  # tables that are the rows of one named query
    "layers": "layers",
    "losses": "losses",
    "timings": "timings",
    "timing_repeats": "timing_repeats",
    "masks": "mask_table",
    "attention": "attention_mass",
    "comparisons": "comparisons",
    "head_costs": "head_costs",
    "missing_links": "missing_link_table",
    "predictions": "prediction_table",
}
BUDGET, BUDGET_ID = "budget", "budget_id"
SETTINGS = [name for name, declared in DECLARED.items() if declared.line and name != BUDGET]
SPECIAL = "special_tokens"
SETTING_COLUMNS = ("run_id", "model_id", "centroids", *SETTINGS, SPECIAL, BUDGET, BUDGET_ID)
ROWS_AT_ONCE = 600_000
GROUP_NAMES = pa.schema(
    [
        ("layer", pa.int32()),
        ("group_index", pa.int32()),
        *((name, pa.string()) for name in ("label", "name", "trait")),
        *((name, pa.float64()) for name in ("phi", "share", "base", "covered", "p_value", "random")),
    ]
)
# Name, note and tags of a run change while its numbers do not, and its title is a part of the text.
_NOT_PROVENANCE = ("name", "note", "tags", "deleted_at", "title")


def read(database: Database, run_id: str, what: str) -> Iterator[pa.Table]:
    """The rows of a table of a run or corpus in order, in pieces of one schema, at least one piece."""
    with database.read():
        corpus = corpus_row(database, run_id)
        tables, kind = (TABLES, "run") if corpus is None else (CORPUS_TABLES, "corpus")
        if what not in tables:
            raise InputError(f"there is no table {what!r} of a {kind}", expected=" or ".join(tables))
        run = fetch_run(database, run_id) if corpus is None else as_run(corpus)
    config = json.loads(run["config"])
    setting = {"run_id": run_id, "model_id": run["model_id"], "centroids": run["centroids_name"]}
    for name in SETTINGS:  # those that a configuration lacks have their default
        if (value := config.get(name)) is not None:
            setting[name] = json.dumps(value) if isinstance(value, list) else value
    if (special_tokens := _special_tokens(run)) is not None:
        setting[SPECIAL] = special_tokens
    if config.get(BUDGET):
        setting[BUDGET] = json.dumps(config[BUDGET])
        setting[BUDGET_ID] = budget_id(config[BUDGET])
    about = provenance(run) | {"table": what, "about": TABLE_DESCRIPTIONS[what]}
    metadata = {"focus_explorer": json.dumps(about, sort_keys=True, ensure_ascii=False)}
    pieces = _with_setting(_pieces(database, run, what), setting)
    return (rows.replace_schema_metadata(metadata) for rows in pieces)


def _special_tokens(run: dict[str, Any]) -> str | None:
    """What the texts of a run or corpus begin with; None where the tokenizer adds nothing, and before 0.3."""
    if "settings" in run:
        return cast(str | None, json.loads(run["settings"]).get(SPECIAL))
    added = json.loads(run["added_tokens"] or "[]")
    return str(run[SPECIAL]) if added or run[SPECIAL] == "none" else None


def budget_id(budget: Sequence[Any]) -> str:
    """What stands for a budget in every row, such as "224 exceptions 9f3ac1d20b7e": how many, and `budget_digest`."""
    return f"{counted(len(budget), 'exception')} {budget_digest(budget)}"


def as_run(corpus: dict[str, Any]) -> dict[str, Any]:
    """A corpus in the form of a run, as far as tables and figures need it."""
    encoded = {key: json.dumps(corpus[key], sort_keys=True) for key in ("config", "settings", "versions")}
    return {key: value for key, value in corpus.items() if key != "skipped"} | encoded | {"run_id": corpus["corpus_id"]}


def provenance(run: dict[str, Any]) -> dict[str, str]:
    """Where a run's numbers come from: its row and this tool's version."""
    fields = {key: str(value) for key, value in run.items() if value is not None and key not in _NOT_PROVENANCE}
    return fields | {"exported_by": f"focus-explorer {__version__}"}


def _with_setting(pieces: Iterator[pa.Table], setting: dict[str, Any]) -> Iterator[pa.Table]:
    for rows in pieces:
        for name, value in setting.items():
            if name not in rows.column_names:
                rows = rows.append_column(name, repeated(value, rows.num_rows))
        yield rows


def _pieces(database: Database, run: dict[str, Any], what: str) -> Iterator[pa.Table]:
    run_id = run["run_id"]
    if what == "documents":
        from focus_explorer.data.corpus import CorpusData

        yield CorpusData(database, run_id).documents()
    elif what in NAMES:
        from focus_explorer.statistics.tables import statistics_table

        yield statistics_table(database, run_id, what)
    elif what in _QUERIES:
        rows = fetch_in_order(database, _QUERIES[what], run_id)
        if what == "layers" and rows["sliding_window"].null_count == rows.num_rows:  # 0.1 had no such column
            rows = rows.drop_columns("sliding_window")
        if what == "masks" and not pc.any(pc.greater(rows["part"], 0)).as_py():  # all heads of every layer are alike
            rows = rows.drop_columns("part")
        yield rows
    else:
        yield from _COMPOSED[what](database, run)


def fetch_in_order(database: Database, name: str, run_id: str) -> pa.Table:
    """The rows of a named query of a run, on one thread: sums in the same order have the same last digit."""
    with database.read() as connection:
        threads = connection.execute("SELECT current_setting('threads')").fetchall()[0][0]
        connection.execute("SET threads = 1")
        try:
            return connection.sql(QUERIES[name], params={"run_id": run_id}).to_arrow_table()
        finally:
            connection.execute(f"SET threads = {threads}")


def _groups(database: Database, run: dict[str, Any]) -> Iterator[pa.Table]:
    rows = fetch_in_order(database, "groups", run["run_id"])
    pieces: dict[tuple[int, int], list[str]] = {}
    for row in fetch(database, "group_pieces", run_id=run["run_id"]).to_pylist():
        pieces.setdefault((row["layer"], row["top_group"]), []).append(
            f"{json.dumps(row['piece'], ensure_ascii=False)}×{row['uses']}"
        )
    keys = list(zip(rows["layer"].to_pylist(), rows["group_index"].to_pylist(), strict=True))
    rows = rows.add_column(2, "label", text_array([group_label(group) for _, group in keys]))
    frequent = text_array([" ".join(pieces.get(key, [])) for key in keys])
    yield rows.append_column("frequent_tokens", frequent)


def _group_names(database: Database, run: dict[str, Any]) -> Iterator[pa.Table]:
    """A row for each group with its best trait; what people called it is no part, since it is no result."""
    from focus_explorer.statistics.group_names import run_names, trait_words

    found = run_names(database, run["run_id"])
    rows = [
        {
            "layer": layer,
            "group_index": group,
            "label": group_label(group),
            "name": one.name or None,
            "trait": trait_words(best.trait) if best is not None else None,
            **{name: getattr(best, name, None) for name in ("phi", "share", "base", "covered", "p_value")},
            "random": random,
        }
        for layer, names, random in zip(found.layers, found.names, found.random, strict=True)
        for group, one in enumerate(names)
        for best in [one.evidence[0] if one.evidence else None]
    ]
    yield pa.Table.from_pylist(rows, schema=GROUP_NAMES)


def _tokens(database: Database, run: dict[str, Any]) -> Iterator[pa.Table]:
    step = max(1, ROWS_AT_ONCE // max(1, len(layer_numbers(database, run["run_id"]))) * 4)
    for first in range(0, max(1, run["num_tokens"]), step):
        yield fetch(database, "token_table", run_id=run["run_id"], first=first, last=first + step - 1)


def _assignments(database: Database, run: dict[str, Any]) -> Iterator[pa.Table]:
    """Several short layers at once, or a long one in parts; pieces are read once instead of joined to every layer."""
    run_id, tokens = run["run_id"], max(1, run["num_tokens"])
    numbers, pieces = layer_numbers(database, run_id), fetch(database, "pieces", run_id=run_id)["piece"]
    pieces = pieces.combine_chunks()
    letters = text_array([group_label(group) for group in range(json.loads(run["config"])["num_groups"])])
    together = max(1, ROWS_AT_ONCE // tokens)
    for place in range(0, len(numbers), together):
        first_layer, last_layer = numbers[place], numbers[min(place + together, len(numbers)) - 1]
        for first in range(0, tokens, ROWS_AT_ONCE):
            rows = fetch(
                database,
                "assignment_table",
                run_id=run_id,
                first_layer=first_layer,
                last_layer=last_layer,
                first=first,
                last=first + ROWS_AT_ONCE - 1,
            )
            rows = rows.add_column(2, "piece", pieces.take(rows["position"]))
            yield rows.add_column(5, "label", letters.take(rows["top_group"]))


def _head_assignments(database: Database, run: dict[str, Any]) -> Iterator[pa.Table]:
    """One piece without rows where all heads have the groups of `assignments`."""
    run_id, tokens = run["run_id"], max(1, run["num_tokens"])
    parts = fetch(database, "parts_with_own_groups", run_id=run_id).to_pylist()
    pieces = fetch(database, "pieces", run_id=run_id)["piece"].combine_chunks()
    for own in parts or [{"layer": -1, "part": -1, "heads": []}]:
        heads = ", ".join(map(str, own["heads"]))
        for first in range(0, tokens, ROWS_AT_ONCE):
            place = {"layer": own["layer"], "part": own["part"], "first": first, "last": first + ROWS_AT_ONCE - 1}
            rows = fetch(database, "head_assignment_table", run_id=run_id, **place)
            rows = rows.add_column(2, "heads", repeated(heads, rows.num_rows))
            yield rows.add_column(4, "piece", pieces.take(rows["position"]))


def _heads(database: Database, run: dict[str, Any]) -> Iterator[pa.Table]:
    """Numbers of heads as text; without a window where every earlier token is attended to."""
    rows = fetch_in_order(database, "part_pairs", run["run_id"])
    place = rows.column_names.index("heads")
    rows = rows.set_column(place, "heads", text_array([", ".join(map(str, of)) for of in rows["heads"].to_pylist()]))
    place = rows.column_names.index("window_size")
    window = pc.if_else(rows["full_attention"], pa.scalar(None, pa.int64()), rows["window_size"])
    yield rows.set_column(place, "window_size", window)


_COMPOSED: dict[str, Callable[[Database, dict[str, Any]], Iterator[pa.Table]]] = {
    "groups": _groups,
    "group_names": _group_names,
    "heads": _heads,
    "tokens": _tokens,
    "assignments": _assignments,
    "head_assignments": _head_assignments,
}
