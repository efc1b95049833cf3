"""What if: a run with changes made by hand against the same run without them."""

from __future__ import annotations

from typing import TypedDict

from focus_explorer.views.payloads.comparisons import LossDifferencePayload
from focus_explorer.views.payloads.jobs import JobPayload
from focus_explorer.views.payloads.runs import PredictionPayload


class ChangedLayerPayload(TypedDict):
    """A layer: tokens whose most probable group differs, and its share of pairs kept before and after."""

    layer: int
    moved: int
    kept_before: float
    kept_after: float


class WhatIfResultPayload(TypedDict):
    """A changed run; losses are means in nats per token of the first `num_tokens` tokens. `changes`: base64 of a
    float32 a token, its loss with the changes minus without. `other_top`: positions whose most probable token
    differs."""

    num_tokens: int
    nll_full: float
    nll_before: float
    nll_after: float
    difference: LossDifferencePayload
    changes: str
    other_top: list[int]
    layers: list[ChangedLayerPayload]


class ChangedPairsPayload(TypedDict):
    """Pairs of one layer that the changes add and drop, mean over its heads: in all, and base64 of float32 in blocks of
    the lower triangle, row by row, as a share of each block's pairs."""

    layer: int
    num_tokens: int
    block_size: int
    gained: float
    lost: float
    gained_shares: str
    lost_shares: str


class ChangedPredictionPayload(TypedDict):
    """The most probable tokens at one place without and with the changes; None beyond the tokens that were read."""

    token: int
    before: PredictionPayload | None
    after: PredictionPayload | None


class WhatIfMeasured(TypedDict):
    """What is known of a changed run; all None before it was measured."""

    result: WhatIfResultPayload | None
    pairs: ChangedPairsPayload | None
    prediction: ChangedPredictionPayload | None


class WhatIfPayload(WhatIfMeasured):
    """What is known of a changed run, the job that measures or saves it, the command that makes and saves it, and the
    newest run saved from this one."""

    saved: str | None
    command: str
    job: JobPayload | None
