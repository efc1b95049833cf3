"""Stored runs: their list, numbers, settings, layers and tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from focus_explorer.data.parts import Part, mean_distant_kept, part_pairs, run_parts
from focus_explorer.data.queries import fetch, fetch_run, rows_of
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.views.payloads import picked
from focus_explorer.views.payloads.comparisons import RunSummary
from focus_explorer.views.payloads.runs import MaskPayload
from focus_explorer.views.run import mask_payload
from focus_runtime.config import FocusConfig
from focus_runtime.mask.distances import mean_of_some
from focus_runtime.store.database import Database
from focus_runtime.text.tokens import joined_text

MOST_TOKEN_ROWS = 5000


def list_runs(database: Database, *, deleted: bool = False) -> list[dict[str, Any]]:
    """Complete runs, newest first, with perplexities and sparsity; or those that are deleted and not yet purged."""
    return [_parsed(row) for row in rows_of(fetch(database, "deleted_runs" if deleted else "runs"))]


def run_text(database: Database, run_id: str) -> str:
    """The text of a run, put together from its stored tokens; a TextError where they are not those of a text."""
    rows = fetch(database, "tokens", run_id=run_id)
    return joined_text(*(rows[name].to_pylist() for name in ("piece", "start_char", "end_char")))


def run_summary(database: Database, run_id: str) -> RunSummary:
    """The numbers of one run, as `analyze --json` prints them."""
    run = _parsed(fetch_run(database, run_id))
    timings: dict[str, dict[str, Any]] = {}
    for row in fetch(database, "timings", run_id=run_id).to_pylist():
        spread = {key: row[key] for key in ("median", "low", "high", "repeats")}
        timings.setdefault(row["stage"], {})[row["mode"]] = spread
        timings[row["stage"]].setdefault("peak_memory_bytes", {})[row["mode"]] = row["peak_memory_bytes"]
    layers = part_pairs(run["config"], fetch(database, "part_pairs", run_id=run_id))
    shares = [mean_distant_kept(parts, run["num_tokens"]) for parts in layers.values()]
    return picked(
        RunSummary,
        run,
        scored_tokens=run["num_tokens"] - 1,
        perplexity={"full": run["perplexity_full"], "focus": run["perplexity_focus"]},
        distant_pairs_kept=mean_of_some(shares),
        milliseconds=timings,
        model=run["model_id"],
        centroids=run["centroids_name"],
        db=str(database.path),
    )


def run_special_tokens(run: Mapping[str, Any]) -> str:
    """Whether the text of a run was read with special tokens, as `encode` takes it; before 0.3 none was."""
    return str(run["special_tokens"] or "none")


def check_run(database: Database, run_id: str) -> None:
    """Refuse an unknown or deleted run: some answers about one would be merely empty."""
    fetch_run(database, run_id)


def run_title(database: Database, run_id: str) -> str:
    """The name a user gave a run, or the beginning of its text."""
    run = fetch_run(database, run_id)
    return str(run["name"] or run["title"])


def mask_blocks(database: Database, run_id: str, layer: int, part: int = 0) -> MaskPayload:
    """Pair counts of one layer in blocks, of a part of its heads where they differ."""
    rows = fetch(database, "mask", run_id=run_id, layer=layer, part=part)
    if not rows.num_rows:
        which = f"layer {layer}" + (f" with a part {part} of its heads" if part else "")
        raise NotFoundError(f"run {run_id!r} has no {which}", fix="choose a layer of this run")
    return mask_payload(rows)


def layer_numbers(database: Database, run_id: str) -> list[int]:
    """Numbers of a run's layers, in order; empty where there is no such run."""
    return [int(layer) for layer in fetch(database, "layer_numbers", run_id=run_id)["layer"].to_pylist()]


def token_rows(database: Database, run_id: str, first: int, count: int) -> list[dict[str, Any]]:
    """A part of a run's tokens with their losses and their groups in every layer."""
    return _rows_of_tokens(database, "token_table", run_id, first, count)


def prediction_rows(database: Database, run_id: str, first: int, count: int) -> list[dict[str, Any]]:
    """The most probable tokens at every place of a part of a run, by position and mode."""
    return _rows_of_tokens(database, "predictions", run_id, first, count)


def _rows_of_tokens(database: Database, query: str, run_id: str, first: int, count: int) -> list[dict[str, Any]]:
    if first < 0 or not 1 <= count <= MOST_TOKEN_ROWS:
        raise InputError(
            f"first is {first} and count {count}", expected=f"first from 0, count from 1 to {MOST_TOKEN_ROWS}"
        )
    fetch_run(database, run_id)
    return fetch(database, query, run_id=run_id, first=first, last=first + count - 1).to_pylist()


def token_ids(database: Database, run_id: str) -> list[int]:
    return [int(value) for value in fetch(database, "token_ids", run_id=run_id)["token_id"].to_pylist()]


def checked_text(database: Database, run: Mapping[str, Any]) -> str:
    """The text of a run, given by its row, as `run_text` has it, which must be what was analysed."""
    text = run_text(database, run["run_id"])
    if hashlib.sha256(text.encode()).hexdigest() != run["text_sha256"]:
        raise InputError(
            f"the stored tokens of run {run['run_id']} are not those of the text it was made from",
            fix="the database is damaged; restore a copy or analyse the text again",
        )
    return text


def token_pieces(database: Database, run_id: str) -> list[str]:
    return [str(piece) for piece in fetch(database, "pieces", run_id=run_id)["piece"].to_pylist()]


def run_config(run: Mapping[str, Any]) -> FocusConfig:
    return FocusConfig.from_json(run["config"])


def check_beginning(run: Mapping[str, Any], tokens: int) -> None:
    """Refuse to read only the first tokens of a run, given by its row, where its groups depend on the rest."""
    if tokens < run["num_tokens"] and run_config(run).assignment != "causal":
        raise InputError(
            "this run used sinkhorn assignment, which looks at the whole text",
            expected="a run with causal assignment",
            fix="explore the text again with it",
        )


def layer_parts(database: Database, run: dict[str, Any]) -> dict[int, tuple[Part, ...]]:
    """What the heads of each layer of a run, given by its row, executed."""
    return run_parts(json.loads(run["config"]), fetch(database, "parts", run_id=run["run_id"]))


def _parsed(run: dict[str, Any]) -> dict[str, Any]:
    return (
        run
        | {name: json.loads(run[name]) for name in ("config", "versions", "notes")}
        | {name: json.loads(run[name] or "[]") for name in ("changes", "added_tokens")}
    )
