"""Payload of a stored run for the browser: what all views need at once, the rest layer by layer on request.

A short run comes whole, so that the page needs no server for switching layers. Rows are put in their places by layer
and position here, because sorting millions of them in the database takes longer than reading them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.data.parts import head_memberships, part_pairs, placed, run_parts
from focus_explorer.data.queries import fetch, fetch_run, fetch_several, only_run
from focus_explorer.errors import NotFoundError
from focus_explorer.usecases.runs import layer_numbers, run_config, token_pieces
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import old_text_note
from focus_explorer.views.payloads import runs as payloads
from focus_explorer.views.run import cells_payload, encode, membership_width, run_payload, timing_payloads
from focus_runtime.store.database import Database
from focus_runtime.text.tagging import CLASSES, class_numbers

WHOLE_BYTES = 900_000  # a run whose layers are smaller than this together comes whole
ORDER_BYTES = 4_000_000  # of all layers' orders of groups: beyond, each layer's comes when it is opened

OtherMemberships = dict[int, dict[int, NDArray[np.int64]]]  # layer -> part -> (T,)


def load_run(database: Database, run_id: str) -> payloads.RunPayload:
    """Payload the page draws a run from, with every layer's cells where they are small together."""
    with database.read():  # once: opening the file takes longer than most reads
        return _load_run(database, run_id)


def load_run_of(service: Service, run_id: str) -> payloads.RunPayload:
    """The same, with a note where an older version read the text without special tokens."""
    payload = load_run(service.database, run_id)
    run = fetch_run(service.database, run_id)
    note = old_text_note(service, run["model_id"], run["special_tokens"])
    if note is not None:
        payload["run"]["notes"] = [note, *payload["run"]["notes"]]
    return payload


def _load_run(database: Database, run_id: str) -> payloads.RunPayload:
    names = ("run", "layers", "part_pairs", "tops", "pieces", "groups", "group_pieces", "losses", "timings")
    rows = fetch_several(database, names, run_id=run_id)
    run = only_run(database, run_id, rows["run"])
    numbers, config = rows["layers"]["layer"].to_numpy(), run_config(run)
    tops = placed(rows["tops"], numbers, run["num_tokens"], "top_group")
    payload = run_payload(run, rows, tops, part_pairs(config.to_dict(), rows["part_pairs"]))
    width = membership_width(config.num_groups)
    if rows["tops"].num_rows * (1 + config.num_groups + width) <= WHOLE_BYTES:
        cells = fetch(database, "cells", run_id=run_id, layer=None)
        payload["cells"] = _cells(cells, numbers, run["num_tokens"], _other_memberships(database, run, None))
    return payload


def run_timings(database: Database, run_id: str) -> payloads.TimingsPayload:
    """The timings of a run's payload, which grow while a long text is timed again."""
    rows = fetch_several(database, ("run", "timings"), run_id=run_id)
    only_run(database, run_id, rows["run"])
    return {"timings": timing_payloads(rows["timings"])}


def layer_cells(database: Database, run_id: str, layer: int) -> payloads.LayerCellsPayload:
    """Membership, probabilities and entropy of one layer's tokens."""
    with database.read():  # once, as above
        rows = fetch(database, "cells", run_id=run_id, layer=layer)
        if not rows.num_rows:
            raise _no_layer(run_id, layer)
        others = _other_memberships(database, fetch_run(database, run_id), layer)
    return _cells(rows, np.array([layer]), rows.num_rows, others)[str(layer)]


def group_orders(database: Database, run_id: str, layer: int) -> payloads.GroupOrdersPayload:
    """The groups of every token by probability: the first k are those of top-k. Of all layers where that is little."""
    with database.read():
        run = fetch_run(database, run_id)
        numbers = np.array(layer_numbers(database, run_id))
        if layer not in numbers:
            raise _no_layer(run_id, layer)
        whole = run["num_tokens"] * run_config(run).num_groups * numbers.size <= ORDER_BYTES
        rows = fetch(database, "cells", run_id=run_id, layer=None if whole else layer)
    if not whole:
        numbers = np.array([layer])
    probabilities = _probabilities(rows, numbers, run["num_tokens"])
    # as the runtime chooses them: of groups that are equally probable the lower number
    order = np.argsort(-probabilities, axis=-1, kind="stable").astype(np.uint8)
    stored = placed(rows, numbers, run["num_tokens"], "membership")
    first = np.bitwise_or.reduce(np.int64(1) << order[..., : run_config(run).top_k].astype(np.int64), axis=-1)
    return {
        "orders": {str(one): encode(order[number]) for number, one in enumerate(numbers.tolist())},
        "fixed": {str(one): _differing(stored[number], first[number]) for number, one in enumerate(numbers.tolist())},
    }


def _differing(stored: NDArray[np.int64], first: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Position and two words of each set of groups that is not the first k of its token."""
    places = np.flatnonzero(stored != first)
    words = stored[places].astype(np.int64).view(np.uint32).reshape(-1, 2)
    return [(int(at), int(low), int(high)) for at, (low, high) in zip(places, words, strict=True)]


def _no_layer(run_id: str, layer: int) -> NotFoundError:
    return NotFoundError(f"run {run_id!r} has no layer {layer}", fix="choose a layer of this run")


def predictions(database: Database, run_id: str, token: int) -> payloads.PredictionsPayload:
    """The most probable tokens at one place, of the token that is predicted, under both kinds of attention."""
    fetch_run(database, run_id)
    return _predictions(database, run_id, token, token)[0]


def all_predictions(database: Database, run_id: str) -> list[payloads.PredictionsPayload]:
    """The same for every token of a run."""
    return _predictions(database, run_id, 0, fetch_run(database, run_id)["num_tokens"] - 1)


def _predictions(database: Database, run_id: str, first: int, last: int) -> list[payloads.PredictionsPayload]:
    names = ("predictions", "prediction_changes")
    rows = fetch_several(database, names, run_id=run_id, first=first, last=last)
    changed = {row["position"]: row["changed"] for row in rows["prediction_changes"].to_pylist()}
    modes: dict[int, dict[str, payloads.PredictionPayload]] = {}
    for row in rows["predictions"].to_pylist():
        tokens = list(zip(row["pieces"], row["probabilities"], strict=True))
        modes.setdefault(row["position"], {})[row["mode"]] = {"rank": row["rank"], "tokens": tokens}
    return [
        {"full": here.get("full"), "focus": here.get("focus"), "changed": changed.get(token)}
        for token in range(first, last + 1)
        for here in [modes.get(token, {})]
    ]


def prediction_changes(database: Database, run_id: str) -> payloads.PredictionChangesPayload:
    """Where the most probable token differs between full attention and Focus, and where each is right."""
    run = fetch_run(database, run_id)
    rows = fetch(database, "prediction_changes", run_id=run_id, first=0, last=run["num_tokens"] - 1)
    codes = np.zeros(run["num_tokens"], dtype=np.uint8)
    for bit, name in enumerate(("changed", "full_right", "focus_right")):
        codes[rows["position"].to_numpy()] |= rows[name].to_numpy(zero_copy_only=False).astype(np.uint8) << bit
    return {"stored": rows.num_rows > 0, "codes": encode(codes)}


def word_classes(database: Database, run_id: str) -> payloads.WordClassesPayload:
    """The kind of word of every token, from word lists (focus_runtime/text/tagging.py)."""
    fetch_run(database, run_id)
    return {"names": list(CLASSES), "classes": encode(class_numbers(token_pieces(database, run_id)))}


def _cells(
    rows: pa.Table, layers: NDArray[np.int64], count: int, others: OtherMemberships
) -> dict[str, payloads.LayerCellsPayload]:
    probabilities = _probabilities(rows, layers, count)
    membership, entropy = (placed(rows, layers, count, name) for name in ("membership", "entropy"))
    return {
        str(one): cells_payload(membership[number], probabilities[number], entropy[number], others.get(one))
        for number, one in enumerate(layers.tolist())
    }


def _probabilities(rows: pa.Table, layers: NDArray[np.int64], count: int) -> NDArray[np.float32]:
    """(L, T, K) of rows of `cells`."""
    width = len(rows["probabilities"][0])
    flat = rows["probabilities"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    probabilities = np.empty((layers.size, count, width), dtype=np.float32)
    index = np.searchsorted(layers, rows["layer"].to_numpy())
    probabilities[index, rows["position"].to_numpy()] = flat
    return probabilities


def _other_memberships(database: Database, run: dict[str, Any], layer: int | None) -> OtherMemberships:
    """Layer -> part -> (T,) memberships that are not the layer's own; none under full attention."""
    if not run_config(run).budget:
        return {}
    parts = run_parts(json.loads(run["config"]), fetch(database, "parts", run_id=run["run_id"]))
    rows = fetch(database, "head_memberships", run_id=run["run_id"], layer=layer)
    others: OtherMemberships = {}
    for (one, part), bits in head_memberships(rows, run["num_tokens"]).items():
        if not parts[one][part].full:
            others.setdefault(one, {})[part] = bits
    return others
