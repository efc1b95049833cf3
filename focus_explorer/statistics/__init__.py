"""Statistics of runs and corpora, each with its uncertainty and its baselines; see docs/statistics.md.

The names of their tables stand here; `tables.py` computes them.
"""

NAMES = ("statistics", "characteristic", "categories", "agreement", "distances", "links", "pairs")
OF_CORPUS = ("statistics", "characteristic", "categories", "agreement", "distances")
