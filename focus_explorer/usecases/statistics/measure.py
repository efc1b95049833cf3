"""Measurements that statistics need beyond a stored run, made once and kept: tags, random centroids, full attention."""

from __future__ import annotations

from typing import Any

from focus_explorer.data.parts import by_top_k, part_groups
from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.progress import Progress, held_at, silent
from focus_explorer.statistics.sample import stored_measurements
from focus_explorer.statistics.tables import agreement_between, run_statistics, statistics_table
from focus_explorer.usecases.centroids.fit import calibration_ids
from focus_explorer.usecases.pairs import MEASURED_TOKENS, measure_attention
from focus_explorer.usecases.run_model import lease_run_model, run_random_seed
from focus_explorer.usecases.runs import layer_numbers, layer_parts, run_config, run_special_tokens, token_ids
from focus_explorer.usecases.service import Service
from focus_runtime.store.measurements import write_attention_queries, write_baseline, write_tags
from focus_runtime.text.tagging import tag
from focus_runtime.text.tokens import joined_text

__all__ = ["agreement_between", "measure_random", "measure_run", "run_statistics", "statistics_rows", "tag_run"]


def measure_run(
    service: Service,
    run_id: str,
    *,
    tags: bool = True,
    random: bool = True,
    attention: bool = False,
    again: bool = False,
    progress: Progress = silent,
) -> list[str]:
    """Measure what is requested and not stored yet; returns sentences on what could not be measured and why."""
    run = fetch_run(service.database, run_id)
    stored = {} if again else stored_measurements(service.database, run_id)
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
        _measure_attention(service, run_id, stored, progress)
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


def _measure_attention(service: Service, run_id: str, stored: dict[str, Any], progress: Progress) -> None:
    """Full attention under the run's mask, and under that of random centroids where these were run."""
    from focus_runtime.measure.attention_mass import measure_attention as measure

    measured = fetch(service.database, "attention_queries", run_id=run_id)["centroids"].unique().to_pylist()
    if not stored or "focus" not in measured:
        measure_attention(service, run_id, progress=progress)
    rows = fetch(service.database, "baseline_assignments", run_id=run_id)
    if not rows.num_rows or (stored and "random" in measured):
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
