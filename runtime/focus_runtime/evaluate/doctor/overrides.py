"""What single families need beyond sizes by name: to be tiny, or to have the kinds of layers of released models."""

from __future__ import annotations

from typing import Any

HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
SLIDING_AND_FULL = {"layer_types": ["sliding_attention", "full_attention"]}
SHARED = {  # the last two of four layers use keys and values of the first two
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
GEMMA_4 = {**SHARED, "per_layer_config": {1: {"head_dim": 32}, 3: {"head_dim": 32}}}
DOTS_3 = {
    "layer_types": ["indexed_attention", "sliding_attention"],
    "per_layer_config": {
        1: {
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "head_dim": 24,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
        }
    },
}
QWEN_4 = {
    "layer_types": ["linear_attention", "indexed_attention"],
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 8,
    "indexer_compress_ratio": 2,
}

OVERRIDES: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "cohere": {"logit_scale": 1.0},
    "cohere2": {"logit_scale": 1.0},
    "cohere2_moe": {"logit_scale": 1.0},
    "cohere_compass_text": {
        **SLIDING_AND_FULL,
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": None},
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "dory": {
        "num_hidden_layers": 4,
        "n_input_layers": 1,
        "n_recurrent_layers": 2,
        "n_output_layers": 1,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "dots1": {"n_shared_experts": 1},
    "falcon_h1": {"mamba_d_ssm": 128},
    "dots3_note": {"text_config": DOTS_3},
    "dots3_note_text": DOTS_3,
    "gemma3n_text": {**SHARED, "intermediate_size": [64] * 4, "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0]},
    "gemma4": {"text_config": GEMMA_4},
    "gemma4_text": GEMMA_4,
    "gemma4_unified": {"text_config": GEMMA_4},
    "gemma4_unified_text": GEMMA_4,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": HYBRID,
    "inkling_text": {"logits_mup_width_multiplier": 1.0},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "laguna": SLIDING_AND_FULL,
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "longcat_flash": {"head_dim": 8},  # of rotary embedding
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "mellum": SLIDING_AND_FULL,
    "minimax_m3_vl_text": {
        "index_block_size": 4,
        "index_topk_blocks": 2,
        "layer_types": ["full_attention", "minimax_m3_sparse"],
    },
    "nemotron": {"num_key_value_heads": 2},
    "qwen4_exp": {"text_config": QWEN_4},
    "qwen4_exp_text": QWEN_4,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "reformer": {"axial_pos_embds_dim": [32, 32], "axial_pos_shape": [16, 16], "attn_layers": ["local", "lsh"]},
    "xlstm": {"hidden_size": 64, "qk_dim_factor": 1.0},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "attention_head_dim": 32,
    },
    "zaya": {"num_experts_per_tok": 1},
}
