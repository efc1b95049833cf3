"""Maps of a run, from a real database."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_explorer.data.queries import fetch
from focus_explorer.errors import InputError
from focus_explorer.usecases import maps
from focus_explorer.usecases.groups import read_routes
from focus_explorer.usecases.maps import project
from focus_explorer.usecases.runs import run_summary
from focus_explorer.web.requests.dispatch import dispatch


@pytest.mark.slow
def test_projection_separates_clear_groups_and_repeats_itself():
    rng = np.random.default_rng(0)
    centroids = np.eye(3, 8, dtype=np.float32)
    labels = np.arange(150) % 3
    routing = (centroids[labels] + rng.normal(0, 0.05, (150, 8))).astype(np.float32)
    made = project(routing, centroids)
    threads = torch.get_num_threads()
    again = project(routing, centroids)
    assert torch.get_num_threads() == threads
    np.testing.assert_array_equal(made.xy, again.xy)
    assert made.method == "UMAP"
    assert made.trustworthiness > 0.8
    distance = np.linalg.norm(made.xy[:150, None] - made.xy[None, 150:], axis=-1)
    assert (distance.argmin(axis=1) == labels).mean() > 0.95


@pytest.mark.parametrize("count", [2, 3, 31])
def test_short_texts_fall_back_to_pca(count):
    routing = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    made = project(routing, np.ones((2, 4), np.float32))
    assert made.method == "PCA"
    assert made.xy.shape == (count + 2, 2)
    assert np.isfinite(made.xy).all()


@pytest.mark.slow
def test_what_numba_compiles_is_kept_for_the_next_process_where_a_folder_can_be_written(monkeypatch):
    from numba.core.caching import NullCache

    routing = np.random.default_rng(5).normal(size=(40, 4)).astype(np.float32)
    before = project(routing, routing[:2]).xy
    from umap import umap_  # after ours, which imports it in a way of its own

    assert not isinstance(umap_.smooth_knn_dist._cache, NullCache)
    dispatcher = type(umap_.smooth_knn_dist)
    monkeypatch.setattr(umap_.smooth_knn_dist, "_cache", NullCache())
    refused = []

    def refuse(function):
        refused.append(function)
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(dispatcher, "enable_caching", refuse)
    assert np.array_equal(project(routing, routing[:2]).xy, before)
    assert umap_.smooth_knn_dist in refused


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


@pytest.mark.parametrize("layer", [1, None])
def test_neighbours_are_those_of_the_full_space(service, run_id, fresh_seed, layer):
    layers, count = read_routes(service.database, run_id).layers, run_summary(service.database, run_id)["num_tokens"]
    column = "probabilities" if layer is None else "routing"
    with service.database.read() as connection:
        query = f"SELECT layer, position, {column} FROM assignments WHERE run_id = ?"
        rows = connection.execute(query, [run_id]).fetchall()
    by_place = {(number, pos): np.array(values, dtype=np.float64) for number, pos, values in rows}
    of = layers if layer is None else [layer]
    points = np.array([np.concatenate([by_place[number, pos] for number in of]) for pos in range(count)])
    points = np.sqrt(points) if layer is None else points
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    token = fresh_seed % count
    answer = ask(service, run_id, "map_neighbours", layer=layer, token=token)
    expected = points @ points[token]
    assert (answer["token"], answer["of"], len(answer["positions"])) == (token, count - 1, maps.NEAREST)
    assert token not in answer["positions"]
    np.testing.assert_allclose(answer["similarity"], expected[answer["positions"]], atol=1e-4)
    others = np.delete(expected, [token, *answer["positions"]])
    assert others.max() <= min(answer["similarity"]) + 1e-4


def test_a_token_that_is_not_drawn_has_neighbours_too(service, run_id, monkeypatch):
    monkeypatch.setattr(maps, "MOST_TOKENS", 12)
    count = run_summary(service.database, run_id)["num_tokens"]
    drawn = maps.evenly_spaced(count, 12).tolist()
    token = next(pos for pos in range(count) if pos not in drawn)
    answer = ask(service, run_id, "map_neighbours", layer=0, token=token)
    assert answer["of"] == 12
    assert set(answer["positions"]) < set(drawn)


@pytest.mark.parametrize(
    ("details", "part"),
    [
        ({"layer": 99, "token": 0}, "no layer 99"),
        ({"layer": 0, "token": 10**6}, "no token 1000000"),
        ({"layer": 0, "token": -1}, "no token -1"),
        ({"layer": True, "token": 0}, "layer is True"),
        ({"layer": 0}, "token"),
    ],
)
def test_neighbours_of_what_there_is_not(service, run_id, details, part):
    with pytest.raises(InputError, match=part):
        ask(service, run_id, "map_neighbours", **details)
