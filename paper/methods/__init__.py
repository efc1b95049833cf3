"""What Focus is compared with, on the same model and text: `Longformer(window=64).attach(model)`."""

from paper.methods.base import Call, Handle, Method
from paper.methods.longformer import Longformer
from paper.methods.magicpig import MagicPIG
from paper.methods.performer import Performer
from paper.methods.routing_transformer import RoutingTransformer
from paper.methods.sparq import SparQ
from paper.methods.temperature import Temperature
from paper.methods.weights import FullFinetune, LoRA

__all__ = [
    "Call",
    "FullFinetune",
    "Handle",
    "LoRA",
    "Longformer",
    "MagicPIG",
    "Method",
    "Performer",
    "RoutingTransformer",
    "SparQ",
    "Temperature",
]
