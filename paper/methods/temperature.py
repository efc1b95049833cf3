"""A learned factor of the attention logits and no groups: what equation 2 could gain by sharpening or flattening alone.

Each query head of each layer has one factor, 1 at first. Applied to the pairs beyond the window it is what the paper's
gate would be if all tokens were equally close to each other; applied to all pairs it is a plain temperature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from focus_runtime.errors import ConfigError
from paper.methods.checks import check_heads, check_whole
from paper.methods.pairs import Reading, capped, distances, query_blocks
from paper.methods.replace import AttentionBaseline, AttentionHandle

PAIRS = ("all", "far")


def tempered_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    factors: Tensor,
    *,
    pairs: str = "all",
    window: int | None = None,
    num_sinks: int = 0,
    drop_far: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    reading: Reading | None = None,
) -> Tensor:
    """Causal attention whose logits are multiplied by a factor of their head.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        factors: (Hq,), differentiable.
        pairs: "all", or "far": those beyond the window and with no sink.
        window: pairs with i - j <= window are near; None for all.
        num_sinks: keys j < num_sinks count as near.
        drop_far: leave far pairs out: window and sinks alone.
        scale: of the products; D^-0.5 when None.
        softcap: scores are capped before they are multiplied.
        reading: counts the pairs read.

    Returns:
        (B, Hq, T, D).
    """
    check_heads(query, key, value)
    length, device = query.shape[2], query.device
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    reach = length if window is None else window
    repeats = query.shape[1] // key.shape[1]
    keys, values = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    kind = torch.promote_types(torch.float32, query.dtype)
    factor = factors.to(kind)[:, None, None]
    outs = []
    for start, stop in query_blocks(length):
        distance = distances(start, stop, stop, device)
        far = distance > reach
        far[:, :num_sinks] = False
        rows = query[:, :, start:stop]
        scores = capped((rows @ keys[:, :, :stop].transpose(-1, -2)).to(kind) * scale, softcap)
        scores = scores * (factor if pairs == "all" else torch.where(far, factor, 1.0))
        hidden = (distance < 0) | far if drop_far else distance < 0
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        outs.append(weights.to(value.dtype) @ values[:, :, :stop])
        if reading is not None:
            reading.add(~hidden[None, None], rows, start)
    return torch.cat(outs, dim=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Temperature(AttentionBaseline):
    """Settings; see `tempered_attention`.

    Attributes:
        pairs: "all" or "far", the pairs whose logits are multiplied.
        window: w; None for a window as long as the text.
        num_sinks: first tokens that count as near to every token.
        drop_far: leave far pairs out.
    """

    name: ClassVar[str] = "temperature"
    pairs: str = "all"
    window: int | None = None
    num_sinks: int = 0
    drop_far: bool = False

    def __post_init__(self) -> None:
        check_whole(self, num_sinks=0, **({} if self.window is None else {"window": 0}))
        if self.pairs not in PAIRS:
            raise ConfigError(f"pairs is {self.pairs!r}", expected=" or ".join(PAIRS))
        if self.window is None and (self.drop_far or self.pairs == "far"):
            raise ConfigError("window is None, so that no pair is far", expected="a window in tokens")
        if self.drop_far and self.pairs == "far":
            raise ConfigError("far pairs cannot be both dropped and multiplied", expected="pairs='all' with drop_far")

    def attach(self, model: Any, *, text: Tensor | None = None) -> TemperatureHandle:
        """See `Baseline.attach`; factors are there from the first forward pass on, so give a text before training."""
        return TemperatureHandle(model, self, text)

    def start(self, index: int, query: Tensor, key: Tensor) -> nn.Parameter:
        """A factor of 1 for each of the (B, Hq, T, D) query's heads, in fp32."""
        return nn.Parameter(torch.ones(query.shape[1], device=query.device))

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        state: Any,
        scale: float,
        softcap: float | None,
        reading: Reading,
    ) -> Tensor:
        """See `AttentionBaseline.attend`."""
        return tempered_attention(
            query,
            key,
            value,
            state,
            pairs=self.pairs,
            window=self.window,
            num_sinks=self.num_sinks,
            drop_far=self.drop_far,
            scale=scale,
            softcap=softcap,
            reading=reading,
        )


class TemperatureHandle(AttentionHandle):
    """A model whose logits are multiplied."""

    def parameters(self) -> list[nn.Parameter]:
        return [layer.state for layer in self.layers() if layer.state is not None]
