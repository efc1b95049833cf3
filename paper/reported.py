"""Numbers the paper reports (arXiv 2604.03260, v1), shown in columns of their own.

A missing value was not available to us.
"""

from __future__ import annotations

from typing import Any

RETROFIT: dict[str, dict[str, float]] = {  # GPT-2 124M, PG-19, T = 1024
    "full attention": {"ppl": 42.8, "hellaswag": 31.1, "arc_easy": 39.5, "piqa": 62.5, "lambada": 32.6},
    "Longformer": {"ppl": 38.9, "hellaswag": 30.0, "arc_easy": 37.5, "piqa": 58.9, "lambada": 6.6},
    "Performer": {"ppl": 112.0, "hellaswag": 26.9, "arc_easy": 30.8, "piqa": 55.0, "lambada": 0.3},
    "Routing Transformer": {"ppl": 37.4, "hellaswag": 29.6, "arc_easy": 38.3, "piqa": 58.4, "lambada": 6.4},
    "full fine-tuning": {"ppl": 36.4, "hellaswag": 30.0, "arc_easy": 37.8, "piqa": 59.9, "lambada": 7.8},
    "SparQ": {"ppl": 52.8},
    "SparQ, mean value": {"ppl": 48.3},
    "MagicPIG": {"ppl": 52.8},
    "Focus, soft gate": {"ppl": 36.2, "hellaswag": 31.1, "arc_easy": 39.5, "piqa": 62.5, "lambada": 32.6},
}
ADAPTATION: dict[str, dict[str, float]] = {  # parameters and perplexity
    "LoRA r=4": {"parameters": 147_000, "ppl": 31.6},
    "LoRA r=16": {"parameters": 590_000, "ppl": 31.2},
    "centroids": {"parameters": 148_000, "ppl": 34.2},
}
FROZEN: list[dict[str, Any]] = [  # perplexity of frozen models, full attention and Focus
    {"model": "GPT-2 774M", "hub": "openai-community/gpt2-large", "kind": "MHA", "full": 25.7, "focus": 21.7},
    {"model": "Mistral 7B", "hub": "mistralai/Mistral-7B-v0.1", "kind": "GQA", "full": 10.8, "focus": 11.6},
    {"model": "Qwen2.5 7B", "hub": "Qwen/Qwen2.5-7B", "kind": "GQA + bias", "full": 19.3, "focus": 20.3},
    {"model": "OLMo-2 7B", "hub": "allenai/OLMo-2-1124-7B", "kind": "MHA + QK-norm", "full": 16.4, "focus": 16.9},
    {"model": "Gemma 2", "hub": "google/gemma-2-9b", "kind": "interleaved + softcap", "full": None, "focus": None},
    {"model": "LLaMA-2 13B", "hub": "meta-llama/Llama-2-13b-hf", "kind": "MHA", "full": 11.7, "focus": 11.7},
    {"model": "LLaMA-2 70B", "hub": "meta-llama/Llama-2-70b-hf", "kind": "GQA", "full": 7.6, "focus": 8.3},
]
TRUTHFUL = {"base": 39.7, "centroids": 40.0, "lora_low": 28.5, "lora_high": 40.1}  # Mistral-7B-Instruct, MC1 in percent
GSM8K = {"full": 0.406, "focus": 0.393}  # Mistral 7B, eight examples
FINE_TUNED: list[dict[str, Any]] = [  # full fine-tuning and training from scratch, perplexity
    {"setting": "GPT-2 124M, fine-tuned", "full": 31.4, "focus": 30.3},
    {"setting": "GPT-2 774M, fine-tuned", "full": 20.4, "focus": 20.7},
    {"setting": "GPT-2 1.5B, fine-tuned", "full": 19.3, "focus": 19.7},
    {"setting": "7B from scratch", "full": 13.89, "focus": 13.82},
]
DOMAINS: dict[str, dict[str, float]] = {  # all weights fine-tuned, GPT-2 124M
    "PG-19": {"full": 31.4, "focus": 30.3},
    "WikiText-103": {"full": 21.4, "focus": 21.3},
    "OpenWebText": {"full": 22.2, "focus": 21.7},
}
SPEED_QUALITY: dict[int, float] = {1: 82.9, 2: 41.3, 3: 47.2, 4: 47.2}  # GPT-2, K = 4, perplexity by k; full 42.8
KEPT: dict[int, float] = {1: 0.26, 2: 0.60, 3: 1.0, 4: 1.0}  # pairs kept, K = 4, GPT-2
SPEEDUP: dict[int, dict[int, float]] = {  # K -> tokens -> full attention's time over Focus's, H100
    4: {1024: 0.2, 4096: 0.5, 16384: 1.5, 32768: 2.2, 65536: 3.0, 262144: 4.0, 1048576: 4.1},
    8: {1024: 0.2, 4096: 0.6, 16384: 1.8, 32768: 3.1, 65536: 4.7, 262144: 7.6, 1048576: 8.6},
}
ROUTING_DIM: dict[int, dict[str, float]] = {  # d_g -> parameters and perplexity
    16: {"parameters": 148_224, "ppl": 34.5},
    32: {"parameters": 296_448, "ppl": 34.5},
    128: {"parameters": 1_200_000, "ppl": 34.5},
    768: {"parameters": 7_100_000, "ppl": 34.8},
}
DOMINANCE = {  # mitigation -> outcome
    "softmax": "99.4 % dominance",
    "entropy-balance": "collapses by step 600",
    "stop-gradient": "slow, does not converge",
    "ema": "projection erases structure",
    "recluster": "balanced but unstable",
    "balance-x5": "6 of 8 groups die",
    "sinkhorn": "stable, 14.6 % dominance (K = 8)",
}
DOMINANCE_REGIMES = {  # mitigation, all weights trained -> largest group and stability, K = 8
    ("entropy-balance", False): {"dominance": 0.150, "stability": 0.966},
    ("sinkhorn", False): {"dominance": 0.146, "stability": 0.953},
    ("entropy-balance", True): {"dominance": 0.994, "stability": 1.0},
    ("sinkhorn", True): {"dominance": 0.159, "stability": 1.0},
}
LONG_CONTEXT = {2: "+0.26 to +0.47", 3: "+0.0"}  # Mistral 7B, T = 1,024 to 8,192, perplexity added by k
PAIRS = {
    "entity": "two names 754 tokens apart, affinity 0.945",
    "connective": "When and since, 388 tokens apart, affinity 0.988",
}
