"""Names of the tables of statistics; `focus_explorer.statistics.run_statistics` computes them."""

from __future__ import annotations

NAMES = ("statistics", "characteristic", "categories", "agreement", "distances", "links", "pairs")
OF_CORPUS = ("statistics", "characteristic", "categories", "agreement", "distances")
