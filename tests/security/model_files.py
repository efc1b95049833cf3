"""Tiny model files, good and hostile: GGUF files written by the gguf package, and model folders."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.helpers import build_model, build_tokenizer

VOCABULARY = 300
NAMES = {  # of a Llama's tensors: transformers -> GGUF
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """GGUF name of a Llama's parameter."""
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[part]}.weight"
    return f"{NAMES[stem]}.weight"


def write_gguf(path: Path, *, without: Collection[str] = (), **settings: Any) -> Path:
    """A tiny Llama with a byte-level tokenizer as a GGUF file.

    Args:
        path: file to write.
        without: GGUF names of tensors that are left out.
        settings: of the header, such as `block_count`, in place of the model's own.
    """
    model = build_model(vocab_size=VOCABULARY)
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    own = {
        "block_count": config.num_hidden_layers,
        "context_length": 256,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "rope.dimension_count": 16,
        "vocab_size": VOCABULARY,
    }
    for key, value in (own | settings).items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_layer_norm_rms_eps(1e-6)
    vocabulary = build_tokenizer().get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    tokens += ["ĠĠ", "ĠĠĠĠ"]  # of the merges; a list of one is read wrong by transformers 5.17
    tokens += [f"<unused{number}>" for number in range(VOCABULARY - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["Ġ Ġ", "ĠĠ ĠĠ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, tensor in model.state_dict().items():
        if gguf_name(name) not in without:
            writer.add_tensor(gguf_name(name), tensor.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
