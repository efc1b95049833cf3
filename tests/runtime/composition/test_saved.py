"""A composed model saved to a folder and loaded again: from the folder, from a hub, with and without the base model."""

from __future__ import annotations

import json

import pytest
import torch

from focus_runtime import FocusModel, compose, load_centroids
from focus_runtime.budget import HeadException
from focus_runtime.errors import CentroidFileError, ModelError
from focus_runtime.models.loading import fingerprint, load_base_model
from focus_runtime.routing.places import BASE_MODEL_FOLDER, CENTROIDS_FILE, SETTINGS_FILE
from tests.helpers import build_centroids, build_model


@pytest.fixture
def saved(tmp_path, tiny_model, ids):
    """A folder of a composition at other settings than its file's, and its logits."""
    centroids = build_centroids(tiny_model)
    centroids.base_model, centroids.training = "ada/base", {"steps": 3}
    own = (HeadException(layer=1, head=0, full=True),)
    focus = compose(tiny_model, centroids, top_k=2, window=2, budget=own, backend="masked", sliding_layers="own")
    folder = tmp_path / "saved"
    digest = focus.save_pretrained(folder)
    with torch.no_grad():
        logits = tiny_model(ids, use_cache=False).logits
    focus.detach()
    return folder, digest, logits


def test_a_folder_composes_what_was_saved(saved, tiny_model, ids):
    folder, digest, logits = saved
    assert sorted(path.name for path in folder.iterdir()) == [CENTROIDS_FILE, SETTINGS_FILE]
    settings = json.loads((folder / SETTINGS_FILE).read_text())
    assert settings["sha256"] == digest == load_centroids(folder / CENTROIDS_FILE).sha256
    assert (settings["base_model"], settings["base_fingerprint"]) == ("ada/base", fingerprint(tiny_model))
    focus = FocusModel.from_pretrained(folder, tiny_model, sha256=digest)
    assert (focus.backend, focus.config.top_k, focus.config.window) == ("masked", 2, 2)
    assert focus.centroids.training == {"steps": 3}
    with torch.no_grad():
        assert torch.equal(focus.model(ids, use_cache=False).logits, logits)
    assert focus.save_pretrained(folder) == digest
    focus.detach()


def test_with_the_base_weights_nothing_else_is_needed(tiny_model, tmp_path, ids):
    """Weights trained through Focus are saved as an ordinary model."""
    focus = compose(tiny_model, build_centroids(tiny_model))
    with torch.no_grad():
        tiny_model.lm_head.weight.add_(0.5)
        expected = tiny_model(ids, use_cache=False).logits
    focus.save_pretrained(tmp_path, base_weights=True)
    assert tiny_model.generation_config.disable_compile, "it is still composed"
    loaded = FocusModel.from_pretrained(tmp_path)
    assert loaded.model is not tiny_model
    with torch.no_grad():
        assert torch.equal(loaded.model(ids, use_cache=False).logits, expected)
    plain = load_base_model(str(tmp_path / BASE_MODEL_FOLDER))
    assert plain.generation_config.disable_compile is None
    with torch.no_grad(), focus.full_attention():
        assert torch.allclose(plain(ids).logits, tiny_model(ids).logits, atol=1e-5)


def test_other_weights_give_a_warning_and_another_shape_is_refused(saved):
    folder, _, _ = saved
    with pytest.warns(UserWarning, match="saved with other weights of ada/base than these"):
        focus = FocusModel.from_pretrained(folder, build_model(seed=7))
    assert "other weights" in focus.centroids.warnings[-1]
    wide = build_model(hidden_size=32)
    with pytest.warns(UserWarning, match="other weights"), pytest.raises(CentroidFileError, match="width 64"):
        FocusModel.from_pretrained(folder, wide)


def test_from_a_hub_a_base_model_is_named_never_a_path(saved, local_hub, tiny_model, tmp_path, ids, monkeypatch):
    folder, _, logits = saved
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    commit = local_hub.add("ada/mine", files)
    focus = FocusModel.from_pretrained("ada/mine", tiny_model)
    assert focus.centroids.origin == f"ada/mine@{commit}"
    with torch.no_grad():
        assert torch.equal(focus.model(ids, use_cache=False).logits, logits)
    focus.detach()
    named = []

    def loaded(name, **options):
        named.append(name)
        return tiny_model

    monkeypatch.setattr("focus_runtime.composition.attach.load_base_model", loaded)
    FocusModel.from_pretrained("ada/mine", revision=commit).detach()
    assert named == ["ada/base"]
    tiny_model.save_pretrained(tmp_path / "base")
    for name in (str(tmp_path / "base"), "../base", "base", ""):
        settings = json.loads(files[SETTINGS_FILE]) | {"base_model": name}
        local_hub.add("ada/mine", files | {SETTINGS_FILE: json.dumps(settings).encode()})
        with pytest.raises(
            ModelError, match=r"names no base model that can be loaded.*from_pretrained\(source, model\)"
        ):
            FocusModel.from_pretrained("ada/mine")
    assert named == ["ada/base"]


@pytest.mark.model
def test_one_line_loads_the_embedded_model_and_its_centroids():
    focus = FocusModel.from_pretrained("default", dtype="bfloat16")
    assert len(focus.focused_layers) == 30
    ids = torch.arange(40)[None]
    with torch.no_grad():
        assert focus.model(ids, use_cache=False).logits.isfinite().all()
    assert focus.backend_names
