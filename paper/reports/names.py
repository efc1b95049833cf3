"""The reports that can be reproduced, by the paper's names for them; importing this imports no model.

What the paper shows without a number has a plain name, and so have studies of our own.
"""

from __future__ import annotations

PAPER: dict[str, tuple[str, str]] = {  # name -> module that measures it, and what it shows
    "table1": ("adaptation", "sparse attentions retrofitted onto a pretrained model"),
    "table2": ("weights", "frozen models of five attention kinds"),
    "table3": ("lora", "centroids compared with LoRA"),
    "table4": ("alignment", "multiple-choice answers after adaptation"),
    "table5": ("weights", "weights trained with Focus and with full attention"),
    "table6": ("speed", "speed of one attention layer by length"),
    "table7": ("quality", "speed and quality by k"),
    "table8": ("dominance", "what keeps groups balanced in training"),
    "table9": ("ablation", "settings varied one at a time"),
    "table10": ("selecting", "sparse attentions that train nothing"),
    "figure1": ("pareto", "quality against speed of fine-tuned methods"),
    "figure2": ("forgetting", "gain in the domain against answers lost"),
    "figure3": ("scratch", "training curves from random initialisation"),
    "from-scratch": ("scratch", "a model trained from random initialisation"),
    "domains": ("domains", "fine-tuning on several kinds of text"),
    "routing-size": ("ablation", "size of the routing space"),
    "long-context": ("quality", "perplexity by text length"),
    "dominance": ("dominance", "largest group after training centroids alone and all weights"),
    "groups": ("groups", "what the groups contain"),
    "gsm8k": ("alignment", "arithmetic in words after eight examples"),
    "pairs": ("groups", "far pairs of words that share a group"),
}
OWN: dict[str, tuple[str, str]] = {
    "pairs-kept": ("quality", "perplexity against pairs kept"),
    "speed-by-length": ("speed", "times as fast as full attention by length"),
    "mass": ("supplementary", "attention the mask keeps, by layer and head"),
    "leak": ("supplementary", "how much the future leaks through Sinkhorn"),
    "sinks": ("supplementary", "attention sinks, 0 to 8"),
    "layers": ("supplementary", "which layers should get routers"),
    "balance": ("supplementary", "largest group by layer"),
    "gate": ("gate", "the soft gate: sharpness of attention or groups"),
    "devices": ("devices", "what keeps hard groups balanced in training"),
}
REPORTS = PAPER | OWN
RECIPES = ("paper", "ours")  # in the order in which a claim is judged
ONLY: dict[str, tuple[str, ...]] = {  # reports that cannot be had under both
    "table6": ("paper",),  # a layer's speed with random groups: nothing is trained
    "speed-by-length": ("paper",),
    "gate": ("paper",),  # is about the paper's gate and varies it
    "balance": ("ours",),  # is about the potentials of causal assignment
    "sinks": ("ours",),  # varies what the recipes differ in
    "devices": ("ours",),
}


def recipes_of(name: str) -> tuple[str, ...]:
    """Recipes that a report can be measured under."""
    return ONLY.get(name, RECIPES)
