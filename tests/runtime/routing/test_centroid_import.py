"""Centroids as authors save them are read whatever their names, nesting and layout; what fits two mappings is not."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from focus_runtime.composition.attach import compose
from focus_runtime.errors import InputError
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from focus_runtime.routing.centroid_import import import_centroids, recognise_centroids
from tests.helpers import build_centroids, build_model

NAMES = "model.layers.{}.self_attn."


@pytest.fixture(scope="module")
def ours():
    """Two layers, hidden size 64, routing size 16, 4 groups."""
    return build_centroids(build_model())


def saved(ours, centroids="centroids", projection="W_g.weight", *, prefix="", potential=None, turn=("projection",)):
    """The same numbers under other names; projections as nn.Linear keeps them."""
    content = {}
    for layer, router in ours.routers.items():
        at = prefix + NAMES.format(layer)
        parts = {centroids: router.centroids, projection: router.projection}
        for name, part in zip(parts, ("centroids", "projection"), strict=True):
            tensor = parts[name].detach()
            content[at + name] = (tensor.T if part in turn else tensor).contiguous()
        if potential:
            content[at + potential] = router.potential
    return content


def stacked(ours, part):
    return torch.stack([getattr(ours.routers[layer], part).detach() for layer in (0, 1)])


def check_same(made, ours, *, potential=False):
    assert sorted(made.routers) == sorted(ours.routers)
    for layer, router in ours.routers.items():
        assert torch.equal(made.routers[layer].projection, router.projection)
        assert torch.equal(made.routers[layer].centroids, router.centroids)
        assert made.routers[layer].has_potential is potential
        assert not potential or torch.equal(made.routers[layer].potential, router.potential)


FORMS = {
    "linear": lambda o: saved(o),
    "module": lambda o: saved(o, prefix="module.", potential="column_potential"),
    "nested": lambda o: {"model_state_dict": saved(o, "router.centroids", "router.W"), "epoch": 3},
    "state_dict": lambda o: {"state_dict": saved(o, "codebook.weight", "group_proj.weight"), "args": {"lr": 0.1}},
    "both-transposed": lambda o: saved(o, turn=("projection", "centroids")),
    "ours-transposed": lambda o: {
        f"layers.{i}.{part}": getattr(o.routers[i], part).detach().T.contiguous()
        for i in (0, 1)
        for part in ("projection", "centroids")
    },
    "by-number": lambda o: {
        part: {i: getattr(o.routers[i], own).detach() for i in (0, 1)}
        for part, own in (("centroids", "centroids"), ("projections", "projection"))
    },
    "lists": lambda o: {
        "centroids": [o.routers[i].centroids.detach() for i in (0, 1)],
        "W_g": [o.routers[i].projection.detach() for i in (0, 1)],
    },
    "stacked": lambda o: {"centroids": stacked(o, "centroids"), "W_g": stacked(o, "projection").mT.contiguous()},
    "with-a-model": lambda o: (
        saved(o)
        | {
            "model.embed_tokens.weight": torch.zeros(8, 64),
            "model.layers.0.self_attn.q_proj.weight": torch.zeros(64, 64),
        }
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_that_authors_save(form, ours, tmp_path):
    content = FORMS[form](ours)
    torch.save(content, tmp_path / "author.pt")
    check_same(import_centroids(tmp_path / "author.pt", window=8), ours, potential=form == "module")
    if all(isinstance(value, torch.Tensor) for value in content.values()):
        save_file(content, tmp_path / "author.safetensors")
        made = import_centroids(tmp_path / "author.safetensors", window=8, model=build_model())
        check_same(made, ours, potential=form == "module")


def test_one_file_a_layer_in_a_folder(ours, tmp_path):
    for layer, router in ours.routers.items():
        content = {"centroids": router.centroids.detach(), "W_g.weight": router.projection.detach().T}
        torch.save(content, tmp_path / f"layer_{layer:02}.pth")
    check_same(import_centroids(tmp_path, window=8), ours)


def test_the_result_is_a_file_of_ours_that_composes(ours, tmp_path, ids):
    torch.save(saved(ours, potential="potential"), tmp_path / "author.pt")
    model = build_model()
    made = import_centroids(tmp_path / "author.pt", model=model, window=8, top_k=1)
    save_centroids(made, tmp_path / "c.safetensors")
    loaded = load_centroids(tmp_path / "c.safetensors")
    check_same(loaded, ours, potential=True)
    compose(model, loaded)
    model(input_ids=ids, use_cache=False)


def test_the_mapping_names_what_was_found(ours, tmp_path):
    torch.save(FORMS["with-a-model"](ours), tmp_path / "author.pt")
    found = recognise_centroids(tmp_path / "author.pt")
    rows = [(row.name, row.shape, row.part, row.layers, row.transposed) for row in found.mapping]
    assert rows == [
        ("model.layers.*.self_attn.W_g.weight", (16, 64), "projection", (0, 1), True),
        ("model.layers.*.self_attn.centroids", (4, 16), "centroids", (0, 1), False),
    ]
    assert found.others == ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight"]


def test_settings_in_the_file_are_taken_and_a_missing_window_is_asked_for(ours, tmp_path):
    torch.save(saved(ours), tmp_path / "plain.pt")
    with pytest.raises(InputError, match=r"does not say the local window.*--window"):
        import_centroids(tmp_path / "plain.pt")
    torch.save({"state_dict": saved(ours), "config": {"window_size": 24, "top_k": 1, "tau": 0.5}}, tmp_path / "full.pt")
    config = import_centroids(tmp_path / "full.pt").config
    assert (config.window, config.top_k, config.temperature, config.num_groups) == (24, 1, 0.5, 4)
    assert import_centroids(tmp_path / "full.pt", window=9).config.window == 9
    (assumed,) = (w for w in import_centroids(tmp_path / "full.pt").warnings if "defaults" in w)
    assert assumed.endswith("our defaults: num_sinks 4")


def of_shape(projection, centroids):
    return {"layers.0.W_g": torch.randn(*projection), "layers.0.centroids": torch.randn(*centroids)}


@pytest.mark.parametrize(
    ("content", "words", "choice"),
    [
        (of_shape((16, 16), (4, 16)), r"2 mappings.*--layout projection=ours", {"layouts": {"projection": "ours"}}),
        (
            of_shape((64, 16), (16, 16)),
            r"2 mappings.*--layout centroids=ours",
            {"layouts": {"centroids": "transposed"}},
        ),
        (of_shape((32, 16), (16, 32)), r"2 mappings.*name the model", {"num_groups": 16}),
        (
            of_shape((64, 16), (4, 16)) | {"ema.layers.0.centroids": torch.randn(4, 16)},
            r"layers\.0\.centroids and ema\.layers\.0\.centroids, and neither was taken.*--map 'centroids=layers\.\*",
            {"names": {"centroids": "layers.*.centroids"}},
        ),
    ],
)
def test_a_file_that_fits_two_mappings_is_not_taken_until_one_is_named(content, words, choice, tmp_path):
    torch.save(content, tmp_path / "author.pt")
    with pytest.raises(InputError, match=words):
        import_centroids(tmp_path / "author.pt", window=8)
    import_centroids(tmp_path / "author.pt", window=8, **choice)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"layers.0.centroids": torch.zeros(4, 16)}, "holds no tensor that is called like the projection"),
        ({"weights": torch.zeros(4)}, "its other tensors are weights"),
        (of_shape((64, 16), (4, 15)), r"\(64, 16\) and the centroids \(4, 15\)"),
        (of_shape((64, 16), (4, 16)) | {"layers.1.centroids": torch.zeros(4, 16)}, "no projection for layer 1"),
        (of_shape((64, 16), (2, 4, 16)), r"shape \(2, 4, 16\).*which all heads share"),
        ({"W_g": torch.zeros(64, 16), "centroids": torch.zeros(4, 16)}, "does not say which layer"),
        (of_shape((64, 16), (4, 16)) | {"layers.0.W_g.bias": torch.ones(16)}, "bias that is not 0"),
        (of_shape((64, 16), (4, 16)) | {"layers.0.potential": torch.ones(4, dtype=torch.long)}, "floating-point"),
        ({"layers.0.W_g": torch.full((64, 16), float("nan")), "layers.0.centroids": torch.zeros(4, 16)}, "NaN"),
        (torch.zeros(3), "called like the projection"),
    ],
)
def test_what_cannot_be_imported_says_why(content, words, tmp_path):
    torch.save(content, tmp_path / "author.pt")
    with pytest.raises(InputError, match=words):
        import_centroids(tmp_path / "author.pt", window=8)


def test_wrong_sources_and_models(ours, tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        import_centroids(tmp_path / "none.pt")
    with pytest.raises(InputError, match="holds no such file"):
        import_centroids(tmp_path)
    (tmp_path / "bad.pt").write_bytes(b"x")
    with pytest.raises(InputError, match="cannot be read safely"):
        import_centroids(tmp_path / "bad.pt")
    save_centroids(ours, tmp_path / "ours.safetensors")
    with pytest.raises(InputError, match="a centroid file of ours already"):
        import_centroids(tmp_path / "ours.safetensors", window=8)
    torch.save(saved(ours), tmp_path / "author.pt")
    with pytest.raises(InputError, match="hidden size 32"):
        import_centroids(tmp_path / "author.pt", window=8, model=build_model(hidden_size=32))
    with pytest.raises(InputError, match="for layer 1, which is no attention layer"):
        import_centroids(tmp_path / "author.pt", window=8, model=build_model(num_hidden_layers=1))


def test_layers_without_centroids_are_said_and_keep_full_attention(ours, tmp_path):
    model = build_model(num_hidden_layers=3)
    torch.save(saved(ours), tmp_path / "author.pt")
    made = import_centroids(tmp_path / "author.pt", window=8, model=model)
    assert made.config.layers == (0, 1)
    assert "1 of the model's 3 attention layers have no centroids" in " ".join(made.warnings)
