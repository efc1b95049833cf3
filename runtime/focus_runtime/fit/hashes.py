"""The hashes that identify a base model and show that a training left it unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from focus_runtime.models.loading import fingerprint, weights_sha256


@dataclass(frozen=True, slots=True)
class ModelHashes:
    """Hashes of a model's weights, computed once and handed on: the second reads every weight.

    Attributes:
        fingerprint: short, from a sample of the weights; stored with centroids and checkpoints.
        weights: sha256 of every weight's bytes.
    """

    fingerprint: str
    weights: str

    @classmethod
    def of(cls, model: Any) -> ModelHashes:
        """Compute both hashes of a model, Focus not composed."""
        return cls(fingerprint(model), weights_sha256(model))
