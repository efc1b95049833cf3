"""Small models of the attention kinds that the paper names, which stand in for models that cannot be had here."""

from __future__ import annotations

from typing import Any

import torch

from focus_runtime.files import replacing
from paper.reports.lab import Lab

STAND_INS: dict[str, tuple[str, dict[str, Any]]] = {  # attention kind -> architecture and what makes it that kind
    "MHA": ("GPT2", {}),
    "GQA": ("Mistral", {"num_key_value_heads": 2, "sliding_window": None}),
    "GQA + bias": ("Qwen2", {"num_key_value_heads": 2}),
    "MHA + QK-norm": ("Olmo2", {}),
    "interleaved + softcap": (
        "Gemma2",
        {"num_key_value_heads": 2, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 50.0},
    ),
}
SMALL: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
}
GPT2_NAMES = {
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
}
SCRATCH_RATE = 1e-3


def stand_in(kind: str, vocabulary: int, length: int, seed: int = 0) -> Any:
    """A small model of one attention kind, randomly initialised.

    Args:
        kind: one of `STAND_INS`.
        vocabulary: number of tokens.
        length: tokens of the sequences it has to take; the context is twice as long.
        seed: of the initialisation.
    """
    import transformers

    family, special = STAND_INS[kind]
    values = {**SMALL, **special}
    if family == "GPT2":
        values = {GPT2_NAMES[name]: values[name] for name in GPT2_NAMES} | {"n_positions": 2 * length}
        values |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    else:
        values |= {"max_position_embeddings": 2 * length, "tie_word_embeddings": True}
    if family == "Gemma2":
        values |= {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": length}
    values |= {"vocab_size": vocabulary, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    torch.manual_seed(seed)
    return transformers.AutoModelForCausalLM.from_config(getattr(transformers, family + "Config")(**values)).eval()


def pretrained(lab: Lab, kind: str) -> Any:
    """A stand-in trained from scratch with full attention on the training texts, or read from an earlier run."""
    model = stand_in(kind, len(lab.tokenizer), lab.scale.seq_len).to(lab.device)
    folder = lab.folder / "stand-ins"
    file = folder / f"{lab.key('stand-in', kind, lab.scale.scratch_steps, lab.scale.seq_len, SMALL)}.pt"
    if file.exists():
        model.load_state_dict(torch.load(file, weights_only=True))
        model.to(lab.full_dtype)
        lab.log(f"{kind}: pretrained stand-in kept from before")
        return model
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    lab.adapt(f"pretraining {kind}", model, list(model.parameters()), SCRATCH_RATE, steps=lab.scale.scratch_steps)
    with replacing(file, explain=None) as part:
        torch.save(model.state_dict(), part)
    return model
