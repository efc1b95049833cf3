"""A page's fields name models and centroid files that it knows, and never any path of its machine."""

from __future__ import annotations

import pytest

from focus_explorer.errors import InputError
from focus_explorer.usecases.centroids.files import add_centroids
from focus_explorer.usecases.names import KnownNames, allowed_folders
from focus_explorer.usecases.service import Service
from focus_runtime.routing.centroid_file import save_centroids
from tests.helpers import build_centroids, build_model
from tests.security.conftest import serving

PATHS = (
    "/etc/passwd",
    "~/x",
    "../x",
    "./x",
    "/",
    ".",
    "",
    "a/b/c",
    "x.gguf",
    "\x00",
    "C:\\x",
    "file:///etc/passwd",
    "a" * 5000,
)


@pytest.fixture
def known(tmp_path, stored):
    folder = tmp_path / "allowed"
    folder.mkdir()
    (folder / "link").symlink_to("/etc")
    return KnownNames(
        database=Service(stored[0]).database,
        models=frozenset({"/given/model"}),
        centroids=frozenset({"/given/file.safetensors"}),
        folders=allowed_folders([str(folder)]),
    )


@pytest.mark.parametrize("name", PATHS)
def test_paths_are_no_names(known, name):
    with pytest.raises(InputError, match="is no model that this page may load"):
        known.model(name)
    with pytest.raises(InputError, match="there are no centroids"):
        known.centroid_file(name)


def test_a_path_gives_the_same_answer_whether_something_is_there(known, tmp_path):
    said = []
    for name in (tmp_path / "there", tmp_path / "gone!"):
        (tmp_path / "there").mkdir(exist_ok=True)
        for check in (known.model, known.centroid_file):
            with pytest.raises(InputError) as raised:
                check(str(name))
            said.append(str(raised.value).replace(str(name), "NAME"))
    assert len(set(said)) == 2


def test_a_folder_beside_the_server_is_no_hub_id(known, tmp_path, monkeypatch):
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert known.model("org/other") == "org/other"
    with pytest.raises(InputError):
        known.model("org/model")


def test_what_is_known(known, tmp_path, stored):
    inside = str(tmp_path / "allowed" / "model")
    for name in ("smollm2-135m", "Qwen/Qwen3-0.6B", "gpt2", "/given/model", inside, stored[2].model):
        assert known.model(f" {name} ") == name
    for name in ("default", "random", "/given/file.safetensors", inside):
        assert known.centroid_file(name) == name


@pytest.mark.parametrize("name", ["link/passwd", "../x", "link"])
def test_a_folder_is_not_left_by_links_or_dots(known, tmp_path, name):
    with pytest.raises(InputError):
        known.model(str(tmp_path / "allowed" / name))


def test_an_uploads_name_is_its_hash_even_beside_a_file_of_that_name(tmp_path, monkeypatch):
    service = Service(tmp_path / "runs.duckdb")
    save_centroids(build_centroids(build_model()), tmp_path / "own.safetensors")
    add_centroids(service, tmp_path / "own.safetensors", "mine", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("another file")
    sha256 = KnownNames(database=service.database).centroid_file("mine")
    assert len(sha256) == 64


@pytest.mark.slow
def test_every_way_in(stored, tmp_path):
    """The functions for programs that take a model or centroids, and the page's own."""
    text, planted = "A cat sat. " * 10, tmp_path / "planted"
    planted.mkdir()
    with serving(stored[0], stored[2]) as page:
        rest = [1, 8, 2, "causal", 0, "cpu", "float32", "auto"]
        for names in ([str(planted), "random"], [stored[2].model, str(planted / "c.safetensors")]):
            answer, problem = page.call("analyze", text, *names, *rest)
            assert answer is None
            assert "no model that this page may load" in problem or "there are no centroids" in problem
        training = ["mine", str(planted), 4, 1, 20, 64, 1, 8, 4, 0.003, "log", "float32", 0, "cpu", "layers", 0, 0, 0]
        answer, _ = page.call("start_training", [], [], *training, False, "ours")
        assert "no model that this page may load" in str(answer)
        answer, problem = page.call("analyze", text, stored[2].model, "random", *rest)
        assert problem == ""
        assert answer["run_id"]
