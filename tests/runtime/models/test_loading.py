"""Finding and loading models, with no network: every failure is a ModelError in words."""

from __future__ import annotations

import copy
import itertools
import json
import shutil

import gguf
import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

from focus_runtime.errors import DeviceError, ModelError
from focus_runtime.models import embedded
from focus_runtime.models import loading as models
from focus_runtime.models.loading import check_name, fingerprint, load_model, load_tokenizer, weights_sha256
from tests.helpers import ROOT, build_model, build_tokenizer, random_ids
from tests.security.model_files import write_gguf


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a tiny model and its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    build_model(vocab_size=300).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def broken(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "broken")


@pytest.fixture
def no_hub(monkeypatch):
    """A hub that has nothing; records the requests."""
    requests = []

    def nothing(name, **options):
        requests.append((name, options.get("local_files_only", False)))
        raise LocalEntryNotFoundError("no such model")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", nothing)
    return requests


def test_a_saved_folder_loads_as_it_was(saved):
    model, tokenizer = load_model(str(saved))
    original = build_model(vocab_size=300)
    assert not model.training
    ids = random_ids(20)
    torch.testing.assert_close(model(input_ids=ids).logits, original(input_ids=ids).logits, rtol=1e-5, atol=1e-5)
    assert fingerprint(model) == fingerprint(original)
    encoded = tokenizer("ab c", return_offsets_mapping=True)
    assert encoded.offset_mapping == [(0, 1), (1, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtypes(dtype, saved):
    model, _ = load_model(str(saved), dtype=dtype)
    assert {str(p.dtype) for p in model.parameters()} == {"torch." + dtype}
    with pytest.raises(ModelError, match=r"'int8'.*float32 or bfloat16 or float16"):
        load_model(str(saved), dtype="int8")


def test_tied_embeddings_are_not_missing_weights(tmp_path):
    build_model(tie_word_embeddings=True).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    load_model(str(tmp_path))


@pytest.mark.parametrize("name", ["smolm2-135m", "nobody/nothing"])
def test_an_unknown_name_asks_the_cache_then_the_hub(name, no_hub):
    with pytest.raises(ModelError, match=f"'{name}' is neither.*spelling and the network"):
        load_model(name)
    assert no_hub == [(name, True), (name, False)]


@pytest.mark.parametrize("name", ["a b", "a" * 300, "x/y?", "Ünknown"])
def test_names_no_hub_could_have(name):
    """Refused by huggingface_hub's own check before any request; HF_HUB_OFFLINE stands behind it."""
    with pytest.raises(ModelError):
        load_model(name)


@pytest.mark.parametrize(
    "name", ["", " ", "./none", "/none/none", "~/none", "~nobody_here/x", "a/b/c", "../x", "notes.txt"]
)
def test_paths_that_are_no_folder_never_reach_the_hub(name, no_hub, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "notes.txt").write_text("hello")
    monkeypatch.chdir(tmp_path / "here")  # so that ../x is no folder that somebody left there
    with pytest.raises(ModelError, match="is not a model folder"):
        load_model(name)
    assert no_hub == []


@pytest.mark.parametrize("name", ["none.gguf", "/none/none.GGUF", "a" * 300 + ".gguf"])
def test_a_missing_gguf(name):
    with pytest.raises(ModelError, match="there is no file"):
        load_model(name)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model" * 100, b"GGUF\x03\0\0\0" + b"\xff" * 100])
def test_a_gguf_that_is_none_leaves_nothing_in_the_cache(content, tmp_path):
    path, cache = tmp_path / "m.gguf", tmp_path / "cache"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"m\.gguf cannot be converted"):
        load_model(str(path), cache_dir=cache)
    assert list((cache / "models").iterdir()) == []


def test_an_unwritable_cache(tmp_path):
    path, cache = tmp_path / "m.gguf", tmp_path / "cache"
    path.write_bytes(b"GGUF")
    cache.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match="cannot write the model cache"):
        load_model(str(path), cache_dir=cache)


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *itertools.product(("config.json", "tokenizer.json"), (None, b"", b"{", b"[]", b"\xff\xfe")),
        *(("model.safetensors", content) for content in (None, slice(0), slice(7), slice(5000), slice(-1))),
    ],
)
def test_files_that_are_not_what_they_should_be(name, content, broken):
    """Missing, with other bytes, or cut off."""
    path = broken / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[content] if isinstance(content, slice) else content)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(broken))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"model_type": "zzz"}, {"model_type": "vit"}, {"hidden_size": "64"}, {"num_attention_heads": 0}]
)
def test_configurations_that_cannot_be(changes, broken):
    edit(broken, **changes)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(broken))


def test_missing_weights_are_not_filled_with_random_ones(broken):
    edit(broken, num_hidden_layers=3)
    with pytest.raises(ModelError, match=r"lack weights.*model\.layers\.2"):
        load_model(str(broken))


# --- fingerprints


def test_fingerprint_of_copies(tiny_model):
    assert fingerprint(copy.deepcopy(tiny_model)) == fingerprint(tiny_model)
    assert fingerprint(copy.deepcopy(tiny_model).to(torch.bfloat16)) == fingerprint(tiny_model)


@pytest.mark.parametrize("changes", [{"seed": 1}, {"num_hidden_layers": 3}, {"family": "Mistral"}, {"vocab_size": 130}])
def test_fingerprint_of_other_models(changes, tiny_model):
    assert fingerprint(build_model(**changes)) != fingerprint(tiny_model)


def test_fingerprint_of_fine_tuned_weights(tiny_model):
    before = fingerprint(tiny_model)
    with torch.no_grad():
        tiny_model.model.norm.weight[0] += 0.5
    assert fingerprint(tiny_model) != before


def test_weights_hash_sees_one_bit_anywhere(tiny_model):
    before = weights_sha256(tiny_model)
    weight = tiny_model.model.layers[1].mlp.up_proj.weight.detach()
    weight.view(torch.int32)[30, 30] ^= 1
    assert weights_sha256(tiny_model) != before
    weight.view(torch.int32)[30, 30] ^= 1
    assert weights_sha256(tiny_model) == before


def test_a_model_that_does_not_fit_is_one_line(saved, monkeypatch):
    def full(self, device):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(torch.nn.Module, "to", full)
    with pytest.raises(DeviceError, match="tiny does not fit into the free memory of cuda:1; choose the device"):
        load_model(str(saved), device="cuda:1")

    def broken(self, device):
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch.nn.Module, "to", broken)
    with pytest.raises(DeviceError, match="the GPU failed"):
        load_model(str(saved), device="cuda:1")


def test_main_memory_that_does_not_suffice_is_one_line(saved, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(models, "_load_folder", full)
    with pytest.raises(DeviceError, match="tiny does not fit into the free memory of this machine; choose"):
        load_model(str(saved))


def test_the_embedded_model_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(embedded, "MODULE", "no_such_package_here")
    message = r"embedded model smollm2-135m is not installed.*run `focus-explorer setup`"
    with pytest.raises(ModelError, match=message):
        load_model(cache_dir=tmp_path)
    with pytest.raises(ModelError, match=message):
        check_name(embedded.EMBEDDED, cache_dir=tmp_path)
    assert load_tokenizer(embedded.EMBEDDED, cache_dir=tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_setup_kept_comes_first(monkeypatch, tmp_path):
    package = tmp_path / "some_model_package"
    package.mkdir()
    (package / "__init__.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(embedded, "MODULE", "some_model_package")
    assert embedded.find_embedded_gguf(tmp_path) is None  # the package without its file
    (package / embedded.FILE).write_bytes(b"installed")
    assert embedded.embedded_gguf(tmp_path) == package / embedded.FILE
    kept = embedded.kept_gguf(tmp_path)
    kept.parent.mkdir()
    kept.write_bytes(b"kept")
    assert embedded.embedded_gguf(tmp_path) == kept
    assert not embedded.is_whole(kept)
    with pytest.raises(ModelError, match="cannot read"):
        embedded.is_whole(tmp_path)


@pytest.mark.model
def test_the_pins_are_those_of_the_lock_and_of_the_installed_file(tmp_path):
    assert f"\n{embedded.PACKAGE}=={embedded.PACKAGE_VERSION} " in (ROOT / "deploy" / "requirements.lock").read_text()
    assert embedded.is_whole(embedded.embedded_gguf(tmp_path))


def test_a_conversion_reads_the_header_once(tmp_path, count_calls):
    path = write_gguf(tmp_path / "tiny.gguf")
    before = gguf.GGUFReader, gguf.get_tensor_name_map
    parses = count_calls(gguf.GGUFReader._build_fields, gguf.GGUFReader)
    load_model(str(path), cache_dir=tmp_path / "cache")
    assert len(parses) == 1
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before
