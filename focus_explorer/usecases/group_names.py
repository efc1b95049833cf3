"""Names of a run's groups, the ones made from statistics and the ones people gave, for the page and programs."""

from __future__ import annotations

import json
from typing import Any

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError
from focus_explorer.statistics.group_names import LEAST_PHI, LEAST_SHARE, MOST_P_VALUE, run_names, trait_words
from focus_explorer.usecases.service import Service
from focus_explorer.views.payloads.statistics import GroupNamePayload, GroupNamesPayload
from focus_runtime.store.database import Database
from focus_runtime.store.user_records import write_group_name

NAME_LENGTH = 60


def group_names(database: Database, run_id: str) -> GroupNamesPayload:
    """Every group's name with its evidence.

    Args:
        database: has the run.
        run_id: of the run.

    Raises:
        NotFoundError: there is no such run.
    """
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
    """Give a group a name of one's own, in every run with the same centroid file; an empty one takes it back.

    Args:
        service: whose database has the run.
        run_id: of the run.
        layer: layer number.
        group: number of the group, from 0.
        name: at most `NAME_LENGTH` characters.

    Returns:
        The group's names and evidence as they are now.

    Raises:
        InputError: the name is too long, or the run has no such group.
        NotFoundError: there is no such run.
    """
    run: dict[str, Any] = fetch_run(service.database, run_id)
    clean = " ".join(name.split())
    if len(clean) > NAME_LENGTH:
        raise InputError(f"the name has {len(clean)} characters", expected=f"at most {NAME_LENGTH}")
    layers = fetch(service.database, "layer_numbers", run_id=run_id)["layer"].to_pylist()
    groups = json.loads(run["config"])["num_groups"]
    if layer not in layers or not 0 <= group < groups:
        raise InputError(
            f"the run has no group {group} in layer {layer}",
            expected=f"a group from 0 to {groups - 1} in one of the layers {layers}",
        )
    write_group_name(service.database, run["centroids_sha256"], layer, group, clean)
    return group_names(service.database, run_id)["names"][layers.index(layer)][group]
