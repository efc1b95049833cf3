"""Named read-only SQL -> Arrow. Screen, command line and exports use these alone, so they cannot disagree.

Shares are of the run's tokens, or of its T(T+1)/2 causal pairs; every query names its denominator as a column.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from focus_explorer.errors import DeletedRunError, NotFoundError
from focus_runtime.store.database import Database

# A run without name, note and tags has no labels; a deleted one is here until it is purged.
RUNS = """
SELECT r.*, coalesce(b.name, '') AS name, coalesce(b.note, '') AS note, coalesce(b.tags, []) AS tags, b.deleted_at,
    l.perplexity_full, l.perplexity_focus, y.retained_pairs, y.dominance
FROM runs r LEFT JOIN run_labels b USING (run_id)
LEFT JOIN (
    SELECT run_id, exp(avg(nll) FILTER (mode = 'full')) AS perplexity_full,
        exp(avg(nll) FILTER (mode = 'focus')) AS perplexity_focus
    FROM losses GROUP BY run_id) l USING (run_id)
LEFT JOIN (
    SELECT run_id, avg(retained_pairs) AS retained_pairs, avg(dominance) AS dominance
    FROM layers GROUP BY run_id) y USING (run_id)
WHERE r.status = 'complete'
"""

# Means over a training's newest 20 steps; of its Focus steps where it has any, else of full attention's.
TRAININGS = """
WITH modes AS (SELECT training_id, mode, max(step) AS step FROM training_steps GROUP BY training_id, mode),
newest AS (SELECT * FROM modes m WHERE mode = 'focus' OR NOT EXISTS (
    SELECT 1 FROM modes f WHERE f.training_id = m.training_id AND f.mode = 'focus')),
tails AS (
    SELECT s.training_id, max(s.step) AS step, max(s.elapsed) AS elapsed, avg(s.loss) AS loss,
        CASE WHEN avg(s.loss) IS NOT NULL THEN exp(least(avg(s.loss), 700)) END AS perplexity,
        avg(s.layer_error) AS layer_error, avg(s.dominance) AS dominance,
        avg(s.dominance_max) AS dominance_max, avg(s.retained_pairs) AS retained_pairs,
        avg(s.tokens_per_second) AS tokens_per_second,
        (max(s.elapsed) - min(s.elapsed)) / nullif(max(s.step) - min(s.step), 0) AS seconds_per_step
    FROM training_steps s JOIN newest n USING (training_id, mode) WHERE s.step > n.step - 20 GROUP BY s.training_id)
SELECT r.*, coalesce(t.step, 0) AS step, coalesce(t.elapsed, 0) AS elapsed, t.* EXCLUDE (training_id, step, elapsed)
FROM training_runs r LEFT JOIN tails t USING (training_id)
"""

# What the heads of every layer executed, heads of equal settings together; one part in runs made before 0.2.
PARTS = """
SELECT y.layer, coalesce(h.part, 0) AS part, coalesce(h.heads, []) AS heads,
    coalesce(h.query_heads, false) AS query_heads, coalesce(h.full_attention, false) AS full_attention,
    CASE WHEN h.full_attention THEN NULL
        ELSE coalesce(h.top_k, CAST(json_extract(r.config, '$.top_k') AS INTEGER)) END AS top_k,
    coalesce(h.window_size, CAST(json_extract(r.config, '$.window') AS BIGINT)) AS window_size, y.sliding_window,
    coalesce(h.retained_pairs, y.retained_pairs) AS retained_pairs
FROM layers y JOIN runs r USING (run_id) LEFT JOIN head_masks h USING (run_id, layer)
WHERE y.run_id = $run_id
"""

QUERIES: dict[str, str] = {
    "runs": RUNS + " AND b.deleted_at IS NULL ORDER BY created_at DESC",
    "deleted_runs": RUNS + " AND b.deleted_at IS NOT NULL ORDER BY b.deleted_at DESC",
    "run": RUNS + " AND r.run_id = $run_id",
    "all_run_ids": "SELECT run_id FROM runs",
    "model_ids": "SELECT DISTINCT model_id FROM runs WHERE status = 'complete'",
    "tokens": """
        SELECT position, token_id, piece, start_char, end_char
        FROM tokens WHERE run_id = $run_id ORDER BY position""",
    "assignments": """
        SELECT layer, position, membership, top_group, probabilities
        FROM assignments WHERE run_id = $run_id ORDER BY layer, position""",
    "tops": """
        SELECT layer, CAST(position AS UINTEGER) AS position, CAST(top_group AS UTINYINT) AS top_group
        FROM assignments WHERE run_id = $run_id""",
    "cells": """
        SELECT layer, CAST(position AS UINTEGER) AS position, membership, probabilities, entropy
        FROM assignments WHERE run_id = $run_id AND ($layer IS NULL OR layer = $layer)""",
    "pieces": "SELECT position, piece FROM tokens WHERE run_id = $run_id ORDER BY position",
    "routing": """
        SELECT position, routing FROM assignments
        WHERE run_id = $run_id AND layer = $layer AND position IN (SELECT unnest($positions)) ORDER BY position""",
    "layer_centroids": "SELECT centroids FROM layers WHERE run_id = $run_id AND layer = $layer",
    "losses": "SELECT mode, position, nll FROM losses WHERE run_id = $run_id ORDER BY mode, position",
    "focus_losses": "SELECT nll FROM losses WHERE run_id = $run_id AND mode = 'focus' ORDER BY position",
    "mask": """
        SELECT row_block, col_block, block_size, local_only, group_only, local_and_group, sink_only, dropped
        FROM masks WHERE run_id = $run_id AND layer = $layer AND part = $part ORDER BY row_block, col_block""",
    "timings": """
        SELECT mode, stage, median(milliseconds) AS median, min(milliseconds) AS low, max(milliseconds) AS high,
            count(*) AS repeats, any_value(sequence_length) AS sequence_length, any_value(backend) AS backend,
            max(peak_memory_bytes) AS peak_memory_bytes
        FROM timings WHERE run_id = $run_id GROUP BY mode, stage ORDER BY mode, stage""",
    "group_pieces": """
        WITH codes AS (SELECT position, piece, CAST(dense_rank() OVER (ORDER BY piece) AS INTEGER) AS code
                       FROM tokens WHERE run_id = $run_id),
        counted AS (
            SELECT a.layer, a.top_group, c.code, count(*) AS uses
            FROM assignments a JOIN codes c USING (position) WHERE a.run_id = $run_id GROUP BY ALL),
        frequent AS (
            SELECT * FROM counted
            QUALIFY row_number() OVER (PARTITION BY layer, top_group ORDER BY uses DESC, code) <= 8)
        SELECT f.layer, f.top_group, names.piece, f.uses
        FROM frequent f JOIN (SELECT DISTINCT code, piece FROM codes) names USING (code)
        ORDER BY f.layer, f.top_group, f.uses DESC, names.piece""",
    "groups": """
        WITH run AS (SELECT num_tokens, CAST(json_extract(config, '$.num_groups') AS INTEGER) AS k FROM runs
                     WHERE run_id = $run_id),
        slots AS (SELECT y.layer, g.grp FROM layers y, run, (SELECT unnest(range(64)) AS grp) g
                  WHERE y.run_id = $run_id AND g.grp < run.k),
        sums AS (SELECT layer, top_group, count(*) AS tokens, avg(confidence) AS mean_confidence,
                     avg(entropy) AS mean_entropy
                 FROM assignments WHERE run_id = $run_id GROUP BY ALL)
        SELECT s.layer, s.grp AS group_index, coalesce(m.tokens, 0) AS tokens, run.num_tokens,
            coalesce(m.tokens, 0) / run.num_tokens AS share, m.mean_confidence, m.mean_entropy
        FROM slots s CROSS JOIN run LEFT JOIN sums m ON m.layer = s.layer AND m.top_group = s.grp
        ORDER BY s.layer, s.grp""",
    "layers": """
        WITH weighted AS (
            SELECT m.*, coalesce(len(h.heads), 1) AS heads
            FROM masks m LEFT JOIN head_masks h USING (run_id, layer, part) WHERE m.run_id = $run_id),
        pairs AS (
            SELECT layer, sum(heads) FILTER (row_block = 0) AS heads, sum(heads * local_only) AS local_only,
                sum(heads * group_only) AS group_only, sum(heads * local_and_group) AS local_and_group,
                sum(heads * sink_only) AS sink_only, sum(heads * dropped) AS dropped
            FROM weighted GROUP BY layer),
        means AS (
            SELECT layer, CAST(round(local_only / heads) AS BIGINT) AS local_only,
                CAST(round(group_only / heads) AS BIGINT) AS group_only,
                CAST(round(local_and_group / heads) AS BIGINT) AS local_and_group,
                CAST(round(sink_only / heads) AS BIGINT) AS sink_only,
                CAST((local_only + group_only + local_and_group + sink_only + dropped) / heads AS BIGINT)
                    AS causal_pairs
            FROM pairs)
        SELECT y.layer, y.attention_kind, y.dominance, y.retained_pairs, y.attention_mass_retained, y.sliding_window,
            p.local_only, p.group_only, p.local_and_group, p.sink_only,
            p.causal_pairs - p.local_only - p.group_only - p.local_and_group - p.sink_only AS dropped, p.causal_pairs
        FROM layers y JOIN means p USING (layer) WHERE y.run_id = $run_id ORDER BY y.layer""",
    "parts": PARTS + " ORDER BY layer, part",
    "part_pairs": f"""
        WITH parts AS ({PARTS}),
        pairs AS (
            SELECT layer, part, sum(local_only) AS local_only, sum(group_only) AS group_only,
                sum(local_and_group) AS local_and_group, sum(sink_only) AS sink_only, sum(dropped) AS dropped
            FROM masks WHERE run_id = $run_id GROUP BY layer, part)
        SELECT parts.*, CAST(p.local_only AS BIGINT) AS local_only, CAST(p.group_only AS BIGINT) AS group_only,
            CAST(p.local_and_group AS BIGINT) AS local_and_group, CAST(p.sink_only AS BIGINT) AS sink_only,
            CAST(p.dropped AS BIGINT) AS dropped
        FROM parts JOIN pairs p USING (layer, part) ORDER BY layer, part""",
    "token_table": """
        WITH paths AS (
            SELECT position, string_agg(CAST(top_group AS VARCHAR), ' ' ORDER BY layer) AS groups_by_layer
            FROM assignments WHERE run_id = $run_id AND position BETWEEN $first AND $last GROUP BY position),
        nll AS (
            SELECT position, max(nll) FILTER (mode = 'full') AS nll_full, max(nll) FILTER (mode = 'focus') AS nll_focus
            FROM losses WHERE run_id = $run_id AND position BETWEEN $first AND $last GROUP BY position)
        SELECT t.position, t.token_id, t.piece, t.start_char, t.end_char, nll.nll_full, nll.nll_focus,
            nll.nll_focus - nll.nll_full AS nll_difference, p.groups_by_layer
        FROM tokens t LEFT JOIN nll USING (position) LEFT JOIN paths p USING (position)
        WHERE t.run_id = $run_id AND t.position BETWEEN $first AND $last ORDER BY t.position""",
    "projection": """
        SELECT m.method, m.parameters, m.seed, m.trustworthiness, p.position, p.x, p.y
        FROM projection_meta m JOIN projections p USING (projection_id)
        WHERE m.run_id = $run_id AND m.layer = $layer ORDER BY p.position""",
    "all_probabilities": """
        SELECT layer, position, probabilities FROM assignments
        WHERE run_id = $run_id AND position IN (SELECT unnest($positions)) ORDER BY position, layer""",
    "centroid_runs": """
        SELECT r.centroids_sha256, count(*) AS runs FROM runs r LEFT JOIN run_labels b USING (run_id)
        WHERE r.status = 'complete' AND b.deleted_at IS NULL GROUP BY r.centroids_sha256""",
    "centroid_uses": """
        SELECT r.run_id, r.title, coalesce(b.name, '') AS name, r.num_tokens, r.model_id, r.created_at, y.layer,
            y.dominance, s.tokens, s.groups
        FROM runs r LEFT JOIN run_labels b USING (run_id) JOIN layers y USING (run_id) JOIN (
            SELECT run_id, layer, list(tokens ORDER BY top_group) AS tokens,
                list(top_group ORDER BY top_group) AS groups
            FROM (SELECT run_id, layer, top_group, count(*) AS tokens FROM assignments
                  WHERE run_id IN (SELECT run_id FROM runs WHERE centroids_sha256 = $sha256) GROUP BY ALL)
            GROUP BY run_id, layer) s ON s.run_id = y.run_id AND s.layer = y.layer
        WHERE r.status = 'complete' AND r.centroids_sha256 = $sha256 AND b.deleted_at IS NULL
        ORDER BY r.created_at DESC, y.layer""",
    "centroid_files": "SELECT * FROM centroid_files ORDER BY uploaded_at DESC",
    "trainings": TRAININGS + " ORDER BY created_at DESC",
    "training": TRAININGS + " WHERE r.training_id = $training_id",
    "training_steps": """
        SELECT s.* FROM training_steps s LEFT JOIN (
            SELECT unnest($seen_ids) AS training_id, unnest($seen_modes) AS mode, unnest($seen_steps) AS step
        ) seen USING (training_id, mode)
        WHERE list_contains($training_ids, s.training_id) AND s.step > coalesce(seen.step, 0)
        ORDER BY s.training_id, s.mode, s.step""",
    # Scores on held-out text as curves of their own, one mode for each domain.
    "training_evaluations": """
        WITH e AS (SELECT training_id, 'held-out:' || domain AS mode, step, loss FROM training_evaluations)
        SELECT e.*, NULL::DOUBLE AS dominance, NULL::DOUBLE AS dominance_max, NULL::DOUBLE AS retained_pairs,
            NULL::DOUBLE AS tokens_per_second, NULL::DOUBLE AS learning_rate, NULL::DOUBLE AS layer_error
        FROM e LEFT JOIN (
            SELECT unnest($seen_ids) AS training_id, unnest($seen_modes) AS mode, unnest($seen_steps) AS step
        ) seen USING (training_id, mode)
        WHERE list_contains($training_ids, e.training_id) AND e.step > coalesce(seen.step, 0)
        ORDER BY e.training_id, e.mode, e.step""",
    "token_ids": "SELECT token_id FROM tokens WHERE run_id = $run_id ORDER BY position",
    "membership": """
        SELECT layer, position, membership FROM assignments
        WHERE run_id = $run_id AND ($layer IS NULL OR layer = $layer)""",
    "head_memberships": """
        SELECT layer, part, position, membership FROM head_assignments
        WHERE run_id = $run_id AND ($layer IS NULL OR layer = $layer)""",
    "attention_mass": """
        SELECT layer, head, num_tokens, local, sinks, grouped, dropped, mass_kept, distant_mass_kept
        FROM attention_mass WHERE run_id = $run_id ORDER BY layer, head""",
    "attention_links": """
        WITH links AS (SELECT * FROM attention_links WHERE run_id = $run_id AND layer = $layer),
        groups AS (SELECT position, probabilities FROM assignments WHERE run_id = $run_id AND layer = $layer)
        SELECT k.head, k.kind, k.rank, k.query, k.key, k.probability,
            list_inner_product(q.probabilities, o.probabilities) AS affinity
        FROM links k JOIN groups q ON q.position = k.query JOIN groups o ON o.position = k.key
        ORDER BY k.kind DESC, k.probability DESC, k.head, k.rank""",
    "comparisons": """
        SELECT * EXCLUDE (attention_full, attention_focus, total_full, total_focus), len(attention_focus) AS repeats,
            list_median(attention_full) AS attention_full, list_min(attention_full) AS attention_full_low,
            list_max(attention_full) AS attention_full_high,
            list_median(attention_focus) AS attention_focus, list_min(attention_focus) AS attention_focus_low,
            list_max(attention_focus) AS attention_focus_high,
            list_median(total_full) AS total_full, list_median(total_focus) AS total_focus
        FROM comparisons WHERE run_id = $run_id ORDER BY kind, window_size, top_k""",
    "crossovers": "SELECT * FROM crossovers WHERE run_id = $run_id ORDER BY layer, tokens",
    "all_assignments": """
        SELECT layer, position, membership, top_group, confidence, entropy
        FROM assignments WHERE run_id = $run_id""",
    "token_tags": "SELECT position, pos, dep, sentence FROM token_tags WHERE run_id = $run_id ORDER BY position",
    "all_head_memberships": """
        SELECT layer, part, position, membership FROM head_assignments WHERE run_id = $run_id""",
    "baseline_head_memberships": """
        SELECT layer, part, position, membership FROM baseline_head_assignments WHERE run_id = $run_id""",
    "baseline_assignments": """
        SELECT layer, position, membership, top_group, confidence, entropy
        FROM baseline_assignments WHERE run_id = $run_id""",
    "attention_queries": """
        SELECT centroids, layer, position, local, sinks, grouped, dropped
        FROM attention_queries WHERE run_id = $run_id""",
    "all_attention_links": """
        WITH groups AS (
            SELECT layer, position, probabilities FROM assignments WHERE run_id = $run_id AND position IN (
                SELECT query FROM attention_links WHERE run_id = $run_id
                UNION SELECT key FROM attention_links WHERE run_id = $run_id))
        SELECT k.layer, k.head, k.kind, k.rank, k.query, k.key, k.probability,
            list_inner_product(q.probabilities, o.probabilities) AS affinity
        FROM attention_links k
        JOIN groups q ON q.layer = k.layer AND q.position = k.query
        JOIN groups o ON o.layer = k.layer AND o.position = k.key
        WHERE k.run_id = $run_id ORDER BY k.layer, k.kind, k.head, k.rank""",
    "predictions": """
        SELECT position, mode, rank, pieces, probabilities FROM predictions
        WHERE run_id = $run_id AND position BETWEEN $first AND $last ORDER BY position, mode""",
    "prediction_changes": """
        SELECT f.position, f.token_ids[1] <> o.token_ids[1] AS changed, f.rank = 1 AS full_right,
            o.rank = 1 AS focus_right
        FROM predictions f JOIN predictions o USING (run_id, position)
        WHERE run_id = $run_id AND f.mode = 'full' AND o.mode = 'focus' AND position BETWEEN $first AND $last
        ORDER BY position""",
    "prediction_table": """
        SELECT p.position, t.piece, p.mode, p.rank, unnest(range(1, len(p.token_ids) + 1)) AS place,
            unnest(p.pieces) AS predicted, unnest(p.token_ids) AS predicted_id, unnest(p.probabilities) AS probability
        FROM predictions p JOIN tokens t USING (run_id, position)
        WHERE run_id = $run_id ORDER BY p.position, p.mode, place""",
    "group_names": """
        SELECT layer, group_index, name FROM group_names WHERE centroids_sha256 = $sha256
        ORDER BY layer, group_index""",
    "head_cost_runs": "SELECT num_tokens, nll_full, nll_focus FROM head_cost_runs WHERE run_id = $run_id",
    "head_costs": """
        WITH sizes AS (
            SELECT (SELECT max(head) + 1 FROM attention_mass WHERE run_id = $run_id) AS query_heads,
                (SELECT max(head) + 1 FROM head_costs WHERE run_id = $run_id) AS heads)
        SELECT c.layer, c.head, c.estimated, c.nll,
            (SELECT avg(a.dropped) FROM attention_mass a
             WHERE a.run_id = $run_id AND a.layer = c.layer AND a.head * heads // query_heads = c.head) AS dropped
        FROM head_costs c, sizes WHERE c.run_id = $run_id
        ORDER BY c.nll IS NULL, c.nll, c.estimated, c.layer, c.head""",
    "explained_tokens": "SELECT * FROM explained_tokens WHERE run_id = $run_id ORDER BY token",
    "missing_links": """
        SELECT layer, head, query, key, probability, predicted, nll, random_keeps
        FROM missing_links WHERE run_id = $run_id AND token = $token ORDER BY rank""",
    "missing_link_table": """
        SELECT m.token, p.piece, e.nll_full, e.nll_focus, m.rank, m.layer, m.head, m.query, q.piece AS query_piece,
            m.key, k.piece AS key_piece, m.probability, m.predicted, m.nll, m.nll - e.nll_focus AS change,
            m.random_keeps, e.nll_together, e.dropped_pairs
        FROM missing_links m JOIN explained_tokens e USING (run_id, token)
        JOIN tokens p ON p.run_id = m.run_id AND p.position = m.token
        JOIN tokens q ON q.run_id = m.run_id AND q.position = m.query
        JOIN tokens k ON k.run_id = m.run_id AND k.position = m.key
        WHERE m.run_id = $run_id ORDER BY m.token, m.rank""",
    "measured": """
        SELECT t.tagger, b.seed AS random_seed, b.balanced_on, b.perplexity AS random_perplexity,
            (SELECT max(num_tokens) FROM attention_mass a WHERE a.run_id = r.run_id) AS attention_tokens,
            (SELECT count(*) > 0 FROM attention_queries q WHERE q.run_id = r.run_id AND q.centroids = 'random')
                AS attention_random
        FROM runs r LEFT JOIN taggings t USING (run_id) LEFT JOIN baselines b USING (run_id)
        WHERE r.run_id = $run_id""",
    "same_tokens": """
        WITH texts AS (
            SELECT run_id, count(*) AS count, string_agg(CAST(token_id AS VARCHAR), ' ' ORDER BY position) AS ids
            FROM tokens WHERE run_id IN (
                SELECT o.run_id FROM runs o JOIN runs r USING (num_tokens) LEFT JOIN run_labels b ON b.run_id = o.run_id
                WHERE r.run_id = $run_id AND o.status = 'complete' AND b.deleted_at IS NULL) GROUP BY run_id)
        SELECT t.run_id FROM texts t JOIN texts this USING (ids)
        WHERE this.run_id = $run_id AND t.run_id <> $run_id""",
    "layer_numbers": "SELECT layer FROM layers WHERE run_id = $run_id ORDER BY layer",
    "assignment_table": """
        SELECT layer, position, membership, top_group, confidence, entropy
        FROM assignments WHERE run_id = $run_id
            AND layer BETWEEN $first_layer AND $last_layer AND position BETWEEN $first AND $last
        ORDER BY layer, position""",
    "parts_with_own_groups": """
        SELECT DISTINCT layer, part, h.heads FROM head_assignments JOIN head_masks h USING (run_id, layer, part)
        WHERE run_id = $run_id ORDER BY layer, part""",
    "head_assignment_table": """
        SELECT layer, part, position, membership FROM head_assignments
        WHERE run_id = $run_id AND layer = $layer AND part = $part AND position BETWEEN $first AND $last
        ORDER BY position""",
    "timing_repeats": """
        SELECT mode, stage, repeat, sequence_length, backend, milliseconds, peak_memory_bytes
        FROM timings WHERE run_id = $run_id ORDER BY mode, stage, repeat""",
    "loss_differences": """
        SELECT position, max(nll) FILTER (mode = 'focus') - max(nll) FILTER (mode = 'full') AS difference
        FROM losses WHERE run_id = $run_id GROUP BY position HAVING difference IS NOT NULL ORDER BY position""",
    "mask_table": """
        SELECT layer, part, row_block, col_block, block_size, local_only, group_only, local_and_group, sink_only,
            dropped
        FROM masks WHERE run_id = $run_id ORDER BY layer, part, row_block, col_block""",
}


def fetch(database: Database, name: str, **parameters: Any) -> pa.Table:
    """Run one named query."""
    with database.read() as connection:
        return connection.sql(QUERIES[name], params=parameters or None).to_arrow_table()


def fetch_several(database: Database, names: tuple[str, ...], **parameters: Any) -> dict[str, pa.Table]:
    """Run named queries with the same parameters on one connection: opening a file takes longer than most reads."""
    with database.read() as connection:
        return {name: connection.sql(QUERIES[name], params=parameters).to_arrow_table() for name in names}


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dictionaries, as `to_pylist` gives them; that imports pandas where a column has times with a zone."""
    columns = [
        _times(table[field.name]) if _has_zone(field.type) else table[field.name].to_pylist() for field in table.schema
    ]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _has_zone(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None and kind.unit == "us"


def _times(column: pa.ChunkedArray) -> list[datetime | None]:
    zone, first = ZoneInfo(column.type.tz), datetime(1970, 1, 1, tzinfo=UTC)
    counts = column.cast(pa.int64()).to_pylist()
    return [None if count is None else (first + timedelta(microseconds=count)).astimezone(zone) for count in counts]


def fetch_training(database: Database, training_id: str) -> dict[str, Any]:
    """The one row of a training."""
    rows = fetch(database, "training", training_id=training_id).to_pylist()
    if not rows:
        raise NotFoundError(f"there is no training {training_id!r} in {database.path.name}", fix="reload the page")
    return rows[0]


def fetch_run(database: Database, run_id: str) -> dict[str, Any]:
    """The one row of a run."""
    return only_run(database, run_id, fetch(database, "run", run_id=run_id))


def only_run(database: Database, run_id: str, rows: pa.Table) -> dict[str, Any]:
    """The one row of the query `run`, unless there is none or it was deleted."""
    if not rows.num_rows:
        raise NotFoundError(
            f"there is no run {run_id!r} in {database.path.name}", fix="`focus-explorer runs` lists the ones there are"
        )
    run = rows_of(rows)[0]
    if run["deleted_at"] is not None:
        raise DeletedRunError(
            f"the run {run_id} was deleted", fix=f"bring it back with `focus-explorer runs undelete {run_id}`"
        )
    return run
