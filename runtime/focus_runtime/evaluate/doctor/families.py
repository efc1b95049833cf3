"""Tiny random models of every causal language model that the installed transformers can build.

Configurations are the families' own defaults with small sizes in place of large ones, and one layer of each kind.
Weights are larger than usual: attention is peaked and its output matters, so that a wrong mask moves logits by 1 to 30.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from focus_runtime.errors import ModelError
from focus_runtime.evaluate.doctor.overrides import OVERRIDES

VOCAB = 128
SLIDING = 8  # tokens, fewer than any text of the doctor has
MATRIX_STD, EMBEDDING_STD = 0.2, 1.0

# Sizes by name, of every configuration that has a field of that name.
SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "unpadded_vocab_size", "decoder_vocab_size", "vocab_size_per_layer_input"), VOCAB),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "emb_dim", "embedding_dim", "embedding_size"), 64),
    **dict.fromkeys(("input_embedding_size", "output_embedding_size", "word_embed_proj_dim", "hidden_size_global"), 64),
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size", "ffn_dim", "ffn_hidden_size", "dim_ff", "dff"), 64),
    **dict.fromkeys(("shared_expert_intermediate_size", "expert_ffn_hidden_size", "n_inner", "d_inner"), 64),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "intermediate_size_mlp", "shared_intermediate_size"), 64),
    **dict.fromkeys(("moe_shared_expert_intermediate_size", "dense_intermediate_size", "feed_forward_size"), 64),
    **dict.fromkeys(("shared_experts_intermediate_size", "lru_width", "router_hidden_size"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "num_blocks"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "linear_num_value_heads", "linear_num_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "linear_num_key_heads", "num_query_groups"), 2),
    **dict.fromkeys(("head_dim", "d_head", "d_kv", "kv_channels", "dim_head", "attention_head_dim"), 16),
    **dict.fromkeys(("global_head_dim", "swa_head_dim", "attention_head_size", "query_pre_attn_scalar"), 16),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "v_head_dim", "swa_v_head_dim"), 16),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "index_head_dim", "o_lora_rank", "hc_lowrank"), 16),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", "zero_expert_num"), 2),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "n_group", "topk_group"), 1),
    **dict.fromkeys(("index_n_heads", "o_groups"), 2),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "state_size", "mamba_dt_rank", "time_step_rank"), 8),
    **dict.fromkeys(("mamba_chunk_size", "chunk_size"), 8),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads"), 8),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim"), 16),
    **dict.fromkeys(("mamba_n_groups", "n_groups", "mamba_ngroups"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_target_positions", "max_seq_len"), 256),
    **dict.fromkeys(("sliding_window", "attention_window_size", "local_attention", "window_size"), SLIDING),
    **dict.fromkeys(("attention_chunk_size", "sliding_window_size", "keep_window_size"), SLIDING),
    **dict.fromkeys(("hidden_size_per_layer_input", "laurel_rank"), 8),
    **dict.fromkeys(("index_topk", "indexer_topk"), 8),
    "first_k_dense_replace": 1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "is_decoder": True,
}
ANYWAY = {"head_dim", "num_experts_per_tok", "n_routed_experts", "eos_token_id"}  # also where the default is None
OF_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
TOWERS = {"image_size": 16, "patch_size": 8, "depth": 1, "out_hidden_size": 64, "num_hidden_layers": 1}
TOWERS |= dict.fromkeys(("adapter_in_dim", "adapter_out_dim", "adapter_input_size", "downsample_hidden_size"), 64)


def model_types() -> list[str]:
    """Names of all families: what transformers maps to a causal language model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def tiny_config(model_type: str) -> Any:
    """The family's own configuration with small sizes.

    Args:
        model_type: one of `model_types()`.
    """
    from transformers import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[model_type]
    overrides = OVERRIDES.get(model_type, {})
    return _small(config_class, overrides)


def _small(config_class: type, overrides: Mapping[str, Any], sizes: Mapping[str, Any] = SMALL) -> Any:
    default = _default(config_class, overrides)
    declared = {field.name for field in dataclasses.fields(config_class)}  # others are derived from these
    fields = {name: value for name, value in default.to_dict().items() if name in declared}
    parts = {name: part for name, part in config_class.sub_configs.items() if fields.get(name) is not None}  # type: ignore[attr-defined]
    changes = {n: v for n, v in sizes.items() if fields.get(n) is not None or (n in declared and n in ANYWAY)}
    if fields.get("kv_lora_rank"):  # latent attention has no fewer heads of keys
        changes["num_key_value_heads"] = changes["num_attention_heads"]
    changes.update(_of_layers(fields, changes))
    for name in parts:
        part = type(getattr(default, name))
        if part is dict or not hasattr(part, "sub_configs"):
            continue
        text = name in ("text_config", "decoder", "text_encoder")
        nested = overrides.get(name, {})
        changes[name] = _small(part, nested, SMALL if text else {**SMALL, **TOWERS}).to_dict()
    changes.update({name: value for name, value in overrides.items() if name not in parts})
    return config_class(**changes)


def _default(config_class: type, overrides: Mapping[str, Any]) -> Any:
    try:
        return config_class()
    except (ValueError, TypeError, AttributeError):
        return config_class(**overrides)


def _of_layers(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of one entry a layer, cut to the layers that are left: the first of each kind, at least two."""
    name = next((name for name in OF_LAYERS if name in fields), None)
    if name is None or name not in changes:
        return {}
    count, kinds = fields[name], fields.get("layer_types") or fields.get("layers_block_type")
    left = sorted({kind: i for i, kind in reversed(list(enumerate(kinds)))}.values()) if kinds else []
    left += [i for i in range(count) if i not in left][: max(0, changes[name] - len(left))]
    left.sort()
    cut: dict[str, Any] = {name: len(left)}
    for key, value in fields.items():
        if isinstance(value, list | tuple) and len(value) == count and count > len(left):
            cut[key] = [value[i] for i in left]
    return cut


def tiny_model(model_type: str, *, seed: int = 0) -> nn.Module:
    """A tiny random model of one family, in float32 and evaluation mode, with eager attention.

    Args:
        model_type: one of `model_types()`.
        seed: of the weights.

    Raises:
        ModelError: transformers cannot build the family at this size; the message has its reason.
    """
    from transformers import AutoModelForCausalLM

    try:
        config = tiny_config(model_type)
        config._attn_implementation = "eager"
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    except Exception as error:
        raise ModelError(f"transformers builds no tiny {model_type}: {' '.join(str(error).split())[:200]}") from error
    draw_weights(model, seed)
    return model


@torch.no_grad()
def draw_weights(model: nn.Module, seed: int) -> None:
    """Draw every matrix again, so large that attention is peaked and its output matters.

    Args:
        model: changed in place.
        seed: of the draw.
    """
    generator = torch.Generator().manual_seed(seed)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2 and "sink" not in name:
            continue
        std = EMBEDDING_STD if id(parameter) in embeddings or "sink" in name else MATRIX_STD
        parameter.normal_(0.0, std, generator=generator)
