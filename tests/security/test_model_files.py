"""Models that lack weights or bring code: refused with what is wrong, and nothing of them is kept."""

from __future__ import annotations

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from focus_explorer.usecases.analyze import AnalyzeRequest, analyze
from focus_explorer.usecases.runs import list_runs
from focus_explorer.usecases.service import Service
from focus_runtime.errors import ModelError
from focus_runtime.models.loading import load_model, load_tokenizer
from tests.helpers import build_model, build_tokenizer
from tests.security.model_files import write_gguf

LACKING = ("blk.1.ffn_up.weight", "blk.0.attn_q.weight")


def test_h5_a_gguf_that_lacks_tensors_is_refused_by_their_names(tmp_path):
    path, cache = write_gguf(tmp_path / "m.gguf", without=LACKING), tmp_path / "cache"
    with pytest.raises(ModelError, match=r"layers\.0\.self_attn\.q_proj\.weight, .*layers\.1\.mlp\.up_proj\.weight"):
        load_model(str(path), cache_dir=cache)
    assert list((cache / "models").iterdir()) == []


def test_a_whole_gguf_is_read_with_its_own_weights(tmp_path):
    model, _ = load_model(str(write_gguf(tmp_path / "m.gguf")), cache_dir=tmp_path / "cache")
    expected = build_model(vocab_size=300).state_dict()
    for name in ("model.norm.weight", "model.layers.1.mlp.up_proj.weight"):
        torch.testing.assert_close(model.state_dict()[name], expected[name])


def test_h5_a_copy_made_before_weights_were_counted_is_not_read(tmp_path):
    path, cache = write_gguf(tmp_path / "m.gguf", without=LACKING), tmp_path / "cache"
    key = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    old = cache / "models" / f"m-{key}"
    build_model(vocab_size=300).save_pretrained(old)
    build_tokenizer().save_pretrained(old)
    with pytest.raises(ModelError, match="lack weights"):
        load_model(str(path), cache_dir=cache)


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_m2_code_of_a_folder_never_runs(file, tmp_path, monkeypatch):
    folder, ran = tmp_path / "model", tmp_path / "ran"
    build_model(vocab_size=512).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    (folder / "planted.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass Planted: pass\n")
    content = json.loads((folder / file).read_text())
    content |= {"model_type": "planted"} if file == "config.json" else {"tokenizer_class": "Planted"}
    maps = {"AutoConfig": "planted.Planted", "AutoModelForCausalLM": "planted.Planted"}
    content["auto_map"] = maps if file == "config.json" else {"AutoTokenizer": ["planted.Planted", None]}
    (folder / file).write_text(json.dumps(content))

    questions = []
    monkeypatch.setattr("builtins.input", lambda prompt="": questions.append(prompt) or "y")
    with pytest.raises(ModelError, match="custom code"):
        load_model(str(folder))
    assert load_tokenizer(str(folder)) is None or file == "config.json"
    assert questions == []
    assert not ran.exists()


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Libraries that a refusal needs are there: importing them takes seconds, a refusal hundredths of one."""
    folder = tmp_path_factory.mktemp("imported")
    with pytest.raises(ModelError):
        load_model(str(write_gguf(folder / "m.gguf", block_count=900)), cache_dir=folder)


def timed_refusal(name, said, **where):
    start = time.process_time()
    with pytest.raises(ModelError, match=said):
        load_model(str(name), **where)
    assert time.process_time() - start < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"block_count": 100_000}, "100000 layers"),
        ({"block_count": 900}, "lack weights that its header asks for"),
        ({"feed_forward_length": 2**30}, "lack weights that its header asks for"),
        ({"embedding_length": 2**20}, "lack weights that its header asks for"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_h3_a_gguf_that_asks_for_more_than_it_holds(settings, said, tmp_path, imported):
    path = write_gguf(tmp_path / "m.gguf", **settings)
    timed_refusal(path, said, cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache" / "models").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": 100_000}, "100000 layers"),
        ({"vocab_size": 2**40}, "lack weights that config.json asks for"),
        ({"hidden_size": 2**20}, "lack weights that config.json asks for"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers"),
    ],
    ids=str,
)
def test_h3_a_folder_that_asks_for_more_than_its_files_hold(changes, said, tmp_path, imported):
    build_model(vocab_size=512).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    timed_refusal(tmp_path, said)


def test_a_header_that_declares_more_than_its_file(tmp_path):
    build_model(vocab_size=512).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 8 + b"{}")
    timed_refusal(tmp_path, "truncated or no safetensors file")


def test_pickled_weights_are_refused(tmp_path):
    model = build_model(vocab_size=512)
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    build_tokenizer().save_pretrained(tmp_path)
    timed_refusal(tmp_path, "pickled .pytorch_model.bin.")


@pytest.mark.slow
def test_m1_a_model_whose_numbers_are_none_leaves_no_run(tmp_path):
    """Stored, it would be what every visitor's page opens with."""
    model = build_model(vocab_size=512)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[:] = 3e38
    model.save_pretrained(tmp_path / "model")
    build_tokenizer().save_pretrained(tmp_path / "model")
    service = Service(tmp_path / "runs.duckdb")
    request = AnalyzeRequest(model=str(tmp_path / "model"), centroids="random", top_k=1, window=8, repeats=1)
    with pytest.raises(ModelError, match="are no numbers"):
        analyze(service, "The cat sat on the mat. " * 20, request)
    assert list_runs(service.database) == []


def test_two_at_once_convert_a_file_once(tmp_path):
    path, stages = write_gguf(tmp_path / "m.gguf"), []

    def load(_):
        return load_model(str(path), cache_dir=tmp_path / "cache", progress=lambda stage, _: stages.append(stage))

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(load, range(2))
    assert stages.count("Another process converts the model") > 0
    for name, weights in first[0].state_dict().items():
        torch.testing.assert_close(second[0].state_dict()[name], weights)
    assert [one.name for one in (tmp_path / "cache" / "models").iterdir() if one.name.startswith(".")] == []
