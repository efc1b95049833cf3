"""A run made again from its entry in a manifest, in a database of its own, under its old id; its times are new."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from focus_explorer.data.queries import fetch_run
from focus_explorer.errors import InputError, NotFoundError, TextError
from focus_explorer.exports.bundle.manifest import Row, ids_sha256
from focus_explorer.exports.bundle.read import Bundle, Run
from focus_explorer.progress import Progress
from focus_explorer.usecases.analyze import analyze
from focus_explorer.usecases.centroids.files import SHIPPED_CENTROIDS, file_sha256, register_in_place, shipped_name
from focus_explorer.usecases.models import LoadedModel, ModelStore, load_by_name
from focus_explorer.usecases.run_model import backend_again, device_here, request_of
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import read_text_file
from focus_runtime.models.devices import Placement
from focus_runtime.store.database import Database
from focus_runtime.store.runs import write_measured

COMPUTED = (
    *("tokens", "assignments", "head_assignments", "masks", "head_masks", "layers", "losses", "predictions"),
    "timings",
)


def recorded_models(run: Run, source: str | None = None) -> ModelStore:
    """A store whose only model is the one a run was made with, in its precision, on its device or, without it, the CPU.

    `source` is another name or place of the model; a lease raises InputError where it has other weights.
    """

    def load(name: str, placement: Placement, progress: Progress) -> LoadedModel:
        place = source or run.model.id
        loaded = replace(load_by_name(place, placement, progress), name=name)
        if loaded.fingerprint != run.model.fingerprint:
            raise InputError(
                f"the model {place} has other weights than the run was made with (fingerprint {loaded.fingerprint})",
                expected=f"fingerprint {run.model.fingerprint}",
                fix="name the right one with --model",
            )
        return loaded

    return ModelStore(load, device=device_here(run.execution.device), dtype=run.execution.dtype)


def find_centroids(run: Run, given: Sequence[str], known: Sequence[Mapping[str, Any]]) -> str:
    """Name or path of a run's centroids, among the files the user named and the rows of uploaded ones."""
    recorded = run.centroids
    for path in given:
        if file_sha256(path) == recorded.sha256:
            return str(Path(path).expanduser())
    if recorded.source == "random":
        return "random"
    shipped = shipped_name(recorded.sha256)
    if shipped is not None:
        return shipped
    for row in known:
        if row["sha256"] == recorded.sha256 and Path(row["path"]).is_file():
            return str(row["path"])
    looked = "none of the given files is it" if given else "it is neither shipped nor uploaded here"
    raise NotFoundError(
        f"the centroid file {recorded.name} of run {run.run_id} is not here: {looked}",
        expected=f"a file with sha256 {recorded.sha256}",
        fix="give it with --centroids",
    )


def find_text(bundle: Bundle, run: Run, given: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, text) of every text that may be the run's: those named by the user first, then the bundle's."""
    for path in given:
        yield path, read_text_file(Path(path).expanduser())
    stored = bundle.file(run.text.file) if run.text.file else None
    if run.text.file and stored is not None:
        yield run.text.file, stored.decode("utf-8", errors="replace")  # its hash then shows that it is another text
    elif not given:
        raise TextError(
            f"the text of run {run.run_id} is not in the bundle and the run is not in the database",
            expected=f"the text with sha256 {run.text.sha256}",
            fix="give it with --text FILE",
        )


def _matching(run: Run, texts: Iterator[tuple[str, str]], tokenizer: Any) -> tuple[str, int | None]:
    """The text whose tokens are the run's, and how many of them to take when the text continues after them."""
    from focus_runtime.text.tokens import check_text, tokenize

    recorded, seen = run.text, []
    for name, text in texts:
        same = hashlib.sha256(text.encode()).hexdigest() == recorded.sha256
        tokenized = tokenize(
            tokenizer, check_text(text), max_tokens=recorded.tokens, special_tokens=recorded.special_tokens or "none"
        )
        if hashlib.sha256(tokenized.text.encode()).hexdigest() == recorded.sha256:
            if ids_sha256(tokenized.ids) == recorded.tokens_sha256:
                return text, recorded.tokens if tokenized.total_tokens > recorded.tokens else None
        elif not same:
            seen.append(name)
            continue
        raise TextError(
            f"the text {name} is the run's, but the tokenizer makes other tokens of it here",
            fix="give the whole text the run was cut from with --text, or use the recorded tokenizer",
        )
    raise TextError(
        f"{', '.join(seen)} {'is' if len(seen) == 1 else 'are'} not the text of run {run.run_id}",
        expected=f"the text with sha256 {recorded.sha256} ({recorded.tokens:,} tokens)",
    )


def run_again(
    service: Service, run: Run, texts: Iterator[tuple[str, str]], centroids: str, *, progress: Progress
) -> Row:
    """Run the model on the text, the one of `find_text` that is the run's, and store the run under its old id.

    Returns the run's row as it would be if it were a new run, with what it was executed with here, and `problems`: what
    else could not be measured.
    """
    with _threads(run.execution.threads):
        progress("Loading the model", 0.0)
        with service.models.lease(run.model.id) as loaded:
            text, cut = _matching(run, texts, loaded.tokenizer)
        if centroids not in (*SHIPPED_CENTROIDS, "random"):
            register_in_place(service.database, centroids)
        request = request_of(
            run.config,
            centroids,
            run.seeds.random_centroids if centroids == "random" else None,
            model=run.model.id,
            max_tokens=cut,
            special_tokens=run.text.special_tokens or "none",
            repeats=1,
            backend=backend_again(run.execution.model_dump()),
            changes=tuple(run.changes),
        )
        fresh = analyze(service, text, request, progress=lambda stage, part: progress(stage, 0.6 * part))
        made = fetch_run(service.database, fresh)
        if json.loads(made["config"]) != run.config or made["centroids_sha256"] != run.centroids.sha256:
            raise InputError(
                f"run {run.run_id} cannot be made again: its centroids or settings come out as others here",
                fix="use the version of Focus Explorer that the manifest names",
            )
        _name_as_before(service.database, fresh, run, str(made["title"]))
        made["problems"] = _measure_more(service, run, progress)
    return made


def recorded_row(run: Run) -> Row:
    """The row of a run as the manifest has it: without its title, which is a part of the text."""
    execution, text = run.execution, run.text
    threads = {"threads": str(execution.threads)} if execution.threads else {}
    return {
        "run_id": run.run_id,
        "created_at": run.created_at,
        "status": "complete",
        "model_id": run.model.id,
        "model_fingerprint": run.model.fingerprint,
        "centroids_name": run.centroids.name,
        "centroids_sha256": run.centroids.sha256,
        "config": json.dumps(run.config, sort_keys=True),
        "text_sha256": text.sha256,
        "num_tokens": text.tokens,
        "special_tokens": text.special_tokens,
        "added_tokens": None if text.added_tokens is None else json.dumps(text.added_tokens),
        "device": execution.device,
        "dtype": execution.dtype,
        "backend": execution.backend,
        "requested_backend": execution.requested_backend,
        "seed": run.seeds.run,
        "versions": json.dumps(execution.versions | threads, sort_keys=True),
        "command": run.command,
        "notes": json.dumps(run.notes),
        "changes": json.dumps(run.changes),
    }


def _name_as_before(database: Database, fresh: str, run: Run, title: str) -> None:
    """Give the run that was made under the id `fresh` its recorded id and row, which its tables name."""
    row = recorded_row(run) | {"title": title}
    with database.write() as connection:
        for table in COMPUTED:
            connection.execute(f"UPDATE {table} SET run_id = ? WHERE run_id = ?", [run.run_id, fresh])
        connection.execute("DELETE FROM runs WHERE run_id = ?", [fresh])
        connection.register("recorded", pa.Table.from_pylist([row]))
        connection.execute("INSERT INTO runs BY NAME SELECT * FROM recorded")
        connection.unregister("recorded")


def _measure_more(service: Service, run: Run, progress: Progress) -> list[str]:
    """Make every further measurement the run had; returns what could not be measured, and why."""
    from focus_explorer.usecases.compare.costs import explain_token, measure_heads
    from focus_explorer.usecases.compare.settings import measure_again
    from focus_explorer.usecases.pairs import measure_attention
    from focus_explorer.usecases.statistics import measure_random, measure_run, tag_run

    measured, run_id, problems = run.measured, run.run_id, []
    if measured.tags:
        progress("Tagging words", 0.6)
        try:
            tag_run(service, run_id)
        except InputError as error:
            problems.append(f"tags: {error}")
    if measured.random_centroids:
        stored, seed = fetch_run(service.database, run_id), measured.random_centroids.seed
        measure_random(service, stored, lambda stage, part: progress(stage, 0.6 + 0.1 * part), seed=seed)
    if measured.attention:
        measure_attention(service, run_id, progress=lambda stage, part: progress(stage, 0.7 + 0.1 * part))
        kinds = measured.attention.queries
        if "random" in kinds:
            measure_run(service, run_id, tags=False, random=False, attention=True, progress=progress)
        with service.database.write() as connection:  # a run of an older version has none
            connection.execute("DELETE FROM attention_queries WHERE NOT list_contains(?, centroids)", [kinds])
    if measured.head_costs:
        measure_heads(service, run_id, verify=measured.head_costs.verified)
    for token in measured.explained_tokens or []:
        explain_token(service, run_id, token)
    if measured.comparisons:
        cells = [(old.kind, old.top_k, old.window_size) for old in measured.comparisons]
        again = measure_again(service, run_id, cells, progress=lambda stage, part: progress(stage, 0.75 + 0.2 * part))
        for row in again:
            write_measured(service.database, "comparisons", row)
    return problems


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """As many threads as were used before: sums in another order end in another last digit."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
