"""Find a budget: which layers and heads to leave at full attention, or at another top-k, for a target."""
