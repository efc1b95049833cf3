"""Loss, perplexity, time, attention mass and their intervals."""
