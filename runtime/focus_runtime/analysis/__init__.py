"""Questions asked of given centroids on held-out text; every answer is a list of plain, JSON-ready rows.

One question per file. A row always carries its setting, and beside a perplexity its difference to full attention by
sequence, scored tokens, dominance and sparsity. Nothing here trains, and the centroids given are never changed.
"""

from focus_runtime.analysis.balance import group_balance
from focus_runtime.analysis.layers import greedy_layers, layer_curve, layers_alone
from focus_runtime.analysis.leak import assignment_leak, future_effect
from focus_runtime.analysis.null import calibrated_chance, no_groups
from focus_runtime.analysis.rows import focus_row, full_row
from focus_runtime.analysis.sweep import sweep_assignment, sweep_masks

__all__ = [
    "assignment_leak",
    "calibrated_chance",
    "focus_row",
    "full_row",
    "future_effect",
    "greedy_layers",
    "group_balance",
    "layer_curve",
    "layers_alone",
    "no_groups",
    "sweep_assignment",
    "sweep_masks",
]
