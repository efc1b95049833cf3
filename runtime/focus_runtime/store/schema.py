"""Ordered, recorded schema migrations. Never edit one that has been released; append another. See docs/schema.md.

The view `pairs` had two earlier definitions, in 0008 and 0010; whatever a file has, 0022 puts the last in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import duckdb

from focus_runtime.errors import StoreError
from focus_runtime.files import replacing
from focus_runtime.store.connections import copy_database

MIGRATIONS: dict[str, str] = {
    "0001_first_tables": """
        CREATE TABLE runs (
            run_id VARCHAR PRIMARY KEY, created_at TIMESTAMPTZ NOT NULL, status VARCHAR NOT NULL,
            title VARCHAR NOT NULL,
            model_id VARCHAR NOT NULL, model_fingerprint VARCHAR NOT NULL, centroids_name VARCHAR NOT NULL,
            centroids_sha256 VARCHAR NOT NULL, config VARCHAR NOT NULL, text_sha256 VARCHAR NOT NULL,
            num_tokens BIGINT NOT NULL, device VARCHAR NOT NULL, dtype VARCHAR NOT NULL, backend VARCHAR NOT NULL,
            seed BIGINT NOT NULL, versions VARCHAR NOT NULL, command VARCHAR NOT NULL, notes VARCHAR NOT NULL);
        CREATE TABLE tokens (
            run_id VARCHAR NOT NULL, position BIGINT NOT NULL, token_id BIGINT NOT NULL, piece VARCHAR NOT NULL,
            start_char BIGINT NOT NULL, end_char BIGINT NOT NULL);
        CREATE TABLE assignments (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, position BIGINT NOT NULL, membership BIGINT NOT NULL,
            top_group INTEGER NOT NULL, probabilities FLOAT[] NOT NULL, confidence FLOAT NOT NULL,
            entropy FLOAT NOT NULL, routing FLOAT[] NOT NULL);
        CREATE TABLE masks (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, row_block INTEGER NOT NULL, col_block INTEGER NOT NULL,
            block_size BIGINT NOT NULL, local_only BIGINT NOT NULL, group_only BIGINT NOT NULL,
            local_and_group BIGINT NOT NULL, sink_only BIGINT NOT NULL, dropped BIGINT NOT NULL);
        CREATE TABLE layers (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, attention_kind VARCHAR NOT NULL, dominance DOUBLE NOT NULL,
            retained_pairs DOUBLE NOT NULL, attention_mass_retained DOUBLE, column_potential FLOAT[] NOT NULL,
            centroids FLOAT[][] NOT NULL);
        CREATE TABLE losses (
            run_id VARCHAR NOT NULL, mode VARCHAR NOT NULL, position BIGINT NOT NULL, nll DOUBLE NOT NULL);
        CREATE TABLE timings (
            run_id VARCHAR NOT NULL, mode VARCHAR NOT NULL, stage VARCHAR NOT NULL, repeat INTEGER NOT NULL,
            sequence_length BIGINT NOT NULL, backend VARCHAR NOT NULL, milliseconds DOUBLE NOT NULL,
            peak_memory_bytes BIGINT NOT NULL);
        CREATE TABLE projections (
            projection_id VARCHAR NOT NULL, layer INTEGER NOT NULL, position BIGINT NOT NULL, x DOUBLE NOT NULL,
            y DOUBLE NOT NULL);
        CREATE TABLE projection_meta (
            projection_id VARCHAR PRIMARY KEY, run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, method VARCHAR NOT NULL,
            parameters VARCHAR NOT NULL, seed BIGINT NOT NULL, trustworthiness DOUBLE, created_at TIMESTAMPTZ NOT NULL);
        CREATE TABLE centroid_files (
            sha256 VARCHAR PRIMARY KEY, name VARCHAR NOT NULL, uploaded_at TIMESTAMPTZ NOT NULL,
            config VARCHAR NOT NULL,
            base_model VARCHAR NOT NULL, num_groups INTEGER NOT NULL, routing_dim INTEGER NOT NULL,
            layers INTEGER NOT NULL, report VARCHAR NOT NULL, path VARCHAR NOT NULL);
        """,
    "0002_training": """
        CREATE TABLE training_runs (
            training_id VARCHAR PRIMARY KEY, name VARCHAR NOT NULL, created_at TIMESTAMPTZ NOT NULL,
            finished_at TIMESTAMPTZ, status VARCHAR NOT NULL, message VARCHAR NOT NULL, kind VARCHAR NOT NULL,
            model_id VARCHAR NOT NULL, model_fingerprint VARCHAR NOT NULL, config VARCHAR NOT NULL,
            settings VARCHAR NOT NULL, texts VARCHAR NOT NULL, text_sha256 VARCHAR NOT NULL, device VARCHAR NOT NULL,
            dtype VARCHAR NOT NULL, seed BIGINT NOT NULL, versions VARCHAR NOT NULL, command VARCHAR NOT NULL,
            folder VARCHAR NOT NULL, out VARCHAR NOT NULL, centroids_sha256 VARCHAR NOT NULL,
            validation VARCHAR NOT NULL, host VARCHAR NOT NULL, pid BIGINT NOT NULL, process_started BIGINT NOT NULL,
            steps BIGINT NOT NULL);
        CREATE TABLE training_steps (
            training_id VARCHAR NOT NULL, mode VARCHAR NOT NULL, step BIGINT NOT NULL, phase VARCHAR NOT NULL,
            loss DOUBLE NOT NULL, dominance DOUBLE, dominance_max DOUBLE, retained_pairs DOUBLE,
            learning_rate DOUBLE NOT NULL, tokens_per_second DOUBLE NOT NULL, elapsed DOUBLE NOT NULL);
        """,
    "0003_attention": """
        CREATE TABLE attention_mass (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, head INTEGER NOT NULL, num_tokens BIGINT NOT NULL,
            local DOUBLE NOT NULL, sinks DOUBLE NOT NULL, grouped DOUBLE NOT NULL, dropped DOUBLE NOT NULL,
            mass_kept DOUBLE NOT NULL, distant_mass_kept DOUBLE);
        CREATE TABLE attention_links (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, head INTEGER NOT NULL, kind VARCHAR NOT NULL,
            rank INTEGER NOT NULL, query BIGINT NOT NULL, key BIGINT NOT NULL, probability DOUBLE NOT NULL);
        """,
    "0004_comparisons": """
        CREATE TABLE comparisons (
            run_id VARCHAR NOT NULL, kind VARCHAR NOT NULL, top_k INTEGER NOT NULL, window_size BIGINT NOT NULL,
            num_sinks BIGINT NOT NULL, assignment VARCHAR NOT NULL, measured_at TIMESTAMPTZ NOT NULL,
            scored BIGINT NOT NULL, perplexity_full DOUBLE NOT NULL, perplexity_focus DOUBLE NOT NULL,
            delta_mean DOUBLE NOT NULL, delta_low DOUBLE NOT NULL, delta_high DOUBLE NOT NULL,
            retained_pairs DOUBLE NOT NULL, dominance DOUBLE, attention_full DOUBLE[] NOT NULL,
            attention_focus DOUBLE[] NOT NULL, total_full DOUBLE[] NOT NULL, total_focus DOUBLE[] NOT NULL,
            backend VARCHAR NOT NULL, device VARCHAR NOT NULL, dtype VARCHAR NOT NULL, threads INTEGER NOT NULL);
        CREATE TABLE crossovers (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, tokens BIGINT NOT NULL, top_k INTEGER NOT NULL,
            window_size BIGINT NOT NULL, measured_at TIMESTAMPTZ NOT NULL, full_median DOUBLE NOT NULL,
            full_low DOUBLE NOT NULL, full_high DOUBLE NOT NULL, focus_median DOUBLE NOT NULL,
            focus_low DOUBLE NOT NULL, focus_high DOUBLE NOT NULL, routing_median DOUBLE NOT NULL,
            retained_pairs DOUBLE NOT NULL, repeats INTEGER NOT NULL, backend VARCHAR NOT NULL,
            device VARCHAR NOT NULL, dtype VARCHAR NOT NULL, threads INTEGER NOT NULL);
        """,
    "0005_run_labels": """
        CREATE TABLE run_labels (
            run_id VARCHAR PRIMARY KEY, name VARCHAR NOT NULL, note VARCHAR NOT NULL, tags VARCHAR[] NOT NULL,
            deleted_at TIMESTAMPTZ);
        """,
    "0006_statistics": """
        CREATE TABLE token_tags (
            run_id VARCHAR NOT NULL, position BIGINT NOT NULL, pos VARCHAR NOT NULL, dep VARCHAR NOT NULL,
            sentence INTEGER NOT NULL);
        CREATE TABLE taggings (run_id VARCHAR PRIMARY KEY, tagger VARCHAR NOT NULL, tagged_at TIMESTAMPTZ NOT NULL);
        CREATE TABLE baseline_assignments (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, position BIGINT NOT NULL, membership BIGINT NOT NULL,
            top_group INTEGER NOT NULL, confidence FLOAT NOT NULL, entropy FLOAT NOT NULL);
        CREATE TABLE baselines (
            run_id VARCHAR PRIMARY KEY, seed BIGINT NOT NULL, balanced_on BIGINT NOT NULL,
            perplexity DOUBLE NOT NULL, measured_at TIMESTAMPTZ NOT NULL);
        CREATE TABLE attention_queries (
            run_id VARCHAR NOT NULL, centroids VARCHAR NOT NULL, layer INTEGER NOT NULL, position BIGINT NOT NULL,
            local DOUBLE NOT NULL, sinks DOUBLE NOT NULL, grouped DOUBLE NOT NULL, dropped DOUBLE NOT NULL);
        """,
    "0007_corpora": """
        CREATE TABLE corpora (
            corpus_id VARCHAR PRIMARY KEY, created_at TIMESTAMPTZ NOT NULL, name VARCHAR NOT NULL,
            source VARCHAR NOT NULL, folder VARCHAR NOT NULL, model_id VARCHAR NOT NULL,
            model_fingerprint VARCHAR NOT NULL, centroids_name VARCHAR NOT NULL, centroids_sha256 VARCHAR NOT NULL,
            config VARCHAR NOT NULL, settings VARCHAR NOT NULL, versions VARCHAR NOT NULL, command VARCHAR NOT NULL,
            documents BIGINT NOT NULL, skipped VARCHAR NOT NULL, status VARCHAR NOT NULL);
        """,
    "0008_pairs": "ALTER TABLE layers ADD COLUMN sliding_window BIGINT;",
    "0009_requested_backend": "ALTER TABLE runs ADD COLUMN requested_backend VARCHAR;",
    "0010_head_masks": """
        ALTER TABLE masks ADD COLUMN part INTEGER DEFAULT 0;
        CREATE TABLE head_masks (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, part INTEGER NOT NULL, heads INTEGER[] NOT NULL,
            top_k INTEGER, window_size BIGINT, full_attention BOOLEAN NOT NULL, retained_pairs DOUBLE NOT NULL);
        CREATE TABLE head_assignments (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, part INTEGER NOT NULL, position BIGINT NOT NULL,
            membership BIGINT NOT NULL);
        """,
    "0011_training_recipe": """
        ALTER TABLE training_steps ADD COLUMN divergence DOUBLE;
        ALTER TABLE training_runs ADD COLUMN domains VARCHAR;
        ALTER TABLE training_runs ADD COLUMN stop_reason VARCHAR;
        CREATE TABLE training_evaluations (
            training_id VARCHAR NOT NULL, step BIGINT NOT NULL, domain VARCHAR NOT NULL, loss DOUBLE NOT NULL,
            scored BIGINT NOT NULL, dominance DOUBLE NOT NULL, retained_pairs DOUBLE NOT NULL);
        """,
    "0012_baseline_head_assignments": """
        CREATE TABLE baseline_head_assignments (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, part INTEGER NOT NULL, position BIGINT NOT NULL,
            membership BIGINT NOT NULL);
        """,
    "0013_layer_error": """
        ALTER TABLE training_steps ADD COLUMN layer_error DOUBLE;
        ALTER TABLE training_steps ALTER COLUMN loss DROP NOT NULL;
        """,
    "0014_missing_links": """
        CREATE TABLE explained_tokens (
            run_id VARCHAR NOT NULL, token BIGINT NOT NULL, measured_at TIMESTAMPTZ NOT NULL,
            nll_full DOUBLE NOT NULL, nll_focus DOUBLE NOT NULL, nll_together DOUBLE, dropped_pairs BIGINT NOT NULL);
        CREATE TABLE missing_links (
            run_id VARCHAR NOT NULL, token BIGINT NOT NULL, rank INTEGER NOT NULL, layer INTEGER NOT NULL,
            head INTEGER NOT NULL, query BIGINT NOT NULL, key BIGINT NOT NULL, probability DOUBLE NOT NULL,
            predicted DOUBLE NOT NULL, nll DOUBLE, random_keeps BOOLEAN);
        """,
    "0015_predictions": """
        CREATE TABLE predictions (
            run_id VARCHAR NOT NULL, mode VARCHAR NOT NULL, position BIGINT NOT NULL, rank INTEGER NOT NULL,
            token_ids INTEGER[] NOT NULL, pieces VARCHAR[] NOT NULL, probabilities FLOAT[] NOT NULL);
        """,
    "0016_group_names": """
        CREATE TABLE group_names (
            centroids_sha256 VARCHAR NOT NULL, layer INTEGER NOT NULL, group_index INTEGER NOT NULL,
            name VARCHAR NOT NULL, named_at TIMESTAMPTZ NOT NULL);
        """,
    "0017_head_costs": """
        CREATE TABLE head_cost_runs (
            run_id VARCHAR NOT NULL, measured_at TIMESTAMPTZ NOT NULL, num_tokens BIGINT NOT NULL,
            nll_full DOUBLE NOT NULL, nll_focus DOUBLE NOT NULL);
        CREATE TABLE head_costs (
            run_id VARCHAR NOT NULL, layer INTEGER NOT NULL, head INTEGER NOT NULL, estimated DOUBLE NOT NULL,
            nll DOUBLE);
        """,
    "0018_changes": "ALTER TABLE runs ADD COLUMN changes VARCHAR;",
    "0019_owner": "ALTER TABLE runs ADD COLUMN owner VARCHAR;",
    "0020_more_owners": """
        ALTER TABLE centroid_files ADD COLUMN owner VARCHAR;
        ALTER TABLE training_runs ADD COLUMN owner VARCHAR;
        """,
    "0021_query_heads": "ALTER TABLE head_masks ADD COLUMN query_heads BOOLEAN DEFAULT false;",
    "0022_window_growth": """
        DROP VIEW IF EXISTS pairs;
        CREATE VIEW pairs AS
        WITH rules AS (
            SELECT r.run_id, y.layer, coalesce(h.part, 0) AS part,
                coalesce(h.window_size, CAST(json_extract(r.config, '$.window') AS BIGINT)) AS near,
                coalesce(CAST(json_extract(r.config, '$.window_growth[0]') AS BIGINT), 1) AS first_grown,
                coalesce(CAST(json_extract(r.config, '$.window_growth[1]') AS BIGINT), 1) AS last_grown,
                CAST(json_extract(r.config, '$.num_sinks') AS BIGINT) AS sinks,
                coalesce(y.sliding_window, r.num_tokens) AS reach
            FROM runs r JOIN layers y USING (run_id) LEFT JOIN head_masks h USING (run_id, layer)),
        groups AS (
            SELECT u.* EXCLUDE (near),
                u.near * least(greatest(a.position, u.first_grown), u.last_grown) // u.first_grown AS near,
                a.position, coalesce(e.membership, a.membership) AS membership
            FROM rules u JOIN assignments a ON a.run_id = u.run_id AND a.layer = u.layer
            LEFT JOIN head_assignments e ON e.run_id = u.run_id AND e.layer = u.layer AND e.part = u.part
                AND e.position = a.position)
        SELECT q.run_id, q.layer, q.part, q.position AS query, k.position AS key,
            CASE WHEN q.position - k.position >= q.reach THEN 'dropped'
                WHEN q.position - k.position <= q.near AND q.membership & k.membership <> 0 THEN 'local_and_group'
                WHEN q.position - k.position <= q.near THEN 'local_only'
                WHEN q.membership & k.membership <> 0 THEN 'group_only'
                WHEN k.position < q.sinks THEN 'sink_only'
                ELSE 'dropped' END AS cause
        FROM groups q JOIN groups k
            ON k.run_id = q.run_id AND k.layer = q.layer AND k.part = q.part AND k.position <= q.position;
        """,
    "0023_no_interval_of_one": """
        ALTER TABLE comparisons ALTER COLUMN delta_low DROP NOT NULL;
        ALTER TABLE comparisons ALTER COLUMN delta_high DROP NOT NULL;
        UPDATE comparisons SET delta_low = NULL, delta_high = NULL WHERE scored = 1;
        """,
    "0024_special_tokens": """
        ALTER TABLE runs ADD COLUMN special_tokens VARCHAR;
        ALTER TABLE runs ADD COLUMN added_tokens VARCHAR;
        """,
}


def applied(connection: Any) -> list[str]:
    """Names of the migrations a database has, oldest first; empty for a blank database."""
    try:
        rows = connection.execute("SELECT name FROM schema_migrations ORDER BY name").fetchall()
    except duckdb.CatalogException:  # there is no such table; looking for it first takes longer than most reads
        return []
    return [row[0] for row in rows]


def check_version(done: list[str], path: str) -> None:
    """Refuse a database that a newer version has migrated."""
    unknown = [name for name in done if name not in MIGRATIONS]
    if unknown:
        raise StoreError(
            f"the database {path} was written by a newer version (it has {unknown[-1]!r})",
            expected=f"a schema up to {list(MIGRATIONS)[-1]!r}",
            fix="update Focus Explorer, or choose another file with --db",
        )


def is_blank(connection: Any) -> bool:
    """Whether a database has no table at all, as one whose creation was killed."""
    return not connection.execute("SELECT count(*) FROM information_schema.tables").fetchone()[0]


def foreign_file(path: str) -> StoreError:
    """The error for a DuckDB file of another program."""
    return StoreError(
        f"{path} is a DuckDB file without Focus Explorer's tables",
        expected="a database written by Focus Explorer, or a new file",
        fix="choose another file with --db",
    )


def migrate(connection: Any, path: str) -> None:
    """Bring a database up to date, each migration in a transaction of its own; one with runs is copied before."""
    done = applied(connection)
    check_version(done, path)
    if not done and not is_blank(connection):
        raise foreign_file(path)
    missing = [name for name in MIGRATIONS if name not in done]
    if missing and done and connection.execute("SELECT count(*) FROM runs").fetchone()[0]:
        with replacing(f"{path}.before-{missing[0]}", sync=True) as part:
            copy_database(connection, part)
    apply_migrations(connection, missing)


def apply_migrations(connection: Any, names: Iterable[str]) -> None:
    """Apply and record migrations, each in a transaction of its own; nothing is checked or copied."""
    for name in names:
        connection.execute("BEGIN")
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_migrations (name VARCHAR PRIMARY KEY, applied_at TIMESTAMPTZ)"
            )
            connection.execute(MIGRATIONS[name])
            connection.execute("INSERT INTO schema_migrations VALUES (?, now())", [name])
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
