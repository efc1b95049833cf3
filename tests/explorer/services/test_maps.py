"""Maps of a run, from a real database."""

from __future__ import annotations

import numpy as np
import pytest

from focus_explorer.data.queries import fetch
from focus_explorer.services import maps
from focus_explorer.services.groups import read_routes
from focus_explorer.services.maps import map_payload
from focus_explorer.services.run_payload import load_run
from focus_explorer.services.runs import run_summary
from focus_explorer.ui.requests.dispatch import dispatch


@pytest.mark.slow
def test_projection_is_stored_and_the_same_when_read_again(service, run_id):
    layer = load_run(service.database, run_id)["layer_ids"][0]
    first = map_payload(service, run_id, layer)
    assert first["method"] == "UMAP"
    assert len(first["x"]) == run_summary(service.database, run_id)["num_tokens"]
    assert len(first["centroid_x"]) == 8
    assert 0 < first["trustworthiness"] <= 1
    assert map_payload(service, run_id, layer) == first


def rows_of(service, run_id):
    return fetch(service.database, "assignments", run_id=run_id).to_pylist()


def ask(service, run_id, what, **details):
    return dispatch(service, {"what": what, "run": run_id, **details})


@pytest.mark.parametrize("layer", [1, None])
def test_a_quick_map_is_a_named_pca_and_not_stored(service, run_id, layer):
    answer = ask(service, run_id, "map", layer=layer, quick=True)
    assert (answer["method"], answer["preliminary"]) == ("PCA", True)
    count = run_summary(service.database, run_id)["num_tokens"]
    assert answer["positions"] == list(range(count))
    assert len(answer["x"]) == len(answer["y"]) == count
    assert len(answer["centroid_x"]) == (0 if layer is None else 8)
    assert not fetch(service.database, "projection", run_id=run_id, layer=maps.ALL_LAYERS).num_rows


@pytest.mark.slow
def test_the_map_of_all_layers_is_a_stored_sample(service, run_id, monkeypatch):
    monkeypatch.setattr(maps, "MOST_TOKENS", 100)
    first = ask(service, run_id, "map")
    count = run_summary(service.database, run_id)["num_tokens"]
    assert (first["method"], first["preliminary"], first["seed"]) == ("UMAP", False, 0)
    assert first["positions"] == maps.evenly_spaced(count, 100).tolist()
    assert first["parameters"]["tokens"] == 100
    assert first["parameters"]["of"] == count
    assert 0 < first["trustworthiness"] <= 1
    assert ask(service, run_id, "map", quick=True) == first


def test_all_layers_are_placed_by_the_overlap_of_probabilities(service, run_id):
    """The cosine of two points is the mean Bhattacharyya coefficient over the layers."""
    rows = rows_of(service, run_id)
    layers = len(read_routes(service.database, run_id).layers)
    positions = np.array([3, 17])
    vectors = np.sqrt(maps._vectors(service.database, "all_probabilities", "probabilities", 2, run_id, positions))
    by_token = {p: np.array([r["probabilities"] for r in rows if r["position"] == p]) for p in (3, 17)}
    expected = np.sqrt(by_token[3] * by_token[17]).sum(axis=1).mean()
    cosine = vectors[0] @ vectors[1] / (np.linalg.norm(vectors[0]) * np.linalg.norm(vectors[1]))
    assert vectors.shape == (2, layers * 8)
    assert cosine == pytest.approx(expected, rel=1e-5)


def test_samples_are_evenly_spaced():
    assert maps.evenly_spaced(5, 8).tolist() == [0, 1, 2, 3, 4]
    picked = maps.evenly_spaced(100_000, 8000)
    assert len(picked) == 8000
    assert picked[0] == 0
    assert picked[-1] == 99_999
    assert set(np.diff(picked).tolist()) <= {12, 13}
