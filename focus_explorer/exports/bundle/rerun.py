"""A run made again from its entry in a manifest, in a database of its own, under its old id.

What was measured (times, coordinates, when it was made) comes from the manifest; everything else is computed.
"""

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
from focus_explorer.exports.bundle.read import Bundle
from focus_explorer.progress import Progress
from focus_explorer.usecases.analyze import analyze
from focus_explorer.usecases.centroids.files import file_sha256, register_in_place, shipped_name, shipped_names
from focus_explorer.usecases.models import LoadedModel, ModelStore, load_by_name
from focus_explorer.usecases.run_model import backend_again, device_here, request_of
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.texts import read_text_file
from focus_runtime.models.devices import Placement
from focus_runtime.store.database import Database

COMPUTED = ("tokens", "assignments", "head_assignments", "masks", "head_masks", "layers", "losses", "predictions")
TIMED = ("attention_full", "attention_focus", "total_full", "total_focus", "measured_at")


def recorded_models(entry: Row, source: str | None = None) -> ModelStore:
    """A store whose only model is the one a run was made with, in its precision, on its device or, without it, the CPU.

    Args:
        entry: the run's entry of a manifest.
        source: another name or place of the model.

    Returns:
        The store; a lease raises InputError when the model cannot be loaded or has other weights.
    """

    recorded, execution = entry["model"], entry["execution"]

    def load(name: str, placement: Placement, progress: Progress) -> LoadedModel:
        place = source or recorded["id"]
        loaded = replace(load_by_name(place, placement, progress), name=name)
        if loaded.fingerprint != recorded["fingerprint"]:
            raise InputError(
                f"the model {place} has other weights than the run was made with (fingerprint {loaded.fingerprint})",
                expected=f"fingerprint {recorded['fingerprint']}",
                fix="name the right one with --model",
            )
        return loaded

    return ModelStore(load, device=device_here(execution["device"]), dtype=execution["dtype"])


def find_centroids(entry: Row, given: Sequence[str], known: Sequence[Mapping[str, Any]]) -> str:
    """Name or path of the centroids of a run.

    Args:
        entry: of the run in a manifest.
        given: files named by the user.
        known: rows of uploaded centroid files.

    Raises:
        InputError: none of them are the recorded ones.
    """
    recorded = entry["centroids"]
    for path in given:
        if file_sha256(path) == recorded["sha256"]:
            return str(Path(path).expanduser())
    if recorded["source"] == "random":
        return "random"
    shipped = shipped_name(recorded["sha256"])
    if shipped is not None:
        return shipped
    for row in known:
        if row["sha256"] == recorded["sha256"] and Path(row["path"]).is_file():
            return str(row["path"])
    looked = "none of the given files is it" if given else "it is neither shipped nor uploaded here"
    raise NotFoundError(
        f"the centroid file {recorded['name']} of run {entry['run_id']} is not here: {looked}",
        expected=f"a file with sha256 {recorded['sha256']}",
        fix="give it with --centroids",
    )


def find_text(bundle: Bundle, entry: Row, given: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, text) of every text that may be the run's: those named by the user first, then the bundle's.

    Args:
        bundle: that names the run.
        entry: of the run in its manifest.
        given: files named by the user.

    Raises:
        InputError: there is none at all, or one cannot be read.
    """
    for path in given:
        yield path, read_text_file(Path(path).expanduser())
    own = entry["text"]["file"]
    stored = bundle.file(own) if own else None
    if stored is not None:
        yield own, stored.decode("utf-8", errors="replace")  # its hash then shows that it is another text
    elif not given:
        raise TextError(
            f"the text of run {entry['run_id']} is not in the bundle and the run is not in the database",
            expected=f"the text with sha256 {entry['text']['sha256']}",
            fix="give it with --text FILE",
        )


def run_again(
    service: Service, entry: Row, texts: Iterator[tuple[str, str]], centroids: str, *, progress: Progress
) -> Row:
    """Run the model on the text and store the run as it was stored before.

    Args:
        service: whose database takes the run.
        entry: of the run in a manifest.
        texts: (name, text) of every text that may be the run's, as from `find_text`.
        centroids: as from `find_centroids`.
        progress: takes each stage and the fraction done.

    Returns:
        The run's row as it would be if it were a new run: what it was executed with here; and `problems`: what else
        could not be measured.

    Raises:
        InputError: text, model or centroids are not the recorded ones.
    """
    config = entry["config"]
    with _threads(entry["execution"]["threads"]):
        progress("Loading the model", 0.0)
        with service.models.lease(entry["model"]["id"]) as loaded:
            text, cut = _matching(entry, texts, loaded.tokenizer)
        if centroids not in (*shipped_names(), "random"):
            register_in_place(service.database, centroids)
        request = request_of(
            config,
            centroids,
            entry["seeds"]["random_centroids"] if centroids == "random" else None,
            model=entry["model"]["id"],
            max_tokens=cut,
            special_tokens=entry["text"].get("special_tokens") or "none",
            repeats=1,
            backend=backend_again(entry["execution"]),
            changes=tuple(entry.get("changes", [])),
        )
        fresh = analyze(service, text, request, progress=lambda stage, part: progress(stage, 0.6 * part))
        made = fetch_run(service.database, fresh)
        if json.loads(made["config"]) != config or made["centroids_sha256"] != entry["centroids"]["sha256"]:
            raise InputError(
                f"run {entry['run_id']} cannot be made again: its centroids or settings come out as others here",
                fix="use the version of Focus Explorer that the manifest names",
            )
        carry_over(service.database, fresh, entry, str(made["title"]))
        made["problems"] = _measure_more(service, entry, progress)
    return made


def _matching(entry: Row, texts: Iterator[tuple[str, str]], tokenizer: Any) -> tuple[str, int | None]:
    """The text whose tokens are the run's, and how many of them to take when the text continues after them."""
    from focus_runtime.text.tokens import check_text, tokenize

    recorded, seen = entry["text"], []
    for name, text in texts:
        same = hashlib.sha256(text.encode()).hexdigest() == recorded["sha256"]
        tokenized = tokenize(
            tokenizer,
            check_text(text),
            max_tokens=recorded["tokens"],
            special_tokens=recorded.get("special_tokens") or "none",
        )
        if hashlib.sha256(tokenized.text.encode()).hexdigest() == recorded["sha256"]:
            if ids_sha256(tokenized.ids) == recorded["tokens_sha256"]:
                return text, recorded["tokens"] if tokenized.total_tokens > recorded["tokens"] else None
        elif not same:
            seen.append(name)
            continue
        raise TextError(
            f"the text {name} is the run's, but the tokenizer makes other tokens of it here",
            fix="give the whole text the run was cut from with --text, or use the recorded tokenizer",
        )
    raise TextError(
        f"{', '.join(seen)} {'is' if len(seen) == 1 else 'are'} not the text of run {entry['run_id']}",
        expected=f"the text with sha256 {recorded['sha256']} ({recorded['tokens']:,} tokens)",
    )


def carry_over(database: Database, fresh: str, entry: Row, title: str) -> None:
    """Give the run its old id, and put back what was measured when it was first made.

    Args:
        database: has the run that was made again.
        fresh: id it was made under.
        entry: of the run in a manifest.
        title: beginning of its text.
    """
    run_id, execution = entry["run_id"], entry["execution"]
    versions = dict(execution["versions"])
    if execution["threads"]:
        versions["threads"] = str(execution["threads"])
    row = {
        "run_id": run_id,
        "created_at": entry["created_at"],
        "status": "complete",
        "title": title,
        "model_id": entry["model"]["id"],
        "model_fingerprint": entry["model"]["fingerprint"],
        "centroids_name": entry["centroids"]["name"],
        "centroids_sha256": entry["centroids"]["sha256"],
        "config": json.dumps(entry["config"], sort_keys=True),
        "text_sha256": entry["text"]["sha256"],
        "num_tokens": entry["text"]["tokens"],
        "special_tokens": entry["text"].get("special_tokens"),
        "added_tokens": json.dumps(entry["text"]["added_tokens"]) if "added_tokens" in entry["text"] else None,
        "device": execution["device"],
        "dtype": execution["dtype"],
        "backend": execution["backend"],
        "requested_backend": execution.get("requested_backend"),
        "seed": entry["seeds"]["run"],
        "versions": json.dumps(versions, sort_keys=True),
        "command": entry["command"],
        "notes": json.dumps(entry["notes"]),
        "changes": json.dumps(entry.get("changes", [])),
    }
    with database.write() as connection:
        for table in COMPUTED:
            connection.execute(f"UPDATE {table} SET run_id = ? WHERE run_id = ?", [run_id, fresh])
        for table in ("timings", "runs"):
            connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [fresh])
        _insert(connection, "runs", [row])
        _insert(connection, "timings", [{"run_id": run_id} | one for one in entry["timing"]["repeats"]])
        _insert(connection, "crossovers", [{"run_id": run_id} | one for one in entry["measured"]["lengths"] or []])
        for stored in entry["maps"]:
            _put_map(connection, run_id, stored)


def _put_map(connection: Any, run_id: str, stored: Row) -> None:
    """A map's coordinates; those of a bundle without text have no places in the text and stay in the manifest."""
    if "position" not in stored["tokens"]:
        return
    names = ("projection_id", "layer", "method", "seed", "trustworthiness", "created_at")
    meta = {name: stored[name] for name in names}
    meta |= {"run_id": run_id, "parameters": json.dumps(stored["parameters"], sort_keys=True)}
    _insert(connection, "projection_meta", [meta])
    tokens, centroids = stored["tokens"], stored["centroids"]
    places = [*tokens["position"], *(-1 - number for number in range(len(centroids["x"])))]
    points = zip(places, [*tokens["x"], *centroids["x"]], [*tokens["y"], *centroids["y"]], strict=True)
    key = {"projection_id": stored["projection_id"], "layer": stored["layer"]}
    _insert(connection, "projections", [key | {"position": place, "x": x, "y": y} for place, x, y in points])


def _insert(connection: Any, table: str, rows: list[Row]) -> None:
    if rows:
        connection.register("incoming", pa.Table.from_pylist(rows))
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
        connection.unregister("incoming")


def _measure_more(service: Service, entry: Row, progress: Progress) -> list[str]:
    """Every further measurement the run had, computed again; its times stay the recorded ones.

    Returns:
        What could not be measured, and why.
    """
    from focus_explorer.usecases.compare.costs import explain_token, measure_heads
    from focus_explorer.usecases.pairs import measure_attention
    from focus_explorer.usecases.statistics.measure import measure_random, measure_run, tag_run

    measured, run_id, problems = entry["measured"], entry["run_id"], []
    if measured["tags"]:
        progress("Tagging words", 0.6)
        try:
            tag_run(service, run_id)
        except InputError as error:
            problems.append(f"tags: {error}")
    if measured["random_centroids"]:
        run = fetch_run(service.database, run_id)
        seed = measured["random_centroids"]["seed"]
        measure_random(service, run, lambda stage, part: progress(stage, 0.6 + 0.1 * part), seed=seed)
    if measured["attention"]:
        measure_attention(service, run_id, progress=lambda stage, part: progress(stage, 0.7 + 0.1 * part))
        kinds = measured["attention"]["queries"]
        if "random" in kinds:
            measure_run(service, run_id, tags=False, random=False, attention=True, progress=progress)
        with service.database.write() as connection:  # a run of an older version has none
            connection.execute("DELETE FROM attention_queries WHERE NOT list_contains(?, centroids)", [kinds])
    if measured.get("head_costs"):
        measure_heads(service, run_id, verify=measured["head_costs"]["verified"])
    for token in measured.get("explained_tokens") or []:
        explain_token(service, run_id, token)
    if measured["comparisons"]:
        _compare_again(service, run_id, measured["comparisons"], progress)
    return problems


def _compare_again(service: Service, run_id: str, recorded: list[Row], progress: Progress) -> None:
    from focus_explorer.usecases.compare.settings import measure_again

    cells = [(old["kind"], old["top_k"], old["window_size"]) for old in recorded]
    made = measure_again(service, run_id, cells, progress=lambda stage, part: progress(stage, 0.75 + 0.2 * part))
    rows = [row | {name: old[name] for name in (*TIMED, "threads")} for row, old in zip(made, recorded, strict=True)]
    with service.database.write() as connection:
        _insert(connection, "comparisons", rows)


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
