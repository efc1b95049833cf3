"""Statistics of runs and corpora, each with its uncertainty and its baselines; see docs/statistics.md."""
