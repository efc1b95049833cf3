"""A window and sinks without any groups: what Focus leaves when its groups are taken away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from paper.methods.checks import check_whole
from paper.methods.longformer import longformer_attention
from paper.methods.pairs import Reading
from paper.methods.replace import AttentionBaseline


def window_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    window: int,
    num_sinks: int = 0,
    scale: float | None = None,
    softcap: float | None = None,
    reading: Reading | None = None,
) -> Tensor:
    """Causal attention over pairs with i - j <= window or j < num_sinks.

    A sink reads only sinks before it, so sinks are the same as global first tokens.

    Args:
        query: (B, Hq, T, D); key, value: (B, Hkv, T, D).
        window: pairs with i - j <= window are allowed.
        num_sinks: keys j < num_sinks are allowed.
        scale: factor on the scores; D^-0.5 when None.
        softcap: scores become softcap * tanh(scores / softcap).
        reading: counts the pairs read.

    Returns:
        (B, Hq, T, D).
    """
    sinks = tuple(range(min(num_sinks, query.shape[2])))
    return longformer_attention(
        query, key, value, window=window, positions=sinks, scale=scale, softcap=softcap, reading=reading
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowOnly(AttentionBaseline):
    """Settings.

    Attributes:
        window: w, pairs with i - j <= w are allowed.
        num_sinks: first tokens that every token may attend to.
    """

    name: ClassVar[str] = "window_only"
    window: int = 128
    num_sinks: int = 0

    def __post_init__(self) -> None:
        check_whole(self, window=0, num_sinks=0)

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
        return window_attention(
            query,
            key,
            value,
            window=self.window,
            num_sinks=self.num_sinks,
            scale=scale,
            softcap=softcap,
            reading=reading,
        )
