"""Centroid files pushed to and pulled from a repository, against a local stand-in of the hub."""

from __future__ import annotations

import json

import pytest
import torch

from focus_explorer.errors import InputError
from focus_explorer.usecases.analyze import analyze
from focus_explorer.usecases.centroids.files import add_centroids, load_named_centroids, pinned_name
from focus_explorer.usecases.centroids.publish import prepare, pull, push, write_folder
from focus_explorer.usecases.names import KnownNames
from focus_explorer.usecases.run_model import run_random_seed
from focus_explorer.usecases.runs import fetch_run
from focus_explorer.usecases.service import Service
from focus_runtime.composition.attach import compose
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.places import CENTROIDS_FILE, SETTINGS_FILE
from tests.explorer.conftest import TEXT
from tests.helpers import build_centroids, build_model
from tests.local_hub import TOKEN

CARD = "---\ntags:\n- x\n---\n\n# mine\n"


@pytest.fixture
def service(tmp_path):
    return Service(tmp_path / "runs.duckdb")


@pytest.fixture
def file(tmp_path):
    """A centroid file for a model of the hub."""
    centroids = build_centroids(build_model(vocab_size=512))
    centroids.base_model = "ada/base"
    save_centroids(centroids, tmp_path / "own.safetensors")
    return tmp_path / "own.safetensors"


@pytest.fixture
def writing(local_hub, monkeypatch):
    """The hub, with the token that may write."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the client's attempts
    return local_hub


def test_what_is_pushed_is_what_is_pulled(writing, service, file, tmp_path, ids):
    publication = prepare(service, str(file), "ada/mine", licence="apache-2.0")
    assert publication.notes == ()
    pushed, _ = push(publication, CARD, private=True, message="first")
    repository = writing.repositories["ada/mine"]
    assert repository.private
    assert repository.messages[-1] == "first"
    assert pushed == f"ada/mine@{repository.refs['main']}"
    files = repository.commits[repository.refs["main"]]
    assert set(files) == {".gitattributes", CENTROIDS_FILE, SETTINGS_FILE, "README.md"}
    assert files["README.md"].decode() == CARD
    assert json.loads(files[SETTINGS_FILE])["base_model"] == "ada/base"
    assert f"PUT /lfs/{publication.settings.sha256}" in writing.requests, "large files go their own way"
    out = tmp_path / "pulled" / "again.safetensors"
    pulled = pull("ada/mine", sha256=publication.settings.sha256, out=str(out))
    assert (pulled.name, pulled.path) == (pushed, out)
    assert out.read_bytes() == file.read_bytes()
    model = build_model(vocab_size=512)
    focus = compose(model, load_named_centroids(service.database, "ada/mine"))
    with torch.no_grad():
        fetched = model(ids, use_cache=False).logits
    focus.detach()
    compose(model, load_centroids(file))
    with torch.no_grad():
        assert torch.equal(model(ids, use_cache=False).logits, fetched)
    with pytest.raises(InputError, match="exists"):
        pull("ada/mine", out=str(out))


@pytest.mark.slow
def test_a_branch_is_made_and_the_same_file_again_is_no_commit(writing, service, file):
    publication = prepare(service, str(file), "ada/mine")
    first, _ = push(publication, CARD)
    assert push(publication, CARD)[0] == first
    branch, _ = push(publication, CARD + "more\n", branch="next")
    repository = writing.repositories["ada/mine"]
    assert not repository.private
    assert branch == f"ada/mine@{repository.refs['next']}" != first
    assert pull("ada/mine").name == first
    assert pull("ada/mine", revision="next").name == branch


@pytest.mark.slow
def test_what_cannot_be_pushed(local_hub, service, file, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    publication = prepare(service, str(file), "ada/mine")

    def refusal():
        with pytest.raises(InputError) as error:
            push(publication, CARD)
        return str(error.value)

    assert "does not know who pushes to ada/mine (status 401); log in with" in refusal()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for part, status, message in (
        ("/repos/create", 403, "does not let you write to ada/mine (status 403)"),
        ("/preupload/", 404, "does not let you write to ada/mine (status 404)"),
        ("/lfs/objects/batch", 500, "the hub answered 500, and nothing was pushed"),
        ("/lfs/", 403, "does not let you write to ada/mine (status 403)"),
        ("/commit/", 500, "the hub answered 500, and nothing was pushed"),
    ):
        local_hub.broken = {part: status}
        assert message in refusal(), part
        assert not any(CENTROIDS_FILE in files for r in local_hub.repositories.values() for files in r.commits.values())
    local_hub.broken = {}
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "nothing was pushed to ada/mine" in refusal() or "client is offline" in refusal()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert "nothing was pushed to ada/mine" in refusal()


def test_what_is_refused_before_anything_is_sent(local_hub, service, file, tmp_path):
    for repo in ("mine", "./ada/mine", "ada/mine@v1", "a/b/c"):
        with pytest.raises(InputError, match="is no repository of a hub"):
            prepare(service, str(file), repo)
    with pytest.raises(InputError, match="--base-model is '/home/ada'"):
        prepare(service, str(file), "ada/mine", base_model="/home/ada")
    with pytest.raises(InputError, match="random centroids are in no file"):
        prepare(service, "random", "ada/mine")
    torch.save({"layers.0.projection": torch.zeros(4, 2), "layers.0.centroids": torch.zeros(2, 2)}, tmp_path / "a.pt")
    with pytest.raises(InputError, match="which a hub's users cannot trust"):
        prepare(service, str(tmp_path / "a.pt"), "ada/mine")
    for content, message in (
        ("{}", "is no table of domains"),
        ('{"files": {"a": "b"}, "domains": {}}', "no results of"),
    ):
        (tmp_path / "table.json").write_text(content)
        with pytest.raises(InputError, match=message):
            prepare(service, str(file), "ada/mine", table=str(tmp_path / "table.json"))
    with pytest.raises(InputError, match="is no repository of a hub"):
        pull(str(file))
    with pytest.raises(InputError, match="a name that ends in"):
        pull("ada/mine", out=str(tmp_path / "b.pt"))
    assert local_hub.requests == []


def test_a_base_model_on_this_machine_is_pointed_out(service, file, tmp_path):
    centroids = load_centroids(file)
    centroids.base_model = "/home/ada/models/own"
    save_centroids(centroids, file)
    publication = prepare(service, str(file), "ada/mine")
    assert publication.settings.base_model == ""
    assert len(publication.notes) == 3
    assert "'/home/ada/models/own', and that is published with it" in publication.notes[0]
    named = prepare(service, str(file), "ada/mine", base_model="ada/own")
    assert named.settings.base_model == named.hub_base_model == "ada/own"
    shipped = prepare(service, "default", "ada/mine", base_model="ada/original")
    assert (shipped.settings.base_model, shipped.hub_base_model) == ("smollm2-135m", "ada/original")
    write_folder(shipped, CARD, tmp_path / "dry")
    assert load_centroids(tmp_path / "dry").sha256 == load_centroids("default").sha256
    with pytest.raises(InputError, match="cannot write"):
        write_folder(shipped, CARD, tmp_path / "dry")


@pytest.mark.long
@pytest.mark.slow
def test_a_run_says_where_its_file_came_from_and_finds_it_again(writing, service, file, model_folder, tmp_path):
    from focus_explorer.usecases.analyze import AnalyzeRequest

    push(prepare(service, str(file), "ada/mine"), CARD)
    pinned = pinned_name(service, "ada/mine")
    assert pinned == f"ada/mine@{writing.repositories['ada/mine'].refs['main']}"
    assert [pinned_name(service, name) for name in ("default", "random", str(file))] == ["default", "random", str(file)]
    request = AnalyzeRequest(model=model_folder, centroids="ada/mine", top_k=1, window=8, repeats=1)
    run = fetch_run(service.database, analyze(service, TEXT, request, command="focus-explorer test"))
    assert run["centroids_name"] == pinned
    before = len(writing.requests)
    assert run_random_seed(service, run) == 0, "the file that says so was found"
    assert load_named_centroids(service.database, pinned).sha256 == run["centroids_sha256"]
    assert len(writing.requests) == before, "a page that shows the run asks the hub for nothing"
    known = KnownNames(database=service.database, centroids=frozenset({pinned}), folders=(tmp_path,))
    assert known.centroid_file(pinned) == pinned
    for name in ("ada/mine", "ada/other@v1", f"ada/mine@{'0' * 40}"):
        with pytest.raises(InputError, match="there are no centroids"):
            known.centroid_file(name)
    added = add_centroids(service, file, "an upload", None)
    assert load_named_centroids(service.database, pinned).name == pinned
    assert load_named_centroids(service.database, added.sha256).name == "an upload"


def test_a_name_like_a_repositorys_in_an_allowed_folder_is_no_way_to_the_hub(local_hub, service, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = KnownNames(database=service.database, folders=(tmp_path,))
    with pytest.raises(InputError, match="there are no centroids"):
        known.centroid_file("ada/mine")
    assert local_hub.requests == []
