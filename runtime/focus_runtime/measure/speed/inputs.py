"""One attention layer to be timed: its setting, what parts of its heads execute, and random inputs of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from focus_runtime.config import CONSTANT, FocusConfig
from focus_runtime.mask.rule import PairRule
from focus_runtime.models.devices import dtype_name
from focus_runtime.models.structure import attention_modules, sliding_window_of


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSetting:
    """One attention layer with unit-normal inputs.

    Attributes:
        heads, key_heads, head_size: of the layer.
        hidden_size: width the router reads; heads * head_size when None.
        num_groups, top_k, window, num_sinks: of Focus.
        dtype: "float32" or "bfloat16".
        backend: of `focus_attention`.
        routing: config of the router that is timed, with its own assignment and width; from the other fields when None.
        sliding_window: tokens that the layer's own attention reaches, under Focus and without; None for all.
        window_growth: as `FocusConfig` has it.
    """

    heads: int = 12
    key_heads: int = 12
    head_size: int = 64
    num_groups: int = 8
    top_k: int = 1
    window: int = 128
    num_sinks: int = 0
    dtype: str = "float32"
    backend: str = "auto"
    hidden_size: int | None = None
    routing: FocusConfig | None = None
    sliding_window: int | None = None
    window_growth: tuple[int, int] | None = None

    @classmethod
    def of_model(cls, model: Any, config: FocusConfig) -> LayerSetting:
        """A layer of the model's own shape and type; its router is timed in the given configuration.

        Its sliding window is None unless all layers have one: Focus runs on the others where there are any.

        Args:
            model: a Hugging Face causal language model.
            config: of Focus.
        """
        shape = model.config.get_text_config()
        windows = [sliding_window_of(module) for module in attention_modules(model).values()]
        own = [window for window in windows if window is not None]
        return cls(
            heads=shape.num_attention_heads,
            key_heads=getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads,
            head_size=getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads,
            num_groups=config.num_groups,
            top_k=config.top_k,
            window=config.window,
            num_sinks=config.num_sinks,
            dtype=dtype_name(model),
            hidden_size=shape.hidden_size,
            routing=config,
            sliding_window=max(own) if len(own) == len(windows) else None,
            window_growth=config.window_growth,
        )

    @property
    def rule(self) -> PairRule:
        """Which pairs Focus allows."""
        return PairRule(self.window, self.num_sinks, self.sliding_window, self.window_growth or CONSTANT)

    @property
    def width(self) -> int:
        """d, of the hidden states."""
        return self.hidden_size or self.heads * self.head_size


def described(setting: LayerSetting) -> dict[str, Any]:
    """The setting's values that are not None."""
    return {name: value for name, value in asdict(setting).items() if value is not None}


def balanced_membership(length: int, num_groups: int, top_k: int, generator: torch.Generator) -> Tensor:
    """Random groups: for k = 1 equally many tokens in each, else k different groups drawn evenly.

    Args:
        length: T.
        num_groups: K.
        top_k: k.
        generator: on the CPU.

    Returns:
        (1, T) int64 bit sets.
    """
    if top_k == 1:
        group = torch.randperm(length, generator=generator) % num_groups
        return torch.bitwise_left_shift(torch.ones_like(group), group)[None]
    drawn = torch.rand(length, num_groups, generator=generator).argsort(-1)[:, :top_k]
    return torch.bitwise_left_shift(torch.ones_like(drawn), drawn).sum(-1)[None]


def tokens_like(membership: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """Tokens of a real text that stand for one of another length, in random order.

    Args:
        membership: (S, T) int64 of the real text's tokens under each of several top-k.
        length: tokens of the other text.
        generator: of the order, on the CPU.

    Returns:
        (length,) int64 positions: of every kind of membership as large a share as in the real text, up to one token.
    """
    kinds = membership.unique(dim=1, return_inverse=True)[1]
    even = torch.arange(length) * len(kinds) // length
    return kinds.argsort(stable=True)[even][torch.randperm(length, generator=generator)]


def layer_inputs(
    setting: LayerSetting, length: int, *, seed: int, device: str = "cpu"
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit-normal query, key and value as models lay them out, (1, T, H, D) transposed, and random membership.

    Args:
        setting: the layer.
        length: T.
        seed: of all four.
        device: of all four.

    Returns:
        (1, Hq, T, D), (1, Hkv, T, D), (1, Hkv, T, D) in the layer's type, and (1, T) int64 bit sets.
    """
    generator = torch.Generator().manual_seed(seed)
    heads = (setting.heads, setting.key_heads, setting.key_heads)
    dtype = getattr(torch, setting.dtype)
    q, k, v = (
        torch.randn(1, length, h, setting.head_size, generator=generator).to(device, dtype).transpose(1, 2)
        for h in heads
    )
    return q, k, v, balanced_membership(length, setting.num_groups, setting.top_k, generator).to(device)
