"""A stored run -> the sample its statistics are computed from."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.data.parts import Part, head_memberships, run_parts, sums_by_part
from focus_explorer.data.queries import fetch, fetch_run, fetch_several
from focus_explorer.statistics.sample import Groups, MassByQuery, Sample, Scheme
from focus_runtime.store.database import Database
from focus_runtime.text.tagging import CLASSES, class_numbers, sentences

NEEDED = (
    "all_assignments",
    "pieces",
    "token_tags",
    "baseline_assignments",
    "baseline_head_memberships",
    "attention_queries",
    "attention_mass",
    "parts",
    "all_head_memberships",
)
CAUSES = ("local", "sinks", "grouped", "dropped")
NO_TAGGER = (
    "The words are not tagged: categories are from English word lists and sentences from punctuation. "
    "`focus-explorer statistics` tags them where the tagger is installed."
)
NO_RANDOM = "Random centroids were not run on this text, so that baseline is missing. `focus-explorer statistics` does."


def run_sample(database: Database, run_id: str) -> Sample:
    """Read what is needed of a run.

    Raises:
        NotFoundError: there is no such run, or it was deleted.
    """
    run = fetch_run(database, run_id)
    config, count = json.loads(run["config"]), run["num_tokens"]
    rows = fetch_several(database, NEEDED, run_id=run_id)
    layers = np.unique(rows["all_assignments"]["layer"].to_numpy())
    pieces = rows["pieces"]["piece"].to_pylist()
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(piece, len(numbers)) for piece in pieces], dtype=np.int64)
    tagged = rows["token_tags"].num_rows == count
    schemes, units = _tagged(rows["token_tags"]) if tagged else _listed(pieces)
    random = rows["baseline_assignments"]
    notes = [] if tagged else [NO_TAGGER]
    if not random.num_rows:
        notes.append(NO_RANDOM)
    parts = run_parts(config, rows["parts"])
    of_layers = [parts[layer] for layer in layers.tolist()]
    return Sample(
        layers=layers.tolist(),
        num_groups=config["num_groups"],
        parts=of_layers,
        focus=_groups(rows["all_assignments"], rows["all_head_memberships"], layers, count),
        random=_groups(random, rows["baseline_head_memberships"], layers, count) if random.num_rows else None,
        pieces=list(numbers),
        piece=codes,
        schemes=schemes,
        units=units,
        unit="sentence",
        starts=np.zeros(count, dtype=np.int64),
        mass=_mass(rows["attention_queries"], _far(rows["attention_mass"], layers, of_layers), layers),
        notes=tuple(notes),
    )


def _groups(rows: pa.Table, own: pa.Table, layers: NDArray[np.int64], count: int) -> Groups:
    place = np.searchsorted(layers, rows["layer"].to_numpy()), rows["position"].to_numpy()
    others = head_memberships(own, count)

    def placed(name: str, kind: Any) -> NDArray[Any]:
        values = np.zeros((layers.size, count), dtype=kind)
        values[place] = rows[name].to_numpy()
        return values

    return Groups(
        placed("top_group", np.uint8),
        placed("membership", np.int64),
        placed("confidence", np.float32),
        placed("entropy", np.float32),
        {(int(np.searchsorted(layers, layer)), part): bits for (layer, part), bits in others.items()},
    )


def _tagged(rows: pa.Table) -> tuple[dict[str, Scheme], NDArray[np.int64]]:
    schemes = {name: scheme(rows[name].to_pylist()) for name in ("pos", "dep")}
    _, units = np.unique(rows["sentence"].to_numpy(), return_inverse=True)
    return schemes, units.astype(np.int64)


def _listed(pieces: list[str]) -> tuple[dict[str, Scheme], NDArray[np.int64]]:
    return {"word": Scheme(list(CLASSES), class_numbers(pieces))}, sentences(pieces)


def scheme(labels: list[str]) -> Scheme:
    """Categories in the order of their names, so that the same text gives the same numbers."""
    names, codes = np.unique(np.array(labels, dtype=str), return_inverse=True)
    return Scheme([str(name) for name in names], codes.astype(np.uint8))


def _far(
    rows: pa.Table, layers: NDArray[np.int64], parts: list[tuple[Part, ...]]
) -> tuple[NDArray[np.float64], ...] | None:
    """Attention beyond window and sinks by layer and part, from that of every head."""
    layer, far = rows["layer"].to_numpy(), rows["grouped"].to_numpy() + rows["dropped"].to_numpy()
    if not np.array_equal(np.unique(layer), layers):
        return None
    return tuple(sums_by_part(far[layer == number], own) for number, own in zip(layers, parts, strict=True))


def _mass(
    rows: pa.Table, far: tuple[NDArray[np.float64], ...] | None, layers: NDArray[np.int64]
) -> dict[str, MassByQuery]:
    mass = {}
    for centroids in ("focus", "random"):
        selected = rows.filter(pa.compute.equal(rows["centroids"], centroids))
        if selected.num_rows:
            values = np.stack([selected[name].to_numpy() for name in CAUSES], axis=1)
            place = np.searchsorted(layers, selected["layer"].to_numpy()), selected["position"].to_numpy()
            shares = np.zeros((layers.size, int(place[1].max()) + 1, len(CAUSES)))
            shares[place] = values
            mass[centroids] = MassByQuery(shares, far if centroids == "focus" else None)
    return mass


def stored_measurements(database: Database, run_id: str) -> dict[str, Any]:
    """Tagger, seed of the random centroids and tokens with attention of a run; None for what was not measured."""
    rows = fetch(database, "measured", run_id=run_id).to_pylist()
    return rows[0] if rows else {}
