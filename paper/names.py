"""The tables and figures that can be measured, by the paper's names for them; importing this imports no model.

What the paper shows without a number has a plain name, and so have studies of our own. `table7` is measured by the
function `table7` in `paper/reports/table7.py`.
"""

PAPER: dict[str, str] = {
    "table1": "Sparse attention retrofitted onto a pretrained model",
    "table2": "Centroids on frozen models of five attention kinds (K = 4, k = 2)",
    "table3": "Centroids beside LoRA on the same data",
    "table4": "Multiple-choice answers after adaptation",
    "table5": "Weights trained with Focus and with full attention, same data in the same order",
    "table6": "Speed of one attention layer, k = 1, full attention's time over Focus's",
    "table7": "Speed and quality by number of groups a token belongs to",
    "table8": "What keeps groups balanced in training (K = 8, perfect balance 12.5 %)",
    "table9": "Settings varied one at a time, trained and scored in each",
    "table10": "Sparse attentions that train nothing of the model",
    "figure1": "Quality after fine-tuning against the speed of one layer",
    "figure2": "Gain in the domain against answers lost",
    "figure3": "Training curves from random initialisation, Focus and full attention",
    "from-scratch": "A model trained from random initialisation with Focus and with full attention",
    "domains": "All weights fine-tuned on several kinds of text, full attention and Focus",
    "routing-size": "Size of the routing space",
    "long-context": "Perplexity by text length, centroids trained at one length",
    "dominance": "Largest group and stability, centroids alone and all weights, K = 8",
    "groups": "What the groups contain (K = 8)",
    "gsm8k": "Arithmetic in words after eight examples",
    "pairs": "Far pairs of words that share a group (K = 8)",
}
OWN: dict[str, str] = {
    "pairs-kept": "Perplexity against pairs kept, k = 1 to 4",
    "speed-by-length": "Times as fast as full attention by number of tokens, one layer, k = 1",
    "mass": "Full attention's probability that the mask keeps, held-out text",
    "leak": "How much the future leaks through Sinkhorn's column sums",
    "sinks": "Attention sinks, 0 to 8, trained with and without (K = 4)",
    "layers": "Perplexity by number of layers under Focus (K = 8, k = 1)",
    "balance": "Largest group by layer on held-out text",
    "gate": "The soft gate taken apart: sharpness of attention or groups",
    "devices": "What keeps hard groups balanced in training (K = 8, k = 1)",
}
REPORTS = PAPER | OWN
SAME_ROWS = {  # name -> the one whose rows, claims and figure it shows
    "pairs-kept": "table7",
    "speed-by-length": "table6",
    "from-scratch": "figure3",
}
RECIPES = ("paper", "ours")  # in the order in which a claim is judged
ONLY: dict[str, tuple[str, ...]] = {  # reports that cannot be measured under both
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
