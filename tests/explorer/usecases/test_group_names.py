"""Names of stored groups: planted ones are found, chance is not named, people's names belong to the centroid file."""

from __future__ import annotations

from shutil import copy2

import pytest

from focus_explorer.data.queries import fetch, fetch_run
from focus_explorer.errors import InputError, NotFoundError
from focus_explorer.exports.tables.write import table
from focus_explorer.statistics.group_names import run_names, trait_words
from focus_explorer.usecases.group_names import group_names, name_group
from focus_explorer.usecases.service import Service
from focus_explorer.web.requests.dispatch import dispatch


@pytest.fixture
def planted(service, run_id, tmp_path):
    """A copy of the run whose layer 0 has the spaces in group 1, and whose layer 1 goes by place, without regard."""
    with service.database.read():
        copy = tmp_path / "planted.duckdb"
        copy2(service.database.path, copy)
    own = Service(copy)
    with own.database.write() as connection:
        connection.execute(
            "UPDATE assignments SET top_group = CASE WHEN position IN "
            "(SELECT position FROM tokens WHERE run_id = $run AND piece = ' ') THEN 1 ELSE 0 END "
            "WHERE run_id = $run AND layer = 0",
            {"run": run_id},
        )
        connection.execute(
            "UPDATE assignments SET top_group = position % 4 WHERE run_id = $run AND layer = 1", {"run": run_id}
        )
    return own


def test_a_planted_group_is_named_and_its_evidence_counted(planted, run_id):
    answer = group_names(planted.database, run_id)
    pieces = fetch(planted.database, "tokens", run_id=run_id)["piece"].to_pylist()
    first = answer["names"][0][1]
    assert first["name"] in ("mostly “␣”", "mostly spaces and line ends")
    assert first["evidence"][0]["share"] == 1
    assert first["evidence"][0]["base"] == pytest.approx(pieces.count(" ") / len(pieces), abs=0.02)
    assert first["given"] is None
    assert [one["name"] for one in answer["names"][1]].count("") >= 3  # places modulo four say nothing of a token
    assert answer["random"] == [None, None]
    assert first["evidence"][0]["p_value"] < 1e-6


def test_what_random_centroids_reach_must_be_exceeded(planted, run_id):
    """The baseline has the same groups, so nothing exceeds it."""
    config = {"run": run_id}
    with planted.database.write() as connection:
        connection.execute(
            "INSERT INTO baseline_assignments SELECT run_id, layer, position, membership, top_group, "
            "confidence, entropy FROM assignments WHERE run_id = $run",
            config,
        )
        connection.execute("INSERT INTO baselines VALUES (?, 3, 100, 9.5, now())", [run_id])
    answer = group_names(planted.database, run_id)
    assert answer["random"][0] == answer["names"][0][1]["evidence"][0]["phi"]
    assert {one["name"] for row in answer["names"] for one in row} == {""}


@pytest.mark.slow
def test_names_of_people_belong_to_the_centroid_file(planted, run_id):
    given = name_group(planted, run_id, 1, 2, "  my   letters ")
    assert given["given"] == "my letters"
    with planted.database.read() as connection:
        sha256 = connection.execute("SELECT centroids_sha256 FROM group_names").fetchall()
    assert sha256 == [(fetch_run(planted.database, run_id)["centroids_sha256"],)]
    assert group_names(planted.database, run_id)["names"][1][2]["given"] == "my letters"
    assert name_group(planted, run_id, 1, 2, "other")["given"] == "other"
    assert name_group(planted, run_id, 1, 2, " ")["given"] is None


def test_what_cannot_be_named_is_refused(planted, run_id):
    with pytest.raises(InputError, match="61 characters"):
        name_group(planted, run_id, 0, 0, "x" * 61)
    for layer, group in ((9, 0), (0, 99), (0, -1)):
        with pytest.raises(InputError, match=f"no group {group} in layer {layer}"):
            name_group(planted, run_id, layer, group, "x")
    with pytest.raises(NotFoundError, match="nope"):
        group_names(planted.database, "nope")
    with pytest.raises(InputError, match="the name is 3"):
        dispatch(planted, {"what": "name_group", "run": run_id, "layer": 0, "group": 0, "name": 3})


def test_the_table_has_a_row_for_every_group(planted, run_id):
    rows = table(planted.database, run_id, "group_names").to_pylist()
    names = run_names(planted.database, run_id)
    assert [(row["layer"], row["group_index"]) for row in rows] == [
        (layer, group) for layer in names.layers for group in range(len(names.names[0]))
    ]
    planted_row = next(row for row in rows if (row["layer"], row["label"]) == (0, "B"))
    assert planted_row["name"].startswith("mostly")
    assert planted_row["share"] == 1
    assert planted_row["random"] is None


def test_pieces_are_readable():
    assert [trait_words(f"piece:{piece}") for piece in (" a", "\n", '."', "é")] == ["“␣a”", "“\\n”", '“."”', "“é”"]
    assert trait_words("copied") == "repeated pairs of tokens"
