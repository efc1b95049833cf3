"""What Focus needs of a Hugging Face model: attention modules, hidden size, sliding windows, context length."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

from torch import Tensor, nn

from focus_runtime.budget import HeadCounts
from focus_runtime.errors import ModelError


@contextmanager
def hooked(hooks: Iterable[Any]) -> Iterator[None]:
    """Remove hooks of modules when the block ends."""
    with ExitStack() as stack:
        for hook in hooks:
            stack.callback(hook.remove)
        yield


def attention_modules(model: nn.Module) -> dict[int, nn.Module]:
    """Causal self-attention modules by layer number; layers of other kinds, such as linear attention, are left out."""
    modules_by_layer: dict[int, nn.Module] = {}
    config: Any = getattr(model, "config", None)
    kinds = None if config is None else getattr(config.get_text_config(), "layer_types", None)
    named = [module for module in model.modules() if _NAMES.search(type(module).__name__)]
    for module in named:
        index = getattr(module, "layer_idx", None)
        if isinstance(index, int) and index >= 0 and getattr(module, "is_causal", True) and _is_softmax(module, kinds):
            known = modules_by_layer.get(index)
            if known is None or any(inner is module for inner in known.modules()):  # else it wraps the attention
                modules_by_layer[index] = module
    if not modules_by_layer:
        raise ModelError(
            f"{type(model).__name__} {_without_layers([module for module in named if _is_softmax(module, kinds)])}",
            expected="a decoder whose attention modules carry a layer_idx",
            fix=OTHER_MODEL,
        )
    return dict(sorted(modules_by_layer.items()))


def _without_layers(softmax: list[nn.Module]) -> str:
    if not softmax:
        return "has no attention layers: it is a state-space or recurrent model"
    if any(getattr(module, "is_causal", None) is False for module in softmax):
        return "is an encoder: its attention is not causal"
    return "has attention that Focus cannot find: its modules have no layer number, or share one among layers"


def layer_kind(module: nn.Module, kinds: Sequence[str] | None = None) -> str | None:
    """What the configuration calls an attention module's layer, such as "sliding_attention"; None where it does not."""
    kinds = getattr(getattr(module, "config", None), "layer_types", kinds)
    index = getattr(module, "layer_idx", None)
    return kinds[index] if kinds and isinstance(index, int) and index < len(kinds) else None


def _is_softmax(module: nn.Module, kinds: Sequence[str] | None) -> bool:
    """Whether the configuration calls a module's layer attention of tokens to tokens."""
    kind = layer_kind(module, kinds)
    return kind is None or ("linear" not in kind and ("attention" in kind or kind.startswith("hybrid")))


def decoder_layers(model: nn.Module) -> dict[int, nn.Module]:
    """The blocks that hold one attention module each, by layer number."""
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


def output_projection(module: nn.Module, num_heads: int) -> Callable[[Tensor], Tensor]:
    """The linear map from an attention module's heads, (..., H, D), to its output, (..., d), without its bias."""
    for name, transposed in (("o_proj", False), ("out_proj", False), ("dense", False), ("c_proj", True)):
        linear = getattr(module, name, None)
        if linear is not None:  # GPT-2 keeps its matrix the other way round
            weight = linear.weight if transposed else linear.weight.T
            size = weight.shape[0] // num_heads
            return lambda heads: heads[..., :size].flatten(-2) @ weight
    raise ModelError(f"{type(module).__name__} has no output projection that Focus can find", fix=OTHER_MODEL)


def hidden_size(model: nn.Module) -> int:
    """Width d of the hidden states that enter attention."""
    width = getattr(model.config.get_text_config(), "hidden_size", None)  # type: ignore[operator, union-attr]
    if width is None:
        raise ModelError(f"{type(model).__name__} has no single hidden_size", fix=OTHER_MODEL)
    return int(width)


def head_counts(model: nn.Module) -> HeadCounts:
    """Heads of an attention layer: of keys and values, and of queries."""
    config = model.config.get_text_config()  # type: ignore[operator, union-attr]
    query = int(config.num_attention_heads)
    return HeadCounts(int(getattr(config, "num_key_value_heads", None) or query), query)


_NAMES = re.compile("attention|mla$", re.IGNORECASE)  # of classes: multi-head latent attention is called MLA
OTHER_MODEL = "use a Llama, Mistral, Qwen, OLMo, Gemma, Phi or GPT-2 style model"


def cache_argument(model: Any, cache: Any) -> dict[str, Any]:
    """The keyword argument that gives a model its cache: `cache` since transformers 5.24, before `past_key_values`."""
    named = inspect.signature(model.forward).parameters
    return {"cache" if "cache" in named else "past_key_values": cache}


def sliding_window_of(module: nn.Module) -> int | None:
    """The attention module's own sliding window in tokens, None when it sees the whole text."""
    kind, own = layer_kind(module), cast(Any, module)
    if kind is not None and "sliding" not in kind:  # some keep a window that their global layers do not use
        return None
    if not hasattr(own, "sliding_window"):  # Mistral and Phi-3 keep it in the configuration
        own = getattr(module, "config", None)
    return getattr(own, "sliding_window", None) or None


def shares_keys(module: nn.Module) -> bool:
    """Whether an attention module reads the keys and values of an earlier layer, as in Gemma 3n."""
    return bool(getattr(module, "is_kv_shared_layer", False))


def cache_layers(modules: dict[int, nn.Module]) -> dict[int, int]:
    """The layer whose keys and values each layer reads from a cache: its own, but where layers share them."""
    latest: dict[str | None, int] = {}
    found = {}
    for index, module in modules.items():
        if not shares_keys(module):
            latest[layer_kind(module)] = index
        found[index] = latest.get(layer_kind(module), index)
    return found


def attention_implementation(model: Any) -> str:
    """The attention implementation of a model's text part."""
    return str(model.config.get_text_config()._attn_implementation)


def set_attention_implementation(model: Any, name: str) -> None:
    """Set the attention implementation of a model's text part; parts that read images or sound keep theirs."""
    config = model.config
    text, parts = config.get_text_config(), dict.fromkeys(config.sub_configs)
    if text is config:
        model.set_attn_implementation({"": name} if parts else name)
    else:
        own = [key for key in parts if getattr(config, key, None) is text]
        model.set_attn_implementation({own[0]: name} if own else name)


def context_length(model: Any) -> int | None:
    """Positions the model was trained for, None if it does not say."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)
