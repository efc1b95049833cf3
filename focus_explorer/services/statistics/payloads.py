"""Statistics of a run for the page: computed in the background once per run, and answered as far as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError
from focus_explorer.services.jobs import Job, JobRunner
from focus_explorer.services.service import Service
from focus_explorer.services.statistics.measure import measure_run
from focus_explorer.statistics.run_sample import stored_measurements
from focus_explorer.statistics.run_statistics import RunStatistics, agreement_between, run_statistics
from focus_explorer.statistics.warnings import ENOUGH_UNITS, FEW_UNITS
from focus_explorer.views.statistics import SHOWN, columns, compact, judged, of_layer

Payload = dict[str, Any]

NEEDED = {
    "overview": ("statistics",),
    "groups": ("statistics", "characteristic", "categories"),
    "pairs": ("distances", "pairs", "links"),
}
KEPT_RESULTS = 12
LINKS = 20  # of each kind
PATIENCE = 0.4  # seconds an answer may keep the page waiting before it returns the progress


class StatisticsPayloads:
    """Payloads about statistics of one database; safe to call from several threads."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._computations = JobRunner(one_at_a_time=True, kept=KEPT_RESULTS)  # several would slow the page down
        self._measurements = JobRunner()

    def overview(self, run_id: str) -> Payload:
        """Statistics of the run and of its layers, with their sample and the measurements that are missing."""
        result = self._part(run_id, "overview")
        if not isinstance(result, dict):
            result = _overview(result, stored_measurements(self.service.database, run_id))
        return result | self.measurement(run_id)

    def layer(self, run_id: str, layer: int) -> Payload:
        """Groups of one layer, with their tokens and categories."""
        result = self._part(run_id, "groups")
        return result if isinstance(result, dict) else _groups(result, layer)

    def pairs(self, run_id: str, layer: int) -> Payload:
        """Pairs kept by distance in one layer and over layers, and its strongest distant pairs and links."""
        result = self._part(run_id, "pairs")
        return result if isinstance(result, dict) else _pairs(result, layer)

    def agreement(self, run_id: str, other_id: str) -> Payload:
        """Agreement of two runs of the same tokens, layer by layer."""
        database = self.service.database
        result = self._result(
            run_id, ("agreement", other_id), lambda job: agreement_between(database, run_id, other_id)
        )
        return result if isinstance(result, dict) else {"state": "done", "rows": columns(result)}

    def measure(self, run_id: str, *, attention: bool) -> Payload:
        """Measure what is missing in the background, unless that is under way; returns the job."""

        def work(job: Job) -> None:
            problems = measure_run(
                self.service, run_id, attention=attention, progress=job.step, cancelled=job.stop_requested
            )
            job.message = " ".join(problems)

        fetch_run(self.service.database, run_id)
        return {"job": self._measurements.start(run_id, work, kind="statistics", run_id=run_id).status()}

    def stop(self, run_id: str) -> Payload:
        """Stop measuring at the next step; results stored so far stay."""
        self._measurements.stop(run_id)
        return self.measurement(run_id)

    def measurement(self, run_id: str) -> Payload:
        """`job`: the measurement of a run started last; None before the first."""
        job = self._measurements.get(run_id)
        return {"job": None if job is None else job.status()}

    def _part(self, run_id: str, part: str) -> RunStatistics | Payload:
        """The statistics once the tables of a part are computed; until then the progress."""

        def compute(job: Job) -> RunStatistics:
            result = run_statistics(self.service.database, run_id)
            if part != "groups":
                result.measured(lambda done, total: job.step("Computing", done / total))
            for name in NEEDED[part]:
                result.table(name)
            return result

        result: RunStatistics | Payload = self._result(run_id, (part,), compute)
        return result

    def _result(self, run_id: str, name: tuple[str, ...], compute: Callable[[Job], Any]) -> Any:
        """The result of a computation, or its progress when it takes longer than `PATIENCE`."""
        key = (
            run_id,
            *name,
            repr(stored_measurements(self.service.database, run_id)),
        )  # anew once measured
        job = self._computations.start(key, compute, kind="statistics", run_id=run_id, reuse_done=True)
        if not job.wait(PATIENCE):
            return {"state": "computing", "fraction": job.fraction}
        if job.error is not None:
            raise InputError(job.message)
        return job.result


def _overview(computed: RunStatistics, measured: Payload) -> Payload:
    table, sample = computed.table("statistics"), computed.sample
    run, layers = judged(table, "run"), judged(table, "layer")
    units = run[0]["units"] if run else 0
    mass_missing = "focus" not in sample.mass or (sample.random is not None and "random" not in sample.mass)
    return {
        "state": "done",
        "about": {
            "tokens": sample.num_tokens,
            "units": units,
            "unit": sample.unit,
            "tagger": measured.get("tagger"),
            "random_seed": measured.get("random_seed"),
            "attention_tokens": measured.get("attention_tokens") if sample.mass else None,
            "notes": list(sample.notes),
            "length": "few" if units < FEW_UNITS else "rough" if units < ENOUGH_UNITS else "enough",
        },
        "missing": {
            "tags": not measured.get("tagger"),
            "random": sample.random is None,
            "attention": mass_missing,
        },
        "run": compact(run, SHOWN),
        "layers": compact(layers, SHOWN),
    }


def _groups(computed: RunStatistics, layer: int) -> Payload:
    rows = [row for row in judged(computed.table("statistics"), "group") if row["layer"] == layer]
    if not rows:
        raise InputError(f"the run {computed.run_id!r} has no layer {layer}", fix="choose a layer of this run")
    return {
        "state": "done",
        "groups": compact(rows, SHOWN),
        "characteristic": columns(of_layer(computed.table("characteristic"), layer)),
        "categories": columns(of_layer(computed.table("categories"), layer)),
    }


def _pairs(computed: RunStatistics, layer: int) -> Payload:
    distances = computed.table("distances").to_pylist()
    links = computed.table("links")
    strongest = of_layer(links, layer).sort_by([("probability", "descending")])
    kinds = {kind: strongest.filter(pa.compute.equal(strongest["kind"], kind)) for kind in ("kept", "dropped")}
    return {
        "state": "done",
        "distances": compact([row for row in distances if row["layer"] in (layer, None)], list(distances[0])),
        "pairs": columns(of_layer(computed.table("pairs"), layer)),
        "links": columns(pa.concat_tables([rows.slice(0, LINKS) for rows in kinds.values()])),
        "links_stored": {kind: rows.num_rows for kind, rows in kinds.items()},
        "links_measured": links.num_rows > 0,
    }
