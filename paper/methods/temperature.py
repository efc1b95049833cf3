"""A learned factor of the attention logits and no groups: what equation 2 could gain by sharpening or flattening alone.

Each query head of each layer has one factor, 1 at first. Applied to the pairs beyond the window it is what the paper's
gate would be if all tokens were equally close to each other; applied to all pairs it is a plain temperature.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paper.methods.base import Call, Method


@dataclass(frozen=True, kw_only=True, slots=True)
class Temperature(Method):
    """Causal attention whose logits are multiplied. Give a text at `attach`: its first pass makes the factors.

    Attributes:
        far_only: multiply only the logits of far pairs, those beyond the window and with no sink.
        window: pairs with i - j <= window are near; None: all.
        num_sinks: first tokens that count as near to every token.
        drop_far: leave far pairs out: window and sinks alone.
    """

    far_only: bool = False
    window: int | None = None
    num_sinks: int = 0
    drop_far: bool = False

    def start(self, index: int, query: Tensor, key: Tensor) -> nn.Parameter:
        """A factor of 1 for each query head, in fp32."""
        return nn.Parameter(torch.ones(query.shape[1], device=query.device))

    def attend(self, call: Call) -> Tensor:
        repeats = call.query.shape[1] // call.key.shape[1]
        keys, values = (x.repeat_interleave(repeats, dim=1) for x in (call.key, call.value))
        reach = call.query.shape[2] if self.window is None else self.window
        kind = torch.promote_types(torch.float32, call.query.dtype)
        factor = call.state.to(kind)[:, None, None]
        outs = []
        for rows in call.blocks():
            distance = call.distance(rows)
            far = distance > reach
            far[:, : self.num_sinks] = False
            products = (call.query[:, :, rows] @ keys[:, :, : rows.stop].transpose(-1, -2)).to(kind)
            scores = call.capped(products * call.scale) * (torch.where(far, factor, 1.0) if self.far_only else factor)
            allowed = (distance >= 0) & ~far if self.drop_far else distance >= 0
            weights = torch.softmax(scores.masked_fill(~allowed, float("-inf")), dim=-1)
            outs.append(weights.to(values.dtype) @ values[:, :, : rows.stop])
            call.count(allowed[None, None])
        return torch.cat(outs, dim=2)
