"""Focus with random, untrained centroids whose potentials are balanced on some text."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from torch import Tensor

from focus_runtime.composition.attach import FocusModel, compose
from focus_runtime.config import FocusConfig
from focus_runtime.errors import InputError
from focus_runtime.measure.loss import layer_shares
from focus_runtime.run.random_baseline import random_baseline
from paper.methods.checks import check_text, check_whole
from paper.methods.handle import Handle


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomCentroids:
    """Settings; those of Focus are checked as `FocusConfig` checks them.

    Attributes:
        num_groups, routing_dim, top_k, window, num_sinks: see `FocusConfig`.
        seed: of the centroids.
    """

    name: ClassVar[str] = "random_centroids"
    num_groups: int = 4
    routing_dim: int = 16
    top_k: int = 1
    window: int = 128
    num_sinks: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, seed=0)
        self.config()

    def config(self) -> FocusConfig:
        """The settings of Focus."""
        return FocusConfig(
            num_groups=self.num_groups,
            routing_dim=self.routing_dim,
            top_k=self.top_k,
            window=self.window,
            num_sinks=self.num_sinks,
        )

    def attach(self, model: Any, *, text: Tensor | None = None) -> ComposedHandle:
        """Balance the potentials on the text, then compose; see `Baseline.attach`."""
        if text is None:
            raise InputError(
                "random centroids were given no text", expected="text: (N, T) token ids on which groups are balanced"
            )
        ids = check_text(model, text)
        return ComposedHandle(compose(model, random_baseline(model, self.config(), seed=self.seed, calibrate_on=ids)))


class ComposedHandle(Handle):
    """A model with Focus composed.

    Attributes:
        focus: what `compose` returned; score it to get dominance and retained pairs as well as the perplexity.
    """

    def __init__(self, focus: FocusModel) -> None:
        self.focus, self.model = focus, focus.model

    def retained_pairs(self) -> float:
        masks = self.focus.head_masks()
        if not masks:
            raise InputError("no forward pass has run yet", fix="score or run a text first, then ask what was read")
        return fmean(layer_shares(layer)[0] for layer in masks.values())

    def detach(self) -> Any:
        return self.focus.detach()
