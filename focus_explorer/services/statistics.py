"""What statistics need beyond a stored run, measured once and kept: tags, random centroids, full attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import Cancelled, InputError
from focus_explorer.services.models import borrowed, run_random_seed
from focus_explorer.services.service import Progress, Service, calibration_ids
from focus_explorer.statistics.run_sample import stored_measurements
from focus_runtime.config import FocusConfig
from focus_runtime.store.statistics import write_attention_queries, write_baseline, write_tags
from focus_runtime.text.tagging import tag
from focus_runtime.text.tokens import joined_text


def measure_run(
    service: Service,
    run_id: str,
    *,
    tags: bool = True,
    random: bool = True,
    attention: bool = False,
    again: bool = False,
    progress: Progress = lambda stage, fraction: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Measure what is asked for and not stored yet.

    Args:
        tags: part of speech, syntactic relation and sentence of every token.
        random: the groups random centroids give the same text, one pass of the model.
        attention: full attention by query under both masks, a slower pass each, on the first 4,096 tokens.
        again: also what is stored already.

    Returns:
        What could not be measured and why, in readable sentences: a missing tagger stops nothing else.

    Raises:
        InputError: there is no such run, its model cannot be loaded or has other weights now, or the database cannot
            be written. Cancelled: `cancelled` said so between steps.
    """
    run = fetch_run(service.database, run_id)
    have = {} if again else stored_measurements(service.database, run_id)
    problems = []
    if tags and not have.get("tagger"):
        progress("Tagging words", 0.02)
        try:
            tag_run(service, run_id)
        except InputError as error:
            problems.append(str(error))
    if cancelled():
        raise Cancelled("stopped")
    if random:
        own_seed, stored_seed = run_random_seed(service, run), have.get("random_seed")
        if stored_seed is None or stored_seed == own_seed:  # older versions gave a random run itself as baseline
            measure_random(service, run, progress)
    if cancelled():
        raise Cancelled("stopped")
    if attention:
        _measure_attention(service, run_id, have, progress, cancelled)
    return problems


def tag_run(service: Service, run_id: str) -> str:
    """Tag a stored run's words.

    Returns:
        What decided the tags.

    Raises:
        InputError: the tagger is not installed, or the stored tokens are not those of a text.
    """
    rows = fetch(service.database, "tokens", run_id=run_id)
    pieces, starts, ends = (rows[name].to_pylist() for name in ("piece", "start_char", "end_char"))
    found = tag(joined_text(pieces, starts, ends), starts, ends)
    write_tags(service.database, run_id, found)
    return found.tagger


def measure_random(service: Service, run: dict[str, object], progress: Progress, *, seed: int | None = None) -> None:
    """Run random centroids of the run's shape on its tokens and keep their groups.

    Args:
        service: with the run's database.
        run: its row.
        progress: called with each stage and the fraction done.
        seed: of the random centroids, where a manifest records it; that of `baseline_seed` when None.
    """
    from focus_runtime.baselines.random_groups import STATISTICS_SEED, baseline_seed, random_focus, random_groups

    run_id = str(run["run_id"])
    config = FocusConfig.from_json(str(run["config"]))
    ids = fetch(service.database, "token_ids", run_id=run_id)["token_id"].to_pylist()
    layers = [row["layer"] for row in fetch(service.database, "layers", run_id=run_id).to_pylist()]
    if seed is None:
        seed = baseline_seed(run_random_seed(service, run), STATISTICS_SEED)
    with borrowed(service, run) as loaded:
        progress("Balancing random centroids", 0.1)
        balance = calibration_ids(loaded.tokenizer)
        with random_focus(loaded.model, config, layers, balance, seed=seed) as focus:
            progress("Random centroids on this text", 0.3)
            groups = random_groups(focus, ids, seed=seed, balanced_on=len(balance))
    progress("Saving", 0.5)
    write_baseline(service.database, run_id, groups)


def _measure_attention(
    service: Service, run_id: str, have: dict[str, object], progress: Progress, cancelled: Callable[[], bool]
) -> None:
    """Full attention under the run's mask, and under that of random centroids where these were run."""
    from focus_explorer.services.pairs import MEASURED_TOKENS, measure_attention
    from focus_runtime.measure.attention_links import measure_attention as measure

    stored = fetch(service.database, "attention_queries", run_id=run_id)["centroids"].unique().to_pylist()
    if not have or "focus" not in stored:
        measure_attention(service, run_id, progress=progress, cancelled=cancelled)
    rows = fetch(service.database, "baseline_assignments", run_id=run_id)
    if not rows.num_rows or (have and "random" in stored):
        return

    def step(done: int, total: int) -> None:
        if cancelled():
            raise Cancelled("stopped")
        progress(f"Attention under random centroids, layer {done} of {total}", 0.5 + 0.45 * done / total)

    run = fetch_run(service.database, run_id)
    ids = fetch(service.database, "token_ids", run_id=run_id)["token_id"].to_pylist()[:MEASURED_TOKENS]
    layer, position, bits = (rows[name].to_numpy() for name in ("layer", "position", "membership"))
    groups = {}
    for number in np.unique(layer).tolist():
        mine = (layer == number) & (position < len(ids))
        groups[number] = bits[mine][np.argsort(position[mine])]
    with borrowed(service, run) as loaded:
        found = measure(loaded.model, ids, groups, FocusConfig.from_json(run["config"]), top=1, progress=step)
    write_attention_queries(service.database, run_id, {"random": {one.layer: one.queries for one in found}})
