"""Names of the tables of statistics; `focus_explorer.statistics.tables` computes them."""

from __future__ import annotations

NAMES = ("statistics", "characteristic", "categories", "agreement", "distances", "links", "pairs")
OF_CORPUS = ("statistics", "characteristic", "categories", "agreement", "distances")
