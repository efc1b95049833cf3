"""What decode steps of a layer on a GPU have in common: to look it up takes longer than to compute a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from focus_runtime.budget import HeadCounts
from focus_runtime.composition.heads import LayerHeads
from focus_runtime.composition.reach import Reach
from focus_runtime.config import FocusConfig
from focus_runtime.mask.rule import PairRule

if TYPE_CHECKING:
    from focus_runtime.attention.cuda.decoding import StepHeads  # needs Triton


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """What steps of a layer have in common.

    Attributes:
        config, shape, kv_heads, device: of which steps: settings, and (B, Hq, 1, D) of their queries.
        counts: heads of the layer.
        heads: what they execute; None where the kernels take no such step.
        rule, settings: window and sinks of all heads, or what each sees.
        reach: of their windows; None where no factors act.
    """

    config: FocusConfig
    shape: torch.Size
    kv_heads: int
    device: torch.device
    counts: HeadCounts
    heads: LayerHeads | None
    rule: PairRule
    settings: StepHeads | None
    reach: Reach | None
