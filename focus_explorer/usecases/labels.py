"""Naming, annotating, tagging, deleting and bringing back runs, for the page, the command line and the API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from focus_explorer.data.queries import fetch, fetch_run, rows_of
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.statistics.group_names import LEAST_PHI, LEAST_SHARE, MOST_P_VALUE, run_names, trait_words
from focus_explorer.usecases.service import Service
from focus_explorer.usecases.users import check_owner, log_change
from focus_explorer.views.payloads import picked
from focus_explorer.views.payloads.runs import RunLabelPayload
from focus_explorer.views.payloads.statistics import GroupNamePayload, GroupNamesPayload
from focus_runtime.store.database import Database
from focus_runtime.store.user_records import purge_runs, write_group_name, write_label

KEEP_DAYS = 30
NAME_LENGTH = 120
NOTE_LENGTH = 4000
TAG_LENGTH = 40
MOST_TAGS = 20


def label_run(
    service: Service,
    run_id: str,
    *,
    name: str | None = None,
    note: str | None = None,
    tags: Sequence[str] | None = None,
) -> RunLabelPayload:
    """Change a run's name, note or all of its tags; None leaves one as it is, "" and [] clear it."""
    if name is not None:
        name = " ".join(name.split())
        _check_length("the name", name, NAME_LENGTH)
    if note is not None:
        note = note.strip()
        _check_length("the note", note, NOTE_LENGTH)
    _write(service, run_id, name=name, note=note, tags=None if tags is None else clean_tags(tags))
    return picked(RunLabelPayload, _row(service, run_id))


def clean_tags(tags: Sequence[str]) -> list[str]:
    """Tags without spaces around them, sorted, none twice."""
    cleaned = sorted({" ".join(tag.split()) for tag in tags} - {""})
    if len(cleaned) > MOST_TAGS:
        raise InputError(f"there are {len(cleaned)} tags", expected=f"at most {MOST_TAGS}")
    for tag in cleaned:
        _check_length("the tag " + repr(tag[:20]), tag, TAG_LENGTH)
        if "," in tag:
            raise InputError(f"the tag {tag!r} has a comma", expected="commas only between tags")
    return cleaned


def change_tags(service: Service, run_id: str, add: Sequence[str], remove: Sequence[str] = ()) -> RunLabelPayload:
    """Add and remove tags, keeping the others; errors as of `label_run`."""
    kept = [tag for tag in _row(service, run_id)["tags"] if tag not in set(clean_tags(remove))]
    return label_run(service, run_id, tags=[*kept, *add])


def delete_run(service: Service, run_id: str) -> None:
    """Hide a run at once; its rows stay for `KEEP_DAYS` days."""
    _write(service, run_id, deleted=True)


def undelete_run(service: Service, run_id: str) -> None:
    _write(service, run_id, deleted=False)


def purge_deleted(service: Service, *, days: float = KEEP_DAYS) -> list[str]:
    """Remove permanently the runs deleted at least so many days ago; returns their ids."""
    if not days >= 0:
        raise InputError(f"days is {days:g}", expected="0 or more")
    return purge_runs(service.database, days=days)


def purge_expired(service: Service) -> None:
    """Purge when there is something to purge, so that most starts need no lock for writing."""
    if deleted_runs(service):
        purge_deleted(service)


def deleted_runs(service: Service) -> list[dict[str, Any]]:
    """Runs that are hidden and not yet purged, as rows of the query, the one deleted last first."""
    return fetch(service.database, "deleted_runs").to_pylist()


def all_runs(service: Service) -> list[dict[str, Any]]:
    """Kept and deleted runs, as rows of the query."""
    return [*fetch(service.database, "runs").to_pylist(), *deleted_runs(service)]


def _check_length(what: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InputError(f"{what} has {len(text):,} characters", expected=f"at most {most:,}")


def _row(service: Service, run_id: str) -> dict[str, Any]:
    """The row of a kept or deleted run."""
    rows = rows_of(fetch(service.database, "run", run_id=run_id))
    if not rows:
        raise NotFoundError(
            f"there is no run {run_id!r} in {service.database.path.name}",
            fix="`focus-explorer runs` lists the ones there are",
        )
    return rows[0]


def _write(service: Service, run_id: str, **changes: Any) -> None:
    check_owner(f"the run {run_id}", _row(service, run_id)["owner"])
    write_label(service.database, run_id, **changes)
    deleted = changes.get("deleted")
    log_change("run labelled" if deleted is None else "run deleted" if deleted else "run undeleted", run=run_id)


GROUP_NAME_LENGTH = 60


def group_names(database: Database, run_id: str) -> GroupNamesPayload:
    with database.read():  # once: opening the file takes longer than most reads
        found, given = run_names(database, run_id), given_names(database, run_id)
    return {
        "names": [
            [
                {
                    "name": one.name,
                    "given": given.get((layer, group)),
                    "evidence": [
                        {
                            "trait": trait_words(each.trait),
                            "phi": round(each.phi, 3),
                            "share": round(each.share, 4),
                            "base": round(each.base, 4),
                            "covered": round(each.covered, 4),
                            "p_value": float(f"{each.p_value:.2g}"),
                        }
                        for each in one.evidence
                    ],
                }
                for group, one in enumerate(row)
            ]
            for layer, row in zip(found.layers, found.names, strict=True)
        ],
        "traits": found.traits,
        "random": [None if value is None else round(value, 3) for value in found.random],
        "least_phi": LEAST_PHI,
        "least_share": LEAST_SHARE,
        "most_p_value": MOST_P_VALUE,
    }


def given_names(database: Database, run_id: str) -> dict[tuple[int, int], str]:
    """(layer, group) -> the name that people gave it in the run's centroid file."""
    sha256 = fetch_run(database, run_id)["centroids_sha256"]
    rows = fetch(database, "group_names", sha256=sha256).to_pylist()
    return {(row["layer"], row["group_index"]): row["name"] for row in rows}


def name_group(service: Service, run_id: str, layer: int, group: int, name: str) -> GroupNamePayload:
    """Give a group a name of one's own, in every run with the same centroid file; an empty one takes it back."""
    run: dict[str, Any] = fetch_run(service.database, run_id)
    clean = " ".join(name.split())
    if len(clean) > GROUP_NAME_LENGTH:
        raise InputError(f"the name has {len(clean)} characters", expected=f"at most {GROUP_NAME_LENGTH}")
    layers = fetch(service.database, "layer_numbers", run_id=run_id)["layer"].to_pylist()
    groups = json.loads(run["config"])["num_groups"]
    if layer not in layers or not 0 <= group < groups:
        raise InputError(
            f"the run has no group {group} in layer {layer}",
            expected=f"a group from 0 to {groups - 1} in one of the layers {layers}",
        )
    write_group_name(service.database, run["centroids_sha256"], layer, group, clean)
    return group_names(service.database, run_id)["names"][layers.index(layer)][group]
