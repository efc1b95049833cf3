"""The reports that can be reproduced; importing this imports no model."""

from __future__ import annotations

REPORTS: dict[str, tuple[str, str]] = {  # name -> module that measures it, and what it shows
    "table1": ("adaptation", "sparse attentions retrofitted onto a pretrained model"),
    "table2": ("adaptation", "centroids compared with LoRA"),
    "table3": ("weights", "frozen models of five attention kinds"),
    "table4": ("alignment", "multiple-choice answers after adaptation"),
    "table5": ("weights", "weights trained with Focus and with full attention"),
    "table6": ("quality", "speed and quality by k"),
    "table7": ("speed", "speed of one attention layer by length"),
    "table8": ("ablation", "settings varied one at a time"),
    "table9": ("dominance", "what keeps groups balanced in training"),
    "table10": ("ablation", "size of the routing space"),
    "figure1": ("dominance", "largest group during training"),
    "figure2": ("quality", "perplexity against pairs kept"),
    "figure3": ("speed", "times as fast as full attention by length"),
    "long-context": ("quality", "perplexity by text length"),
    "groups": ("groups", "what the groups contain"),
    "mass": ("supplementary", "attention the mask keeps, by layer and head"),
    "leak": ("supplementary", "how much the future leaks through Sinkhorn"),
    "sinks": ("supplementary", "attention sinks, 0 to 8"),
    "layers": ("supplementary", "which layers should get routers"),
    "balance": ("supplementary", "largest group by layer"),
    "devices": ("devices", "what keeps hard groups balanced in training"),
}
