"""What Focus needs of a Hugging Face model: attention modules, hidden size, sliding windows, context length."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from focus_runtime.budget import HeadCounts
from focus_runtime.errors import ModelError


def attention_modules(model: nn.Module) -> dict[int, nn.Module]:
    """Causal self-attention modules by layer number.

    Raises:
        ModelError: the model has none that transformers' attention interface can reach.
    """
    modules_by_layer: dict[int, nn.Module] = {}
    for module in model.modules():
        index = getattr(module, "layer_idx", None)
        causal = getattr(module, "is_causal", True)  # encoders look ahead; Focus would change what they mean
        if isinstance(index, int) and causal and "attention" in type(module).__name__.lower():
            modules_by_layer.setdefault(index, module)
    if not modules_by_layer:
        raise ModelError(
            f"{type(model).__name__} has no attention layers that Focus can find",
            expected="a decoder whose attention modules carry a layer_idx",
            fix=OTHER_MODEL,
        )
    return dict(sorted(modules_by_layer.items()))


def decoder_layers(model: nn.Module) -> dict[int, nn.Module]:
    """The blocks that hold one attention module each, by layer number.

    Raises:
        ModelError: the model is not a list of such blocks.
    """
    modules = attention_modules(model)
    blocks: dict[int, nn.Module] = {}
    for parent in model.modules():
        for block in parent if isinstance(parent, nn.ModuleList) else ():
            held = [index for index, module in modules.items() if any(own is module for own in block.modules())]
            if len(held) == 1:
                blocks.setdefault(held[0], block)  # outer blocks come first
    if set(blocks) != set(modules):
        raise ModelError(f"{type(model).__name__} is not a list of layers with one attention each", fix=OTHER_MODEL)
    return dict(sorted(blocks.items()))


def output_projection(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The linear map from an attention module's heads, (..., H, D), to its output, (..., d), without its bias.

    Raises:
        ModelError: the module has none that is known.
    """
    for name, transposed in (("o_proj", False), ("out_proj", False), ("dense", False), ("c_proj", True)):
        linear = getattr(module, name, None)
        if linear is not None:  # GPT-2 keeps its matrix the other way round
            return lambda heads: heads.flatten(-2) @ (linear.weight if transposed else linear.weight.T)
    raise ModelError(f"{type(module).__name__} has no output projection that Focus can find", fix=OTHER_MODEL)


def hidden_size(model: nn.Module) -> int:
    """Width d of the hidden states that enter attention."""
    return int(model.config.get_text_config().hidden_size)  # type: ignore[operator, union-attr]


def num_key_value_heads(model: nn.Module) -> int:
    """Key-value heads of an attention layer; query heads where the model has no others."""
    config = model.config.get_text_config()  # type: ignore[operator, union-attr]
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def head_counts(model: nn.Module) -> HeadCounts:
    """Heads of an attention layer."""
    return HeadCounts(num_key_value_heads(model), num_query_heads(model))


def num_query_heads(model: nn.Module) -> int:
    """Query heads of an attention layer."""
    return int(model.config.get_text_config().num_attention_heads)  # type: ignore[operator, union-attr]


OTHER_MODEL = "use a Llama, Mistral, Qwen, OLMo, Gemma, Phi or GPT-2 style model"


def cache_argument(model: Any, cache: Any) -> dict[str, Any]:
    """The keyword argument that gives a model its cache: `cache` since transformers 5.24, before `past_key_values`.

    Args:
        model: a model, or its base model.
        cache: of transformers.
    """
    named = inspect.signature(model.forward).parameters
    return {"cache" if "cache" in named else "past_key_values": cache}


def sliding_window_of(module: nn.Module) -> int | None:
    """The attention module's own sliding window in tokens, None when it sees the whole text."""
    own: Any = module
    if not hasattr(own, "sliding_window"):  # Mistral and Phi-3 keep it in the configuration
        index, own = own.layer_idx, getattr(module, "config", None)
        kinds = getattr(own, "layer_types", None)
        if kinds and "sliding" not in kinds[index]:
            return None
    return getattr(own, "sliding_window", None) or None


def context_length(model: Any) -> int | None:
    """Positions the model was trained for, None if it does not say."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)
