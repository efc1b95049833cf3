"""Models that lack weights or bring code: refused with what is wrong, and nothing of them is kept."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch

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
