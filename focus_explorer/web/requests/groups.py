"""Requests about groups: names and maps of groups, agreement of layers, statistics; the mask, distances, attention."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from focus_explorer.errors import InputError
from focus_explorer.usecases import labels
from focus_explorer.usecases.groups import agreement_payload
from focus_explorer.usecases.maps import map_payload
from focus_explorer.usecases.pairs import PairViews
from focus_explorer.usecases.request import Payload
from focus_explorer.usecases.runs import check_run, layer_numbers
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.statistics import statistics_rows

ALL_LAYERS = -1
MOST_ROWS = 5000
Span = Annotated[list[int], Field(min_length=2, max_length=2)]  # first and last token


def mask_tile(service: Service, run_id: str, layer: int, rows: Span, keys: Span, part: int = 0) -> Payload:
    """Pairs by cause in a rectangle; `part` where the heads of the layer differ."""
    return service.part(PairViews).tile(run_id, layer, (rows[0], rows[1] + 1), (keys[0], keys[1] + 1), part)


def agreement(service: Service, run_id: str) -> dict[str, Any]:
    """How far every two layers sort the tokens alike.

    Returns:
        layers: their numbers; agreement: layers x layers adjusted Rand indices (1 the same groups, 0 random);
        shuffled: least and most of neighbouring layers with one of them shuffled, null for a single layer;
        pairs: how many neighbours that were; seed.
    """
    return {"layers": layer_numbers(service.database, run_id), **agreement_payload(service.database, run_id)}


def group_names(service: Service, run_id: str) -> dict[str, Any]:
    """What each group of each layer holds, in a few words, with the evidence.

    Returns:
        layers: their numbers; names: by layer and group, name (empty where nothing is clear), given (by people, or
        null) and evidence: the traits that tell the group best, each with phi (correlation, 0 to 1), share of the
        group's tokens with the trait, base rate in the text, covered (the part of the trait's tokens in this
        group) and p_value (probability that the best of all traits does as well in a group drawn at random);
        traits: how many were tried; random: by layer, the highest phi of random centroids' groups, null where not
        measured; least_phi, least_share and most_p_value: what a name needs.
    """
    return {"layers": layer_numbers(service.database, run_id), **labels.group_names(service.database, run_id)}


def name_group(service: Service, run_id: str, layer: int, group: int, name: str) -> dict[str, Any]:
    """Give a group a name of your own, in every run with the same centroids; an empty one takes it back.

    Args:
        group: number of the group, from 0 for A.
        name: at most 60 characters.
    """
    return dict(labels.name_group(service, run_id, layer, group, name))


def token_map(service: Service, run_id: str, layer: int = ALL_LAYERS, quick: bool = False) -> dict[str, Any]:
    """Tokens, and a layer's centroids, in two dimensions.

    Args:
        layer: layer number; -1 for the map of all layers, which has no centroids.
        quick: a PCA at once where no map is stored; otherwise a UMAP is made and stored, which can take a minute.

    Returns:
        positions: the tokens drawn, at most 4,000 evenly spaced ones; x, y: their coordinates, without a unit;
        centroid_x, centroid_y: by group; method, parameters, seed; trustworthiness: 0 to 1, null where unknown;
        preliminary: whether this is the PCA.
    """
    check_run(service.database, run_id)
    return dict(map_payload(service, run_id, None if layer == ALL_LAYERS else layer, quick=quick))


def mask(
    service: Service,
    run_id: str,
    layer: int,
    first_query: int,
    last_query: int,
    first_key: int,
    last_key: int,
    head: int | None = None,
) -> dict[str, Any]:
    """A rectangle of the attention mask of one head: pairs of tokens by the cause they are kept or dropped for.

    Args:
        head: key-value head, or query head where the heads of a key-value head differ; needed where the heads of
            the layer differ.

    Returns:
        heads: those that have this mask, query_heads: whether the numbers are of query heads;
        block_size: tokens to a side of a cell, 1 while the rectangle is at most 160 tokens wide and high;
        rows, keys: first position and one past the last of what was counted, widened to whole cells;
        causes; counts: by cause, rows x columns of pairs (a key after its query is no pair and counts nowhere).
    """
    part = service.part(PairViews).part_with(run_id, layer, head, "name one of them as head")
    tile = mask_tile(service, run_id, layer, [first_query, last_query], [first_key, last_key], part.number)
    shape = (len(tile["causes"]), tile["num_rows"], tile["num_columns"])
    counts = np.frombuffer(base64.b64decode(tile["counts"]), dtype=f"<u{tile['bytes']}").reshape(shape)
    return {
        "heads": list(part.heads),
        "query_heads": part.by_query,
        "block_size": tile["block_size"],
        "rows": list(tile["rows"]),
        "keys": list(tile["keys"]),
        "causes": tile["causes"],
        "counts": dict(zip(tile["causes"], counts.tolist(), strict=True)),
    }


def distances(service: Service, run_id: str, layer: int = ALL_LAYERS) -> dict[str, Any]:
    """Pairs by distance and cause, compared with what random groups and the window alone would keep.

    Args:
        layer: layer number; -1 for the mean over the layers.

    Returns:
        first, last: distances of every bin in tokens; causes; counts: causes x bins of pairs (one layer), or
        shares: the same as shares of a bin's pairs (mean) with kept_least and kept_most of any layer and pairs;
        shuffled, window_only: share of a bin's pairs that random groups of the same sizes, or window and sinks
        alone, would keep; beyond: by layer, the share of pairs beyond window and sinks that the groups keep (null
        where there are none), and sharing, what random groups would keep of them: of those of all heads together.
        Heads with full attention keep all of theirs in both; in window_only they count with the window, as if they
        had no full attention.
    """
    check_run(service.database, run_id)
    views = service.part(PairViews)
    return dict(views.distance_mean(run_id) if layer == ALL_LAYERS else views.distances(run_id, layer))


def attention(service: Service, run_id: str) -> dict[str, Any]:
    """Share of full attention that the mask keeps, when it was measured; measures nothing itself.

    Returns:
        state: none, running, failed or done. Done: layers: their numbers; num_tokens measured; mass_kept,
        distant_mass_kept, local, sinks, grouped, dropped: layers x heads, shares of the attention probability
        from 0 to 1, means over the query tokens (distant: beyond window and sinks, null where there is none);
        sharing: by layer, the share of its heads' distant attention together that shuffled groups would keep.
    """
    check_run(service.database, run_id)
    found = service.part(PairViews).attention(run_id)
    return {"layers": layer_numbers(service.database, run_id), **found} if found["state"] == "done" else dict(found)


def attention_links(service: Service, run_id: str, layer: int, count: int = 20) -> dict[str, Any]:
    """The strongest single links beyond window and sinks that Focus drops and keeps; empty until measured.

    Args:
        count: number of links of each kind, at least 1.

    Returns:
        dropped, kept: strongest first; for each head, query and key (positions), probability (part of that
        query's full attention, 0 to 1) and affinity (probability that both tokens draw the same group).
    """
    if count < 1:
        raise InputError(f"count is {count}", expected="1 or more")
    check_run(service.database, run_id)
    found = service.part(PairViews).links(run_id, layer)
    columns = found["columns"]
    return {
        kind: [dict(zip(columns, row, strict=True)) for row in links[:count]]
        for kind, links in (("dropped", found["dropped"]), ("kept", found["kept"]))
    }


def statistics(service: Service, run_id: str, table: str = "statistics", layer: int = ALL_LAYERS) -> list[Any]:
    """Statistics of the groups, each number with its interval and baselines; measures nothing itself.

    Args:
        table: statistics, characteristic, categories, agreement, distances, links or pairs; docs/statistics.md says
            what they hold.
        layer: only rows of this layer; -1 for those of all layers.

    Returns:
        Rows as objects, at most 5,000: value, low and high (95 %), shuffled, random (null until random centroids
        were run on the text), window_only (heads with full attention counted with the window, as if they had none
        of it), p_value, q_value, count with denominator, units, and a warning.
    """
    rows = statistics_rows(service, run_id, table)
    if layer != ALL_LAYERS:
        rows = [row for row in rows if row["layer"] == layer]
    if len(rows) > MOST_ROWS:
        raise InputError(f"the table has {len(rows):,} rows", expected=f"at most {MOST_ROWS:,}", fix="name a layer")
    return rows
