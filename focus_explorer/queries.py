"""Named read-only SQL -> Arrow. Screen, command line and exports use these and nothing else, so they cannot disagree.

Shares are of the run's tokens, or of its T(T+1)/2 causal pairs; every query names its denominator as a column.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from focus_explorer.errors import NotFoundError
from focus_runtime.store.database import Database

# A run nobody named, noted or tagged has no labels; a deleted one is here until it is purged.
RUNS = """
SELECT r.*, coalesce(b.name, '') AS name, coalesce(b.note, '') AS note, coalesce(b.tags, []) AS tags, b.deleted_at,
    (SELECT exp(avg(nll)) FROM losses l WHERE l.run_id = r.run_id AND l.mode = 'full') AS perplexity_full,
    (SELECT exp(avg(nll)) FROM losses l WHERE l.run_id = r.run_id AND l.mode = 'focus') AS perplexity_focus,
    (SELECT avg(retained_pairs) FROM layers y WHERE y.run_id = r.run_id) AS retained_pairs,
    (SELECT avg(dominance) FROM layers y WHERE y.run_id = r.run_id) AS dominance
FROM runs r LEFT JOIN run_labels b USING (run_id) WHERE r.status = 'complete'
"""

# Means over a training's newest 20 steps; of its Focus steps where it has any, else of full attention's.
TRAININGS = """
WITH modes AS (SELECT training_id, mode, max(step) AS step FROM training_steps GROUP BY training_id, mode),
newest AS (SELECT * FROM modes m WHERE mode = 'focus' OR NOT EXISTS (
    SELECT 1 FROM modes f WHERE f.training_id = m.training_id AND f.mode = 'focus')),
tails AS (
    SELECT s.training_id, max(s.step) AS step, max(s.elapsed) AS elapsed, avg(s.loss) AS loss,
        exp(least(avg(s.loss), 700)) AS perplexity, avg(s.dominance) AS dominance,
        avg(s.dominance_max) AS dominance_max, avg(s.retained_pairs) AS retained_pairs,
        avg(s.tokens_per_second) AS tokens_per_second,
        (max(s.elapsed) - min(s.elapsed)) / nullif(max(s.step) - min(s.step), 0) AS seconds_per_step
    FROM training_steps s JOIN newest n USING (training_id, mode) WHERE s.step > n.step - 20 GROUP BY s.training_id)
SELECT r.*, coalesce(t.step, 0) AS step, coalesce(t.elapsed, 0) AS elapsed, t.* EXCLUDE (training_id, step, elapsed)
FROM training_runs r LEFT JOIN tails t USING (training_id)
"""

QUERIES: dict[str, str] = {
    "runs": RUNS + " AND b.deleted_at IS NULL ORDER BY created_at DESC",
    "deleted_runs": RUNS + " AND b.deleted_at IS NOT NULL ORDER BY b.deleted_at DESC",
    "run": RUNS + " AND r.run_id = $run_id",
    "tokens": """
        SELECT position, token_id, piece, start_char, end_char
        FROM tokens WHERE run_id = $run_id ORDER BY position""",
    "assignments": """
        SELECT layer, position, membership, top_group, probabilities
        FROM assignments WHERE run_id = $run_id ORDER BY layer, position""",
    "routing": """
        SELECT position, routing FROM assignments
        WHERE run_id = $run_id AND layer = $layer ORDER BY position""",
    "layer_centroids": "SELECT centroids FROM layers WHERE run_id = $run_id AND layer = $layer",
    "losses": "SELECT mode, position, nll FROM losses WHERE run_id = $run_id ORDER BY mode, position",
    "mask": """
        SELECT row_block, col_block, block_size, local_only, group_only, local_and_group, sink_only, dropped
        FROM masks WHERE run_id = $run_id AND layer = $layer ORDER BY row_block, col_block""",
    "timings": """
        SELECT mode, stage, median(milliseconds) AS median, min(milliseconds) AS low, max(milliseconds) AS high,
            count(*) AS repeats, any_value(sequence_length) AS sequence_length, any_value(backend) AS backend,
            max(peak_memory_bytes) AS peak_memory_bytes
        FROM timings WHERE run_id = $run_id GROUP BY mode, stage ORDER BY mode, stage""",
    "group_pieces": """
        WITH counted AS (
            SELECT a.layer, a.top_group, t.piece, count(*) AS uses
            FROM assignments a JOIN tokens t ON t.run_id = a.run_id AND t.position = a.position
            WHERE a.run_id = $run_id GROUP BY ALL)
        SELECT layer, top_group, piece, uses FROM counted
        QUALIFY row_number() OVER (PARTITION BY layer, top_group ORDER BY uses DESC, piece) <= 8
        ORDER BY layer, top_group, uses DESC, piece""",
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
        WITH pairs AS (
            SELECT layer, sum(local_only) AS local_only, sum(group_only) AS group_only,
                sum(local_and_group) AS local_and_group, sum(sink_only) AS sink_only, sum(dropped) AS dropped
            FROM masks WHERE run_id = $run_id GROUP BY layer)
        SELECT y.layer, y.attention_kind, y.dominance, y.retained_pairs, y.attention_mass_retained,
            CAST(p.local_only AS BIGINT) AS local_only, CAST(p.group_only AS BIGINT) AS group_only,
            CAST(p.local_and_group AS BIGINT) AS local_and_group, CAST(p.sink_only AS BIGINT) AS sink_only,
            CAST(p.dropped AS BIGINT) AS dropped,
            CAST(local_only + group_only + local_and_group + sink_only + dropped AS BIGINT) AS causal_pairs
        FROM layers y JOIN pairs p USING (layer) WHERE y.run_id = $run_id ORDER BY y.layer""",
    "token_table": """
        WITH paths AS (
            SELECT position, string_agg(CAST(top_group AS VARCHAR), ' ' ORDER BY layer) AS groups_by_layer
            FROM assignments WHERE run_id = $run_id GROUP BY position),
        nll AS (
            SELECT position, max(nll) FILTER (mode = 'full') AS nll_full, max(nll) FILTER (mode = 'focus') AS nll_focus
            FROM losses WHERE run_id = $run_id GROUP BY position)
        SELECT t.position, t.token_id, t.piece, t.start_char, t.end_char, nll.nll_full, nll.nll_focus,
            nll.nll_focus - nll.nll_full AS nll_difference, p.groups_by_layer
        FROM tokens t LEFT JOIN nll USING (position) LEFT JOIN paths p USING (position)
        WHERE t.run_id = $run_id ORDER BY t.position""",
    "projection": """
        SELECT m.method, m.parameters, m.seed, m.trustworthiness, p.position, p.x, p.y
        FROM projection_meta m JOIN projections p USING (projection_id)
        WHERE m.run_id = $run_id AND m.layer = $layer ORDER BY p.position""",
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
}


def fetch(database: Database, name: str, **parameters: Any) -> pa.Table:
    """Run one named query.

    Raises:
        StoreError: the database cannot be read.
    """
    with database.read() as connection:
        return connection.sql(QUERIES[name], params=parameters or None).to_arrow_table()


def fetch_training(database: Database, training_id: str) -> dict[str, Any]:
    """The one row of a training.

    Raises:
        NotFoundError: there is no such training.
    """
    rows = fetch(database, "training", training_id=training_id).to_pylist()
    if not rows:
        raise NotFoundError(f"there is no training {training_id!r} in {database.path}", fix="reload the page")
    return rows[0]


def fetch_run(database: Database, run_id: str) -> dict[str, Any]:
    """The one row of a run.

    Raises:
        NotFoundError: there is no such run.
    """
    rows = fetch(database, "run", run_id=run_id).to_pylist()
    if not rows:
        raise NotFoundError(
            f"there is no run {run_id!r} in {database.path}", fix="`focus-explorer runs` lists the ones there are"
        )
    if rows[0]["deleted_at"] is not None:
        raise NotFoundError(
            f"the run {run_id} was deleted", fix=f"bring it back with `focus-explorer runs undelete {run_id}`"
        )
    return rows[0]
