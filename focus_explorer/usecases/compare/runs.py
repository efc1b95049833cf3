"""Two stored runs of the same tokens side by side, their groups matched layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_explorer.data.parts import placed
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


def partners(service: Service, run_id: str) -> payloads.PartnersPayload:
    """Other runs of exactly the same tokens, newest first."""
    same = _same_tokens(service, run_id)
    kind = payloads.PartnerPayload
    return {
        "runs": [
            picked(kind, run, created_at=run["created_at"].isoformat(), config=config_payload(run["config"]))
            for run in list_runs(service.database)
            if run["run_id"] in same
        ]
    }


def compare_runs(service: Service, run_id: str, other: str) -> payloads.MatchedRunsPayload:
    """Two runs of the same tokens, the other's groups matched with this one's in every layer both have.

    `top` has the other run's groups in this run's names, 255 for one without a partner; `difference` is its loss minus
    this run's.
    """
    if other not in _same_tokens(service, run_id):
        raise InputError(f"the run {other!r} has another text", expected="a run of the same tokens")
    first, second = (_routing(service, name) for name in (run_id, other))
    layers: list[payloads.MatchedLayerPayload] = []
    tops = []
    for layer in sorted(first.tops.keys() & second.tops.keys()):
        match = align(first.tops[layer], second.tops[layer], first.num_groups, second.num_groups)
        names = np.array([name if name >= 0 else NO_PARTNER for name in match.names], dtype=np.uint8)
        layers.append({"layer": layer, "names": match.names, "overlap": match.overlap, "rand": match.rand})
        tops.append(names[second.tops[layer]])
    mean, low, high = moving_block_interval(second.losses - first.losses)
    return {
        "layers": layers,
        "top": encode(np.concatenate(tops)) if tops else "",
        "losses": [None, *second.losses.astype(np.float32).tolist()],  # as precise as the run's own on the page
        "difference": {"mean": mean, "low": low, "high": high, "count": int(second.losses.size)},
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
    rows = fetch_several(service.database, ("run", "layer_numbers", "tops", "focus_losses"), run_id=run_id)
    run = only_run(service.database, run_id, rows["run"])
    losses = np.asarray(rows["focus_losses"]["nll"].to_numpy(), dtype=np.float64)
    layers = rows["layer_numbers"]["layer"].to_numpy()
    tops = placed(rows["tops"], layers, run["num_tokens"], "top_group")
    return _Routing(run_config(run).num_groups, dict(zip(layers.tolist(), tops, strict=True)), losses)
