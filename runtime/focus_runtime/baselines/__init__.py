"""What Focus is compared with, on the same frozen model and text: `BASELINES[name](**settings).attach(model)`."""

from __future__ import annotations

from collections.abc import Callable

from focus_runtime.baselines.full_finetune import FullFinetune
from focus_runtime.baselines.handle import Baseline, Handle
from focus_runtime.baselines.longformer import Longformer
from focus_runtime.baselines.lora import LoRA
from focus_runtime.baselines.magicpig import MagicPIG
from focus_runtime.baselines.performer import Performer
from focus_runtime.baselines.random_centroids import RandomCentroids
from focus_runtime.baselines.routing_transformer import RoutingTransformer
from focus_runtime.baselines.sparq import SparQ
from focus_runtime.baselines.temperature import Temperature
from focus_runtime.baselines.window_only import WindowOnly

BASELINES: dict[str, Callable[..., Baseline]] = {
    method.name: method
    for method in (
        WindowOnly,
        RandomCentroids,
        Longformer,
        Performer,
        RoutingTransformer,
        SparQ,
        MagicPIG,
        Temperature,
        LoRA,
        FullFinetune,
    )
}

__all__ = [
    "BASELINES",
    "Baseline",
    "FullFinetune",
    "Handle",
    "LoRA",
    "Longformer",
    "MagicPIG",
    "Performer",
    "RandomCentroids",
    "RoutingTransformer",
    "SparQ",
    "Temperature",
    "WindowOnly",
]
