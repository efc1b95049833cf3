"""Two stored runs of the same tokens side by side, their groups matched layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from focus_explorer.data.queries import fetch, fetch_run, fetch_several, only_run
from focus_explorer.errors import InputError
from focus_explorer.statistics.agreement import align
from focus_explorer.usecases.runs import list_runs, run_config, run_summary
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads import comparisons as payloads
from focus_explorer.views.payloads import picked
from focus_explorer.views.run import config_payload, encode
from focus_runtime.config import DECLARED
from focus_runtime.measure.intervals import moving_block_interval

NO_PARTNER = 255  # byte of a group without a partner in the other run


def partners(service: Service, run_id: str) -> list[payloads.PartnerPayload]:
    """Other runs of exactly the same tokens, newest first."""
    same = _same_tokens(service, run_id)
    return [
        picked(
            payloads.PartnerPayload, run, created_at=run["created_at"].isoformat(), config=config_payload(run["config"])
        )
        for run in list_runs(service.database)
        if run["run_id"] in same
    ]


def compare_runs(service: Service, run_id: str, other_id: str) -> payloads.MatchedRunsPayload:
    """Two runs of the same tokens, the other's groups matched with this one's in every layer both have.

    `top` has the other run's groups in this run's names, 255 for one without a partner; `difference` is its loss minus
    this run's.
    """
    if other_id not in _same_tokens(service, run_id):
        raise InputError(f"the run {other_id!r} has another text", expected="a run of the same tokens")
    first, other = (_routing(service, name) for name in (run_id, other_id))
    layers: list[payloads.MatchedLayerPayload] = []
    tops = []
    for layer in sorted(first.tops.keys() & other.tops.keys()):
        match = align(first.tops[layer], other.tops[layer], first.num_groups, other.num_groups)
        names = np.array([name if name >= 0 else NO_PARTNER for name in match.names], dtype=np.uint8)
        layers.append({"layer": layer, "names": match.names, "overlap": match.overlap, "rand": match.rand})
        tops.append(names[other.tops[layer]])
    mean, low, high = moving_block_interval(other.losses - first.losses)
    return {
        "layers": layers,
        "top": encode(np.concatenate(tops)) if tops else "",
        "losses": [None, *other.losses.astype(np.float32).tolist()],  # as precise as the run's own on the page
        "difference": {"mean": mean, "low": low, "high": high, "count": int(other.losses.size)},
    }


def compare_numbers(service: Service, first: str, second: str) -> payloads.RunNumbersPayload:
    """The numbers of any two runs, also of different texts, and the settings that differ."""
    a, b = (_summary(service, run_id) for run_id in (first, second))
    one, two = dict[str, Any](a["config"]), dict[str, Any](b["config"])
    differ = {key: [one.get(key), two.get(key)] for key in one | two if one.get(key) != two.get(key)}
    titles = {name: DECLARED[name].title for name in differ}
    return {"first": a, "second": b, "settings_that_differ": differ, "titles": titles}


def _summary(service: Service, run_id: str) -> payloads.RunSummaryPayload:
    run = fetch_run(service.database, run_id)
    return {**run_summary(service.database, run_id), "title": run["title"], "name": run["name"]}


@dataclass(frozen=True, slots=True)
class _Routing:
    """One run's groups, (T,) by layer, and its losses with Focus, (T - 1,) in nats."""

    num_groups: int
    tops: dict[int, NDArray[np.uint8]]
    losses: NDArray[np.float64]


def _same_tokens(service: Service, run_id: str) -> set[str]:
    return set(fetch(service.database, "same_tokens", run_id=run_id)["run_id"].to_pylist())


def _routing(service: Service, run_id: str) -> _Routing:
    rows = fetch_several(service.database, ("run", "tops", "focus_losses"), run_id=run_id)
    run = only_run(service.database, run_id, rows["run"])
    losses = np.asarray(rows["focus_losses"]["nll"].to_numpy(), dtype=np.float64)
    return _Routing(run_config(run).num_groups, _by_layer(rows["tops"], run["num_tokens"]), losses)


def _by_layer(rows: pa.Table, count: int) -> dict[int, NDArray[np.uint8]]:
    """Rows in any order -> by layer, the (T,) group of every token: sorting millions of rows would take far longer."""
    layer, position, group = (rows[name].to_numpy() for name in ("layer", "position", "top_group"))
    present = np.flatnonzero(np.bincount(layer))
    place = np.zeros(int(present.max(initial=-1)) + 1, dtype=np.int64)
    place[present] = np.arange(present.size)
    tops = np.empty((present.size, count), dtype=np.uint8)
    tops[place[layer], position] = group
    return dict(zip(present.tolist(), tops, strict=True))
