"""Groups of a text while it is being typed."""

from __future__ import annotations

from typing import TypedDict


class LiveTextPayload(TypedDict):
    """Tokens of the text as it is now. `top`: base64 of bytes, layer by layer, the group of every token; `tokens_read`:
    how many were computed for this answer, in `milliseconds`; `next`: the most probable tokens that follow, with their
    probabilities."""

    pieces: list[str]
    layers: list[int]
    top: str
    tokens_read: int
    milliseconds: float
    next: list[tuple[str, float]]
