"""What Focus is compared with, on the same frozen model and text: `BASELINES[name](**settings).attach(model)`."""

from __future__ import annotations

from collections.abc import Callable

from paper.methods.full_finetune import FullFinetune
from paper.methods.handle import Baseline, Handle
from paper.methods.longformer import Longformer
from paper.methods.lora import LoRA
from paper.methods.magicpig import MagicPIG
from paper.methods.performer import Performer
from paper.methods.random_centroids import RandomCentroids
from paper.methods.routing_transformer import RoutingTransformer
from paper.methods.sparq import SparQ
from paper.methods.temperature import Temperature
from paper.methods.window_only import WindowOnly

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
