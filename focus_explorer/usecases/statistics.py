"""Statistics of a run: what they need is measured once and kept; the page gets them as far as they are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa

from focus_explorer.data.parts import by_top_k, part_groups
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.progress import Progress, held_at, silent
from focus_explorer.statistics.rows import ENOUGH_UNITS, FEW_UNITS
from focus_explorer.statistics.sample import stored_measurements
from focus_explorer.statistics.tables import RunStatistics, agreement_between, run_statistics, statistics_table
from focus_explorer.usecases.centroids.ready import calibration_ids
from focus_explorer.usecases.jobs import Job, JobRunner
from focus_explorer.usecases.pairs import MEASURED_TOKENS, measure_attention
from focus_explorer.usecases.run_model import lease_run_model, run_random_seed
from focus_explorer.usecases.runs import layer_numbers, layer_parts, run_config, run_special_tokens, token_ids
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads import statistics as payloads
from focus_explorer.views.payloads.runs import JobAnswerPayload, JobPayload
from focus_explorer.views.statistics import as_columns, judged, of_layer
from focus_runtime.store.measurements import write_attention_queries, write_baseline, write_tags
from focus_runtime.text.tagging import tag
from focus_runtime.text.tokens import joined_text


def measure_run(
    service: Service,
    run_id: str,
    *,
    tags: bool = True,
    random: bool = True,
    attention: bool = False,
    progress: Progress = silent,
) -> list[str]:
    """Measure what is requested and not stored yet; returns sentences on what could not be measured and why."""
    run = fetch_run(service.database, run_id)
    stored = stored_measurements(service.database, run_id)
    problems = []
    if tags and not stored.get("tagger"):
        progress("Tagging words", 0.02)
        try:
            tag_run(service, run_id)
        except InputError as error:
            problems.append(str(error))
    if random:
        own_seed, stored_seed = run_random_seed(service, run), stored.get("random_seed")
        if stored_seed is None or stored_seed == own_seed:  # older versions gave a random run itself as baseline
            measure_random(service, run, progress)
    if attention:
        _measure_attention(service, run_id, progress)
    return problems


def tag_run(service: Service, run_id: str) -> str:
    """Tag a stored run's words; returns what decided the tags."""
    rows = fetch(service.database, "tokens", run_id=run_id)
    pieces, starts, ends = (rows[name].to_pylist() for name in ("piece", "start_char", "end_char"))
    tags = tag(joined_text(pieces, starts, ends), starts, ends)
    write_tags(service.database, run_id, tags)
    return tags.tagger


def measure_random(service: Service, run: dict[str, Any], progress: Progress, *, seed: int | None = None) -> None:
    """Run random centroids of the run's shape on its tokens and keep their groups; a manifest may record their seed."""
    from focus_runtime.run.random_baseline import STATISTICS_SEED, baseline_seed, random_groups

    if seed is None:
        seed = baseline_seed(run_random_seed(service, run), STATISTICS_SEED)
    run_id = str(run["run_id"])
    ids, layers = token_ids(service.database, run_id), layer_numbers(service.database, run_id)
    with lease_run_model(service, run, progress=held_at(progress, 0.1)) as loaded:
        progress("Random centroids on this text", 0.1)
        balance = calibration_ids(loaded, run_special_tokens(run))
        groups = random_groups(loaded.model, run_config(run), layers, ids, balance, seed=seed)
    progress("Saving", 0.5)
    write_baseline(service.database, run_id, groups)


def _measure_attention(service: Service, run_id: str, progress: Progress) -> None:
    """Full attention under the run's mask, and under that of random centroids where these were run."""
    from focus_runtime.measure.attention_mass import measure_attention as measure

    measured = fetch(service.database, "attention_queries", run_id=run_id)["centroids"].unique().to_pylist()
    if "focus" not in measured:
        measure_attention(service, run_id, progress=progress)
    rows = fetch(service.database, "baseline_assignments", run_id=run_id)
    if not rows.num_rows or "random" in measured:
        return

    def step(done: int, total: int) -> None:
        progress(f"Attention under random centroids, layer {done} of {total}", 0.5 + 0.45 * done / total)

    run = fetch_run(service.database, run_id)
    ids = token_ids(service.database, run_id)[:MEASURED_TOKENS]
    own = fetch(service.database, "baseline_head_memberships", run_id=run_id)
    parts = part_groups(layer_parts(service.database, run), rows, own, run["num_tokens"])
    groups = {layer: by_top_k(of_layer)[:, : len(ids)] for layer, of_layer in parts.items()}
    with lease_run_model(service, run, progress=held_at(progress, 0.5)) as loaded:
        layers = measure(loaded.model, ids, groups, run_config(run), top=1, progress=step)
    write_attention_queries(service.database, run_id, {"random": {one.layer: one.queries for one in layers}})


def statistics_rows(service: Service, run_id: str, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = statistics_table(service.database, run_id, name).to_pylist()
    return rows


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

    def overview(self, run_id: str) -> payloads.StatisticsPayload | payloads.ComputingPayload:
        """Statistics of the run and of its layers, with their sample and the measurements that are missing."""
        result = self._part(run_id, "overview")
        if not isinstance(result, RunStatistics):
            return result
        measured = stored_measurements(self.service.database, run_id)
        return _overview(result, measured, self.measurement(run_id)["job"])

    def layer(self, run_id: str, layer: int) -> payloads.LayerStatisticsPayload | payloads.ComputingPayload:
        """Groups of one layer, with their tokens and categories."""
        result = self._part(run_id, "groups")
        return _groups(result, layer) if isinstance(result, RunStatistics) else result

    def pairs(self, run_id: str, layer: int) -> payloads.PairStatisticsPayload | payloads.ComputingPayload:
        """Pairs kept by distance in one layer and over layers, and its strongest distant pairs and links."""
        result = self._part(run_id, "pairs")
        return _pairs(result, layer) if isinstance(result, RunStatistics) else result

    def agreement(self, run_id: str, other: str) -> payloads.RunAgreementPayload | payloads.ComputingPayload:
        database = self.service.database
        result = self._result(run_id, ("agreement", other), lambda job: agreement_between(database, run_id, other))
        if not isinstance(result, pa.Table):
            return cast(payloads.ComputingPayload, result)
        return {"state": "done", "rows": as_columns(payloads.AgreementColumnsPayload, result.to_pylist())}

    def measure(self, run_id: str, *, attention: bool = False) -> JobAnswerPayload:
        """Measure what is missing in the background, unless that is under way; returns the job."""

        def work(job: Job) -> None:
            problems = measure_run(self.service, run_id, attention=attention, progress=job.step)
            job.message = " ".join(problems)

        fetch_run(self.service.database, run_id)
        return {"job": self._measurements.start(run_id, work, kind="statistics", run_id=run_id).status()}

    def stop(self, run_id: str) -> JobAnswerPayload:
        """Stop measuring at the next step; results stored so far stay."""
        self._measurements.stop(run_id)
        return self.measurement(run_id)

    def measurement(self, run_id: str) -> JobAnswerPayload:
        """`job`: the measurement of a run started last; None before the first."""
        job = self._measurements.get(run_id)
        return {"job": None if job is None else job.status()}

    def _part(self, run_id: str, part: str) -> RunStatistics | payloads.ComputingPayload:
        """The statistics once the tables of a part are computed; until then the progress."""

        def compute(job: Job) -> RunStatistics:
            result = run_statistics(self.service.database, run_id)
            if part != "groups":
                result.measured(lambda done, total: job.step("Computing", done / total))
            for name in NEEDED[part]:
                result.table(name)
            return result

        computed: RunStatistics | payloads.ComputingPayload = self._result(run_id, (part,), compute)
        return computed

    def _result(self, run_id: str, name: tuple[str, ...], compute: Callable[[Job], Any]) -> Any:
        """The result of a computation, or its progress when it takes longer than `PATIENCE`."""
        key = (run_id, *name, repr(stored_measurements(self.service.database, run_id)))  # anew once measured
        job = self._computations.start(key, compute, kind="statistics", run_id=run_id, reuse_done=True)
        if not job.wait(PATIENCE):
            computing: payloads.ComputingPayload = {"state": "computing", "fraction": job.fraction}
            return computing
        if job.error is not None:
            raise InputError(job.message)
        return job.result


def _overview(computed: RunStatistics, measured: dict[str, Any], job: JobPayload | None) -> payloads.StatisticsPayload:
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
        "run": as_columns(payloads.StatisticColumnsPayload, run),
        "layers": as_columns(payloads.StatisticColumnsPayload, layers),
        "job": job,
    }


def _groups(computed: RunStatistics, layer: int) -> payloads.LayerStatisticsPayload:
    rows = [row for row in judged(computed.table("statistics"), "group") if row["layer"] == layer]
    if not rows:
        raise InputError(f"the run {computed.run_id!r} has no layer {layer}", fix="choose a layer of this run")
    return {
        "state": "done",
        "groups": as_columns(payloads.StatisticColumnsPayload, rows),
        "characteristic": as_columns(
            payloads.CharacteristicColumnsPayload, of_layer(computed.table("characteristic"), layer).to_pylist()
        ),
        "categories": as_columns(
            payloads.CategoryColumnsPayload, of_layer(computed.table("categories"), layer).to_pylist()
        ),
    }


def _pairs(computed: RunStatistics, layer: int) -> payloads.PairStatisticsPayload:
    distances = computed.table("distances").to_pylist()
    shown = [row for row in distances if row["layer"] in (layer, None)]
    links = computed.table("links")
    strongest = of_layer(links, layer).sort_by([("probability", "descending")])
    last_head = pa.compute.max(fetch(computed.database, "attention_mass", run_id=computed.run_id)["head"]).as_py()
    kinds = {kind: strongest.filter(pa.compute.equal(strongest["kind"], kind)) for kind in ("kept", "dropped")}
    return {
        "state": "done",
        "distances": as_columns(payloads.DistanceColumnsPayload, shown),
        "pairs": as_columns(payloads.DistantPairColumnsPayload, of_layer(computed.table("pairs"), layer).to_pylist()),
        "links": as_columns(
            payloads.LinkColumnsPayload, pa.concat_tables([rows.slice(0, LINKS) for rows in kinds.values()]).to_pylist()
        ),
        "links_stored": {kind: rows.num_rows for kind, rows in kinds.items()},
        "links_measured": links.num_rows > 0,
        "query_heads": None if last_head is None else last_head + 1,  # None before full attention is measured
    }
