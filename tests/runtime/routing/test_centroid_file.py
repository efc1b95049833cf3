"""Centroid files: exact round trips, and a refusal that names the problem for everything that is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save as save_safetensors

from focus_runtime.composition.attach import compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import CentroidFileError
from focus_runtime.routing.centroid_file import load_centroids, save_centroids
from tests.helpers import build_centroids, build_model


def tensors(layers=2, *, groups=4, width=16, hidden=64, potential=True, dtype=torch.float32):
    """The tensors of a good file, built here rather than by the code under test."""
    generator, result = torch.Generator().manual_seed(3), {}
    for i in range(layers):
        result[f"layers.{i}.projection"] = torch.randn(hidden, width, generator=generator).to(dtype)
        result[f"layers.{i}.centroids"] = torch.randn(groups, width, generator=generator).to(dtype)
        if potential:
            result[f"layers.{i}.potential"] = torch.randn(groups, generator=generator).to(dtype)
    return result


PARTS = ("projection", "centroids", "potential")


def config_text(**changes):
    return json.dumps(json.loads(FocusConfig().to_json()) | changes)


def metadata(**changes):
    values = {
        "format": "focus-centroids",
        "format_version": "1",
        "config": config_text(),
        "base_model": "tiny",
        "num_model_layers": "2",
        "training": '{"steps": 3}',
    }
    return {k: v for k, v in (values | changes).items() if v is not None}


def write(path, content=None, meta=None):
    path.write_bytes(save_safetensors(content or tensors(), meta if meta is not None else metadata()))
    return path


def raw(path, header, body=b""):
    """A file with any header at all, well-formed or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "c.safetensors"


def refuse(path, words):
    with pytest.raises(CentroidFileError, match=words) as caught:
        load_centroids(path)
    assert Path(path).name in str(caught.value)


@pytest.mark.parametrize("potentials", [True, False])
@pytest.mark.parametrize("layers", [None, (1,)])
def test_round_trip_is_bit_exact(potentials, layers, file, tiny_model):
    saved = build_centroids(tiny_model, potentials=potentials, layers=layers, temperature=0.3)
    saved.base_model, saved.base_fingerprint, saved.training = "tiny", "abc", {"steps": 3, "loss": 1.5}
    digest = save_centroids(saved, file)
    loaded = load_centroids(file)
    assert loaded.config == saved.config
    assert sorted(loaded.routers) == sorted(saved.routers)
    for index, router in saved.routers.items():
        other = loaded.routers[index]
        for name in ("projection", "centroids", "potential"):
            assert torch.equal(getattr(router, name), getattr(other, name)), name
        assert other.has_potential is potentials
        assert not any(p.requires_grad for p in other.parameters())
    assert (loaded.base_model, loaded.base_fingerprint, loaded.training) == ("tiny", "abc", saved.training)
    assert (loaded.num_model_layers, loaded.hidden_size, loaded.name) == (2, 64, "c.safetensors")
    assert digest == loaded.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert bool(loaded.warnings) is not potentials


def test_same_centroids_same_bytes_and_others_another_hash(tmp_path, tiny_model):
    hashes = {save_centroids(build_centroids(tiny_model, seed=s), tmp_path / "a.safetensors") for s in range(3)}
    assert len(hashes) == 3
    paths = [tmp_path / name for name in ("a.safetensors", "b.safetensors")]
    for path in paths:
        save_centroids(build_centroids(tiny_model), path)
    save_centroids(load_centroids(paths[0]), tmp_path / "again.safetensors")
    assert paths[0].read_bytes() == paths[1].read_bytes() == (tmp_path / "again.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        ({}, "1"),
        ({"budget": [{"layer": 1, "head": 0, "full": True}, {"layer": 0, "top_k": 2}]}, "2"),
        ({"text_sinks": 0.9}, "3"),
        ({"budget": [{"layer": 1, "query_head": 1, "full": True}], "text_sinks": 0.9}, "6"),
        ({"budget": [{"layer": 1, "head": 0, "top_k": 0}]}, "6"),
        ({"window_growth": (8, 64)}, "7"),
    ],
)
def test_a_file_has_the_earliest_version_that_knows_its_settings(changes, version, file, tiny_model):
    """Older programs refuse later versions."""
    centroids = build_centroids(tiny_model)
    centroids.config = centroids.config.replace(**changes)
    save_centroids(centroids, file)
    assert safe_open(file, "pt").metadata()["format_version"] == version
    assert load_centroids(file).config == centroids.config


@pytest.mark.parametrize("name", ["training", "num_model_layers"])
@pytest.mark.parametrize("value", ["²", "nonsense", "[1]", "-2", "[" * 100_000, "9" * 5000, ""])
def test_unreadable_notes_do_not_matter(name, value, file):
    loaded = load_centroids(write(file, meta=metadata(**{name: value})))
    assert getattr(loaded, name) in ({}, None)


def test_a_handwritten_file_loads_and_composes(file, tiny_model, ids):
    loaded = load_centroids(write(file))
    assert torch.equal(loaded.routers[1].centroids, tensors()["layers.1.centroids"])
    focus = compose(tiny_model, loaded)
    tiny_model(input_ids=ids, use_cache=False)
    assert len(focus.assignments()) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_float_types_are_read_as_float32(dtype, file):
    loaded = load_centroids(write(file, tensors(dtype=dtype)))
    assert loaded.routers[0].projection.dtype == torch.float32
    assert torch.equal(loaded.routers[0].projection, tensors(dtype=dtype)["layers.0.projection"].float())


def test_a_file_without_metadata_is_inferred_with_a_warning(file):
    loaded = load_centroids(write(file, tensors(groups=8, width=5, potential=False), {}))
    assert (loaded.config.num_groups, loaded.config.routing_dim) == (8, 5)
    assert len(loaded.warnings) == 2
    assert loaded.num_model_layers is None


def test_groups_that_do_nothing_are_noted(file):
    content = tensors(layers=1)
    assert load_centroids(write(file, content, metadata(num_model_layers="1"))).warnings == []
    rows, potential = content["layers.0.centroids"], content["layers.0.potential"]
    rows[0] = 0
    rows[1:] = rows[1]
    potential[:] = torch.tensor([0.0, 2.0, 1.0, 0.5])  # group 3 comes behind 1 and 2, and top_k is 2
    notes = load_centroids(write(file, content, metadata(num_model_layers="1"))).warnings
    assert notes == [
        "zero centroids, against which every token scores 0 (layer 0: groups 0)",
        "identical centroids, which only their potentials tell apart (layer 0: groups 1, 2, 3)",
        "groups that no token can choose (layer 0: groups 3)",
    ]


# --- what is wrong inside


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers.0.centroids": torch.zeros(5, 16)}, r"layers\.0\.centroids has shape \(5, 16\).*\(4, 16\)"),
        ({"layers.1.centroids": torch.zeros(4, 15)}, r"layers\.1\.centroids has shape \(4, 15\)"),
        ({"layers.1.projection": torch.zeros(63, 16)}, r"layers\.1\.projection has shape \(63, 16\).*\(64, 16\)"),
        (
            {"layers.0.projection": torch.zeros(16, 64)},
            r"layers\.0\.projection has shape \(16, 64\), which is transposed.*\(64, 16\): hidden size",
        ),
        ({"layers.1.centroids": torch.zeros(16, 4)}, r"centroids has shape \(16, 4\), which is transposed.*\(4, 16\)"),
        ({"layers.0.projection": torch.zeros(64, 17)}, r"layers\.0\.projection has shape"),
        ({"layers.0.projection": torch.zeros(64)}, r"layers\.0\.projection has shape"),
        ({"layers.0.potential": torch.zeros(3)}, r"layers\.0\.potential has shape \(3,\)"),
        ({"layers.0.potential": torch.zeros(4, 1)}, r"layers\.0\.potential has shape"),
        ({"layers.0.projection": torch.zeros(0, 16)}, r"layers\.0\.projection has shape"),
        ({"layers.1.centroids": torch.full((4, 16), float("nan"))}, r"layers\.1\.centroids contains NaN or inf"),
        ({"layers.1.potential": torch.tensor([0.0, float("inf"), 0, 0])}, r"layers\.1\.potential contains NaN or inf"),
        (
            {"layers.0.centroids": torch.full((4, 16), 1e300, dtype=torch.float64)},
            r"layers\.0\.centroids contains NaN or inf",
        ),
        ({"layers.0.centroids": torch.zeros(4, 16, dtype=torch.int64)}, r"layers\.0\.centroids.*int64.*floating-point"),
        ({"layers.0.potential": torch.zeros(4, dtype=torch.bool)}, r"layers\.0\.potential.*bool"),
        ({"layers.0.weight": torch.zeros(4)}, r"layers\.0\.weight.*expected layers\.N\.projection"),
        ({"embedding": torch.zeros(4)}, "'embedding'"),
        ({"layers.01.projection": torch.zeros(64, 16)}, r"'layers\.01\.projection'"),
        ({"layers.99999.projection": torch.zeros(64, 16)}, r"'layers\.99999\.projection'"),
        ({"layers.0.projection": None}, "layer 0 has no projection"),
        ({"layers.1.centroids": None}, "layer 1 has no centroids"),
        (dict.fromkeys(f"layers.0.{part}" for part in PARTS), "no tensors for layer 0"),
        (dict.fromkeys(f"layers.1.{part}" for part in PARTS), "layer 1; expected .* 2 layers"),
    ],
)
def test_bad_tensors(change, words, file):
    refuse(write(file, {name: tensor for name, tensor in (tensors() | change).items() if tensor is not None}), words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": config_text(layers=[0, 1, 2])}, "no tensors for layer 2"),
        ({"config": config_text(layers=[0])}, "layer 1, which its configuration does not list"),
        ({"config": config_text(windows=3)}, "unknown setting 'windows'"),
        ({"config": config_text(num_groups=8)}, r"shape \(4, 16\).*expected \(8, 16\)"),
        ({"config": config_text(window=-1)}, "window is -1"),
        ({"config": config_text(budget=[{"layer": 2, "full": True}])}, "budget names layer 2, which has no router"),
        ({"config": config_text(budget=[{"layer": 0, "top_k": 5}])}, "layer 0 top_k 5 but there are 4 groups"),
        ({"config": config_text(budget="none")}, "the budget is str"),
        ({"config": config_text(top_k=5)}, "top_k is 5"),
        ({"config": config_text(layers=5)}, "layers is 5"),
        ({"config": config_text(temperature=0)}, "temperature is 0"),
        ({"config": "{"}, "not JSON"),
        ({"config": "[" * 100_000}, "not JSON"),
        ({"config": "[1]"}, "expected a JSON object"),
        ({"format": "lora"}, "'lora'.*focus-centroids"),
        ({"format_version": "8"}, "format version 8.*update Focus Explorer"),
        ({"format_version": "9" * 5000}, "format version"),
        ({"format_version": "one"}, "format version one"),
        ({"format_version": "²"}, "format version ²"),
        ({"format_version": "-1"}, "format version -1"),
    ],
)
def test_bad_metadata(changes, words, file):
    refuse(write(file, meta=metadata(**changes)), words)


# --- what is wrong outside


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 50, 300, 1000, 3000, 9000, -1, -4, -100])
def test_truncated_anywhere(suffix, keep, tmp_path):
    path = tmp_path / f"c.{suffix}"
    if suffix == "pt":
        torch.save(tensors(), path)
    else:
        write(path)
    path.write_bytes(path.read_bytes()[:keep])
    refuse(path, "truncated|damaged|cannot be read safely")


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**40, 2**63, 2**64 - 1])
def test_a_header_size_that_lies(size, file):
    data = write(file).read_bytes()
    for lie in (struct.pack("<Q", size) + data[8:], data + b"more"):
        file.write_bytes(lie)
        refuse(file, "truncated|damaged")


ENTRY = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[" * 100_000,
        b"9" * 5000,
        [],
        "text",
        None,
        {"__metadata__": None},
        {"__metadata__": []},
        {"__metadata__": {"format": 3}},
        {"layers.0.potential": ENTRY, "__metadata__": None},
        {"layers.0.potential": ENTRY | {"data_offsets": [0, 1 << 50]}},
        {"layers.0.potential": ENTRY | {"data_offsets": [8, 0]}},
        {"layers.0.potential": ENTRY | {"data_offsets": [-16, 0]}},
        {"layers.0.potential": ENTRY | {"data_offsets": "ab"}},
        {"layers.0.potential": ENTRY | {"data_offsets": [0]}},
        {"layers.0.potential": ENTRY | {"data_offsets": ["a", "b"]}},
        {"layers.0.potential": {"dtype": "F32", "shape": [4]}},
        {"layers.0.potential": ENTRY | {"shape": [1 << 40]}},
        {"layers.0.potential": ENTRY | {"shape": [1 << 40, 1 << 40]}},
        {"layers.0.potential": ENTRY | {"shape": [-4]}},
        {"layers.0.potential": ENTRY | {"shape": "4"}},
        {"layers.0.potential": [1, 2]},
        {"layers.0.potential": ENTRY | {"dtype": ["F32"]}},
        {"layers.0.potential": ENTRY | {"dtype": "F99"}},
        {"layers.0.potential": ENTRY, "layers.1.potential": ENTRY},
    ],
)
def test_headers_that_are_no_headers(header, file):
    refuse(raw(file, header, b"\0" * 16), "truncated|damaged|type|holds no")


def test_paths_that_lead_to_no_file(tmp_path):
    for name in ("c.bin", "c", "c.safetensors.part", "c.txt"):
        refuse(write(tmp_path / name), "not a centroid file.*safetensors")
    for name in ("none.safetensors", "none.pt"):
        refuse(tmp_path / name, "cannot read .*No such file")
        (tmp_path / f"folder-{name}").mkdir()
        refuse(tmp_path / f"folder-{name}", "cannot read .*directory")


def test_an_enormous_file_is_refused_unread(file):
    with file.open("wb") as stream:
        stream.truncate(600 * 1024 * 1024)  # sparse: takes no space
    refuse(file, "at most 536,870,912")


# --- pickles


@pytest.mark.parametrize("suffix", ["pt", "pth"])
@pytest.mark.parametrize("wrap", [None, "state_dict", "tensors"])
def test_torch_files(suffix, wrap, tmp_path):
    path = tmp_path / f"c.{suffix}"
    torch.save({wrap: tensors(), "metadata": metadata()} if wrap else tensors() | {"metadata": metadata()}, path)
    loaded = load_centroids(path)
    assert torch.equal(loaded.routers[1].potential, tensors()["layers.1.potential"])
    assert (loaded.base_model, loaded.training) == ("tiny", {"steps": 3})


class Bomb:
    """Runs a command when unpickled."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("plain", [True, False])
def test_a_pickle_with_code_is_refused_and_not_executed(plain, tmp_path):
    path, proof = tmp_path / "c.pt", tmp_path / "executed"
    content = tensors() | {"metadata": Bomb(proof)}
    if plain:
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path)
    refuse(path, "cannot be read safely.*nothing in the file was executed")
    assert not proof.exists()
    os.system(Bomb(proof).__reduce__()[1][0])
    assert proof.exists(), "the bomb must be able to go off, or this test proves nothing"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1, 2], "holds a list"),
        (torch.zeros(3), "holds a Tensor"),
        ({}, "holds no centroids"),
        ({"layers.0.projection": 3, "layers.0.centroids": "x"}, "not a floating-point tensor"),
        ({"layers.0.centroids": torch.zeros(4)}, "no 2-d centroids"),
        ({3: torch.zeros(4)}, "holds '3'"),
        (tensors() | {"metadata": {"config": 5}}, "configuration is int"),
        (tensors() | {"metadata": {"config": {"windows": 3}}}, "unknown setting"),
    ],
)
def test_torch_files_with_other_things(content, words, tmp_path):
    torch.save(content, tmp_path / "c.pt")
    refuse(tmp_path / "c.pt", words)


def test_what_is_no_file_of_ours_says_what_reads_it(tmp_path):
    torch.save({"model.layers.0.self_attn.W_g.weight": torch.zeros(16, 64)}, tmp_path / "c.pt")
    refuse(tmp_path / "c.pt", "focus-explorer centroids import")
    refuse(tmp_path, "focus-explorer centroids import")
    refuse("random", r"drawn for a model.*random_centroids\(model")


# --- other models


def test_a_file_without_the_last_layer_of_a_model_is_refused(file, tiny_model):
    """That layer would keep full attention without a word."""
    loaded = load_centroids(write(file, tensors(layers=1), metadata(num_model_layers=None)))
    with pytest.raises(CentroidFileError, match="no router for layer 1 of the model"):
        compose(tiny_model, loaded)
    listed = metadata(config=config_text(layers=[0]))
    compose(tiny_model, load_centroids(write(file, tensors(layers=1), listed))).detach()


HYBRIDS = {
    "Qwen3Next": {
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "num_experts": 2,
        "num_experts_per_tok": 1,
    },
    "Jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 1},
    "Bamba": {"attn_layer_indices": [1, 3]},
    "Lfm2": {"layer_types": ["conv", "full_attention"] * 2},
}


@pytest.mark.parametrize("family", [pytest.param(f, marks=pytest.mark.long) if f == "Bamba" else f for f in HYBRIDS])
def test_files_of_hybrids_list_the_layers_that_attend(family, file):
    model = build_model(family, num_hidden_layers=4, **HYBRIDS[family])
    saved = build_centroids(model)
    assert sorted(saved.routers) == [1, 3]
    save_centroids(saved, file)
    loaded = load_centroids(file)
    assert loaded.config.layers == (1, 3)
    compose(model, loaded).detach()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 32}, "made for tiny.*width 64.*32 wide"),
        ({"num_hidden_layers": 1}, "2 attention layers.*has 1"),
        ({"num_hidden_layers": 3}, "2 attention layers.*has 3"),
    ],
)
def test_the_wrong_model(changes, words, file):
    with pytest.raises(CentroidFileError, match=words):
        load_centroids(write(file)).check_fits(build_model(**changes))


# --- writing
