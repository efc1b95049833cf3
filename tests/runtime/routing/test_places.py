"""Centroids from repositories of a hub: fetched, pinned, checked and cached, against a local stand-in of the hub."""

from __future__ import annotations

import json

import pytest
import torch

from focus_runtime.errors import CentroidFileError
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.places import CENTROIDS_FILE, SETTINGS_FILE, HubName, hub_name
from tests.helpers import build_centroids, build_model
from tests.local_hub import TOKEN


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two centroid files as bytes, with their hashes."""
    files = []
    for seed in (0, 1):
        path = tmp_path_factory.mktemp("saved") / CENTROIDS_FILE
        digest = save_centroids(build_centroids(build_model(), seed=seed), path)
        files.append((path.read_bytes(), digest))
    return files


def settings_of(digest):
    return {"format": "focus-composition", "format_version": 1, "sha256": digest}


def repository(data, digest):
    return {CENTROIDS_FILE: data, SETTINGS_FILE: json.dumps(settings_of(digest)).encode()}


@pytest.fixture
def filled(local_hub, saved):
    """A hub with one repository of two commits, the first of which is tagged v1."""
    first = local_hub.add("ada/mine", repository(*saved[0]))
    local_hub.repositories["ada/mine"].refs["v1"] = first
    local_hub.add("ada/mine", repository(*saved[1]))
    return local_hub


def refusal(name, **options):
    with pytest.raises(CentroidFileError) as error:
        load_centroids(name, **options)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ada/mine", HubName("ada/mine")),
        ("ada/mine@v1.0", HubName("ada/mine", "v1.0")),
        ("ada/mine@refs/pr/1", HubName("ada/mine", "refs/pr/1")),
        ("mine", None),
        ("./ada/mine", None),
        ("/ada/mine", None),
        ("~/mine", None),
        ("a/b/c", None),
        ("ada/mine@../../etc", None),
        ("ada/..", None),
        ("ada/mine@", None),
        ("ada/mine\n", None),
        ("", None),
    ],
)
def test_names(name, expected):
    assert hub_name(name) == expected


def test_the_newest_a_tag_and_a_commit(filled, saved):
    refs = filled.repositories["ada/mine"].refs
    newest = load_centroids("ada/mine")
    assert newest.sha256 == saved[1][1]
    assert newest.name == newest.origin == f"ada/mine@{refs['main']}"
    tagged = load_centroids("ada/mine@v1", sha256=saved[0][1].upper())
    assert (tagged.sha256, tagged.origin) == (saved[0][1], f"ada/mine@{refs['v1']}")
    assert load_centroids("ada/mine", revision="v1").sha256 == saved[0][1]
    before = len(filled.requests)
    pinned = load_centroids(tagged.name)  # the name that a run keeps
    assert (pinned.sha256, pinned.name) == (tagged.sha256, tagged.name)
    assert len(filled.requests) == before, "a commit in the cache is asked for again"
    for layer, router in build_centroids(build_model()).routers.items():
        assert torch.equal(pinned.routers[layer].centroids, router.centroids)


def test_without_a_network_the_cache_is_read(filled, saved, monkeypatch):
    load_centroids("ada/mine")
    filled.broken["/resolve/"] = 503
    assert load_centroids("ada/mine").sha256 == saved[1][1]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert load_centroids("ada/mine").sha256 == saved[1][1]
    assert "cannot be reached, and ada/mine@v1 is not in the local cache" in refusal("ada/mine@v1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    nowhere = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", nowhere)
    assert load_centroids("ada/mine").sha256 == saved[1][1]
    assert "cannot be reached, and ada/other is not in the local cache" in refusal("ada/other")


def test_what_the_hub_refuses(filled, monkeypatch):
    filled.add("ada/empty", {"README.md": b"nothing"})
    filled.add("ada/hidden", {CENTROIDS_FILE: b""}, private=True)
    filled.add("ada/gated", {CENTROIDS_FILE: b""}, gated=True)
    assert "has no repository ada/nothing, or it is private" in refusal("ada/nothing")
    assert "has no repository ada/hidden, or it is private" in refusal("ada/hidden")
    assert "ada/mine has no revision v9; expected a branch, tag or whole commit hash" in refusal("ada/mine@v9")
    assert f"ada/empty holds no centroid file; expected {CENTROIDS_FILE}" in refusal("ada/empty")
    assert "access to ada/gated has to be granted by its owner" in refusal("ada/gated")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "the hub refuses access to ada/mine (status 401); log in with" in refusal("ada/mine")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "has no repository ada/nothing" in refusal("ada/nothing")
    filled.broken["/resolve/"] = 500
    assert "the hub answered 500 for ada/mine" in refusal("ada/mine")


def test_a_file_that_is_another_one_is_refused(local_hub, saved):
    (first, digest), (second, other) = saved
    local_hub.add("ada/changed", repository(second, digest))
    message = refusal("ada/changed")
    assert f"has the sha256 {other}; expected {digest}, as {SETTINGS_FILE} beside it says" in message
    local_hub.add("ada/bare", {CENTROIDS_FILE: first})  # filled by hand
    assert load_centroids("ada/bare").sha256 == digest
    assert f"expected {other}, the hash that was given" in refusal("ada/bare", sha256=other)
    local_hub.add("ada/odd", {CENTROIDS_FILE: first, SETTINGS_FILE: b"[]"})
    assert f"{SETTINGS_FILE} of ada/odd@" in refusal("ada/odd")


def test_a_file_that_is_cut_off_or_damaged_is_refused(local_hub, saved, monkeypatch):
    data, digest = saved[0]
    local_hub.add("ada/short", {CENTROIDS_FILE: data[:-100]})
    assert "truncated or not a safetensors file" in refusal("ada/short")
    local_hub.add("ada/mine", repository(data, digest))
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the client's attempts
    local_hub.cut["/cdn/"] = 1000
    assert "ada/mine cannot be fetched" in refusal("ada/mine")
    local_hub.cut.clear()
    assert load_centroids("ada/mine").sha256 == digest


def test_a_file_that_is_too_large_is_not_fetched(filled, monkeypatch):
    monkeypatch.setattr("focus_runtime.routing.places.MAX_BYTES", 1000)
    assert "expected at most 1,000" in refusal("ada/mine")
    monkeypatch.undo()
    assert not [request for request in filled.requests if "/cdn/" in request]


def test_what_is_on_this_machine_goes_first(filled, saved, tmp_path, monkeypatch):
    folder = tmp_path / "ada" / "mine"
    folder.mkdir(parents=True)
    for name, data in repository(*saved[0]).items():
        (folder / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    local = load_centroids("ada/mine")
    assert (local.sha256, local.name, local.origin) == (saved[0][1], "mine", "")
    assert "a revision was given, but ada/mine is no repository" in refusal("ada/mine", revision="v1")
    assert "names a revision, and another was given" in refusal("ada/other@v1", revision="v2")
    assert "is no name" in refusal("ada/other", revision="../x")
    (folder / SETTINGS_FILE).write_text(json.dumps(settings_of(saved[1][1])))
    assert "beside it says" in refusal(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is something else"),
        ({"format_version": 99}, "has format version 99"),
        ({"hidden": 1}, "has the key 'hidden'"),
        ({"base_model": 3}, "a value that is no text"),
        ({"backend": "rm -rf"}, "backend is 'rm -rf'"),
        ({"sliding_layers": "all"}, "sliding_layers is 'all'"),
    ],
)
def test_settings_that_nobody_of_ours_wrote(change, message, saved, tmp_path):
    (tmp_path / CENTROIDS_FILE).write_bytes(saved[0][0])
    values = settings_of(saved[0][1])
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(values | change))
    assert message in refusal(tmp_path)
