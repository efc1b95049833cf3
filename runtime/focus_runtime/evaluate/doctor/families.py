"""Tiny random models of every causal language model that the installed transformers can build.

Configurations are the families' own defaults with small sizes in place of large ones, and one layer of each kind.
Weights are larger than usual: attention is peaked and its output matters, so that a wrong mask moves logits by 1 to 30.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from focus_runtime.errors import InputError, ModelError, first_line
from focus_runtime.evaluate.doctor.doctor import ALONE, FOCUS, MASKED, Finding, doctor, worst

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
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def _small(config_class: type, overrides: Mapping[str, Any], sizes: Mapping[str, Any] = SMALL) -> Any:
    """The family's own configuration with small sizes."""
    try:
        default = config_class()
    except (ValueError, TypeError, AttributeError):
        default = config_class(**overrides)
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


@torch.no_grad()
def tiny_model(model_type: str) -> nn.Module:
    """A tiny random model of one family, in float32 and evaluation mode, with eager attention.

    Every matrix is drawn again, so large that attention is peaked and its output matters. A ModelError has the reason
    why transformers cannot build the family at this size.
    """
    try:
        config = _small(CONFIG_MAPPING[model_type], OVERRIDES.get(model_type, {}))
        config._attn_implementation = "eager"
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    except Exception as error:
        raise ModelError(f"transformers builds no tiny {model_type}: {' '.join(str(error).split())[:200]}") from error
    generator = torch.Generator().manual_seed(0)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2 and "sink" not in name:
            continue
        std = EMBEDDING_STD if id(parameter) in embeddings or "sink" in name else MATRIX_STD
        parameter.normal_(0.0, std, generator=generator)
    return model


# Columns of the page, and the scenarios of each. Compiling takes longer than all of them together, so it is left out.
COLUMNS = {
    "one text": ("plain",),
    "padding": ("left padding", "right padding"),
    "packing": ("packing", "packing with lengths"),
    "caches": (
        "the model's cache",
        "cache and left padding",
        "dynamic cache",
        "static cache",
        "chunked prefill",
        "cropped cache",
    ),
    "generate": ("greedy", "beams", "assisted", "prompt lookup"),
    "bfloat16, gradients": ("bfloat16", "gradients"),
}
ONE_GROUP = "one group"
MARKS = {"ok": "ok", "refused": "refused", "differs": "**differs**", "error": "**error**", "not applicable": "–"}


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """What the doctor found on one family; the model's class is empty where there is none."""

    family: str
    model: str
    layers: tuple[str, ...]
    cells: dict[str, str]
    reason: str  # the worst finding in words, or why there is no model; empty where all is well

    @property
    def outcome(self) -> str:
        """The worst of its cells; "not built" where there is no model."""
        return next((o for o in ("error", "differs", "refused", "ok") if o in self.cells.values()), "not built")


def examine_family(family: str, attention: str = FOCUS) -> FamilyRow:
    """The doctor's findings on a tiny model of one family."""
    if family not in model_types():
        raise InputError(f"there is no family {family!r}", expected="one of " + ", ".join(model_types()))
    try:
        model: Any = tiny_model(family)
    except ModelError as error:
        return FamilyRow(family, "", (), {}, str(error))
    names = [name for scenarios in COLUMNS.values() for name in scenarios]
    try:
        report = doctor(model, attention=attention, scenarios=names)
    except InputError:
        raise
    except Exception as error:  # one family must not stop the others
        reason = f"the doctor cannot examine it: {type(error).__name__}: {first_line(error)}"
        return FamilyRow(family, type(model).__name__, _layers(model), {}, reason)
    groups: dict[str, list[Finding]] = {
        column: [f for f in report.findings if f.scenario in scenarios and f.against not in (MASKED, ALONE)]
        for column, scenarios in COLUMNS.items()
    }
    if attention == FOCUS:
        groups[ONE_GROUP] = [finding for finding in report.findings if finding.against in (MASKED, ALONE)]
    found = {column: worst(findings) for column, findings in groups.items()}
    worst_of_all = worst(report.findings)
    assert worst_of_all is not None
    reason = worst_of_all.words if worst_of_all.outcome not in ("ok", "not applicable") else ""
    cells = {column: finding.outcome for column, finding in found.items() if finding is not None}
    if set(cells.values()) == {"not applicable"}:  # the model itself runs in no scenario
        return FamilyRow(family, report.model, _layers(model), {}, report.findings[0].reason)
    if reason and len({finding.outcome for finding in report.findings} - {"not applicable"}) > 1:
        reason = f"{worst_of_all.scenario}: {reason}"
    return FamilyRow(family, report.model, _layers(model), cells, reason)


def _layers(model: Any) -> tuple[str, ...]:
    config = model.config.get_text_config(decoder=True)
    alike = "sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"
    kinds = getattr(config, "layer_types", None) or [alike]
    return tuple(dict.fromkeys(kind.removesuffix("_attention") for kind in kinds))


def page(rows: Sequence[FamilyRow], command: str, versions: str) -> str:
    """The page in Markdown, with the command that made it."""
    counts = {outcome: sum(row.outcome == outcome for row in rows) for outcome in ("ok", "refused", "differs", "error")}
    built = sum(bool(row.cells) for row in rows)
    columns = [*COLUMNS, ONE_GROUP]
    lines = [
        "# Model families",
        "",
        f"`{command}` wrote this page with {versions}.",
        f"The [doctor](doctor.md) built a tiny random model of each of the {len(rows)} names that transformers maps",
        "to a causal language model, and ran it in every scenario but compiling. The first columns compare Focus with",
        "every pair kept with the model's own eager attention. *One group* compares Focus with one group a token with",
        "an independent dense mask, and a padded row with the row alone.",
        "",
        f"{built} families run at this size. Everything that applies agrees: {counts['ok']}.",
        f"Refused in one scenario at least, and right in the others: {counts['refused']}.",
        f"Different somewhere: {counts['differs']}. Failing somewhere: {counts['error']}.",
        "",
        "*ok*: equal to rounding in all scenarios of the column. *refused*: the library says why it does not run.",
        "*–*: the model itself has no such scenario, most often because it takes no such argument.",
        "",
        *_table(["family", "layers", *columns, "what was found"], [_cells(row, columns) for row in rows if row.cells]),
        "",
        "## Families without a tiny model",
        "",
        *_table(["family", "reason"], [[f"`{row.family}`", _cell(row.reason)] for row in rows if not row.cells]),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: FamilyRow, columns: Iterable[str]) -> list[str]:
    marks = [MARKS[row.cells.get(column, "not applicable")] for column in columns]
    reason = row.reason.replace("refused: ", "").split("; ")[0] if row.outcome == "refused" else row.reason
    return [f"`{row.family}`", ", ".join(row.layers), *marks, _cell(reason)]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _cell(text: str) -> str:
    """Text of another package, as one cell."""
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= 200 else line[:199] + "…"
